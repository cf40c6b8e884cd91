// The tables of huffman.c: the meaning of the next bits of a scan, two coefficients at a time.
#ifndef STOKER_HUFFMAN_TABLE_H
#define STOKER_HUFFMAN_TABLE_H

#include "sk.h"

// The number of bits of a lookup. One more saves a step per block but is slower: the tables of an image and the other
// data would no longer fit into the first-level cache.
#define SK_LOOK 9
// The same for the bits after the ones with which long codes begin.
#define SK_LOOK_MORE 10

// The meaning of the next bits. Fields are loaded byte by byte, which takes fewer operations than splitting a word.
typedef struct {
	// The number of bits used, in the lower six bits: codes, and the bits of the values after them. At most
	// SK_MOST_BITS.
	uint8_t used;
	uint8_t advance;   // number of positions to advance; SK_NOT_HERE if the code is longer than the index
	uint8_t following; // how many of the used bits are those of the last value, if it is not in the entry
	uint8_t place;     // position of the first value, counted from here
	int16_t first;     // the first of two values
	// The value before the next position: the only one or the second. If its bits follow, this is added to them if
	// the first of them is 0.
	int16_t last;
} sk_code;

// An end of block counts as one position and has the value 0 there. The same holds for 16 zeros, in the last of their
// positions. No entry therefore needs its own branch.
#define SK_SWITCH 64 // in used: the next lookup is in another table, after a DC difference and at the end of a block
#define SK_END 128   // in used: the end of a block
#define SK_NOT_HERE 255
#define SK_MOST_BITS 26

typedef struct {
	sk_code look[1 << SK_LOOK];
	// Longer codes, which all begin with `ones` ones, indexed by the bits after those.
	sk_code more[1 << SK_LOOK_MORE];
	int ones;
	int made, dc;
	uint8_t bits[17], values[256]; // of the JHUFF_TBL that it is made from
	// For codes of any length: as in the standard, F.2.2.3.
	int32_t max_code[18], offset[18];
} sk_codes;

// Makes a table, of DC differences or of AC coefficients, unless it is made from the same already.
void sk_codes_make(sk_codes *t, const JHUFF_TBL *from, int dc);
// Whether there is such a table and libjpeg would take it: codes that fit in their lengths, and not too many of them;
// differences of at most 15 bits.
int sk_codes_sound(const JHUFF_TBL *from, int dc);
// The symbol whose code is at the start of the upper bits of buffer, and the code's length; -1 if there is no such
// code.
int sk_codes_symbol(const sk_codes *t, uint64_t buffer, int *length);

// The value of `size` bits, at least one.
static inline int sk_extend(int bits, int size) { return bits < 1 << (size - 1) ? bits - (1 << size) + 1 : bits; }

#endif
