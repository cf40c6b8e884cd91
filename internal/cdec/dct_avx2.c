// The dct codec with AVX2 and BMI2: see dct_x86.h and dct_simd.h.
#include "dct.h"

#if defined(__x86_64__)

#include "dct_x86.h"

#define TARGET BMI
#define V __m256i
#define LANES 2
#define FN(name) name##_256
#define OP(name) _mm256_##name
#define LOAD(p) _mm256_loadu_si256((const void *)(p))
#define LOAD_HALF(p) _mm_loadu_si128((const void *)(p))
#define STORE(p, v) _mm256_storeu_si256((void *)(p), v)
#define PERMUTE32(order, v) _mm256_permutevar8x32_epi32(v, order)
#define MADD_TO(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))

// Stores the 16-byte lanes of lo and hi alternately.
TARGET static inline void store_lanes_256(uint8_t *out, V lo, V hi)
{
	STORE(out, _mm256_permute2x128_si256(lo, hi, 0x20));
	STORE(out + 32, _mm256_permute2x128_si256(lo, hi, 0x31));
}

TARGET static inline V color_order_256(void) { return _mm256_set_epi32(7, 5, 3, 1, 6, 4, 2, 0); }

#include "dct_simd.h"

// Two blocks side by side.
TARGET static inline void idct2(const int16_t (*coef)[64], const uint16_t *quant, int end, uint8_t *dst,
                                ptrdiff_t stride)
{
	V r[8], z[4];
	for (int i = 0; i < (end <= 2 ? 2 : 4); i++) {
		const V q = LOAD(quant + 16 * i);
		const V a = _mm256_mullo_epi16(LOAD(coef[0] + 16 * i), q), b = _mm256_mullo_epi16(LOAD(coef[1] + 16 * i), q);
		r[2 * i] = _mm256_permute2x128_si256(a, b, 0x20);
		r[2 * i + 1] = _mm256_permute2x128_si256(a, b, 0x31);
	}
	// If rows 1 to 7 are zero, libjpeg-turbo multiplies by 4 and wraps. The result differs only if row 0 is extremely
	// large. Then the blocks are transformed one by one.
	if (!_mm256_testz_si256(_mm256_add_epi16(r[0], _mm256_set1_epi16(8192)), _mm256_set1_epi16((short)0xc000))) {
		dct_idct_one(coef[0], quant, dst, stride);
		dct_idct_one(coef[1], quant, dst + 8, stride);
		return;
	}
	if (end <= 2) {
		// The first 9 positions of the zigzag are within 4 x 4.
		pass_low_256(r, 11);
		transpose_256(r);
		pass_low_256(r, 18);
	} else {
		pass_256(r, 11);
		transpose_256(r);
		pass_256(r, 18);
	}
	to_rows_256(r, z);
	for (int i = 0; i < 4; i++, dst += 2 * stride) {
		const V rows = _mm256_permute4x64_epi64(z[i], 0xd8);
		_mm_storeu_si128((void *)dst, _mm256_castsi256_si128(rows));
		_mm_storeu_si128((void *)(dst + stride), _mm256_extracti128_si256(rows, 1));
	}
}

TARGET static void idct4_256(const int16_t (*coef)[64], const uint16_t *quant, int end, uint8_t *dst, ptrdiff_t stride)
{
	if (end == 0) {
		const V row =
			_mm256_set_epi64x((long long)flat_256(coef[3][0], quant[0]), (long long)flat_256(coef[2][0], quant[0]),
		                      (long long)flat_256(coef[1][0], quant[0]), (long long)flat_256(coef[0][0], quant[0]));
		for (int y = 0; y < 8; y++)
			STORE(dst + y * stride, row);
		return;
	}
	idct2(coef, quant, end, dst, stride);
	idct2(coef + 2, quant, end, dst + 16, stride);
}

// ---- unpacking

// 32 bits -> 32 bytes of 0 or 0xff.
TARGET static inline V spread(uint64_t bits)
{
	const V byte = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
	const V bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
	const V v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)(uint32_t)bits), byte);
	return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
}

// 16 bits -> 16 numbers of 0 or -1.
TARGET static inline V spread16(uint64_t bits)
{
	const V bit = _mm256_set_epi16((short)0x8000, 0x4000, 0x2000, 0x1000, 0x0800, 0x0400, 0x0200, 0x0100, 0x80, 0x40,
	                               0x20, 0x10, 8, 4, 2, 1);
	return _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16((short)bits), bit), bit);
}

// Values [32*half, 32*half+32) of word i. Planes above 8 are rare (magnitudes of
// 256 and more) and need 16 bits.
TARGET static inline void word_values_256(dct_work *w, int i, int half, int planes)
{
	const int shift = 32 * half;
	V v = _mm256_set1_epi8(1);
	const int low = planes < 8 ? planes : 8;
	for (int k = 2; k <= low; k++) {
		const V add = _mm256_set1_epi8((char)(1 << (k - 2)));
		v = _mm256_add_epi8(v, _mm256_and_si256(spread(w->reach[k][i] >> shift), add));
		v = _mm256_add_epi8(v, _mm256_and_si256(spread(w->bit[k][i] >> shift), add));
	}
	for (int j = 0; j < 2; j++) {
		V a = _mm256_cvtepu8_epi16(j == 0 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1));
		const int at = shift + 16 * j;
		for (int k = 9; k <= planes; k++) {
			const V add = _mm256_set1_epi16((short)(1 << (k - 2)));
			a = _mm256_add_epi16(a, _mm256_and_si256(spread16(w->reach[k][i] >> at), add));
			a = _mm256_add_epi16(a, _mm256_and_si256(spread16(w->bit[k][i] >> at), add));
		}
		const V sign = spread16(w->sign[i] >> at);
		STORE(w->value + DCT_WORD * i + at, _mm256_sub_epi16(_mm256_xor_si256(a, sign), sign));
	}
}

// The destination of the value of bit i of a map. Bit 64, which does not exist, goes to a position after the block.
static const uint8_t places[65] = {1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19,
                                   26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49,
                                   56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45,
                                   38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 64, 64};

TARGET static int64_t group_256(dct_work *w, const uint8_t *heads, int first, int last, const dct_shape *s,
                                const uint8_t *p, int64_t at, int64_t end)
{
	const dct_group g = dct_group_maps(w, heads, first, last, s, p, at, end);
	if (g.at < 0)
		return -1;
	for (int i = 0; DCT_WORD * i < g.values; i++) {
		word_values_256(w, i, 0, g.planes);
		if (DCT_WORD * i + 32 < g.values)
			word_values_256(w, i, 1, g.planes);
	}
	for (int b = first; b < last; b++) {
		int16_t *coef = w->coef[b];
		for (int i = 0; i < 64; i += 16)
			STORE(coef + i, _mm256_setzero_si256());
		coef[0] = w->dc[b];
		const int16_t *v = w->value + w->before[b];
		// Eight values at a time, because loops of unpredictable length cost more than a few wasted stores. The
		// wasted stores go to the first coefficient after the block, which is not written yet.
		for (uint64_t m = w->nonzero[b]; m != 0; v += 8)
			for (int i = 0; i < 8; i++, m = _blsr_u64(m))
				coef[places[_tzcnt_u64(m)]] = v[i];
	}
	return g.at;
}

TARGET int dct_unpack_avx2(dct_work *w, const dct_shape *s, const uint8_t *p, size_t n)
{
	const int blocks = s->first[s->ncomp];
	if (n < (size_t)blocks)
		return -1;
	for (int b = 0; b < blocks; b++)
		w->end[b] = p[b] & 15;
	const int64_t end = 8 * (int64_t)(n - (size_t)blocks);
	int64_t at = group_256(w, p, 0, s->first[1], s, p + blocks, 0, end);
	if (at >= 0 && s->ncomp == 3)
		at = group_256(w, p, s->first[1], blocks, s, p + blocks, at, end);
	return at < 0 ? -1 : 0;
}

const dct_kernels dct_kernels_avx2 = {dct_unpack_avx2, idct4_256, h2v1_256, h2v2_256, h1v2_256, color_256};

#endif
