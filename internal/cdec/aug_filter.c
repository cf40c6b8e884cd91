// Sharpness and Gaussian blur.

#include <string.h>

#include "aug.h"
#include "aug_x86.h"

// ---- sharpness ----

// The smoothed pixel is (sum of the 3x3 neighbours + 4 x the centre) / 13,
// rounded; 13 is odd, so there are no ties and integers are exact.
static inline uint8_t sharpen_byte(const uint16_t *column, const uint8_t *x, ptrdiff_t ch, float rest)
{
	uint32_t sum = (uint32_t)column[-ch] + column[0] + column[ch] + 4u * *x;
	int smooth = (int)((sum + 6) / 13);
	float v = (float)(smooth - *x) * rest + (float)*x;
	v = v > 0.0f ? v : 0.0f;
	v = v < 255.0f ? v : 255.0f;
	return (uint8_t)v;
}

#if defined(__x86_64__)
SK_AUG_AVX2 static size_t column_sums_avx2(uint16_t *t, const uint8_t *a, const uint8_t *b, const uint8_t *c, size_t n)
{
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		__m256i v = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(a + i)));
		v = _mm256_add_epi16(v, _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(b + i))));
		v = _mm256_add_epi16(v, _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(c + i))));
		_mm256_storeu_si256((__m256i *)(t + i), v);
	}
	return i;
}

SK_AUG_AVX2 static size_t sharpen_row_avx2(uint8_t *dst, const uint16_t *t, const uint8_t *src, size_t n, ptrdiff_t ch,
                                           float rest)
{
	const __m256 alpha = _mm256_set1_ps(rest);
	const __m256i six = _mm256_set1_epi16(6), thirteenth = _mm256_set1_epi16(5042); // ceil(65536 / 13)
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		__m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(src + i)));
		const uint16_t *c = t + i;
		__m256i sum = _mm256_add_epi16(_mm256_loadu_si256((const __m256i *)(c - ch)),
		                               _mm256_loadu_si256((const __m256i *)(c + ch)));
		sum = _mm256_add_epi16(sum, _mm256_loadu_si256((const __m256i *)c));
		sum = _mm256_add_epi16(_mm256_add_epi16(sum, six), _mm256_slli_epi16(x, 2));
		// Exact: sum + 6 <= 3321 < 6553.
		__m256i diff = _mm256_sub_epi16(_mm256_mulhi_epu16(sum, thirteenth), x);
		__m256i q[2];
		for (int k = 0; k < 2; k++) {
			__m128i d16 = k ? _mm256_extracti128_si256(diff, 1) : _mm256_castsi256_si128(diff);
			__m128i x16 = k ? _mm256_extracti128_si256(x, 1) : _mm256_castsi256_si128(x);
			__m256 d = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(d16));
			__m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(x16));
			q[k] = sk_trunc8(_mm256_add_ps(_mm256_mul_ps(d, alpha), v));
		}
		__m256i w = _mm256_permute4x64_epi64(_mm256_packus_epi32(q[0], q[1]), 0xd8);
		_mm_storeu_si128((__m128i *)(dst + i),
		                 _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
	}
	return i;
}
#endif

void sk_aug_sharpen(uint8_t *dst, const uint8_t *src, int w, int h, int channels, float rest, uint16_t *tmp)
{
	size_t row = (size_t)w * (size_t)channels, ch = (size_t)channels;
	if (w <= 2 || h <= 2) {
		memcpy(dst, src, row * (size_t)h);
		return;
	}
	memcpy(dst, src, row);
	for (int y = 1; y < h - 1; y++) {
		const uint8_t *s = src + row * (size_t)y;
		uint8_t *d = dst + row * (size_t)y;
		size_t i = 0;
#if defined(__x86_64__)
		if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
			i = column_sums_avx2(tmp, s - row, s, s + row, row);
#endif
		for (; i < row; i++)
			tmp[i] = (uint16_t)(s[i - row] + s[i] + s[i + row]);

		memcpy(d, s, ch);
		memcpy(d + row - ch, s + row - ch, ch);
		i = ch;
#if defined(__x86_64__)
		if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
			i += sharpen_row_avx2(d + ch, tmp + ch, s + ch, row - 2 * ch, (ptrdiff_t)ch, rest);
#endif
		for (; i < row - ch; i++)
			d[i] = sharpen_byte(tmp + i, s + i, (ptrdiff_t)ch, rest);
	}
	memcpy(dst + row * (size_t)(h - 1), src + row * (size_t)(h - 1), row);
}

// ---- Gaussian blur ----

// Columns first, into one row of values in 1/64 (at most 255 * 64). That row is extended by reflection and then
// filtered along x. All arithmetic is in integers: a constant image does not change, and the result is the same on
// every machine.
enum { BLUR_MID_SHIFT = 8, BLUR_END_SHIFT = 20 };

// Row y of an image of h rows that is reflected at its borders.
static inline int reflect(int y, int h) { return y < 0 ? -y : y >= h ? 2 * (h - 1) - y : y; }

#if defined(__x86_64__)
// Two symmetric pairs of taps in one step: the sums a and b, interleaved, times (wa, wb).
SK_AUG_AVX2_INLINE void blur_step(__m256i a, __m256i b, __m256i w, __m256i *lo, __m256i *hi)
{
	*lo = _mm256_add_epi32(*lo, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), w));
	*hi = _mm256_add_epi32(*hi, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), w));
}

SK_AUG_AVX2_INLINE __m256i pair_weights(const int16_t *k, int i, int radius)
{
	int second = i < radius ? k[i + 1] : 0;
	return _mm256_set1_epi32(second * 65536 + k[i]);
}

SK_AUG_AVX2_INLINE __m256i bytes16(const uint8_t *p)
{
	return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p));
}

SK_AUG_AVX2_INLINE __m256i row_sum(const uint8_t *const *pair, size_t i)
{
	return _mm256_add_epi16(bytes16(pair[0] + i), bytes16(pair[1] + i));
}

// rows are the source rows in the order centre, centre, -1, +1, -2, +2 ...
SK_AUG_AVX2 static size_t blur_columns_avx2(int16_t *t, const uint8_t *const *rows, size_t row, const int16_t *ky,
                                            int ry)
{
	size_t i = 0;
	for (; i + 32 <= row; i += 32) {
		__m256i lo = _mm256_set1_epi32(1 << (BLUR_MID_SHIFT - 1)), hi = lo, lo2 = lo, hi2 = lo;
		for (int k = 0; k <= ry; k += 2) {
			__m256i w = pair_weights(ky, k, ry);
			const uint8_t *const *p = rows + 2 * k;
			__m256i a = k ? row_sum(p, i) : bytes16(p[0] + i);
			__m256i a2 = k ? row_sum(p, i + 16) : bytes16(p[0] + i + 16);
			__m256i b = _mm256_setzero_si256(), b2 = b;
			if (k < ry)
				b = row_sum(p + 2, i), b2 = row_sum(p + 2, i + 16);
			blur_step(a, b, w, &lo, &hi);
			blur_step(a2, b2, w, &lo2, &hi2);
		}
		lo = _mm256_packs_epi32(_mm256_srai_epi32(lo, BLUR_MID_SHIFT), _mm256_srai_epi32(hi, BLUR_MID_SHIFT));
		lo2 = _mm256_packs_epi32(_mm256_srai_epi32(lo2, BLUR_MID_SHIFT), _mm256_srai_epi32(hi2, BLUR_MID_SHIFT));
		_mm256_storeu_si256((__m256i *)(t + i), lo);
		_mm256_storeu_si256((__m256i *)(t + i + 16), lo2);
	}
	return i;
}

SK_AUG_AVX2_INLINE __m256i tap_sum(const int16_t *t, ptrdiff_t off)
{
	return _mm256_add_epi16(_mm256_loadu_si256((const __m256i *)(t - off)),
	                        _mm256_loadu_si256((const __m256i *)(t + off)));
}

SK_AUG_AVX2 static size_t blur_row_avx2(uint8_t *dst, const int16_t *t, size_t row, ptrdiff_t ch, const int16_t *kx,
                                        int rx)
{
	size_t i = 0;
	for (; i + 32 <= row; i += 32) {
		__m256i lo = _mm256_set1_epi32(1 << (BLUR_END_SHIFT - 1)), hi = lo, lo2 = lo, hi2 = lo;
		for (int k = 0; k <= rx; k += 2) {
			__m256i w = pair_weights(kx, k, rx);
			const int16_t *c = t + i;
			__m256i a = k ? tap_sum(c, k * ch) : _mm256_loadu_si256((const __m256i *)c);
			__m256i a2 = k ? tap_sum(c + 16, k * ch) : _mm256_loadu_si256((const __m256i *)(c + 16));
			__m256i b = _mm256_setzero_si256(), b2 = b;
			if (k < rx)
				b = tap_sum(c, (k + 1) * ch), b2 = tap_sum(c + 16, (k + 1) * ch);
			blur_step(a, b, w, &lo, &hi);
			blur_step(a2, b2, w, &lo2, &hi2);
		}
		lo = _mm256_packs_epi32(_mm256_srai_epi32(lo, BLUR_END_SHIFT), _mm256_srai_epi32(hi, BLUR_END_SHIFT));
		lo2 = _mm256_packs_epi32(_mm256_srai_epi32(lo2, BLUR_END_SHIFT), _mm256_srai_epi32(hi2, BLUR_END_SHIFT));
		__m256i v = _mm256_permute4x64_epi64(_mm256_packus_epi16(lo, lo2), 0xd8);
		_mm256_storeu_si256((__m256i *)(dst + i), v);
	}
	return i;
}
#endif

void sk_aug_blur(uint8_t *dst, const uint8_t *src, int w, int h, int channels, const int16_t *kx, int rx,
                 const int16_t *ky, int ry, int16_t *tmp)
{
	size_t row = (size_t)w * (size_t)channels;
	ptrdiff_t ch = channels;
	int16_t *t = tmp + (size_t)rx * (size_t)channels;
	for (int y = 0; y < h; y++) {
		const uint8_t *rows[2 * (SK_AUG_MAX_RADIUS + 1)];
		for (int k = 0; k <= ry; k++) {
			rows[2 * k] = src + row * (size_t)reflect(y - k, h);
			rows[2 * k + 1] = src + row * (size_t)reflect(y + k, h);
		}
		size_t i = 0;
#if defined(__x86_64__)
		if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
			i = blur_columns_avx2(t, rows, row, ky, ry);
#endif
		for (; i < row; i++) {
			int32_t acc = ky[0] * rows[0][i] + (1 << (BLUR_MID_SHIFT - 1));
			for (int k = 1; k <= ry; k++)
				acc += ky[k] * (rows[2 * k][i] + rows[2 * k + 1][i]);
			t[i] = (int16_t)(acc >> BLUR_MID_SHIFT);
		}
		for (int x = 1; x <= rx; x++) {
			memcpy(t - x * ch, t + x * ch, (size_t)ch * sizeof *t);
			memcpy(t + (w - 1 + x) * ch, t + (w - 1 - x) * ch, (size_t)ch * sizeof *t);
		}
		uint8_t *d = dst + row * (size_t)y;
		i = 0;
#if defined(__x86_64__)
		if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
			i = blur_row_avx2(d, t, row, ch, kx, rx);
#endif
		for (; i < row; i++) {
			const int16_t *c = t + i;
			int32_t acc = kx[0] * c[0] + (1 << (BLUR_END_SHIFT - 1));
			for (int k = 1; k <= rx; k++)
				acc += kx[k] * (c[-k * ch] + c[k * ch]);
			acc >>= BLUR_END_SHIFT;
			d[i] = (uint8_t)(acc > 255 ? 255 : acc);
		}
	}
}
