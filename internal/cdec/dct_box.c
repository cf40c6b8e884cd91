// The box decoder of the dct codec: which tiles a box needs, in which order
// their samples become pixels.
//
// The image is processed in bands, one row of MCUs each. A band holds the samples of the tiles that the box touches,
// per component. If chroma is upsampled from the rows above and below, the last row of pixels of a band waits for the
// next band. The data of a step stays in the first-level cache.
#include "sk.h"

#include <stdlib.h>
#include <string.h>

#include "dct.h"

// Rows passed to the sink in one call.
#define ROWS 8
// In front of each row of a band: the sample left of the first one, aligned.
#define LEFT 64

typedef struct {
	uint8_t *rows; // row -1 (last of the band above), then the band's
	ptrdiff_t stride;
	int first_block;    // column of blocks that the band begins with
	int block0, block1; // columns of blocks that the box needs, [block0, block1)
	int fancy_h, fancy_v;
} plane;

typedef struct {
	dct_work work;
	sk_buf buf;                             // planes, upsampled rows, pixels
	uint8_t tail[(1 << 16) + DCT_READ_PAD]; // a tile at the end, with padding
	plane plane[DCT_MAX_COMPS];
	uint8_t *up[DCT_MAX_COMPS]; // upsampled row
	int16_t *sums;
	uint8_t *pixels;
	ptrdiff_t pixel_stride;
} scratch;

static void scratch_free(void *p)
{
	scratch *s = p;
	sk_buf_free(&s->buf);
	free(s);
}

static scratch *scratch_of(sk_dec *d)
{
	if (d->dct == NULL) {
		scratch *s = NULL;
		if (posix_memalign((void **)&s, 64, sizeof *s) != 0)
			return NULL;
		memset(s, 0, sizeof *s);
		d->dct = s;
		d->dct_free = scratch_free;
	}
	return d->dct;
}

// The part of the image that the box needs.
typedef struct {
	int x, y, w, h;
	int row0, row1;   // rows of MCUs [row0, row1)
	int tile0, tile1; // tiles of each row [tile0, tile1)
	int lag;          // rows of pixels that wait for the next band
} span;

static int min(int a, int b) { return a < b ? a : b; }

static int max(int a, int b) { return a > b ? a : b; }

static size_t round64(size_t n) { return (n + 63) & ~(size_t)63; }

static void plan(const dct_image *im, scratch *s, span *b)
{
	b->lag = 0;
	b->tile0 = im->tcols;
	b->tile1 = 0;
	for (int c = 0; c < im->ncomp; c++) {
		const dct_comp *k = &im->comp[c];
		plane *p = &s->plane[c];
		// As jinit_upsampler chooses: triangle filters for 2:1 across (also 2:1
		// down) when there are more than two samples, and for 2:1 down alone.
		p->fancy_h = k->hr == 2 && k->vr <= 2 && k->dw > 2;
		p->fancy_v = k->vr == 2 && (k->hr == 1 || p->fancy_h);
		b->lag |= p->fancy_v;
		const int from = max(b->x / k->hr - p->fancy_h, 0);
		const int to = min((b->x + b->w - 1) / k->hr + p->fancy_h, k->dw - 1);
		p->block0 = from / 8;
		p->block1 = to / 8 + 1;
		b->tile0 = min(b->tile0, p->block0 / (im->tile * k->h));
		b->tile1 = max(b->tile1, (p->block1 - 1) / (im->tile * k->h) + 1);
	}
	const int mcu = 8 * im->vmax;
	b->row0 = max(b->y - b->lag, 0) / mcu;
	b->row1 = min((b->y + b->h - 1 + b->lag) / mcu + 1, im->mrows);
}

// Lays out the buffers. The image's size, which sk_check_size has limited, limits theirs.
static int layout(const dct_image *im, scratch *s, const span *b)
{
	size_t size = 0, at[DCT_MAX_COMPS], up[DCT_MAX_COMPS];
	for (int c = 0; c < im->ncomp; c++) {
		const dct_comp *k = &im->comp[c];
		plane *p = &s->plane[c];
		p->first_block = b->tile0 * im->tile * k->h;
		const int blocks = (b->tile1 - b->tile0) * im->tile * k->h;
		// Transforms write four blocks at a time, loads go 64 bytes too far.
		p->stride = (ptrdiff_t)round64(LEFT + 8 * (size_t)blocks + 32 + 64);
		at[c] = size;
		size += (size_t)p->stride * (size_t)(8 * k->v + 1);
	}
	const size_t width = round64((size_t)b->w + 8 + 256);
	for (int c = 0; c < im->ncomp; c++) {
		up[c] = size;
		size += width;
	}
	const size_t sums = size;
	size += 2 * width + 128;
	s->pixel_stride = (ptrdiff_t)round64(4 * (size_t)b->w + SK_PAD);
	const size_t pixels = size;
	size += (size_t)s->pixel_stride * ROWS + 256;
	uint8_t *p = sk_need(&s->buf, size);
	if (p == NULL)
		return 0;
	for (int c = 0; c < im->ncomp; c++) {
		s->plane[c].rows = p + at[c] + s->plane[c].stride + LEFT;
		s->up[c] = p + up[c];
	}
	s->sums = (int16_t *)(void *)(p + sums + 64);
	s->pixels = p + pixels;
	return 1;
}

// Transforms the blocks of a tile that the box needs.
static void transform(const dct_kernels *kn, const dct_image *im, scratch *s, const dct_shape *shape,
                      const int want[][2], int col)
{
	for (int c = 0; c < im->ncomp; c++) {
		const plane *p = &s->plane[c];
		const uint16_t *quant = im->quant[im->comp[c].table];
		const int left = col * im->tile * im->comp[c].h;
		const int x0 = max(p->block0 - left, 0), x1 = min(p->block1 - left, shape->bw[c]);
		for (int y = max(want[c][0], 0); y < min(want[c][1], shape->bh[c]); y++) {
			uint8_t *row = p->rows + 8 * y * p->stride + 8 * (left - p->first_block);
			const int first = shape->first[c] + y * shape->bw[c];
			for (int x = x0; x < x1; x += 4) {
				int end = 0;
				for (int i = x; i < min(x + 4, x1); i++)
					end = max(end, s->work.end[first + i]);
				// This may read up to 3 blocks of another row or component, or of an earlier tile (there is space for
				// 8 after the last). Their results are overwritten or never read.
				kn->idct4(s->work.coef + first + x, quant, end, row + 8 * x, p->stride);
			}
		}
	}
}

// Unpacks and transforms the tiles of one row of MCUs.
static int decode_row(sk_dec *d, const dct_kernels *kn, const dct_image *im, scratch *s, const span *b, int row)
{
	size_t at;
	if (dct_row(im, row, b->tile0, &at) != 0)
		return sk_fail(d, SK_CORRUPT, "dct: row %d of tiles begins behind the end of the data", row);
	int want[DCT_MAX_COMPS][2]; // rows of blocks
	const int mcu = 8 * im->vmax, top = b->y - b->lag - row * mcu, bottom = b->y + b->h - 1 + b->lag - row * mcu;
	for (int c = 0; c < im->ncomp; c++) {
		want[c][0] = max(top, 0) / im->comp[c].vr / 8;
		want[c][1] = bottom / im->comp[c].vr / 8 + 1;
	}
	for (int col = b->tile0; col < b->tile1; col++) {
		const size_t n = dct_tile_size(im, row, col); // below 2^16
		if (n > im->data_len - at)
			return sk_fail(d, SK_CORRUPT, "dct: tile %d of row %d goes beyond the end of the data", col, row);
		const uint8_t *p = im->data + at;
		if (im->data_len - at - n < DCT_READ_PAD) {
			memcpy(s->tail, p, n);
			memset(s->tail + n, 0, DCT_READ_PAD);
			p = s->tail;
		}
		dct_shape shape;
		dct_tile_shape(im, row, col, &shape);
		if (kn->unpack(&s->work, &shape, p, n) != 0)
			return sk_fail(d, SK_CORRUPT, "dct: tile %d of row %d is too short for its content", col, row);
		transform(kn, im, s, &shape, (const int (*)[2])want, col);
		at += n;
	}
	// Repeat the outermost samples of the image for the triangle filters.
	for (int c = 0; c < im->ncomp; c++) {
		const plane *p = &s->plane[c];
		if (!p->fancy_h)
			continue;
		const int end = im->comp[c].dw - 8 * p->first_block;
		for (int y = 0; y < 8 * im->comp[c].v; y++) {
			uint8_t *q = p->rows + y * p->stride;
			if (p->first_block == 0)
				q[-1] = q[0];
			if (p->block1 == im->comp[c].wblk)
				q[end] = q[end - 1];
		}
	}
	return SK_OK;
}

// Keeps the last row of samples of a band for the next one.
static void keep_row(const dct_image *im, scratch *s)
{
	for (int c = 0; c < im->ncomp; c++) {
		const plane *p = &s->plane[c];
		memcpy(p->rows - p->stride - LEFT, p->rows + (8 * im->comp[c].v - 1) * p->stride - LEFT, (size_t)p->stride);
	}
}

// The samples of component c for row y of the image, from column b->x on, one per pixel. row is the row of MCUs whose
// band is decoded.
static const uint8_t *samples(const dct_kernels *kn, const dct_image *im, scratch *s, const span *b, int row, int c,
                              int y)
{
	const dct_comp *k = &im->comp[c];
	const plane *p = &s->plane[c];
	const int x = b->x / k->hr - 8 * p->first_block, skip = b->x % k->hr;
	const int base = row * 8 * k->v, at = y / k->vr;
	const uint8_t *near = p->rows + (at - base) * p->stride + x;
	const int n = (skip + b->w + k->hr - 1) / k->hr;
	uint8_t *out = s->up[c];
	if (p->fancy_v) {
		const int other = min(max(y % 2 == 0 ? at - 1 : at + 1, 0), k->dh - 1);
		const uint8_t *far = p->rows + (other - base) * p->stride + x;
		if (p->fancy_h)
			kn->h2v2(near, far, out, n, s->sums);
		else
			kn->h1v2(near, far, out, n, 1 + y % 2);
		return out + skip;
	}
	if (p->fancy_h) {
		kn->h2v1(near, out, n);
		return out + skip;
	}
	if (k->hr == 1)
		return near;
	for (int i = 0; i < n; i++)
		memset(out + i * k->hr, near[i], (size_t)k->hr);
	return out + skip;
}

// Hands the rows [y0, y1) of the image to the sink, a few at a time.
static int emit(const dct_kernels *kn, const dct_image *im, scratch *s, const span *b, int row, int y0, int y1,
                sk_sink *sink)
{
	if (im->ncomp == 1) {
		const plane *p = &s->plane[0];
		const uint8_t *first = p->rows + (y0 - row * 8) * p->stride + b->x - 8 * p->first_block;
		return y1 > y0 ? sink->rows(sink, first, p->stride, y1 - y0) : SK_OK;
	}
	for (int y = y0; y < y1;) {
		const int n = min(ROWS, y1 - y);
		for (int i = 0; i < n; i++, y++) {
			const uint8_t *ch[3];
			for (int c = 0; c < 3; c++)
				ch[c] = samples(kn, im, s, b, row, c, y);
			kn->color(ch[0], ch[1], ch[2], s->pixels + i * s->pixel_stride, b->w);
		}
		const int code = sink->rows(sink, s->pixels, s->pixel_stride, n);
		if (code != SK_OK)
			return code;
	}
	return SK_OK;
}

int sk_dct_decode_box(sk_dec *d, const uint8_t *src, size_t n, int x, int y, int w, int h, sk_sink *sink)
{
	dct_image im;
	const char *wrong = dct_parse(&im, src, n);
	if (wrong != NULL)
		return sk_fail(d, SK_CORRUPT, "dct: %s", wrong);
	int code = sk_check_size(d, im.w, im.h);
	if (code == SK_OK)
		code = sk_check_box(d, im.w, im.h, x, y, w, h);
	if (code != SK_OK)
		return code;
	scratch *s = scratch_of(d);
	if (s == NULL)
		return sk_fail(d, SK_NO_MEMORY, "dct: no memory for a decoder");
	const dct_kernels *kn = dct_kernels_for();
	span b = {.x = x, .y = y, .w = w, .h = h};
	plan(&im, s, &b);
	if (!layout(&im, s, &b))
		return sk_fail(d, SK_NO_MEMORY, "dct: no memory for rows of %d pixels", w);
	sink->px = im.ncomp == 1 ? 1 : 4;
	int done = y;
	for (int row = b.row0; row < b.row1 && code == SK_OK; row++) {
		if (row > b.row0)
			keep_row(&im, s);
		code = decode_row(d, kn, &im, s, &b, row);
		const int ready = row + 1 == im.mrows ? im.h : (row + 1) * 8 * im.vmax - b.lag;
		const int to = min(ready, y + h);
		if (code == SK_OK && to > done) {
			code = emit(kn, &im, s, &b, row, done, to, sink);
			done = to;
		}
	}
	if (s->buf.cap > (size_t)8 << 20)
		sk_buf_free(&s->buf);
	return code;
}
