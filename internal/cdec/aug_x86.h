// Helpers of the AVX2 augmentation kernels: eight RGB pixels at a time, as
// eight 32-bit lanes R | G<<8 | B<<16; and tables of bytes for those of VBMI.
#ifndef STOKER_AUG_X86_H
#define STOKER_AUG_X86_H
#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>

#define SK_AUG_AVX2 __attribute__((target("avx2")))
#define SK_AUG_AVX2_INLINE __attribute__((target("avx2"), always_inline)) static inline

// Reads exactly 24 bytes.
SK_AUG_AVX2_INLINE __m256i sk_load8(const uint8_t *p)
{
	const __m256i spread = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, //
	                                        4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
	__m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)),
	                                    _mm_loadu_si128((const __m128i *)(p + 8)), 1);
	return _mm256_shuffle_epi8(v, spread);
}

// Writes exactly 24 bytes.
SK_AUG_AVX2_INLINE void sk_store8(uint8_t *p, __m256i v)
{
	const __m256i pack = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, //
	                                      0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
	v = _mm256_shuffle_epi8(v, pack);
	__m128i hi = _mm256_extracti128_si256(v, 1);
	_mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(v)); // 4 bytes too many, overwritten next
	_mm_storel_epi64((__m128i *)(p + 12), hi);
	int32_t last = _mm_extract_epi32(hi, 2);
	__builtin_memcpy(p + 20, &last, 4);
}

SK_AUG_AVX2_INLINE __m256i sk_red(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi32(0xff)); }
SK_AUG_AVX2_INLINE __m256i sk_green(__m256i v)
{
	return _mm256_and_si256(_mm256_srli_epi32(v, 8), _mm256_set1_epi32(0xff));
}
SK_AUG_AVX2_INLINE __m256i sk_blue(__m256i v) { return _mm256_srli_epi32(v, 16); }

SK_AUG_AVX2_INLINE __m256i sk_join(__m256i r, __m256i g, __m256i b)
{
	return _mm256_or_si256(r, _mm256_or_si256(_mm256_slli_epi32(g, 8), _mm256_slli_epi32(b, 16)));
}

// trunc(clamp(v, 0, 255)).
SK_AUG_AVX2_INLINE __m256i sk_trunc8(__m256 v)
{
	v = _mm256_min_ps(_mm256_max_ps(v, _mm256_setzero_ps()), _mm256_set1_ps(255.0f));
	return _mm256_cvttps_epi32(v);
}

// 32 values of four vectors, each 0 to 255, to bytes in order.
SK_AUG_AVX2_INLINE __m256i sk_pack32(__m256i a, __m256i b, __m256i c, __m256i d)
{
	__m256i v = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
	return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

#define SK_AUG_VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi")))
#define SK_AUG_VBMI_INLINE __attribute__((target("avx512f,avx512bw,avx512vbmi"), always_inline)) static inline

// A table of 256 bytes.
typedef struct {
	__m512i q[4];
} sk_table512;

SK_AUG_VBMI_INLINE sk_table512 sk_load_table(const uint8_t *lut)
{
	sk_table512 t;
	for (int k = 0; k < 4; k++)
		t.q[k] = _mm512_loadu_si512(lut + 64 * k);
	return t;
}

SK_AUG_VBMI_INLINE __m512i sk_look_up(const sk_table512 *t, __m512i v)
{
	__m512i lo = _mm512_permutex2var_epi8(t->q[0], v, t->q[1]);
	__m512i hi = _mm512_permutex2var_epi8(t->q[2], v, t->q[3]);
	return _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), lo, hi);
}

#endif
#endif
