// The part of unpacking that AVX2 and AVX-512 share: bit planes -> maps, with
// the bit deposits of BMI2. Values of a group are taken 56 at a time (a word):
// wherever their bits begin, one load of 8 bytes has them all.
//
// Safety is the same as in dct_unpack.c: each stage computes how many bits it takes and compares before it reads. The
// format limits words, planes and blocks.
#ifndef STOKER_DCT_X86_H
#define STOKER_DCT_X86_H

#include <immintrin.h>

#include "dct_bits.h"

#define BMI __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt")))

typedef struct {
	int64_t at; // position after the group, -1 if the bits end before
	int values;
	int planes; // the highest one with a value in it; 1 when all are 0 or 1
} dct_group;

BMI static inline dct_group dct_group_maps(dct_work *w, const uint8_t *heads, int first, int last, const dct_shape *s,
                                           const uint8_t *p, int64_t at, int64_t end)
{
	dct_group g = {-1, 0, 1};
	at = dct_dc(w, heads, first, last, s, p, at, end);
	if (at < 0)
		return g;
	int n = 0;
	for (int b = first; b < last; b++) {
		const int len = dct_end(heads[b] & 15);
		if (at + len > end)
			return g;
		const uint64_t m = _bzhi_u64(dct_bits64(p, at), (unsigned)len);
		w->nonzero[b] = m;
		w->before[b] = (uint16_t)n;
		n += (int)_mm_popcnt_u64(m);
		at += len;
	}
	if (at + n > end)
		return g;
	const int words = (n + DCT_WORD - 1) / DCT_WORD;
	for (int i = 0; i < words; i++) {
		w->sign[i] = dct_bits(p, at + DCT_WORD * i);
		w->reach[1][i] = (1ull << DCT_WORD) - 1;
	}
	if (words > 0)
		w->reach[1][words - 1] = (1ull << (n - DCT_WORD * (words - 1))) - 1;
	at += n;
	g.values = n;
	int count = n;
	for (int k = 2; k <= DCT_MAX_PLANES && count > 0; k++) {
		if (at + count > end)
			return g;
		int more = 0;
		for (int i = 0; i < words; i++) {
			const uint64_t from = w->reach[k - 1][i], to = _pdep_u64(dct_bits(p, at), from);
			w->reach[k][i] = to;
			at += (int)_mm_popcnt_u64(from);
			more += (int)_mm_popcnt_u64(to);
		}
		count = more;
		if (count == 0)
			break;
		if (at + count > end)
			return g;
		for (int i = 0; i < words; i++) {
			const uint64_t to = w->reach[k][i];
			w->bit[k][i] = _pdep_u64(dct_bits(p, at), to);
			at += (int)_mm_popcnt_u64(to);
		}
		g.planes = k;
	}
	g.at = at;
	return g;
}

#endif
