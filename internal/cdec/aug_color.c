// Colour kernels. Each hot one has a scalar loop (the definition) and an AVX2 loop with the same float operations in
// the same order, so that both give the same bytes. The scalar loop also handles the pixels left over by the vectors.

#include "aug.h"

#include <string.h>

#include "aug_x86.h"

// ---- brightness, contrast ----

#if defined(__x86_64__)
SK_AUG_AVX2 static size_t scale_bias_avx2(uint8_t *p, size_t n, float scale, float bias)
{
	const __m256 s = _mm256_set1_ps(scale), b = _mm256_set1_ps(bias);
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		__m256i q[4];
		for (int k = 0; k < 4; k++) {
			__m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + i + 8 * k)));
			q[k] = sk_trunc8(_mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(x), s), b));
		}
		_mm256_storeu_si256((__m256i *)(p + i), sk_pack32(q[0], q[1], q[2], q[3]));
	}
	return i;
}
#endif

void sk_aug_scale_bias(uint8_t *p, size_t n, float scale, float bias)
{
	size_t i = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
		i = scale_bias_avx2(p, n, scale, bias);
#endif
	for (; i < n; i++)
		p[i] = sk_cut8((float)p[i] * scale + bias);
}

// ---- luma ----

// 0.2989 R + 0.587 G + 0.114 B, rounded down.
static const float LUMA_R = 0.2989f, LUMA_G = 0.587f, LUMA_B = 0.114f;

static inline uint32_t luma(const uint8_t *p)
{
	return (uint32_t)((float)p[0] * LUMA_R + (float)p[1] * LUMA_G + (float)p[2] * LUMA_B);
}

#if defined(__x86_64__)
SK_AUG_AVX2_INLINE __m256i luma8_of(__m256 r, __m256 g, __m256 b)
{
	__m256 l = _mm256_mul_ps(r, _mm256_set1_ps(LUMA_R));
	l = _mm256_add_ps(l, _mm256_mul_ps(g, _mm256_set1_ps(LUMA_G)));
	l = _mm256_add_ps(l, _mm256_mul_ps(b, _mm256_set1_ps(LUMA_B)));
	return _mm256_cvttps_epi32(l);
}

SK_AUG_AVX2_INLINE __m256i luma8(__m256i v)
{
	return luma8_of(_mm256_cvtepi32_ps(sk_red(v)), _mm256_cvtepi32_ps(sk_green(v)), _mm256_cvtepi32_ps(sk_blue(v)));
}

SK_AUG_AVX2 static size_t luma_sum_avx2(const uint8_t *p, size_t np, uint64_t *sum)
{
	size_t i = 0;
	__m256i total = _mm256_setzero_si256();
	while (i + 8 <= np) {
		// 32-bit lanes hold the sums of 2^20 rounds without overflow.
		size_t stop = np - i > ((size_t)8 << 20) ? i + ((size_t)8 << 20) : np;
		__m256i part = _mm256_setzero_si256();
		for (; i + 8 <= stop; i += 8)
			part = _mm256_add_epi32(part, luma8(sk_load8(p + 3 * i)));
		total = _mm256_add_epi64(total, _mm256_and_si256(part, _mm256_set1_epi64x(0xffffffff)));
		total = _mm256_add_epi64(total, _mm256_srli_epi64(part, 32));
	}
	uint64_t lanes[4];
	_mm256_storeu_si256((__m256i *)lanes, total);
	*sum = lanes[0] + lanes[1] + lanes[2] + lanes[3];
	return i;
}

SK_AUG_AVX2 static size_t gray3_avx2(uint8_t *p, size_t np)
{
	size_t i = 0;
	for (; i + 8 <= np; i += 8) {
		__m256i l = luma8(sk_load8(p + 3 * i));
		sk_store8(p + 3 * i, sk_join(l, l, l));
	}
	return i;
}
#endif

uint64_t sk_aug_luma_sum(const uint8_t *p, size_t np)
{
	size_t i = 0;
	uint64_t sum = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
		i = luma_sum_avx2(p, np, &sum);
#endif
	for (; i < np; i++)
		sum += luma(p + 3 * i);
	return sum;
}

uint64_t sk_aug_byte_sum(const uint8_t *p, size_t n)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += p[i];
	return sum;
}

void sk_aug_gray3(uint8_t *p, size_t np)
{
	size_t i = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
		i = gray3_avx2(p, np);
#endif
	for (; i < np; i++) {
		uint8_t l = (uint8_t)luma(p + 3 * i);
		p[3 * i] = p[3 * i + 1] = p[3 * i + 2] = l;
	}
}

void sk_aug_gray1(uint8_t *dst, const uint8_t *src, size_t np)
{
	for (size_t i = 0; i < np; i++)
		dst[i] = (uint8_t)luma(src + 3 * i);
}

// ---- saturation ----

#if defined(__x86_64__)
SK_AUG_AVX2 static size_t saturate_avx2(uint8_t *p, size_t np, float ratio, float rest)
{
	const __m256 s = _mm256_set1_ps(ratio), t = _mm256_set1_ps(rest);
	size_t i = 0;
	for (; i + 8 <= np; i += 8) {
		__m256i v = sk_load8(p + 3 * i);
		__m256 r = _mm256_cvtepi32_ps(sk_red(v)), g = _mm256_cvtepi32_ps(sk_green(v)),
			   b = _mm256_cvtepi32_ps(sk_blue(v));
		__m256 l = _mm256_mul_ps(_mm256_cvtepi32_ps(luma8_of(r, g, b)), t);
		__m256i ro = sk_trunc8(_mm256_add_ps(_mm256_mul_ps(r, s), l));
		__m256i go = sk_trunc8(_mm256_add_ps(_mm256_mul_ps(g, s), l));
		__m256i bo = sk_trunc8(_mm256_add_ps(_mm256_mul_ps(b, s), l));
		sk_store8(p + 3 * i, sk_join(ro, go, bo));
	}
	return i;
}
#endif

void sk_aug_saturate(uint8_t *p, size_t np, float ratio, float rest)
{
	size_t i = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
		i = saturate_avx2(p, np, ratio, rest);
#endif
	for (; i < np; i++) {
		uint8_t *q = p + 3 * i;
		float l = (float)luma(q) * rest;
		for (int c = 0; c < 3; c++)
			q[c] = sk_cut8((float)q[c] * ratio + l);
	}
}

// ---- hue ----

// A channel is V - C * clamp(min(k, 4 - k), 0, 1), k = (n + h) mod 6, n = 5, 3, 1 for R, G, B. Here V = max, C = max
// - min, and h is the hue in sixths of a turn. This is the usual conversion to HSV and back without its tables.
// torchvision scales to [0, 1] and back by 255.999/255, and HUE_UP does the same.
#define HUE_UP (255.999f / 255.0f)

static inline float hue_channel(float v, float c, float k)
{
	if (k >= 6.0f)
		k -= 6.0f;
	float w = 4.0f - k;
	w = k < w ? k : w;
	w = w < 1.0f ? w : 1.0f;
	w = w > 0.0f ? w : 0.0f;
	return v - c * w;
}

static void hue_pixel(uint8_t *p, float shift6)
{
	float r = p[0], g = p[1], b = p[2];
	float hi = r > g ? r : g, lo = r < g ? r : g;
	hi = hi > b ? hi : b;
	lo = lo < b ? lo : b;
	float c = hi - lo;
	float d = c > 0.0f ? c : 1.0f;
	float num, base;
	if (hi == r) {
		num = g - b, base = 0.0f;
	} else if (hi == g) {
		num = b - r, base = 2.0f;
	} else {
		num = r - g, base = 4.0f;
	}
	float h = num / d + base + shift6;
	if (h < 0.0f)
		h += 6.0f;
	if (h >= 6.0f)
		h -= 6.0f;
	p[0] = sk_cut8(hue_channel(hi, c, h + 5.0f) * HUE_UP);
	p[1] = sk_cut8(hue_channel(hi, c, h + 3.0f) * HUE_UP);
	p[2] = sk_cut8(hue_channel(hi, c, h + 1.0f) * HUE_UP);
}

#if defined(__x86_64__)
SK_AUG_AVX2_INLINE __m256i hue_channel8(__m256 v, __m256 c, __m256 k)
{
	const __m256 six = _mm256_set1_ps(6.0f);
	k = _mm256_sub_ps(k, _mm256_and_ps(_mm256_cmp_ps(k, six, _CMP_GE_OQ), six));
	__m256 w = _mm256_min_ps(k, _mm256_sub_ps(_mm256_set1_ps(4.0f), k));
	w = _mm256_max_ps(_mm256_min_ps(w, _mm256_set1_ps(1.0f)), _mm256_setzero_ps());
	// From 0 to 255.999: nothing to clamp.
	return _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_sub_ps(v, _mm256_mul_ps(c, w)), _mm256_set1_ps(HUE_UP)));
}

SK_AUG_AVX2 static size_t hue_avx2(uint8_t *p, size_t np, float shift6)
{
	const __m256 zero = _mm256_setzero_ps(), six = _mm256_set1_ps(6.0f), one = _mm256_set1_ps(1.0f);
	const __m256 shift = _mm256_set1_ps(shift6);
	size_t i = 0;
	for (; i + 8 <= np; i += 8) {
		__m256i v = sk_load8(p + 3 * i);
		__m256 r = _mm256_cvtepi32_ps(sk_red(v)), g = _mm256_cvtepi32_ps(sk_green(v)),
			   b = _mm256_cvtepi32_ps(sk_blue(v));
		__m256 hi = _mm256_max_ps(_mm256_max_ps(r, g), b), lo = _mm256_min_ps(_mm256_min_ps(r, g), b);
		__m256 c = _mm256_sub_ps(hi, lo);
		__m256 d = _mm256_blendv_ps(one, c, _mm256_cmp_ps(c, zero, _CMP_GT_OQ));
		__m256 is_r = _mm256_cmp_ps(hi, r, _CMP_EQ_OQ), is_g = _mm256_cmp_ps(hi, g, _CMP_EQ_OQ);
		__m256 num = _mm256_sub_ps(r, g), base = _mm256_set1_ps(4.0f);
		num = _mm256_blendv_ps(num, _mm256_sub_ps(b, r), is_g);
		base = _mm256_blendv_ps(base, _mm256_set1_ps(2.0f), is_g);
		num = _mm256_blendv_ps(num, _mm256_sub_ps(g, b), is_r);
		base = _mm256_andnot_ps(is_r, base);
		__m256 h = _mm256_add_ps(_mm256_add_ps(_mm256_div_ps(num, d), base), shift);
		h = _mm256_add_ps(h, _mm256_and_ps(_mm256_cmp_ps(h, zero, _CMP_LT_OQ), six));
		h = _mm256_sub_ps(h, _mm256_and_ps(_mm256_cmp_ps(h, six, _CMP_GE_OQ), six));
		__m256i ro = hue_channel8(hi, c, _mm256_add_ps(h, _mm256_set1_ps(5.0f)));
		__m256i go = hue_channel8(hi, c, _mm256_add_ps(h, _mm256_set1_ps(3.0f)));
		__m256i bo = hue_channel8(hi, c, _mm256_add_ps(h, one));
		sk_store8(p + 3 * i, sk_join(ro, go, bo));
	}
	return i;
}
#endif

void sk_aug_hue(uint8_t *p, size_t np, float shift)
{
	float shift6 = shift * 6.0f;
	size_t i = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
		i = hue_avx2(p, np, shift6);
#endif
	for (; i < np; i++)
		hue_pixel(p + 3 * i, shift6);
}

// ---- single bytes ----

#if defined(__x86_64__)
// (x ^ flip & (x >= from ? 255 : 0)) & mask: invert, solarize and posterize.
SK_AUG_AVX2 static size_t bytes_avx2(uint8_t *p, size_t n, uint8_t from, uint8_t flip, uint8_t mask)
{
	const __m256i f = _mm256_set1_epi8((char)from), x = _mm256_set1_epi8((char)flip), m = _mm256_set1_epi8((char)mask);
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		__m256i v = _mm256_loadu_si256((const __m256i *)(p + i));
		__m256i ge = _mm256_cmpeq_epi8(_mm256_max_epu8(v, f), v);
		v = _mm256_and_si256(_mm256_xor_si256(v, _mm256_and_si256(ge, x)), m);
		_mm256_storeu_si256((__m256i *)(p + i), v);
	}
	return i;
}
#endif

void sk_aug_invert(uint8_t *p, size_t n)
{
	size_t i = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
		i = bytes_avx2(p, n, 0, 255, 255);
#endif
	for (; i < n; i++)
		p[i] = (uint8_t)~p[i];
}

void sk_aug_and(uint8_t *p, size_t n, uint8_t mask)
{
	size_t i = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
		i = bytes_avx2(p, n, 0, 0, mask);
#endif
	for (; i < n; i++)
		p[i] &= mask;
}

void sk_aug_solarize(uint8_t *p, size_t n, int threshold)
{
	if (threshold > 255)
		return;
	uint8_t t = (uint8_t)(threshold < 0 ? 0 : threshold);
	size_t i = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
		i = bytes_avx2(p, n, t, 255, 255);
#endif
	for (; i < n; i++)
		p[i] = p[i] >= t ? (uint8_t)~p[i] : p[i];
}

// ---- tables: equalize, autocontrast ----

#if defined(__x86_64__)
SK_AUG_VBMI static size_t lut1_vbmi(uint8_t *p, size_t n, const uint8_t *lut)
{
	sk_table512 t = sk_load_table(lut);
	size_t i = 0;
	for (; i + 64 <= n; i += 64) {
		_mm512_storeu_si512(p + i, sk_look_up(&t, _mm512_loadu_si512(p + i)));
	}
	return i;
}

// Returns pixels.
SK_AUG_VBMI static size_t lut3_vbmi(uint8_t *p, size_t np, const uint8_t *lut)
{
	sk_table512 t[3] = {sk_load_table(lut), sk_load_table(lut + 256), sk_load_table(lut + 512)};
	// Bytes of a vector that starts with channel 0 and belong to channel 0, 1, 2.
	const uint64_t every3 = 0x9249249249249249u;
	const uint64_t of[3] = {every3, every3 << 1, every3 << 2};
	size_t n = 3 * np, i = 0;
	for (; i + 192 <= n; i += 192) {
		for (int j = 0; j < 3; j++) {
			__m512i v = _mm512_loadu_si512(p + i + 64 * j);
			__m512i out = v;
			for (int k = 0; k < 3; k++) {
				// 64 = 1 mod 3: vector j starts with channel j.
				out = _mm512_mask_mov_epi8(out, of[k], sk_look_up(&t[(j + k) % 3], v));
			}
			_mm512_storeu_si512(p + i + 64 * j, out);
		}
	}
	return i / 3;
}
#endif

void sk_aug_lut(uint8_t *p, size_t np, int channels, const uint8_t *lut)
{
	if (channels == 1) {
		size_t i = 0;
#if defined(__x86_64__)
		if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX512)
			i = lut1_vbmi(p, np, lut);
#endif
		for (; i < np; i++)
			p[i] = lut[p[i]];
		return;
	}
	size_t i = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX512)
		i = lut3_vbmi(p, np, lut);
#endif
	for (; i < np; i++) {
		p[3 * i] = lut[p[3 * i]];
		p[3 * i + 1] = lut[256 + p[3 * i + 1]];
		p[3 * i + 2] = lut[512 + p[3 * i + 2]];
	}
}

void sk_aug_hist(const uint8_t *p, size_t np, int channels, uint32_t *hist)
{
	// Two alternating histograms: neighbours are often equal, and a counter that was just written is slow to read.
	uint32_t part[2][3][256];
	memset(part, 0, sizeof part);
	size_t i = 0;
	for (; i + 2 <= np; i += 2)
		for (int k = 0; k < 2; k++)
			for (int c = 0; c < channels; c++)
				part[k][c][p[(i + (size_t)k) * (size_t)channels + (size_t)c]]++;
	for (; i < np; i++)
		for (int c = 0; c < channels; c++)
			part[0][c][p[i * (size_t)channels + (size_t)c]]++;
	for (int c = 0; c < channels; c++)
		for (int v = 0; v < 256; v++)
			hist[256 * c + v] = part[0][c][v] + part[1][c][v];
}

#if defined(__x86_64__)
// 96 bytes are a whole number of pixels, so byte i of the three accumulators
// always belongs to channel i mod 3.
SK_AUG_AVX2 static size_t minmax3_avx2(const uint8_t *p, size_t np, uint8_t *lo, uint8_t *hi)
{
	size_t n = 3 * np, i = 0;
	if (n < 96)
		return 0;
	__m256i mn[3], mx[3];
	for (int k = 0; k < 3; k++)
		mn[k] = mx[k] = _mm256_loadu_si256((const __m256i *)(p + 32 * k));
	for (i = 96; i + 96 <= n; i += 96)
		for (int k = 0; k < 3; k++) {
			__m256i v = _mm256_loadu_si256((const __m256i *)(p + i + 32 * (size_t)k));
			mn[k] = _mm256_min_epu8(mn[k], v);
			mx[k] = _mm256_max_epu8(mx[k], v);
		}
	uint8_t a[96], b[96];
	for (int k = 0; k < 3; k++) {
		_mm256_storeu_si256((__m256i *)(a + 32 * k), mn[k]);
		_mm256_storeu_si256((__m256i *)(b + 32 * k), mx[k]);
	}
	for (int k = 0; k < 96; k++) {
		if (a[k] < lo[k % 3])
			lo[k % 3] = a[k];
		if (b[k] > hi[k % 3])
			hi[k % 3] = b[k];
	}
	return i / 3;
}
#endif

void sk_aug_minmax(const uint8_t *p, size_t np, int channels, uint8_t *lo, uint8_t *hi)
{
	size_t i = 0;
	for (int c = 0; c < channels; c++)
		lo[c] = 255, hi[c] = 0;
#if defined(__x86_64__)
	if (channels == 3 && sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
		i = minmax3_avx2(p, np, lo, hi);
#endif
	for (; i < np; i++)
		for (int c = 0; c < channels; c++) {
			uint8_t v = p[i * (size_t)channels + (size_t)c];
			if (v < lo[c])
				lo[c] = v;
			if (v > hi[c])
				hi[c] = v;
		}
}
