// All tiles of an image, one after the other.
#include <stdlib.h>
#include <string.h>

#include "dct.h"

typedef struct {
	dct_work work;
	uint8_t tail[(1 << 16) + DCT_READ_PAD]; // a tile at the end, with padding
} walker;

static const char *walk(const dct_image *im, const dct_kernels *kn, walker *k, dct_take_fn *take, void *to)
{
	for (int row = 0; row < im->mrows; row++) {
		size_t at;
		if (dct_row(im, row, 0, &at) != 0)
			return "a row of tiles begins behind the end of the data";
		for (int col = 0; col < im->tcols; col++) {
			const size_t n = dct_tile_size(im, row, col); // below 2^16
			if (n > im->data_len - at)
				return "a tile goes beyond the end of the data";
			const uint8_t *p = im->data + at;
			if (im->data_len - at - n < DCT_READ_PAD) {
				memcpy(k->tail, p, n);
				memset(k->tail + n, 0, DCT_READ_PAD);
				p = k->tail;
			}
			dct_shape s;
			dct_tile_shape(im, row, col, &s);
			if (kn->unpack(&k->work, &s, p, n) != 0)
				return "a tile is too short for its content";
			take(to, im, row, col, &s, &k->work);
			at += n;
		}
	}
	return NULL;
}

const char *dct_each_tile(const dct_image *im, dct_take_fn *take, void *to)
{
	walker *k = NULL;
	if (posix_memalign((void **)&k, 64, sizeof *k) != 0)
		return "out of memory";
	memset(k, 0, sizeof *k);
	const char *wrong = walk(im, dct_kernels_for(), k, take, to);
	free(k);
	return wrong;
}

static void count(void *to, const dct_image *im, int row, int col, const dct_shape *s, const dct_work *w)
{
	(void)row;
	(void)col;
	(void)w;
	*(int64_t *)to += s->first[im->ncomp];
}

const char *dct_check(const uint8_t *src, size_t n, int64_t *blocks)
{
	dct_image im;
	*blocks = 0;
	const char *wrong = dct_parse(&im, src, n);
	return wrong != NULL ? wrong : dct_each_tile(&im, count, blocks);
}
