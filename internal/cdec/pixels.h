// Pixels of any element type (u8, u16, f32) and 1 to 4 channels: cropped, resized, flipped and stored. resize.c
// handles RGB and gray of u8. This handles all others, in floats.
#ifndef STOKER_PIXELS_H
#define STOKER_PIXELS_H

#include "resize.h"

// Elements in memory, at any address.
typedef uint16_t __attribute__((aligned(1), may_alias)) any_u16;
typedef float __attribute__((aligned(1), may_alias)) any_f32;

// The loops, compiled for each kernel set from pixels_kernels.h: the same
// operations on the same elements in the same order, so that all sets give the
// same bytes.
typedef struct {
	// n elements of type elem to floats.
	void (*widen)(int elem, const uint8_t *src, float *dst, size_t n);
	// n finished values back to elem: rounded and cut off to a u8 or u16.
	void (*narrow)(int elem, const float *src, uint8_t *dst, size_t n);
	// Rounds to the whole numbers from 0 to top, in place.
	void (*round)(float *p, size_t n, float top);
	// One row of pixels, from pixel a->lo of the box, to a->n pixels. Values are clamped to [0, top] if top is not 0.
	void (*h_row)(const sk_axis *a, int channels, const float *src, float *dst, float top);
	// dst = src*k, or dst += src*k.
	void (*v_first)(float *dst, const float *src, float k, size_t n);
	void (*v_next)(float *dst, const float *src, float k, size_t n);
	// p = p*scale + bias, element by element.
	void (*affine)(float *p, const float *scale, const float *bias, size_t n);
	// Every step-th value, n of them, to elements of type dtype without gaps.
	void (*put)(int dtype, const float *src, size_t step, uint8_t *dst, size_t n);
} sk_pixel_kernels;

extern const sk_pixel_kernels sk_pixel_kernels_scalar;
#if defined(__x86_64__)
extern const sk_pixel_kernels sk_pixel_kernels_avx2, sk_pixel_kernels_avx512;
#endif

// Runs a job of SK_FORMAT_PIXELS.
int sk_pixels_run(sk_dec *d, const sk_job *job);

#endif
