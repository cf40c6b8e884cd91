// Kernels with Pillow's arithmetic, for programs whose transforms receive Pillow's images. They have one form,
// because compilers vectorise the hot loops.

#include "aug.h"

#include <math.h>
#include <string.h>

// ---- gray ----

static inline uint32_t pillow_gray(const uint8_t *p)
{
	return (p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16;
}

uint64_t sk_pillow_gray_sum(const uint8_t *p, size_t np)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < np; i++)
		sum += pillow_gray(p + 3 * i);
	return sum;
}

void sk_pillow_gray3(uint8_t *p, size_t np)
{
	for (size_t i = 0; i < np; i++)
		memset(p + 3 * i, (int)pillow_gray(p + 3 * i), 3);
}

// ---- blending: from + f * (to - from) ----

static inline uint8_t blend(int from, int to, float f) { return sk_cut8((float)from + f * (float)(to - from)); }

void sk_pillow_saturate(uint8_t *p, size_t np, float f)
{
	for (size_t i = 0; i < np; i++) {
		uint8_t *q = p + 3 * i;
		int gray = (int)pillow_gray(q);
		for (int c = 0; c < 3; c++)
			q[c] = blend(gray, q[c], f);
	}
}

// The smooth image is the mean of 3x3 pixels, the one in the middle five times,
// rounded; the pixels at the border are not smoothed.
void sk_pillow_sharpen(uint8_t *dst, const uint8_t *src, int w, int h, int channels, float f)
{
	size_t row = (size_t)w * (size_t)channels, ch = (size_t)channels;
	memcpy(dst, src, row * (size_t)h);
	for (int y = 1; y + 1 < h; y++) {
		const uint8_t *b = src + row * (size_t)y, *a = b - row, *c = b + row;
		uint8_t *d = dst + row * (size_t)y;
		for (size_t i = ch; i + ch < row; i++) {
			int sum = a[i - ch] + a[i] + a[i + ch] + b[i - ch] + 5 * b[i] + b[i + ch] + c[i - ch] + c[i] + c[i + ch];
			d[i] = blend((2 * sum + 13) / 26, b[i], f);
		}
	}
}

// ---- hue ----

// The pixel goes through 8-bit HSV, whose hues are from 0 to 255.
static void hue_pixel(uint8_t *p, uint8_t shift)
{
	int r = p[0], g = p[1], b = p[2];
	int hi = r > g ? r : g, lo = r < g ? r : g;
	hi = hi > b ? hi : b;
	lo = lo < b ? lo : b;
	int hue = 0, saturation = 0;
	if (hi != lo) {
		float range = (float)(hi - lo), s = range / (float)hi;
		float rc = (float)(hi - r) / range, gc = (float)(hi - g) / range, bc = (float)(hi - b) / range;
		float h = r == hi   ? bc - gc
		          : g == hi ? (float)(2.0 + (double)rc - (double)bc)
		                    : (float)(4.0 + (double)gc - (double)rc);
		double turn = (double)h / 6.0 + 1.0;
		h = (float)(turn - floor(turn));
		hue = (int)((double)h * 255.0);
		saturation = (int)((double)s * 255.0);
	}
	if (saturation == 0) {
		memset(p, hi, 3);
		return;
	}
	double sixths = (double)(uint8_t)(hue + shift) * 6.0 / 255.0;
	int sector = (int)sixths;
	double f = (double)(float)(sixths - sector), s = (double)(float)((double)saturation / 255.0), v = hi;
	uint8_t none = (uint8_t)floor(v * (1.0 - s) + 0.5), down = (uint8_t)floor(v * (1.0 - s * f) + 0.5),
			up = (uint8_t)floor(v * (1.0 - s * (1.0 - f)) + 0.5), full = (uint8_t)hi;
	const uint8_t of[6][3] = {{full, up, none},   {down, full, none}, {none, full, up},
	                          {none, down, full}, {up, none, full},   {full, none, down}};
	memcpy(p, of[sector % 6], 3);
}

void sk_pillow_hue(uint8_t *p, size_t np, uint8_t shift)
{
	for (size_t i = 0; i < np; i++)
		hue_pixel(p + 3 * i, shift);
}

// ---- geometry ----

typedef struct {
	const uint8_t *src;
	int w, h, channels;
} picture;

static inline const uint8_t *at(const picture *p, int x, int y)
{
	return p->src + ((size_t)y * (size_t)p->w + (size_t)x) * (size_t)p->channels;
}

static inline int inside(const picture *p, double x, double y) { return x >= 0.0 && x < p->w && y >= 0.0 && y < p->h; }

// Fractions are cut off, as Pillow does: the order of the operations matters.
static void bilinear(uint8_t *dst, const picture *p, double x, double y)
{
	x -= 0.5, y -= 0.5;
	int left = (int)floor(x), top = (int)floor(y);
	double dx = x - left, dy = y - top;
	int x0 = left < 0 ? 0 : left, x1 = left + 1 < p->w ? left + 1 : p->w - 1;
	int y0 = top < 0 ? 0 : top, y1 = top + 1 < p->h ? top + 1 : y0;
	const uint8_t *a = at(p, x0, y0), *b = at(p, x1, y0), *c = at(p, x0, y1), *d = at(p, x1, y1);
	for (int i = 0; i < p->channels; i++) {
		double v = a[i] + (b[i] - a[i]) * dx, low = c[i] + (d[i] - c[i]) * dx;
		dst[i] = (uint8_t)(v + (low - v) * dy);
	}
}

static inline void copy(uint8_t *dst, const picture *p, int x, int y)
{
	const uint8_t *from = at(p, x, y);
	for (int i = 0; i < p->channels; i++)
		dst[i] = from[i];
}

// Whether a corner of the result comes from a point within the range of 16.16 numbers.
static int fits(const double *m, double x, double y)
{
	return fabs(x * m[0] + y * m[1] + m[2]) < 32768.0 && fabs(x * m[3] + y * m[4] + m[5]) < 32768.0;
}

static int64_t fixed(double v) { return (int64_t)floor(v * 65536.0 + 0.5); }

static void nearest_fixed(uint8_t *dst, int dw, int dh, const picture *p, const double *m)
{
	// Unsigned, since sums may wrap around outside of the image.
	uint32_t ax = (uint32_t)fixed(m[0]), bx = (uint32_t)fixed(m[1]), ay = (uint32_t)fixed(m[3]),
			 by = (uint32_t)fixed(m[4]);
	uint32_t x0 = (uint32_t)fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), y0 = (uint32_t)fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
	for (int j = 0; j < dh; j++, x0 += bx, y0 += by) {
		uint32_t x = x0, y = y0;
		for (int i = 0; i < dw; i++, x += ax, y += ay, dst += p->channels) {
			int xi = (int32_t)x >> 16, yi = (int32_t)y >> 16;
			if (xi >= 0 && xi < p->w && yi >= 0 && yi < p->h)
				copy(dst, p, xi, yi);
		}
	}
}

// Coordinates are sums of steps, as in Pillow.
static void nearest_summed(uint8_t *dst, int dw, int dh, const picture *p, const double *m)
{
	double x0 = m[2] + m[1] * 0.5 + m[0] * 0.5, y0 = m[5] + m[4] * 0.5 + m[3] * 0.5;
	for (int j = 0; j < dh; j++, x0 += m[1], y0 += m[4]) {
		double x = x0, y = y0;
		for (int i = 0; i < dw; i++, x += m[0], y += m[3], dst += p->channels)
			if (inside(p, x, y))
				copy(dst, p, (int)x, (int)y);
	}
}

void sk_pillow_warp(uint8_t *dst, int dw, int dh, const uint8_t *src, int sw, int sh, int channels,
                    const sk_pillow_map *map)
{
	picture p = {src, sw, sh, channels};
	const double *m = map->m;
	for (int i = 0; i < dw * dh * channels; i++)
		dst[i] = map->fill[i % channels];
	int affine = m[6] == 0 && m[7] == 0;
	if (affine && !map->bilinear) {
		int straight = m[1] == 0 && m[3] == 0;
		if (!straight && fits(m, 0, 0) && fits(m, dw, dh) && fits(m, 0, dh) && fits(m, dw, 0)) {
			nearest_fixed(dst, dw, dh, &p, m);
		} else {
			nearest_summed(dst, dw, dh, &p, m);
		}
		return;
	}
	for (int j = 0; j < dh; j++) {
		double y = j + 0.5;
		for (int i = 0; i < dw; i++, dst += channels) {
			double x = i + 0.5, sx = m[0] * x + m[1] * y + m[2], sy = m[3] * x + m[4] * y + m[5];
			if (!affine) {
				double d = m[6] * x + m[7] * y + 1;
				sx /= d, sy /= d;
			}
			if (!inside(&p, sx, sy))
				continue;
			if (map->bilinear) {
				bilinear(dst, &p, sx, sy);
			} else {
				copy(dst, &p, (int)sx, (int)sy);
			}
		}
	}
}
