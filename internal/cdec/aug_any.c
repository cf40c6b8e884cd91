// The kernels of aug_any.h, for each type of elements.
#include "fp_exact.h" // before every function

#include "aug_any.h"

#include <math.h>
#include <string.h>

#include "aug.h"
#include "cdec.h"

typedef uint16_t __attribute__((aligned(1), may_alias)) any_u16;
typedef float __attribute__((aligned(1), may_alias)) any_f32;

// Row y of an image of h rows that is reflected at its borders.
static inline int sk_reflect(int y, int h) { return y < 0 ? -y : y >= h ? 2 * (h - 1) - y : y; }

static inline int sk_within(float v, int n) { return v > -1.0f && v < (float)n; }

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

// Turns the hue by shift6 sixths of a turn, as aug_color.c does.
static inline void sk_hue(float r, float g, float b, float shift6, float out[3])
{
	float hi = r > g ? r : g, lo = r < g ? r : g;
	hi = hi > b ? hi : b;
	lo = lo < b ? lo : b;
	const float c = hi - lo, d = c > 0.0f ? c : 1.0f;
	float h = hi == r ? (g - b) / d : hi == g ? (b - r) / d + 2.0f : (r - g) / d + 4.0f;
	h += shift6;
	if (h < 0.0f)
		h += 6.0f;
	if (h >= 6.0f)
		h -= 6.0f;
	out[0] = hue_channel(hi, c, h + 5.0f);
	out[1] = hue_channel(hi, c, h + 3.0f);
	out[2] = hue_channel(hi, c, h + 1.0f);
}

// Pillow's table of a histogram over np pixels.
static void sk_equalize_table(const uint32_t hist[256], size_t np, uint8_t table[256])
{
	int last = 255;
	while (last > 0 && hist[last] == 0)
		last--;
	const uint32_t step = (uint32_t)(np - hist[last]) / 255;
	uint32_t sum = step / 2;
	for (int v = 0; v < 256; v++) {
		const uint32_t to = step == 0 ? (uint32_t)v : sum / step;
		table[v] = (uint8_t)(to > 255 ? 255 : to);
		sum += hist[v];
	}
}

#define T uint8_t
#define TOP 255
#define FN(name) name##_u8
#define WHOLE 1
#include "aug_any_kernels.h"

#define T any_u16
#define TOP 65535
#define FN(name) name##_u16
#define WHOLE 1
#include "aug_any_kernels.h"

#define T any_f32
#define TOP 1
#define FN(name) name##_f32
#define WHOLE 0
#include "aug_any_kernels.h"

// CALL(name, (arguments)) calls the kernel for elem.
#define CALL(name, ...) \
	(elem == SK_U8 ? name##_u8(__VA_ARGS__) : elem == SK_U16 ? name##_u16(__VA_ARGS__) : name##_f32(__VA_ARGS__))

void sk_any_scale_bias(int elem, void *p, size_t n, float scale, float bias) { CALL(scale_bias, p, n, scale, bias); }

double sk_any_sum(int elem, const void *p, size_t n) { return CALL(sum, p, n); }

double sk_any_luma_sum(int elem, const void *p, size_t np) { return CALL(luma_sum, p, np); }

void sk_any_gray(int elem, void *dst, const void *src, size_t np, int channels) { CALL(gray, dst, src, np, channels); }

void sk_any_saturate(int elem, void *p, size_t np, float ratio) { CALL(saturate, p, np, ratio); }

void sk_any_hue(int elem, void *p, size_t np, float shift) { CALL(hue, p, np, shift); }

void sk_any_invert(int elem, void *p, size_t n) { CALL(invert, p, n); }

void sk_any_posterize(int elem, void *p, size_t n, int bits) { CALL(posterize, p, n, bits); }

void sk_any_solarize(int elem, void *p, size_t n, float threshold) { CALL(solarize, p, n, threshold); }

void sk_any_autocontrast(int elem, void *p, size_t np, int channels) { CALL(autocontrast, p, np, channels); }

void sk_any_equalize(int elem, void *p, size_t np, int channels) { CALL(equalize, p, np, channels); }

void sk_any_sharpen(int elem, void *dst, const void *src, int w, int h, int channels, float rest, float *tmp)
{
	CALL(sharpen, dst, src, w, h, channels, rest, tmp);
}

void sk_any_blur(int elem, void *dst, const void *src, int w, int h, int channels, const float *kx, int rx,
                 const float *ky, int ry, float *tmp)
{
	CALL(blur, dst, src, w, h, channels, kx, rx, ky, ry, tmp);
}

void sk_any_warp(int elem, void *dst, int dw, int dh, const void *src, int sw, int sh, int channels,
                 const sk_any_map *map)
{
	CALL(warp, dst, dw, dh, src, sw, sh, channels, map);
}

void sk_any_remap(int elem, void *dst, int n, const void *src, int sw, int sh, int channels, const sk_any_map *map,
                  const float *xs, const float *ys)
{
	CALL(remap, dst, n, src, sw, sh, channels, map, xs, ys);
}

// ---- whole pixels

// Copies n pixels of px bytes to consecutive positions of dst. In src they are step bytes apart.
static void copy_pixels(int px, uint8_t *dst, const uint8_t *src, ptrdiff_t step, int n)
{
	// A size that the compiler knows becomes one load and one store.
#define COPY(size)                                                \
	case size:                                                    \
		for (int i = 0; i < n; i++)                               \
			memcpy(dst + (size_t)i * size, src + i * step, size); \
		break
	switch (px) {
		COPY(1);
		COPY(2);
		COPY(3);
		COPY(4);
		COPY(6);
		COPY(8);
		COPY(12);
		COPY(16);
	}
#undef COPY
}

void sk_any_rot90(int px, uint8_t *dst, const uint8_t *src, int sw, int sh, int turns)
{
	const ptrdiff_t row = (ptrdiff_t)sw * px;
	const int dw = turns == 2 ? sw : sh, dh = turns == 2 ? sh : sw;
	for (int y = 0; y < dh; y++, dst += (ptrdiff_t)dw * px) {
		if (turns == 1)
			copy_pixels(px, dst, src + (ptrdiff_t)(sw - 1 - y) * px, row, dw);
		else if (turns == 2)
			copy_pixels(px, dst, src + (sh - 1 - y) * row + row - px, -px, dw);
		else
			copy_pixels(px, dst, src + (sh - 1) * row + (ptrdiff_t)y * px, -row, dw);
	}
}

// Index into [0, n) of a line that extends beyond its ends, or -1 for fill.
static int extend(int i, int n, int mode)
{
	if (i >= 0 && i < n)
		return i;
	switch (mode) {
	case SK_PAD_EDGE: return i < 0 ? 0 : n - 1;
	case SK_PAD_REFLECT: return i < 0 ? -i : 2 * (n - 1) - i;
	case SK_PAD_SYMMETRIC: return i < 0 ? -i - 1 : 2 * n - 1 - i;
	}
	return -1;
}

void sk_any_window(int px, uint8_t *dst, int dw, int dh, const uint8_t *src, int sw, int sh, int left, int top,
                   int mode, const uint8_t *fill)
{
	// Output columns [x0, x1) are inside the source.
	int x0 = left < 0 ? -left : 0, x1 = sw - left;
	x0 = x0 < dw ? x0 : dw;
	x1 = x1 < dw ? x1 : dw;
	x1 = x1 > x0 ? x1 : x0;
	for (int y = 0; y < dh; y++, dst += (ptrdiff_t)dw * px) {
		const int sy = extend(y + top, sh, mode);
		if (sy < 0) {
			copy_pixels(px, dst, fill, 0, dw);
			continue;
		}
		const uint8_t *s = src + (ptrdiff_t)sy * sw * px;
		if (x1 > x0)
			memcpy(dst + (ptrdiff_t)x0 * px, s + (ptrdiff_t)(x0 + left) * px, (size_t)(x1 - x0) * (size_t)px);
		for (int x = 0; x < dw; x++) {
			if (x == x0)
				x = x1;
			if (x >= dw)
				break;
			const int sx = extend(x + left, sw, mode);
			memcpy(dst + (ptrdiff_t)x * px, sx < 0 ? fill : s + (ptrdiff_t)sx * px, (size_t)px);
		}
	}
}
