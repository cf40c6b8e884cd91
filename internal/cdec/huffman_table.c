#include "huffman_table.h"

#include <string.h>

static const sk_code not_here = {.advance = SK_NOT_HERE};

// The entry of a single symbol, whose code of l bits is followed in the index by `rest` bits.
static sk_code entry_of(int symbol, int l, int dc, int bits, int rest)
{
	const int size = symbol & 15, run = dc ? 0 : symbol >> 4;
	sk_code e = {.used = (uint8_t)(l + size), .advance = (uint8_t)(run + 1), .place = (uint8_t)run};
	if (dc) {
		e.used |= SK_SWITCH;
	} else if (size == 0) {
		e.place = 0;
		if (run != 15) {
			e.advance = 1;
			e.used |= SK_SWITCH | SK_END;
		}
	}
	if (size > rest) {
		e.following = (uint8_t)size;
		e.last = (int16_t)(1 - (1 << size));
	} else if (size > 0) {
		e.first = e.last = (int16_t)sk_extend(bits >> (rest - size), size);
	}
	return e;
}

// Fills the entries of one symbol each.
static void fill(sk_codes *t)
{
	for (int i = 0; i < 1 << SK_LOOK; i++)
		t->look[i] = not_here;
	for (int i = 0; i < 1 << SK_LOOK_MORE; i++)
		t->more[i] = not_here;
	t->ones = 0;
	int code = 0, n = 0;
	for (int l = 1; l <= 16; l++, code <<= 1) {
		if (l == SK_LOOK + 1) // codes grow with their length: no later one has fewer ones in front
			while (t->ones < SK_LOOK && code >> (SK_LOOK - t->ones) & 1)
				t->ones++;
		const int common = l <= SK_LOOK ? 0 : t->ones;
		const int rest = (l <= SK_LOOK ? SK_LOOK : SK_LOOK_MORE) - (l - common);
		sk_code *table = l <= SK_LOOK ? t->look : t->more;
		for (int j = 0; j < t->bits[l]; j++, n++, code++) {
			if (rest < 0 || l + (t->values[n] & 15) > SK_MOST_BITS)
				continue;
			sk_code *to = table + ((code & ((1 << (l - common)) - 1)) << rest);
			for (int i = 0; i < 1 << rest; i++)
				to[i] = entry_of(t->values[n], l, t->dc, i, rest);
		}
	}
}

// Adds a second symbol to the first if the code of the second is also in the index.
static sk_code joined(const sk_code *single, uint32_t index)
{
	sk_code a = single[index];
	if (a.advance == SK_NOT_HERE || a.following > 0 || a.first == 0)
		return a; // end of block and 16 zeros: alone
	const sk_code b = single[(index << a.used) & ((1 << SK_LOOK) - 1)];
	if (b.advance == SK_NOT_HERE || a.used + (b.used & 63) - b.following > SK_LOOK)
		return a;
	if (b.first == 0 && b.following == 0 && !(b.used & SK_END))
		return a;
	a.used = (uint8_t)(a.used + b.used);
	a.advance = (uint8_t)(a.advance + b.advance);
	a.following = b.following;
	a.last = b.last;
	return a;
}

void sk_codes_make(sk_codes *t, const JHUFF_TBL *from, int dc)
{
	if (t->made && t->dc == dc && memcmp(t->bits, from->bits, sizeof t->bits) == 0 &&
	    memcmp(t->values, from->huffval, sizeof t->values) == 0)
		return;
	memcpy(t->bits, from->bits, sizeof t->bits);
	memcpy(t->values, from->huffval, sizeof t->values);
	int32_t code = 0, n = 0;
	for (int l = 1; l <= 16; l++) {
		t->offset[l] = n - code;
		n += t->bits[l];
		code += t->bits[l];
		t->max_code[l] = t->bits[l] ? code - 1 : -1;
		code <<= 1;
	}
	t->max_code[17] = INT32_MAX;
	t->dc = dc;
	t->made = 1;
	fill(t);
	if (dc)
		return;
	sk_code single[1 << SK_LOOK];
	memcpy(single, t->look, sizeof single);
	for (uint32_t i = 0; i < 1 << SK_LOOK; i++)
		t->look[i] = joined(single, i);
}

int sk_codes_sound(const JHUFF_TBL *from, int dc)
{
	if (from == NULL)
		return 0;
	int code = 0, n = 0;
	for (int l = 1; l <= 16; l++, code <<= 1) {
		n += from->bits[l];
		code += from->bits[l];
		if (n > 256 || (from->bits[l] > 0 && code >= 1 << l))
			return 0;
	}
	for (int i = 0; i < n && dc; i++)
		if (from->huffval[i] > 15)
			return 0;
	return 1;
}

int sk_codes_symbol(const sk_codes *t, uint64_t buffer, int *length)
{
	for (int l = 1; l <= 16; l++) {
		const int32_t code = (int32_t)(buffer >> (64 - l));
		if (t->max_code[l] >= 0 && code <= t->max_code[l]) {
			*length = l;
			return t->values[(code + t->offset[l]) & 255];
		}
	}
	return -1;
}
