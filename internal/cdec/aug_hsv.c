// Hue, saturation and value by tables, in the 8-bit HSV of OpenCV: hues from 0
// to 179, saturations and values from 0 to 255.

#include "aug.h"

#include "aug_x86.h"

enum { HSV_SHIFT = 12, HSV_HALF = 1 << (HSV_SHIFT - 1), HSV_HUES = 180 };
// Quotients of HSV, rounded, are these by a value.
#define HSV_SATURATION ((float)(255 << HSV_SHIFT))
#define HSV_HUE ((float)(HSV_HUES << HSV_SHIFT) / 6.0f)

// The values of red, green and blue by sixths of the hues: v, or one of the three smaller values that a channel may
// have.
enum { FULL, NONE, DOWN, UP };
static const uint8_t places[6][4] = {
	{FULL, UP, NONE, 0x80},   {DOWN, FULL, NONE, 0x80}, {NONE, FULL, UP, 0x80},
	{NONE, DOWN, FULL, 0x80}, {UP, NONE, FULL, 0x80},   {FULL, NONE, DOWN, 0x80},
};

typedef struct {
	int saturation[256], hue[256]; // the quotients
	// For each hue: its sixth, and its position between two corners.
	uint8_t sector[HSV_HUES];
	float rest[HSV_HUES];
} hsv_tables;

static hsv_tables tables;

// Fills the tables before main, so that no thread sees them half made.
__attribute__((constructor)) static void hsv_make_tables(void)
{
	for (int v = 1; v < 256; v++) {
		tables.saturation[v] = (int)((255 << HSV_SHIFT) / (double)v + 0.5);
		tables.hue[v] = (int)((HSV_HUES << HSV_SHIFT) / (6.0 * v) + 0.5);
	}
	for (int h = 0; h < HSV_HUES; h++) {
		tables.sector[h] = (uint8_t)(h / 30);
		tables.rest[h] = (float)(h % 30) / 30.0f;
	}
}

#if defined(__x86_64__)
// The kernels compute in floats if all numbers are integers below 1 << 24, so that nothing is rounded.

// The results of a call's tables for saturations, values and hues.
typedef struct {
	float saturation[256], value[256], rest[HSV_HUES];
	int32_t place[HSV_HUES];
} hsv_maps;

SK_AUG_AVX2_INLINE __m256 hsv_quotient8(float of, __m256i by)
{
	__m256 d = _mm256_cvtepi32_ps(_mm256_max_epi32(by, _mm256_set1_epi32(1)));
	__m256 q = _mm256_add_ps(_mm256_div_ps(_mm256_set1_ps(of), d), _mm256_set1_ps(0.5f));
	return _mm256_round_ps(q, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

// (n*q + HSV_HALF) >> HSV_SHIFT.
SK_AUG_AVX2_INLINE __m256i hsv_scaled8(__m256i n, __m256 q)
{
	__m256 v = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(n), q), _mm256_set1_ps(HSV_HALF));
	return _mm256_srai_epi32(_mm256_cvttps_epi32(v), HSV_SHIFT);
}

SK_AUG_AVX2 static size_t hsv_avx2(uint8_t *p, size_t np, const uint8_t *hues, const uint8_t *saturations,
                                   const uint8_t *values)
{
	hsv_maps m;
	for (int i = 0; i < 256; i++) {
		m.saturation[i] = (float)saturations[i] * (1.0f / 255.0f);
		m.value[i] = (float)values[i];
	}
	for (int i = 0; i < HSV_HUES; i++) {
		m.rest[i] = tables.rest[hues[i]];
		__builtin_memcpy(&m.place[i], places[tables.sector[hues[i]]], 4);
	}
	const __m256 one = _mm256_set1_ps(1.0f);
	// Lanes are four bytes apart.
	const __m256i lanes = _mm256_setr_epi32(0, 0x040404, 0x080808, 0x0c0c0c, 0, 0x040404, 0x080808, 0x0c0c0c);
	size_t i = 0;
	for (; i + 8 <= np; i += 8) {
		__m256i px = sk_load8(p + 3 * i);
		__m256i r = sk_red(px), g = sk_green(px), b = sk_blue(px);
		__m256i top = _mm256_max_epi32(_mm256_max_epi32(r, g), b), low = _mm256_min_epi32(_mm256_min_epi32(r, g), b);
		__m256i diff = _mm256_sub_epi32(top, low);
		__m256i s = hsv_scaled8(diff, hsv_quotient8(HSV_SATURATION, top));
		__m256i n = _mm256_add_epi32(_mm256_sub_epi32(r, g), _mm256_slli_epi32(diff, 2));
		__m256i of_g = _mm256_add_epi32(_mm256_sub_epi32(b, r), _mm256_slli_epi32(diff, 1));
		n = _mm256_blendv_epi8(n, of_g, _mm256_cmpeq_epi32(top, g));
		n = _mm256_blendv_epi8(n, _mm256_sub_epi32(g, b), _mm256_cmpeq_epi32(top, r));
		__m256i h = hsv_scaled8(n, hsv_quotient8(HSV_HUE, diff));
		h = _mm256_add_epi32(h, _mm256_and_si256(_mm256_srai_epi32(h, 31), _mm256_set1_epi32(HSV_HUES)));
		__m256 fs = _mm256_i32gather_ps(m.saturation, s, 4), fv = _mm256_i32gather_ps(m.value, top, 4);
		__m256 f = _mm256_i32gather_ps(m.rest, h, 4);
		__m256i place = _mm256_add_epi32(_mm256_i32gather_epi32(m.place, h, 4), lanes);
		__m256i none = _mm256_cvttps_epi32(_mm256_mul_ps(fv, _mm256_sub_ps(one, fs)));
		__m256i down = _mm256_cvttps_epi32(_mm256_mul_ps(fv, _mm256_sub_ps(one, _mm256_mul_ps(fs, f))));
		__m256 back = _mm256_mul_ps(fs, _mm256_sub_ps(one, f));
		__m256i up = _mm256_cvttps_epi32(_mm256_mul_ps(fv, _mm256_sub_ps(one, back)));
		__m256i all = _mm256_or_si256(_mm256_cvttps_epi32(fv), _mm256_slli_epi32(none, 8));
		all = _mm256_or_si256(all, _mm256_or_si256(_mm256_slli_epi32(down, 16), _mm256_slli_epi32(up, 24)));
		sk_store8(p + 3 * i, _mm256_shuffle_epi8(all, place));
	}
	return i;
}

// AVX-512 has fused multiply-adds. Compilers make them from * and -, but not from these intrinsics.
#define EVEN (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define MUL(a, b) _mm512_mul_round_ps(a, b, EVEN)
#define SUB(a, b) _mm512_sub_round_ps(a, b, EVEN)

SK_AUG_VBMI_INLINE __m512 hsv_quotient16(float of, __m512i by)
{
	__m512 d = _mm512_cvtepi32_ps(_mm512_max_epi32(by, _mm512_set1_epi32(1)));
	__m512 q = _mm512_add_ps(_mm512_div_ps(_mm512_set1_ps(of), d), _mm512_set1_ps(0.5f));
	return _mm512_roundscale_ps(q, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

SK_AUG_VBMI_INLINE __m512i hsv_scaled16(__m512i n, __m512 q)
{
	__m512 v = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(n), q), _mm512_set1_ps(HSV_HALF));
	return _mm512_srai_epi32(_mm512_cvttps_epi32(v), HSV_SHIFT);
}

SK_AUG_VBMI static size_t hsv_vbmi(uint8_t *p, size_t np, const uint8_t *hues, const uint8_t *saturations,
                                   const uint8_t *values)
{
	// For each hue: the destinations of the pixel's values, two bits each, and the position in a sixth.
	uint8_t turned[256] = {0}, order[8][4] = {{0}};
	float steps[32] = {0};
	for (int i = 0; i < HSV_HUES; i++)
		turned[i] = hues[i];
	for (int i = 0; i < 30; i++)
		steps[i] = tables.rest[i];
	for (int i = 0; i < 6; i++)
		__builtin_memcpy(order[i], places[i], 4);
	const sk_table512 hue_of = sk_load_table(turned), saturation_of = sk_load_table(saturations),
					  value_of = sk_load_table(values);
	const __m512 step0 = _mm512_loadu_ps(steps), step1 = _mm512_loadu_ps(steps + 16);
	const __m512i place_of = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)order));
	const __m512i byte = _mm512_set1_epi32(0xff), lanes = _mm512_set4_epi32(0x0c0c0c, 0x080808, 0x040404, 0);
	const __m512 one = _mm512_set1_ps(1.0f);
	// Three bytes to a lane of four, and back.
	const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	const __m512i spread =
		_mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32(0x030303)), _mm512_set1_epi32(0x020100));
	uint8_t third[64] = {0};
	for (int i = 0; i < 48; i++)
		third[i] = (uint8_t)(i / 3 * 4 + i % 3);
	const __m512i join = _mm512_loadu_si512(third);
	const __mmask64 three = 0x7777777777777777u;
	size_t i = 0;
	for (; i + 16 <= np; i += 16) {
		// Not masked: a load waits for a masked store whose vector, not its bytes, it overlaps.
		uint8_t *q = p + 3 * i;
		__m512i px = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)q));
		px = _mm512_inserti32x4(px, _mm_loadu_si128((const __m128i *)(const void *)(q + 32)), 2);
		px = _mm512_maskz_permutexvar_epi8(three, spread, px);
		__m512i r = _mm512_and_si512(px, byte), g = _mm512_and_si512(_mm512_srli_epi32(px, 8), byte),
				b = _mm512_srli_epi32(px, 16);
		__m512i top = _mm512_max_epi32(_mm512_max_epi32(r, g), b), low = _mm512_min_epi32(_mm512_min_epi32(r, g), b);
		__m512i diff = _mm512_sub_epi32(top, low);
		__m512i s = hsv_scaled16(diff, hsv_quotient16(HSV_SATURATION, top));
		__m512i n = _mm512_add_epi32(_mm512_sub_epi32(r, g), _mm512_slli_epi32(diff, 2));
		__m512i of_g = _mm512_add_epi32(_mm512_sub_epi32(b, r), _mm512_slli_epi32(diff, 1));
		n = _mm512_mask_mov_epi32(n, _mm512_cmpeq_epi32_mask(top, g), of_g);
		n = _mm512_mask_sub_epi32(n, _mm512_cmpeq_epi32_mask(top, r), g, b);
		__m512i h = hsv_scaled16(n, hsv_quotient16(HSV_HUE, diff));
		h = _mm512_mask_add_epi32(h, _mm512_cmplt_epi32_mask(h, _mm512_setzero_si512()), h,
		                          _mm512_set1_epi32(HSV_HUES));
		h = _mm512_and_si512(sk_look_up(&hue_of, h), byte);
		__m512i v = _mm512_and_si512(sk_look_up(&value_of, top), byte);
		s = _mm512_and_si512(sk_look_up(&saturation_of, s), byte);
		// h / 30 and the rest, for h below 180.
		__m512i sector = _mm512_srli_epi32(_mm512_madd_epi16(h, _mm512_set1_epi32(2185)), 16);
		__m512i rest = _mm512_sub_epi32(h, _mm512_madd_epi16(sector, _mm512_set1_epi32(30)));
		__m512 f = _mm512_permutex2var_ps(step0, rest, step1);
		__m512i place = _mm512_add_epi32(_mm512_permutexvar_epi32(sector, place_of), lanes);
		__m512 fs = MUL(_mm512_cvtepi32_ps(s), _mm512_set1_ps(1.0f / 255.0f)), fv = _mm512_cvtepi32_ps(v);
		__m512i none = _mm512_cvttps_epi32(MUL(fv, SUB(one, fs)));
		__m512i down = _mm512_cvttps_epi32(MUL(fv, SUB(one, MUL(fs, f))));
		__m512i up = _mm512_cvttps_epi32(MUL(fv, SUB(one, MUL(fs, SUB(one, f)))));
		__m512i all = _mm512_or_si512(v, _mm512_slli_epi32(none, 8));
		all = _mm512_or_si512(all, _mm512_or_si512(_mm512_slli_epi32(down, 16), _mm512_slli_epi32(up, 24)));
		all = _mm512_permutexvar_epi8(join, _mm512_shuffle_epi8(all, place));
		_mm256_storeu_si256((__m256i *)(void *)q, _mm512_castsi512_si256(all));
		_mm_storeu_si128((__m128i *)(void *)(q + 32), _mm512_extracti32x4_epi32(all, 2));
	}
	return i;
}
#endif

// OpenCV also truncates fractions.
static inline uint8_t whole8(float v) { return (uint8_t)v; }

void sk_aug_hsv(uint8_t *p, size_t np, const uint8_t *hues, const uint8_t *saturations, const uint8_t *values)
{
	size_t i = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX512) {
		i = hsv_vbmi(p, np, hues, saturations, values);
	} else if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2) {
		i = hsv_avx2(p, np, hues, saturations, values);
	}
#endif
	for (; i < np; i++) {
		uint8_t *q = p + 3 * i;
		int r = q[0], g = q[1], b = q[2];
		int top = r > g ? r : g, low = r < g ? r : g;
		top = top > b ? top : b;
		low = low < b ? low : b;
		int diff = top - low;
		int s = saturations[(diff * tables.saturation[top] + HSV_HALF) >> HSV_SHIFT];
		int n = top == r ? g - b : top == g ? b - r + 2 * diff : r - g + 4 * diff;
		int h = (n * tables.hue[diff] + HSV_HALF) >> HSV_SHIFT;
		h = hues[h < 0 ? h + HSV_HUES : h];
		float fs = (float)s * (1.0f / 255.0f), f = tables.rest[h], fv = (float)values[top];
		uint8_t of[4];
		of[FULL] = values[top];
		of[NONE] = whole8(fv * (1.0f - fs));
		of[DOWN] = whole8(fv * (1.0f - fs * f));
		of[UP] = whole8(fv * (1.0f - fs * (1.0f - f)));
		const uint8_t *place = places[tables.sector[h]];
		for (int c = 0; c < 3; c++)
			q[c] = of[place[c]];
	}
}
