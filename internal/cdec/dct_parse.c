// Header and tile table of the dct codec.
#include "dct.h"

#include <string.h>

const uint8_t dct_natural[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
                                 41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
                                 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

static int get16(const uint8_t *p) { return p[0] | p[1] << 8; }

static int div_up(int a, int b) { return (a + b - 1) / b; }

const char *dct_parse(dct_image *im, const uint8_t *src, size_t n)
{
	if (n < DCT_HEADER || memcmp(src, "dct", 3) != 0)
		return "not dct bytes";
	if (src[3] != DCT_VERSION)
		return "dct bytes of a version that this program does not know";
	im->w = get16(src + 4);
	im->h = get16(src + 6);
	im->ncomp = src[8];
	im->tile = src[9];
	im->ntables = src[10];
	const int wide = src[11];
	if (im->w < 1 || im->h < 1 || im->w > SK_MAX_SIDE || im->h > SK_MAX_SIDE)
		return "the size in the header is out of range";
	if (im->ncomp != 1 && im->ncomp != 3)
		return "the number of components is neither 1 nor 3";
	if (im->ntables < 1 || im->ntables > DCT_MAX_TABLES || wide >> im->ntables != 0)
		return "the number of quantisation tables is out of range";
	if (im->tile < 1)
		return "the tile width is 0";
	size_t at = DCT_HEADER;
	if (n - at < 2 * (size_t)im->ncomp)
		return "the header is cut off";
	im->hmax = im->vmax = 1;
	int blocks = 0;
	for (int c = 0; c < im->ncomp; c++, at += 2) {
		dct_comp *k = &im->comp[c];
		k->h = src[at] >> 4;
		k->v = src[at] & 15;
		k->table = src[at + 1];
		if (k->h < 1 || k->h > 4 || k->v < 1 || k->v > 4)
			return "a sampling factor is out of range";
		if (k->table >= im->ntables)
			return "a quantisation table is missing";
		if (k->h > im->hmax)
			im->hmax = k->h;
		if (k->v > im->vmax)
			im->vmax = k->v;
		blocks += k->h * k->v;
	}
	if (im->ncomp == 1 && blocks != 1)
		return "a gray image with sampling factors";
	if (blocks * im->tile > DCT_MAX_BLOCKS)
		return "the tiles have too many blocks";
	im->mcols = div_up(im->w, 8 * im->hmax);
	im->mrows = div_up(im->h, 8 * im->vmax);
	im->tcols = div_up(im->mcols, im->tile);
	for (int c = 0; c < im->ncomp; c++) {
		dct_comp *k = &im->comp[c];
		if (im->hmax % k->h != 0 || im->vmax % k->v != 0)
			return "a sampling factor does not divide the largest one";
		k->hr = im->hmax / k->h;
		k->vr = im->vmax / k->v;
		k->dw = div_up(im->w, k->hr);
		k->dh = div_up(im->h, k->vr);
		k->wblk = div_up(k->dw, 8);
		k->hblk = div_up(k->dh, 8);
	}
	for (int t = 0; t < im->ntables; t++) {
		const size_t size = wide >> t & 1 ? 2 : 1;
		if (n - at < 64 * size)
			return "the header is cut off";
		for (int k = 0; k < 64; k++, at += size)
			im->quant[t][dct_natural[k]] = (uint16_t)(size == 2 ? get16(src + at) : src[at]);
	}
	// Cannot overflow: at most 8188 rows of 8188 tiles.
	const size_t table = (size_t)im->mrows * (4 + 2 * (size_t)im->tcols);
	if (n - at < table)
		return "the tile table is cut off";
	im->row_offset = src + at;
	im->tile_size = src + at + 4 * (size_t)im->mrows;
	im->data = src + at + table;
	im->data_len = n - at - table;
	return NULL;
}

const char *dct_read_facts(dct_facts *f, const uint8_t *src, size_t n)
{
	dct_image im;
	const char *wrong = dct_parse(&im, src, n);
	if (wrong != NULL)
		return wrong;
	*f = (dct_facts){.header = im.data - src,
	                 .w = im.w,
	                 .h = im.h,
	                 .ncomp = im.ncomp,
	                 .tile_width = im.tile * 8 * im.hmax,
	                 .tcols = im.tcols,
	                 .trows = im.mrows};
	for (int c = 0; c < im.ncomp; c++) {
		f->sampling[c][0] = im.comp[c].h;
		f->sampling[c][1] = im.comp[c].v;
	}
	return NULL;
}

int dct_row(const dct_image *im, int row, int first, size_t *at)
{
	const uint8_t *p = im->row_offset + 4 * (size_t)row;
	// At most 2^32 + 8188 * 65535: no overflow in 64 bits.
	uint64_t sum = (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
	for (int i = 0; i < first; i++)
		sum += dct_tile_size(im, row, i);
	if (sum > im->data_len)
		return -1;
	*at = (size_t)sum;
	return 0;
}

static int blocks_at(int tile, int n, int all)
{
	const int first = tile * n;
	return first >= all ? 0 : first + n <= all ? n : all - first;
}

void dct_tile_shape(const dct_image *im, int row, int col, dct_shape *s)
{
	s->ncomp = im->ncomp;
	s->first[0] = 0;
	for (int c = 0; c < im->ncomp; c++) {
		const dct_comp *k = &im->comp[c];
		s->bw[c] = blocks_at(col, im->tile * k->h, k->wblk);
		s->bh[c] = blocks_at(row, k->v, k->hblk);
		s->first[c + 1] = s->first[c] + s->bw[c] * s->bh[c];
	}
}
