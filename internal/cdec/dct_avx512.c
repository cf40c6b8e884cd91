// The dct codec with AVX-512 (BW, VBMI, VBMI2, VNNI). The first half of unpacking is in dct_x86.h. dct_simd.h has the
// kernels that are the same at each width.
#include "dct.h"

#if defined(__x86_64__)

#include "dct_x86.h"

#define TARGET      \
	__attribute__(( \
		target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx512vnni,avx2,bmi,bmi2,popcnt,lzcnt")))
#define V __m512i
#define LANES 4
#define FN(name) name##_512
#define OP(name) _mm512_##name
#define LOAD(p) _mm512_loadu_si512((const void *)(p))
#define LOAD_HALF(p) _mm256_loadu_si256((const void *)(p))
#define STORE(p, v) _mm512_storeu_si512((void *)(p), v)
#define PERMUTE32(order, v) _mm512_permutexvar_epi32(order, v)
#define MADD_TO(sum, a, b) _mm512_dpwssd_epi32(sum, a, b)

// Stores the 16-byte lanes of lo and hi alternately.
TARGET static inline void store_lanes_512(uint8_t *out, V lo, V hi)
{
	STORE(out, _mm512_permutex2var_epi64(lo, _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), hi));
	STORE(out + 64, _mm512_permutex2var_epi64(lo, _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4), hi));
}

TARGET static inline V color_order_512(void)
{
	return _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
}

#include "dct_simd.h"

TARGET static void idct4_512(const int16_t (*coef)[64], const uint16_t *quant, int end, uint8_t *dst, ptrdiff_t stride)
{
	if (end == 0) {
		const __m256i row =
			_mm256_set_epi64x((long long)flat_512(coef[3][0], quant[0]), (long long)flat_512(coef[2][0], quant[0]),
		                      (long long)flat_512(coef[1][0], quant[0]), (long long)flat_512(coef[0][0], quant[0]));
		for (int y = 0; y < 8; y++)
			_mm256_storeu_si256((void *)(dst + y * stride), row);
		return;
	}
	V r[8], z[4];
	// Rows 0 to 3 of a block are in one vector: four blocks, transposed by lanes.
	const V q0 = LOAD(quant);
	const V a0 = _mm512_mullo_epi16(LOAD(coef[0]), q0), a1 = _mm512_mullo_epi16(LOAD(coef[1]), q0);
	const V a2 = _mm512_mullo_epi16(LOAD(coef[2]), q0), a3 = _mm512_mullo_epi16(LOAD(coef[3]), q0);
	const V b0 = _mm512_shuffle_i64x2(a0, a1, 0x44), b1 = _mm512_shuffle_i64x2(a0, a1, 0xee);
	const V b2 = _mm512_shuffle_i64x2(a2, a3, 0x44), b3 = _mm512_shuffle_i64x2(a2, a3, 0xee);
	r[0] = _mm512_shuffle_i64x2(b0, b2, 0x88);
	r[1] = _mm512_shuffle_i64x2(b0, b2, 0xdd);
	r[2] = _mm512_shuffle_i64x2(b1, b3, 0x88);
	r[3] = _mm512_shuffle_i64x2(b1, b3, 0xdd);
	// If rows 1 to 7 are zero, libjpeg-turbo multiplies by 4 and wraps. The result differs only if row 0 is extremely
	// large. Then the blocks are transformed one by one.
	if (_mm512_cmpgt_epu16_mask(_mm512_add_epi16(r[0], _mm512_set1_epi16(8192)), _mm512_set1_epi16(16383)) != 0) {
		for (int b = 0; b < 4; b++)
			dct_idct_one(coef[b], quant, dst + 8 * b, stride);
		return;
	}
	if (end <= 2) {
		// The first 9 positions of the zigzag are within 4 x 4.
		pass_low_512(r, 11);
		transpose_512(r);
		pass_low_512(r, 18);
	} else {
		const V q1 = LOAD(quant + 32);
		const V c0 = _mm512_mullo_epi16(LOAD(coef[0] + 32), q1), c1 = _mm512_mullo_epi16(LOAD(coef[1] + 32), q1);
		const V c2 = _mm512_mullo_epi16(LOAD(coef[2] + 32), q1), c3 = _mm512_mullo_epi16(LOAD(coef[3] + 32), q1);
		const V d0 = _mm512_shuffle_i64x2(c0, c1, 0x44), d1 = _mm512_shuffle_i64x2(c0, c1, 0xee);
		const V d2 = _mm512_shuffle_i64x2(c2, c3, 0x44), d3 = _mm512_shuffle_i64x2(c2, c3, 0xee);
		r[4] = _mm512_shuffle_i64x2(d0, d2, 0x88);
		r[5] = _mm512_shuffle_i64x2(d0, d2, 0xdd);
		r[6] = _mm512_shuffle_i64x2(d1, d3, 0x88);
		r[7] = _mm512_shuffle_i64x2(d1, d3, 0xdd);
		pass_512(r, 11);
		transpose_512(r);
		pass_512(r, 18);
	}
	to_rows_512(r, z);
	const V order = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
	for (int i = 0; i < 4; i++, dst += 2 * stride) {
		const V rows = _mm512_permutexvar_epi64(order, z[i]);
		_mm256_storeu_si256((void *)dst, _mm512_castsi512_si256(rows));
		_mm256_storeu_si256((void *)(dst + stride), _mm512_extracti64x4_epi64(rows, 1));
	}
}

// ---- unpacking

// The destination of byte i of the low and of the high bytes of 64 coefficients in zigzag order. After unpacking, the
// lanes have rows of 8 in natural order: lane l has rows l and l + 4.
static const uint8_t zigzag_to_lanes[64] = {0, 1,  5,  6,  14, 15, 27, 28, 10, 19, 23, 32, 39, 45, 52, 54,
                                            2, 4,  7,  13, 16, 26, 29, 42, 20, 22, 33, 38, 46, 51, 55, 60,
                                            3, 8,  12, 17, 25, 30, 41, 43, 21, 34, 37, 47, 50, 56, 59, 61,
                                            9, 11, 18, 24, 31, 40, 44, 53, 35, 36, 48, 49, 57, 58, 62, 63};

// The values of word i, low and high bytes with signs. Planes above 8 are rare
// (magnitudes of 256 and more) and need 16 bits.
TARGET static inline void word_values(dct_work *w, int i, int planes)
{
	const __mmask64 sign = w->sign[i];
	V v = _mm512_set1_epi8(1);
	const int low = planes < 8 ? planes : 8;
	for (int k = 2; k <= low; k++) {
		const V add = _mm512_set1_epi8((char)(1 << (k - 2)));
		v = _mm512_mask_add_epi8(v, w->reach[k][i], v, add);
		v = _mm512_mask_add_epi8(v, w->bit[k][i], v, add);
	}
	if (planes <= 8) {
		STORE(w->lo + DCT_WORD * i, _mm512_mask_sub_epi8(v, sign, _mm512_setzero_si512(), v));
		STORE(w->hi + DCT_WORD * i, _mm512_movm_epi8(sign));
		return;
	}
	V a = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(v)), b = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(v, 1));
	for (int k = 9; k <= planes; k++) {
		const V add = _mm512_set1_epi16((short)(1 << (k - 2)));
		const uint64_t reach = w->reach[k][i], bit = w->bit[k][i];
		a = _mm512_mask_add_epi16(a, (__mmask32)reach, a, add);
		a = _mm512_mask_add_epi16(a, (__mmask32)bit, a, add);
		b = _mm512_mask_add_epi16(b, (__mmask32)(reach >> 32), b, add);
		b = _mm512_mask_add_epi16(b, (__mmask32)(bit >> 32), b, add);
	}
	a = _mm512_mask_sub_epi16(a, (__mmask32)sign, _mm512_setzero_si512(), a);
	b = _mm512_mask_sub_epi16(b, (__mmask32)(sign >> 32), _mm512_setzero_si512(), b);
	_mm256_storeu_si256((void *)(w->lo + DCT_WORD * i), _mm512_cvtepi16_epi8(a));
	_mm256_storeu_si256((void *)(w->lo + DCT_WORD * i + 32), _mm512_cvtepi16_epi8(b));
	_mm256_storeu_si256((void *)(w->hi + DCT_WORD * i), _mm512_cvtepi16_epi8(_mm512_srli_epi16(a, 8)));
	_mm256_storeu_si256((void *)(w->hi + DCT_WORD * i + 32), _mm512_cvtepi16_epi8(_mm512_srli_epi16(b, 8)));
}

TARGET static int64_t group_512(dct_work *w, const uint8_t *heads, int first, int last, const dct_shape *s,
                                const uint8_t *p, int64_t at, int64_t end)
{
	const dct_group g = dct_group_maps(w, heads, first, last, s, p, at, end);
	if (g.at < 0)
		return -1;
	for (int i = 0; DCT_WORD * i < g.values; i++)
		word_values(w, i, g.planes);
	const V order = LOAD(zigzag_to_lanes);
	for (int b = first; b < last; b++) {
		const __mmask64 m = w->nonzero[b] << 1;
		const V lo = _mm512_permutexvar_epi8(order, _mm512_maskz_expand_epi8(m, LOAD(w->lo + w->before[b])));
		const V hi = _mm512_permutexvar_epi8(order, _mm512_maskz_expand_epi8(m, LOAD(w->hi + w->before[b])));
		STORE(w->coef[b], _mm512_mask_set1_epi16(_mm512_unpacklo_epi8(lo, hi), 1, w->dc[b]));
		STORE(w->coef[b] + 32, _mm512_unpackhi_epi8(lo, hi));
	}
	return g.at;
}

TARGET int dct_unpack_avx512(dct_work *w, const dct_shape *s, const uint8_t *p, size_t n)
{
	const int blocks = s->first[s->ncomp];
	if (n < (size_t)blocks)
		return -1;
	for (int b = 0; b < blocks; b++)
		w->end[b] = p[b] & 15;
	const int64_t end = 8 * (int64_t)(n - (size_t)blocks);
	int64_t at = group_512(w, p, 0, s->first[1], s, p + blocks, 0, end);
	if (at >= 0 && s->ncomp == 3)
		at = group_512(w, p, s->first[1], blocks, s, p + blocks, at, end);
	return at < 0 ? -1 : 0;
}

const dct_kernels dct_kernels_avx512 = {dct_unpack_avx512, idct4_512, h2v1_512, h2v2_512, h1v2_512, color_512};

#endif
