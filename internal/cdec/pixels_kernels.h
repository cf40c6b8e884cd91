// The loops of sk_pixel_kernels, for the file that defines FN and TARGET. They
// are written for the compiler to vectorise.
#include "fp_exact.h" // before every function

#include "half.h"
#include "pixels.h"

// Whole numbers from 0 to top, halves up.
TARGET static inline float FN(whole)(float v, float top)
{
	v = v > 0.0f ? v : 0.0f; // in this order NaN becomes 0
	v = v < top ? v : top;
	return (float)(int32_t)(v + 0.5f);
}

TARGET static void FN(widen)(int elem, const uint8_t *src, float *dst, size_t n)
{
	const any_u16 *u = (const any_u16 *)src;
	switch (elem) {
	case SK_U8:
		for (size_t i = 0; i < n; i++)
			dst[i] = src[i];
		return;
	case SK_U16:
		for (size_t i = 0; i < n; i++)
			dst[i] = u[i];
		return;
	default: memcpy(dst, src, n * sizeof *dst);
	}
}

TARGET static void FN(narrow)(int elem, const float *src, uint8_t *dst, size_t n)
{
	any_u16 *u = (any_u16 *)dst;
	switch (elem) {
	case SK_U8:
		for (size_t i = 0; i < n; i++)
			dst[i] = (uint8_t)FN(whole)(src[i], 255.0f);
		return;
	case SK_U16:
		for (size_t i = 0; i < n; i++)
			u[i] = (uint16_t)FN(whole)(src[i], 65535.0f);
		return;
	default: memcpy(dst, src, n * sizeof *src);
	}
}

TARGET static void FN(round)(float *p, size_t n, float top)
{
	for (size_t i = 0; i < n; i++)
		p[i] = FN(whole)(p[i], top);
}

TARGET __attribute__((always_inline)) static inline void FN(h_row_of)(const sk_axis *a, const int channels,
                                                                      const float *src, float *dst, float top)
{
	for (int i = 0; i < a->n; i++) {
		const float *p = src + (ptrdiff_t)a->start[i] * channels;
		const float *k = a->f + (size_t)i * (size_t)a->kstride;
		float s[4] = {0, 0, 0, 0};
		for (int t = 0; t < a->count[i]; t++, p += channels)
			for (int c = 0; c < channels; c++)
				s[c] += p[c] * k[t];
		for (int c = 0; c < channels; c++) {
			float v = s[c];
			if (top > 0) {
				v = v > 0.0f ? v : 0.0f;
				v = v < top ? v : top;
			}
			*dst++ = v;
		}
	}
}

TARGET static void FN(h_row)(const sk_axis *a, int channels, const float *src, float *dst, float top)
{
	switch (channels) {
	case 1: FN(h_row_of)(a, 1, src, dst, top); return;
	case 2: FN(h_row_of)(a, 2, src, dst, top); return;
	case 3: FN(h_row_of)(a, 3, src, dst, top); return;
	default: FN(h_row_of)(a, 4, src, dst, top);
	}
}

TARGET static void FN(v_first)(float *restrict dst, const float *restrict src, float k, size_t n)
{
	for (size_t i = 0; i < n; i++)
		dst[i] = src[i] * k;
}

TARGET static void FN(v_next)(float *restrict dst, const float *restrict src, float k, size_t n)
{
	for (size_t i = 0; i < n; i++)
		dst[i] += src[i] * k;
}

TARGET static void FN(affine)(float *restrict p, const float *restrict scale, const float *restrict bias, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = p[i] * scale[i] + bias[i];
}

// Whole numbers from 0 to top, halves to even, like the stores of resize.c.
TARGET static inline float FN(even)(float v, float top)
{
	const float magic = 12582912.0f; // 1.5 * 2^23
	v = v > 0.0f ? v : 0.0f;
	v = v < top ? v : top;
	return (v + magic) - magic;
}

TARGET static void FN(put)(int dtype, const float *src, size_t step, uint8_t *dst, size_t n)
{
	any_u16 *u = (any_u16 *)dst;
	any_f32 *f = (any_f32 *)dst;
	switch (dtype) {
	case SK_U8:
		for (size_t i = 0; i < n; i++)
			dst[i] = (uint8_t)FN(even)(src[i * step], 255.0f);
		return;
	case SK_U16:
		for (size_t i = 0; i < n; i++)
			u[i] = (uint16_t)FN(even)(src[i * step], 65535.0f);
		return;
	case SK_F16:
		for (size_t i = 0; i < n; i++)
			u[i] = sk_to_f16(src[i * step]);
		return;
	case SK_BF16:
		for (size_t i = 0; i < n; i++)
			u[i] = sk_to_bf16(src[i * step]);
		return;
	default:
		if (step == 1)
			memcpy(dst, src, n * sizeof *src);
		else
			for (size_t i = 0; i < n; i++)
				f[i] = src[i * step];
	}
}

const sk_pixel_kernels FN(sk_pixel_kernels) = {
	FN(widen), FN(narrow), FN(round), FN(h_row), FN(v_first), FN(v_next), FN(affine), FN(put),
};
