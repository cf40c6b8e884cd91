// Bits of a tile -> coefficients: the portable form, and the common code of all forms.
//
// Safe by check: every stage computes how many bits it will read before it reads any, and compares that with the end
// of the tile. Loads go at most DCT_READ_PAD bytes beyond it. Safe by layout: there are at most 64 blocks of 63
// positions and at most 16 planes, and array indexes depend on nothing else.
#include "dct_bits.h"

// Values of the group's blocks: magnitudes in mag, in the order of the stream.
// Returns the new position, or -1.
static int64_t planes(dct_work *w, const uint8_t *p, int64_t at, int64_t end, int n)
{
	uint16_t *from = w->list[0], *to = w->list[1];
	for (int i = 0; i < n; i++) {
		w->mag[i] = 1;
		from[i] = (uint16_t)i;
	}
	int count = n;
	for (int k = 2; k <= DCT_MAX_PLANES && count > 0; k++) {
		if (at + count > end)
			return -1;
		int more = 0;
		for (int i = 0; i < count; i += 32) {
			const int take = count - i < 32 ? count - i : 32;
			uint64_t flags = dct_bits(p, at + i);
			for (int j = 0; j < take; j++, flags >>= 1) {
				to[more] = from[i + j];
				more += (int)(flags & 1);
			}
		}
		at += count;
		count = more;
		if (at + count > end)
			return -1;
		for (int i = 0; i < count; i += 32) {
			const int take = count - i < 32 ? count - i : 32;
			uint64_t bits = dct_bits(p, at + i);
			for (int j = 0; j < take; j++, bits >>= 1)
				w->mag[to[i + j]] = (uint16_t)(w->mag[to[i + j]] + ((uint32_t)(1 + (bits & 1)) << (k - 2)));
		}
		at += count;
		uint16_t *t = from;
		from = to;
		to = t;
	}
	return at;
}

static int64_t group(dct_work *w, const uint8_t *heads, int first, int last, const dct_shape *s, const uint8_t *p,
                     int64_t at, int64_t end)
{
	at = dct_dc(w, heads, first, last, s, p, at, end);
	if (at < 0)
		return -1;
	int n = 0;
	for (int b = first; b < last; b++) {
		const int len = dct_end(heads[b] & 15);
		if (at + len > end)
			return -1;
		w->nonzero[b] = dct_bits64(p, at) & ((1ull << len) - 1);
		n += __builtin_popcountll(w->nonzero[b]);
		at += len;
	}
	const int64_t signs = at;
	at += n;
	if (at > end)
		return -1;
	at = planes(w, p, at, end, n);
	if (at < 0)
		return -1;
	int i = 0;
	for (int b = first; b < last; b++) {
		w->coef[b][0] = w->dc[b];
		for (uint64_t m = w->nonzero[b]; m != 0; m &= m - 1, i++) {
			const int v = w->mag[i], sign = p[(signs + i) >> 3] >> ((signs + i) & 7) & 1;
			w->coef[b][dct_natural[__builtin_ctzll(m) + 1]] = (int16_t)(uint16_t)(sign ? -v : v);
		}
	}
	return at;
}

int dct_unpack_scalar(dct_work *w, const dct_shape *s, const uint8_t *p, size_t n)
{
	const int blocks = s->first[s->ncomp];
	if (n < (size_t)blocks)
		return -1;
	for (int b = 0; b < blocks; b++)
		w->end[b] = p[b] & 15;
	memset(w->coef, 0, (size_t)blocks * sizeof w->coef[0]);
	int64_t at = 0;
	const int64_t end = 8 * (int64_t)(n - (size_t)blocks);
	at = group(w, p, 0, s->first[1], s, p + blocks, at, end);
	if (at >= 0 && s->ncomp == 3)
		at = group(w, p, s->first[1], blocks, s, p + blocks, at, end);
	return at < 0 ? -1 : 0;
}
