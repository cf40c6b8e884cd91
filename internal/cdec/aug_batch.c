// MixUp: a*lam + b*(1-lam) in float, rounded to nearest even.

#include <string.h>

#include "aug.h"
#include "aug_x86.h"

// Elements at any address, because the saved part of a batch's last row is on a stack.
typedef float any_f32 __attribute__((aligned(1), may_alias));
typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));

static inline uint8_t mix_byte(float a, float b, float lam, float rest)
{
	const float magic = 12582912.0f; // 1.5 * 2^23: rounds half to even
	float v = (a * lam + b * rest + magic) - magic;
	return (uint8_t)(v < 255.0f ? v : 255.0f);
}

#if defined(__x86_64__)
SK_AUG_AVX2 static size_t mix_u8_avx2(uint8_t *dst, const uint8_t *a, const uint8_t *b, size_t n, float lam, float rest)
{
	const __m256 l = _mm256_set1_ps(lam), r = _mm256_set1_ps(rest);
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		__m256i q[4];
		for (int k = 0; k < 4; k++) {
			__m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(a + i + 8 * k)));
			__m256i y = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(b + i + 8 * k)));
			q[k] = _mm256_cvtps_epi32(
				_mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(x), l), _mm256_mul_ps(_mm256_cvtepi32_ps(y), r)));
		}
		_mm256_storeu_si256((__m256i *)(dst + i), sk_pack32(q[0], q[1], q[2], q[3]));
	}
	return i;
}

__attribute__((target("avx2,f16c"))) static size_t mix_f16_avx2(void *dst, const void *a, const void *b, size_t n,
                                                                float lam, float rest)
{
	const __m256 l = _mm256_set1_ps(lam), r = _mm256_set1_ps(rest);
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		__m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint8_t *)a + 2 * i)));
		__m256 y = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint8_t *)b + 2 * i)));
		__m256 v = _mm256_add_ps(_mm256_mul_ps(x, l), _mm256_mul_ps(y, r));
		_mm_storeu_si128((__m128i *)((uint8_t *)dst + 2 * i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
	}
	return i;
}
#endif

void sk_aug_mix_u8(uint8_t *dst, const uint8_t *a, const uint8_t *b, size_t n, float lam)
{
	float rest = 1.0f - lam;
	size_t i = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
		i = mix_u8_avx2(dst, a, b, n, lam, rest);
#endif
	for (; i < n; i++)
		dst[i] = mix_byte(a[i], b[i], lam, rest);
}

void sk_aug_mix_f32(void *dst, const void *a, const void *b, size_t n, float lam)
{
	const any_f32 *x = a, *y = b;
	any_f32 *d = dst;
	float rest = 1.0f - lam;
	for (size_t i = 0; i < n; i++)
		d[i] = x[i] * lam + y[i] * rest;
}

static inline float from_bits(uint32_t u)
{
	float f;
	memcpy(&f, &u, 4);
	return f;
}

static inline uint32_t to_bits(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	return u;
}

static inline float half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
	if (rest >= 0x7c00)
		return from_bits(sign | 0x7f800000u | (rest & 0x3ff) << 13);
	// The exponent's bias is put right by a multiplication, which also
	// normalises subnormal numbers.
	float f = from_bits(rest << 13) * 0x1p112f;
	return from_bits(sign | to_bits(f));
}

static inline uint16_t float_to_half(float f)
{
	uint32_t u = to_bits(f), sign = u >> 16 & 0x8000;
	u &= 0x7fffffff;
	if (u > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00);
	if (u >= 0x477ff000u)
		return (uint16_t)(sign | 0x7c00); // rounds to 65536 or more
	if (u < 0x38800000u) {                // below the smallest normal half
		float r = from_bits(u) + 0.5f;    // puts the half's last bit at the float's last bit
		return (uint16_t)(sign | (to_bits(r) - 0x3f000000u));
	}
	u += 0xc8000000u + 0xfff + (u >> 13 & 1);
	return (uint16_t)(sign | u >> 13);
}

void sk_aug_mix_f16(void *dst, const void *a, const void *b, size_t n, float lam)
{
	float rest = 1.0f - lam;
	size_t i = 0;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2)
		i = mix_f16_avx2(dst, a, b, n, lam, rest);
#endif
	const any_u16 *x = a, *y = b;
	any_u16 *d = dst;
	for (; i < n; i++)
		d[i] = float_to_half(half_to_float(x[i]) * lam + half_to_float(y[i]) * rest);
}

void sk_aug_mix_bf16(void *dst, const void *a, const void *b, size_t n, float lam)
{
	const any_u16 *x = a, *y = b;
	any_u16 *d = dst;
	float rest = 1.0f - lam;
	for (size_t i = 0; i < n; i++) {
		uint32_t u = to_bits(from_bits((uint32_t)x[i] << 16) * lam + from_bits((uint32_t)y[i] << 16) * rest);
		if ((u & 0x7fffffff) > 0x7f800000u)
			d[i] = (uint16_t)(u >> 16 | 0x40);
		else
			d[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
	}
}
