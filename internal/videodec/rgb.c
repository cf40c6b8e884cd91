// Pixels of decoded frames. The colour arithmetic is that of libswscale: 16-bit numbers, high halves of products, and
// chroma that is shared by pixels without a filter.
#include "videodec.h"

enum { CHUNK = 512 };

static inline uint8_t clip(int v) { return v < 0 ? 0 : v > 255 ? 255 : (uint8_t)v; }

// values reads n values from one plane as 8 bits, each step-th.
static void values(uint8_t *to, const uint8_t *from, int bytes, int shift, int step, int n)
{
	if (bytes == 1) {
		for (int i = 0; i < n; i++)
			to[i] = from[i * step];
		return;
	}
	for (int i = 0; i < n; i++) {
		const uint8_t *p = from + 2 * (i * step);
		unsigned v = (p[0] | p[1] << 8) >> shift;
		to[i] = v > 255 ? 255 : (uint8_t)v;
	}
}

static inline int16_t high(int16_t a, int16_t b) { return (int16_t)(((int)a * b) >> 16); }

// some converts n pixels of a row, from values of luma and, one for each pixel, of
// colours.
static void some(const sv_colours *c, const uint8_t *restrict y, const uint8_t *restrict u, const uint8_t *restrict v,
                 int n, uint8_t *restrict dst)
{
	int16_t l[CHUNK], r[CHUNK], g[CHUNK], b[CHUNK];
	for (int i = 0; i < n; i++) {
		int16_t cb = (int16_t)((u[i] << 3) - 0x400), cr = (int16_t)((v[i] << 3) - 0x400);
		l[i] = high((int16_t)((y[i] << 3) - c->y_offset), c->y);
		r[i] = (int16_t)(l[i] + high(cr, c->vr));
		g[i] = (int16_t)(l[i] + high(cb, c->ug) + high(cr, c->vg));
		b[i] = (int16_t)(l[i] + high(cb, c->ub));
	}
	for (int i = 0; i < n; i++) {
		dst[3 * i] = clip(r[i]);
		dst[3 * i + 1] = clip(g[i]);
		dst[3 * i + 2] = clip(b[i]);
	}
}

// planar and gray convert frames without chroma.
static void planar(const uint8_t *g, const uint8_t *b, const uint8_t *r, int n, uint8_t *dst)
{
	for (int i = 0; i < n; i++) {
		dst[3 * i] = r[i];
		dst[3 * i + 1] = g[i];
		dst[3 * i + 2] = b[i];
	}
}

static void gray(const sv_colours *c, const uint8_t *y, int n, uint8_t *dst)
{
	for (int i = 0; i < n; i++)
		dst[3 * i] = dst[3 * i + 1] = dst[3 * i + 2] = clip(high((int16_t)((y[i] << 3) - c->y_offset), c->y));
}

// pixels converts n pixels of a row, n up to CHUNK.
static void pixels(const sv_planes *p, const sv_colours *c, int x, int row, int n, uint8_t *out)
{
	uint8_t y[CHUNK], u[CHUNK], v[CHUNK], cu[CHUNK], cv[CHUNK];
	int next = p->rgb ? p->step : 1; // of packed RGB the first plane has steps, too
	values(y, p->planes[0] + (ptrdiff_t)row * p->stride[0] + (ptrdiff_t)x * next * p->bytes, p->bytes, p->shift, next,
	       n);
	if (p->gray) {
		gray(c, y, n, out);
		return;
	}
	int first = x >> p->cw, m = ((x + n - 1) >> p->cw) - first + 1;
	ptrdiff_t at = row >> p->ch, skip = (ptrdiff_t)first * p->step * p->bytes;
	const uint8_t *pu = p->planes[1] + at * p->stride[1] + skip;
	const uint8_t *pv = p->step == 2 ? pu + p->bytes : p->planes[2] + at * p->stride[2] + skip;
	uint8_t *to = p->cw ? cu : u;
	values(to, pu, p->bytes, p->shift, p->step, m);
	to = p->cw ? cv : v;
	values(to, pv, p->bytes, p->shift, p->step, m);
	if (p->rgb) {
		planar(y, u, v, n, out);
		return;
	}
	for (int i = 0; p->cw && i < n; i++) {
		int k = ((x + i) >> p->cw) - first;
		u[i] = cu[k];
		v[i] = cv[k];
	}
	some(c, y, u, v, n, out);
}

void sv_rgb(const sv_planes *p, const sv_colours *c, int x, int y, int w, int h, uint8_t *dst, ptrdiff_t px,
            ptrdiff_t stride)
{
	uint8_t turned[3 * CHUNK];
	for (int row = y; row < y + h; row++, dst += stride) {
		for (int at = 0; at < w; at += CHUNK) {
			int n = w - at < CHUNK ? w - at : CHUNK;
			uint8_t *to = dst + at * px;
			if (px == 3) {
				pixels(p, c, x + at, row, n, to);
				continue;
			}
			pixels(p, c, x + at, row, n, turned);
			for (int i = 0; i < n; i++, to += px) {
				to[0] = turned[3 * i];
				to[1] = turned[3 * i + 1];
				to[2] = turned[3 * i + 2];
			}
		}
	}
}
