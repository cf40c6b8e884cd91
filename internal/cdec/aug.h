// Augmentation kernels: 8-bit images, packed rows (no padding), 1 or 3 interleaved channels. The arithmetic is
// torchvision's for uint8 tensors. Every kernel has a portable C form. The hot ones also have AVX2 and AVX-512 (VBMI)
// forms that give the same bytes.
#ifndef STOKER_AUG_H
#define STOKER_AUG_H

#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

// Cuts a value off at 0 and 255, and its fraction.
static inline uint8_t sk_cut8(float v)
{
	v = v > 0.0f ? v : 0.0f; // in this order NaN becomes 0, as in sk_trunc8
	v = v < 255.0f ? v : 255.0f;
	return (uint8_t)v;
}

// ---- colour (aug_color.c); in place, n is a count of bytes, np of pixels ----

// x -> trunc(clamp(x*scale + bias)): brightness (bias 0) and contrast.
void sk_aug_scale_bias(uint8_t *p, size_t n, float scale, float bias);
// Sum over all pixels of the luma of RGB pixels, each rounded down.
uint64_t sk_aug_luma_sum(const uint8_t *p, size_t np);
uint64_t sk_aug_byte_sum(const uint8_t *p, size_t n);
// RGB -> luma in all three channels (dst == src is fine).
void sk_aug_gray3(uint8_t *p, size_t np);
// RGB -> one channel; dst may be src.
void sk_aug_gray1(uint8_t *dst, const uint8_t *src, size_t np);
// x -> trunc(clamp(x*ratio + luma*(1-ratio))).
void sk_aug_saturate(uint8_t *p, size_t np, float ratio, float rest);
// Turns the hue by shift (1 is a full turn), -0.5 <= shift <= 0.5.
void sk_aug_hue(uint8_t *p, size_t np, float shift);
// Hue, saturation and value of RGB pixels by tables of 180, 256 and 256 bytes, as
// OpenCV's 8-bit HSV has them (aug_hsv.c).
void sk_aug_hsv(uint8_t *p, size_t np, const uint8_t *hues, const uint8_t *saturations, const uint8_t *values);
void sk_aug_invert(uint8_t *p, size_t n);
void sk_aug_and(uint8_t *p, size_t n, uint8_t mask);
// Bytes >= threshold are inverted; threshold 256 inverts nothing.
void sk_aug_solarize(uint8_t *p, size_t n, int threshold);
// One table of 256 bytes per channel.
void sk_aug_lut(uint8_t *p, size_t np, int channels, const uint8_t *lut);
void sk_aug_hist(const uint8_t *p, size_t np, int channels, uint32_t *hist);
void sk_aug_minmax(const uint8_t *p, size_t np, int channels, uint8_t *lo, uint8_t *hi);

// ---- neighbourhoods (aug_filter.c); dst and src must not overlap ----

// x -> trunc(clamp(x + rest*(smooth - x))), the outermost pixels unchanged.
// tmp holds row bytes (width*channels) of uint16_t plus 64 bytes.
void sk_aug_sharpen(uint8_t *dst, const uint8_t *src, int w, int h, int channels, float rest, uint16_t *tmp);
enum { SK_AUG_MAX_RADIUS = 511 };
// Separable blur with reflected borders. kx and ky hold radius+1 weights from
// the centre outwards in 1/16384, summing (both sides) to 16384. The radii are
// smaller than w and h and at most SK_AUG_MAX_RADIUS. tmp holds (w + 2*rx)*channels int16_t plus 64 bytes.
void sk_aug_blur(uint8_t *dst, const uint8_t *src, int w, int h, int channels, const int16_t *kx, int rx,
                 const int16_t *ky, int ry, int16_t *tmp);

// ---- geometry (aug_warp.c); dst and src must not overlap ----

typedef struct {
	// Source position of output pixel (x, y), both from the pixel's centre:
	// sx = m[0]*x + m[1]*y + m[2], sy = m[3]*x + m[4]*y + m[5].
	double m[6];
	int bilinear; // else nearest
	int has_fill; // else black, without torchvision's blending at the border
	float fill[3];
} sk_aug_map;

void sk_aug_warp(uint8_t *dst, int dw, int dh, const uint8_t *src, int sw, int sh, int channels, const sk_aug_map *map);
// n pixels of dst from the points (xs, ys) of src; m of the map is not used.
void sk_aug_remap(uint8_t *dst, int n, const uint8_t *src, int sw, int sh, int channels, const sk_aug_map *map,
                  const float *xs, const float *ys);
// Quarter turns anticlockwise, 1 to 3.
void sk_aug_rot90(uint8_t *dst, const uint8_t *src, int sw, int sh, int channels, int turns);

enum { SK_PAD_CONSTANT = 0, SK_PAD_EDGE = 1, SK_PAD_REFLECT = 2, SK_PAD_SYMMETRIC = 3 };
// dst(x, y) = src(x + left, y + top). mode sets how src extends beyond its borders. The caller has checked that one
// reflection is enough.
void sk_aug_window(uint8_t *dst, int dw, int dh, const uint8_t *src, int sw, int sh, int channels, int left, int top,
                   int mode, const uint8_t *fill);

// ---- as Pillow computes (aug_pillow.c) ----

uint64_t sk_pillow_gray_sum(const uint8_t *p, size_t np);
// RGB -> gray in all three channels.
void sk_pillow_gray3(uint8_t *p, size_t np);
// x -> gray + f*(x - gray).
void sk_pillow_saturate(uint8_t *p, size_t np, float f);
// Adds shift to the 8-bit hue.
void sk_pillow_hue(uint8_t *p, size_t np, uint8_t shift);
// x -> smooth + f*(x - smooth); dst and src must not overlap.
void sk_pillow_sharpen(uint8_t *dst, const uint8_t *src, int w, int h, int channels, float f);

typedef struct {
	// Source position of output pixel (x, y): (m[0]*x + m[1]*y + m[2]) / d and (m[3]*x + m[4]*y + m[5]) / d, with d =
	// m[6]*x + m[7]*y + 1. The centre of the first pixel is (0.5, 0.5).
	double m[8];
	int bilinear; // else nearest
	uint8_t fill[3];
} sk_pillow_map;

void sk_pillow_warp(uint8_t *dst, int dw, int dh, const uint8_t *src, int sw, int sh, int channels,
                    const sk_pillow_map *map);

// ---- batches (aug_batch.c) ----

// dst = a*lam + b*(1-lam), n elements. dst may be a or b; no alignment is needed.
void sk_aug_mix_u8(uint8_t *dst, const uint8_t *a, const uint8_t *b, size_t n, float lam);
void sk_aug_mix_f32(void *dst, const void *a, const void *b, size_t n, float lam);
void sk_aug_mix_f16(void *dst, const void *a, const void *b, size_t n, float lam);
void sk_aug_mix_bf16(void *dst, const void *a, const void *b, size_t n, float lam);

// The same pixels on every machine: if the processor has a fused multiply-add, compilers use it by default.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif !defined(__x86_64__)
#pragma GCC optimize("fp-contract=off")
#endif

#endif
