// Common code of the three forms of unpacking. Bits are numbered from the least significant one of the first byte.
#ifndef STOKER_DCT_BITS_H
#define STOKER_DCT_BITS_H

#include <string.h>

#include "dct.h"

static inline uint64_t dct_load64(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	return v;
}

// At least 57 bits from position at on.
static inline uint64_t dct_bits(const uint8_t *p, int64_t at) { return dct_load64(p + (at >> 3)) >> (at & 7); }

// 64 bits from position at on; reads 9 bytes.
static inline uint64_t dct_bits64(const uint8_t *p, int64_t at)
{
	const int s = (int)(at & 7);
	return dct_load64(p + (at >> 3)) >> s | (uint64_t)p[(at >> 3) + 8] << 1 << (63 - s);
}

// Bits of a DC difference of width class c.
static inline int dct_dc_width(int c) { return c == 15 ? 16 : c; }

// Reads the DC differences of blocks [first, last) and sets dc of each. Returns the new position, or -1 when the bits end before.
static inline int64_t dct_dc(dct_work *w, const uint8_t *heads, int first, int last, const dct_shape *s,
                             const uint8_t *p, int64_t at, int64_t end)
{
	int sum = 0;
	for (int b = first; b < last; b++)
		sum += dct_dc_width(heads[b] >> 4);
	if (at + sum > end)
		return -1;
	for (int c = first == 0 ? 0 : 1; c < s->ncomp && s->first[c] < last; c++) {
		int b = s->first[c];
		uint32_t above = 0;
		for (int y = 0; y < s->bh[c]; y++) {
			uint32_t left = above;
			for (int x = 0; x < s->bw[c]; x++, b++) {
				const int width = dct_dc_width(heads[b] >> 4);
				const uint32_t z = (uint32_t)dct_bits(p, at) & ((1u << width) - 1);
				at += width;
				left += z >> 1 ^ -(z & 1);
				w->dc[b] = (int16_t)(uint16_t)left;
				if (x == 0)
					above = left;
			}
		}
	}
	return at;
}

#endif
