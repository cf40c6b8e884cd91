// What the forms of packing share: a writer of bits and a tile taken apart.
#ifndef STOKER_DCT_PACK_H
#define STOKER_DCT_PACK_H

#include <string.h>

#include "dct.h"

typedef struct {
	uint8_t *p;
	uint64_t acc;
	int fill; // bits in acc, at most 7 between calls
} dct_writer;

// n <= 57, no bits in v above them. Writes 8 bytes at p.
static inline void dct_put(dct_writer *w, uint64_t v, int n)
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
static inline void dct_put64(dct_writer *w, uint64_t v, int n)
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
	uint64_t nonzero[DCT_MAX_BLOCKS]; // by position in the zigzag - 1
	uint64_t sign[DCT_MAX_BLOCKS];    // of the values that are not zero, one after the other
	uint8_t count[DCT_MAX_BLOCKS];    // how many these are
	uint16_t delta[DCT_MAX_BLOCKS];   // folded difference of the DC
	// Magnitudes of the tile in order. Vectors may go beyond the last one.
	uint16_t mag[DCT_MAX_VALUES + 64];
	uint16_t list[DCT_MAX_VALUES];
	uint64_t reach[DCT_MAX_WORDS];
} dct_packer;

// Takes a block in zigzag order apart: the map of its AC coefficients that are not zero, their
// signs and magnitudes. Returns how many there are; may write 64 magnitudes.
typedef int dct_gather_fn(const int16_t *block, uint64_t *nonzero, uint64_t *sign, uint16_t *mag);
// Writes the planes from the second on of n values.
typedef void dct_planes_fn(dct_packer *k, dct_writer *w, const uint16_t *mag, int n);

typedef struct {
	dct_gather_fn *gather;
	dct_planes_fn *planes;
} dct_pack_kernels;
extern const dct_pack_kernels dct_pack_scalar, dct_pack_avx2, dct_pack_avx512;
const dct_pack_kernels *dct_pack_for(int isa);

#endif
