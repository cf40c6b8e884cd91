// Augmentation kernels for the pixel types that aug.h does not support: u8 of 2 and 4 channels, u16, f32. The
// arithmetic is torchvision's for tensors of the type; floats range from 0 to 1. Pixels may be at any address.
#ifndef STOKER_AUG_ANY_H
#define STOKER_AUG_ANY_H

#include <stddef.h>
#include <stdint.h>

// elem is SK_U8, SK_U16 or SK_F32; n counts elements, np pixels.

// x -> clamp(x*scale + bias): brightness (bias 0) and contrast.
void sk_any_scale_bias(int elem, void *p, size_t n, float scale, float bias);
// Sum of the elements, and of the luma of RGB pixels.
double sk_any_sum(int elem, const void *p, size_t n);
double sk_any_luma_sum(int elem, const void *p, size_t np);
// RGB -> the luma in 1 or 3 channels; dst may be src.
void sk_any_gray(int elem, void *dst, const void *src, size_t np, int channels);
void sk_any_saturate(int elem, void *p, size_t np, float ratio);
void sk_any_hue(int elem, void *p, size_t np, float shift);
void sk_any_invert(int elem, void *p, size_t n);
// Keeps the upper bits, 0 to 8.
void sk_any_posterize(int elem, void *p, size_t n, int bits);
// Inverts values at or above the threshold.
void sk_any_solarize(int elem, void *p, size_t n, float threshold);
// Stretches each channel to the whole range.
void sk_any_autocontrast(int elem, void *p, size_t np, int channels);
// As torchvision's equalize: in 256 steps.
void sk_any_equalize(int elem, void *p, size_t np, int channels);

// dst and src must not overlap. tmp holds a row of floats, for blur with 2*rx
// pixels more. The weights go from the centre outwards and sum to 1, both sides.
void sk_any_sharpen(int elem, void *dst, const void *src, int w, int h, int channels, float rest, float *tmp);
void sk_any_blur(int elem, void *dst, const void *src, int w, int h, int channels, const float *kx, int rx,
                 const float *ky, int ry, float *tmp);

typedef struct {
	double m[6]; // as in sk_aug_map
	int bilinear, has_fill;
	float fill[4];
} sk_any_map;

void sk_any_warp(int elem, void *dst, int dw, int dh, const void *src, int sw, int sh, int channels,
                 const sk_any_map *map);

// As sk_aug_remap.
void sk_any_remap(int elem, void *dst, int n, const void *src, int sw, int sh, int channels, const sk_any_map *map,
                  const float *xs, const float *ys);

// These only move pixels, of px bytes each.
void sk_any_rot90(int px, uint8_t *dst, const uint8_t *src, int sw, int sh, int turns);
// As sk_aug_window; fill is a pixel.
void sk_any_window(int px, uint8_t *dst, int dw, int dh, const uint8_t *src, int sw, int sh, int left, int top,
                   int mode, const uint8_t *fill);

#endif
