// Common code of the forms of packing: a writer of bits, and a tile split into its parts.
#ifndef STOKER_DCT_PACK_H
#define STOKER_DCT_PACK_H

#include <string.h>

#include "dct.h"

#define DCT_INLINE static inline __attribute__((always_inline))

// A writer of bits. Loops use a local copy, which stays in registers. The output may be at any address, so a writer
// in memory would have to be reloaded after each store.
typedef struct {
	uint8_t *p;
	uint64_t acc;
	int fill; // bits in acc, at most 7 between calls
} dct_writer;

// n <= 57, no bits in v above them. Writes 8 bytes at p.
DCT_INLINE void dct_put(dct_writer *w, uint64_t v, int n)
{
	w->acc |= v << w->fill;
	w->fill += n;
	uint64_t a = w->acc;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	a = __builtin_bswap64(a);
#endif
	memcpy(w->p, &a, 8);
	const int bytes = w->fill >> 3;
	w->p += bytes;
	w->acc = bytes == 8 ? 0 : w->acc >> (8 * bytes);
	w->fill &= 7;
}

// n <= 64.
DCT_INLINE void dct_put64(dct_writer *w, uint64_t v, int n)
{
	if (n <= 56) {
		dct_put(w, v, n);
	} else {
		dct_put(w, v & 0xffffffff, 32);
		dct_put(w, v >> 32, n - 32);
	}
}

typedef struct {
	const int16_t *block[DCT_MAX_BLOCKS]; // in zigzag order
	int16_t zigzag[DCT_MAX_BLOCKS][64];   // of blocks that come in natural order
	uint64_t nonzero[DCT_MAX_BLOCKS];     // by position in the zigzag - 1
	uint64_t sign[DCT_MAX_BLOCKS];        // of the values that are not zero, one after the other
	uint8_t count[DCT_MAX_BLOCKS];        // how many these are
	uint16_t delta[DCT_MAX_BLOCKS];       // folded difference of the DC
	// Magnitudes of the tile in order. Vectors may go beyond the last one.
	uint16_t mag[DCT_MAX_VALUES + 64];
	uint16_t list[DCT_MAX_VALUES];
	uint64_t reach[DCT_MAX_WORDS];
} dct_packer;

// Splits a block in zigzag order: the map of its nonzero AC coefficients, their signs and magnitudes. Returns their
// number. May write 64 magnitudes.
typedef int dct_gather_fn(const int16_t *block, uint64_t *nonzero, uint64_t *sign, uint16_t *mag);
// Writes the planes from the second on of n values.
typedef void dct_planes_fn(dct_packer *k, dct_writer *w, const uint16_t *mag, int n);

DCT_INLINE int dct_width(uint32_t v) { return v == 0 ? 0 : 32 - __builtin_clz(v); }

// Takes the blocks of a tile apart and writes their heads.
DCT_INLINE void dct_pack_heads(dct_packer *k, const dct_shape *s, uint8_t *heads, dct_gather_fn *gather)
{
	uint16_t *mag = k->mag;
	for (int c = 0; c < s->ncomp; c++) {
		int b = s->first[c], above = 0;
		for (int y = 0; y < s->bh[c]; y++) {
			int left = above;
			for (int x = 0; x < s->bw[c]; x++, b++) {
				const int dc = k->block[b][0];
				const int16_t d = (int16_t)(uint16_t)(dc - left); // modulo 2^16
				left = dc;
				if (x == 0)
					above = dc;
				k->delta[b] = (uint16_t)((uint16_t)d << 1 ^ (d < 0 ? 0xffff : 0));
				const int width = dct_width(k->delta[b]);
				const int count = gather(k->block[b], &k->nonzero[b], &k->sign[b], mag);
				k->count[b] = (uint8_t)count;
				mag += count;
				const uint64_t m = k->nonzero[b];
				const int end = m == 0 ? 0 : 64 - __builtin_clzll(m);
				heads[b] = (uint8_t)((width > 14 ? 15 : width) << 4 | (end > 56 ? 15 : (end + 3) / 4));
			}
		}
	}
}

// The number of bits of the DC difference of a block.
DCT_INLINE int dct_dc_bits(uint8_t head)
{
	const int c = head >> 4;
	return c == 15 ? 16 : c;
}

// Writes the bits of a group of n values, beginning at mag.
DCT_INLINE void dct_pack_group(dct_packer *k, dct_writer *out, const uint8_t *heads, int first, int last,
                               const uint16_t *mag, int n, dct_planes_fn *planes)
{
	dct_writer w = *out;
	int b = first;
	for (; b + 3 <= last; b += 3) { // at most 48 bits
		const int n0 = dct_dc_bits(heads[b]), n1 = n0 + dct_dc_bits(heads[b + 1]), n2 = n1 + dct_dc_bits(heads[b + 2]);
		dct_put(&w, k->delta[b] | (uint64_t)k->delta[b + 1] << n0 | (uint64_t)k->delta[b + 2] << n1, n2);
	}
	for (; b < last; b++)
		dct_put(&w, k->delta[b], dct_dc_bits(heads[b]));
	for (b = first; b < last; b++)
		dct_put64(&w, k->nonzero[b], dct_end(heads[b] & 15));
	for (b = first; b < last; b++)
		dct_put64(&w, k->sign[b], k->count[b]);
	*out = w;
	planes(k, out, mag, n);
}

// Packs a tile and returns its size in bytes. Each form is compiled with its own instructions.
DCT_INLINE size_t dct_pack_tile(dct_packer *k, const dct_shape *s, uint8_t *out, dct_gather_fn *gather,
                                dct_planes_fn *planes)
{
	const int blocks = s->first[s->ncomp];
	dct_pack_heads(k, s, out, gather);
	dct_writer w = {out + blocks, 0, 0};
	const uint16_t *mag = k->mag;
	int n[2] = {0, 0};
	for (int b = 0; b < blocks; b++)
		n[b >= s->first[1]] += k->count[b];
	dct_pack_group(k, &w, out, 0, s->first[1], mag, n[0], planes);
	if (s->ncomp == 3)
		dct_pack_group(k, &w, out, s->first[1], blocks, mag + n[0], n[1], planes);
	if (w.fill > 0)
		w.p++;
	return (size_t)(w.p - out);
}

typedef size_t dct_pack_tile_fn(dct_packer *k, const dct_shape *s, uint8_t *out);
dct_pack_tile_fn dct_pack_scalar, dct_pack_avx2, dct_pack_avx512;
dct_pack_tile_fn *dct_pack_for(void);

#endif
