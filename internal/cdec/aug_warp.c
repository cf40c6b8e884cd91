// Affine maps, quarter turns, windows with padding.

#include <limits.h>
#include <string.h>

#include "aug.h"
#include "aug_x86.h"

// Rounds half to even, for |v| < 2^22.
static inline float round_even(float v)
{
	const float magic = 12582912.0f; // 1.5 * 2^23
	return (v + magic) - magic;
}

static inline uint8_t to_byte(float v)
{
	v = round_even(v);
	v = v > 0.0f ? v : 0.0f;
	return (uint8_t)(v < 255.0f ? v : 255.0f);
}

typedef struct {
	const uint8_t *src;
	int w, h, ch;
	size_t total; // bytes
	int bilinear, has_fill;
	float fill[3];
	uint8_t fill8[3];
} warp_source;

static inline int within(float v, int n) { return v > -1.0f && v < (float)n; }

static void nearest_pixel(uint8_t *d, const warp_source *s, float sx, float sy)
{
	const uint8_t *p = s->fill8;
	if (within(sx, s->w) && within(sy, s->h)) {
		int ix = (int)round_even(sx), iy = (int)round_even(sy);
		if (ix >= 0 && ix < s->w && iy >= 0 && iy < s->h)
			p = s->src + ((size_t)iy * (size_t)s->w + (size_t)ix) * (size_t)s->ch;
	}
	for (int c = 0; c < s->ch; c++)
		d[c] = p[c];
}

static void bilinear_pixel(uint8_t *d, const warp_source *s, float sx, float sy)
{
	if (!within(sx, s->w) || !within(sy, s->h)) {
		for (int c = 0; c < s->ch; c++)
			d[c] = s->fill8[c];
		return;
	}
	int x0 = (int)(sx + 1.0f) - 1, y0 = (int)(sy + 1.0f) - 1; // floor, for v > -1
	if ((float)x0 > sx)
		x0--; // sx + 1 was rounded up
	if ((float)y0 > sy)
		y0--;
	float fx = sx - (float)x0, fy = sy - (float)y0;
	float w[4] = {(1.0f - fx) * (1.0f - fy), fx * (1.0f - fy), (1.0f - fx) * fy, fx * fy};
	const uint8_t *p[4];
	float inside = 0.0f;
	int missing = 0;
	for (int k = 0; k < 4; k++) {
		int x = x0 + (k & 1), y = y0 + (k >> 1);
		if (x < 0 || x >= s->w || y < 0 || y >= s->h) {
			w[k] = 0.0f;
			p[k] = s->src;
			missing = 1;
		} else {
			p[k] = s->src + ((size_t)y * (size_t)s->w + (size_t)x) * (size_t)s->ch;
			inside += w[k];
		}
	}
	for (int c = 0; c < s->ch; c++) {
		float v = w[0] * p[0][c] + w[1] * p[1][c] + w[2] * p[2][c] + w[3] * p[3][c];
		// torchvision blends with the fill a sum that already lacks the
		// outer neighbours.
		if (missing && s->has_fill)
			v = (v - s->fill[c]) * inside + s->fill[c];
		d[c] = to_byte(v);
	}
}

#if defined(__x86_64__)
// Four bytes at each offset. The last pixel of an image is read one byte early and shifted down, so that no byte
// after the image is read.
SK_AUG_AVX2_INLINE __m256i gather_pixels(const warp_source *s, __m256i ix, __m256i iy, __m256i inside,
                                         __m256i otherwise)
{
	__m256i off = _mm256_add_epi32(_mm256_mullo_epi32(iy, _mm256_set1_epi32(s->w)), ix);
	off = _mm256_add_epi32(off, _mm256_add_epi32(off, off));
	off = _mm256_and_si256(off, inside);
	__m256i safe = _mm256_min_epi32(off, _mm256_set1_epi32((int)s->total - 4));
	__m256i v = _mm256_mask_i32gather_epi32(otherwise, (const int *)s->src, safe, inside, 1);
	return _mm256_srlv_epi32(v, _mm256_slli_epi32(_mm256_sub_epi32(off, safe), 3));
}

SK_AUG_AVX2_INLINE __m256i in_range(__m256i v, int n)
{
	return _mm256_and_si256(_mm256_cmpgt_epi32(v, _mm256_set1_epi32(-1)), _mm256_cmpgt_epi32(_mm256_set1_epi32(n), v));
}

SK_AUG_AVX2 static int nearest_row_avx2(uint8_t *d, int dw, const warp_source *s, float ax, float bx, float ay,
                                        float by)
{
	const __m256i fill = _mm256_set1_epi32(s->fill8[0] | s->fill8[1] << 8 | s->fill8[2] << 16);
	const __m256 step = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
	int x = 0;
	for (; x + 8 <= dw; x += 8) {
		__m256 fx = _mm256_add_ps(_mm256_set1_ps((float)x), step);
		__m256 sx = _mm256_add_ps(_mm256_mul_ps(fx, _mm256_set1_ps(ax)), _mm256_set1_ps(bx));
		__m256 sy = _mm256_add_ps(_mm256_mul_ps(fx, _mm256_set1_ps(ay)), _mm256_set1_ps(by));
		// A value that does not fit an int32 becomes its minimum, which counts as outside.
		__m256i ix = _mm256_cvtps_epi32(sx), iy = _mm256_cvtps_epi32(sy);
		__m256i inside = _mm256_and_si256(in_range(ix, s->w), in_range(iy, s->h));
		sk_store8(d + 3 * (size_t)x, gather_pixels(s, ix, iy, inside, fill));
	}
	return x;
}

SK_AUG_AVX2_INLINE __m256i blend4(__m256i a, __m256i b, __m256i c, __m256i e, const __m256 w[4])
{
	__m256 v = _mm256_mul_ps(w[0], _mm256_cvtepi32_ps(a));
	v = _mm256_add_ps(v, _mm256_mul_ps(w[1], _mm256_cvtepi32_ps(b)));
	v = _mm256_add_ps(v, _mm256_mul_ps(w[2], _mm256_cvtepi32_ps(c)));
	v = _mm256_add_ps(v, _mm256_mul_ps(w[3], _mm256_cvtepi32_ps(e)));
	return _mm256_min_epi32(_mm256_cvtps_epi32(v), _mm256_set1_epi32(255));
}

SK_AUG_AVX2 static int bilinear_row_avx2(uint8_t *d, int dw, const warp_source *s, float ax, float bx, float ay,
                                         float by)
{
	const __m256 step = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), one = _mm256_set1_ps(1.0f);
	const __m256i drop = _mm256_set1_epi32(0x00ffffff);
	// All four neighbours of an offset up to here can be read as four bytes.
	const int last = (int)s->total - 3 * s->w - 7;
	const uint8_t *row1 = s->src + 3 * (size_t)s->w;
	int x = 0;
	for (; x + 8 <= dw; x += 8) {
		__m256 px = _mm256_add_ps(_mm256_set1_ps((float)x), step);
		__m256 sx = _mm256_add_ps(_mm256_mul_ps(px, _mm256_set1_ps(ax)), _mm256_set1_ps(bx));
		__m256 sy = _mm256_add_ps(_mm256_mul_ps(px, _mm256_set1_ps(ay)), _mm256_set1_ps(by));
		__m256 x0 = _mm256_floor_ps(sx), y0 = _mm256_floor_ps(sy);
		__m256i ix = _mm256_cvtps_epi32(x0), iy = _mm256_cvtps_epi32(y0);
		__m256i inner = _mm256_and_si256(in_range(ix, s->w - 1), in_range(iy, s->h - 1));
		__m256i off = _mm256_add_epi32(_mm256_mullo_epi32(iy, _mm256_set1_epi32(s->w)), ix);
		off = _mm256_add_epi32(off, _mm256_add_epi32(off, off));
		inner = _mm256_andnot_si256(_mm256_cmpgt_epi32(off, _mm256_set1_epi32(last)), inner);
		if (_mm256_movemask_epi8(inner) != -1) {
			float xs[8], ys[8];
			_mm256_storeu_ps(xs, sx);
			_mm256_storeu_ps(ys, sy);
			for (int k = 0; k < 8; k++)
				bilinear_pixel(d + 3 * (size_t)(x + k), s, xs[k], ys[k]);
			continue;
		}
		__m256 fx = _mm256_sub_ps(sx, x0), fy = _mm256_sub_ps(sy, y0);
		__m256 gx = _mm256_sub_ps(one, fx), gy = _mm256_sub_ps(one, fy);
		const __m256 w[4] = {_mm256_mul_ps(gx, gy), _mm256_mul_ps(fx, gy), _mm256_mul_ps(gx, fy),
		                     _mm256_mul_ps(fx, fy)};
		__m256i a = _mm256_i32gather_epi32((const int *)s->src, off, 1);
		__m256i b = _mm256_i32gather_epi32((const int *)(s->src + 3), off, 1);
		__m256i c = _mm256_i32gather_epi32((const int *)row1, off, 1);
		__m256i e = _mm256_i32gather_epi32((const int *)(row1 + 3), off, 1);
		a = _mm256_and_si256(a, drop), b = _mm256_and_si256(b, drop);
		c = _mm256_and_si256(c, drop), e = _mm256_and_si256(e, drop);
		__m256i r = blend4(sk_red(a), sk_red(b), sk_red(c), sk_red(e), w);
		__m256i g = blend4(sk_green(a), sk_green(b), sk_green(c), sk_green(e), w);
		__m256i u = blend4(sk_blue(a), sk_blue(b), sk_blue(c), sk_blue(e), w);
		sk_store8(d + 3 * (size_t)x, sk_join(r, g, u));
	}
	return x;
}
#endif

static warp_source source_of(const uint8_t *src, int sw, int sh, int channels, const sk_aug_map *map)
{
	warp_source s = {.src = src, .w = sw, .h = sh, .ch = channels, .bilinear = map->bilinear};
	s.total = (size_t)sw * (size_t)sh * (size_t)channels;
	s.has_fill = map->has_fill;
	for (int c = 0; c < channels; c++) {
		s.fill[c] = map->has_fill ? map->fill[c] : 0.0f;
		s.fill8[c] = to_byte(s.fill[c]);
	}
	return s;
}

void sk_aug_remap(uint8_t *dst, int n, const uint8_t *src, int sw, int sh, int channels, const sk_aug_map *map,
                  const float *xs, const float *ys)
{
	const warp_source s = source_of(src, sw, sh, channels, map);
	for (int i = 0; i < n; i++, dst += channels) {
		if (s.bilinear)
			bilinear_pixel(dst, &s, xs[i], ys[i]);
		else
			nearest_pixel(dst, &s, xs[i], ys[i]);
	}
}

void sk_aug_warp(uint8_t *dst, int dw, int dh, const uint8_t *src, int sw, int sh, int channels, const sk_aug_map *map)
{
	const warp_source s = source_of(src, sw, sh, channels, map);
	const float ax = (float)map->m[0], ay = (float)map->m[3];
	for (int y = 0; y < dh; y++) {
		// The row's constant in double: float would lose the low bits of m*y.
		const float bx = (float)(map->m[1] * y + map->m[2]), by = (float)(map->m[4] * y + map->m[5]);
		uint8_t *d = dst + (size_t)y * (size_t)dw * (size_t)channels;
		int x = 0;
#if defined(__x86_64__)
		if (channels == 3 && s.total >= 32 && s.total < INT_MAX / 2 && sk_set(SK_KERNEL_AUGMENT) >= SK_AVX2) {
			if (s.bilinear)
				x = bilinear_row_avx2(d, dw, &s, ax, bx, ay, by);
			else
				x = nearest_row_avx2(d, dw, &s, ax, bx, ay, by);
		}
#endif
		for (; x < dw; x++) {
			float sx = (float)x * ax + bx, sy = (float)x * ay + by;
			uint8_t *q = d + (size_t)x * (size_t)channels;
			if (s.bilinear)
				bilinear_pixel(q, &s, sx, sy);
			else
				nearest_pixel(q, &s, sx, sy);
		}
	}
}

static inline void copy_pixel(uint8_t *d, const uint8_t *s, int ch)
{
	d[0] = s[0];
	if (ch == 3)
		d[1] = s[1], d[2] = s[2];
}

void sk_aug_rot90(uint8_t *dst, const uint8_t *src, int sw, int sh, int channels, int turns)
{
	ptrdiff_t ch = channels, row = (ptrdiff_t)sw * ch;
	int dw = turns == 2 ? sw : sh, dh = turns == 2 ? sh : sw;
	for (int y = 0; y < dh; y++) {
		const uint8_t *s;
		ptrdiff_t step;
		if (turns == 1)
			s = src + (sw - 1 - y) * ch, step = row;
		else if (turns == 2)
			s = src + (sh - 1 - y) * row + (sw - 1) * ch, step = -ch;
		else
			s = src + (sh - 1) * row + y * ch, step = -row;
		uint8_t *d = dst + (ptrdiff_t)y * dw * ch;
		for (int x = 0; x < dw; x++)
			copy_pixel(d + x * ch, s + x * step, channels);
	}
}

// Index into [0, n) of a line that extends beyond its ends, or -1 for fill.
static inline int extend(int i, int n, int mode)
{
	if (i >= 0 && i < n)
		return i;
	switch (mode) {
	case SK_PAD_EDGE: return i < 0 ? 0 : n - 1;
	case SK_PAD_REFLECT: return i < 0 ? -i : 2 * (n - 1) - i;
	case SK_PAD_SYMMETRIC: return i < 0 ? -i - 1 : 2 * n - 1 - i;
	default: return -1;
	}
}

void sk_aug_window(uint8_t *dst, int dw, int dh, const uint8_t *src, int sw, int sh, int channels, int left, int top,
                   int mode, const uint8_t *fill)
{
	size_t ch = (size_t)channels;
	// Output columns [x0, x1) are inside the source.
	int x0 = left < 0 ? -left : 0, x1 = sw - left;
	x0 = x0 < dw ? x0 : dw;
	x1 = x1 < dw ? x1 : dw;
	x1 = x1 > x0 ? x1 : x0;
	for (int y = 0; y < dh; y++) {
		uint8_t *d = dst + (size_t)y * (size_t)dw * ch;
		int sy = extend(y + top, sh, mode);
		if (sy < 0) {
			for (int x = 0; x < dw; x++)
				copy_pixel(d + (size_t)x * ch, fill, channels);
			continue;
		}
		const uint8_t *s = src + (size_t)sy * (size_t)sw * ch;
		if (x1 > x0)
			memcpy(d + (size_t)x0 * ch, s + (size_t)(x0 + left) * ch, (size_t)(x1 - x0) * ch);
		for (int x = 0; x < dw; x++) {
			if (x == x0)
				x = x1;
			if (x >= dw)
				break;
			int sx = extend(x + left, sw, mode);
			copy_pixel(d + (size_t)x * ch, sx < 0 ? fill : s + (size_t)sx * ch, channels);
		}
	}
}
