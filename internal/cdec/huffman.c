// The entropy decoder for baseline JPEGs, in the place of libjpeg's: most of
// the time of a JPEG is spent here. What makes it faster:
//
//   - A table lookup of LOOK bits gives two coefficients (runs, values and the
//     length of both) where their codes and values fit in them, else one. The
//     time is a chain of lookup and shift: half as many links.
//   - Stuffed bytes are looked for ahead (one memchr each), so that a refill
//     is one load of eight bytes.
//   - MCUs outside the crop are only measured, not decoded.
//
// Two ways lead here: libjpeg calls it MCU by MCU when it makes pixels, and
// sk_scan gives rows of coefficients to who wants nothing else.
//
// It handles sound data. Whatever is out of the ordinary (a code that does not
// exist, a block that overflows, data that end early, another marker than
// expected) ends in SK_RETRY: the image is decoded again with libjpeg's own
// decoder, which then gives the pixels or the error that it always gives.
#include "huffman.h"

#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#define LOOK 11
#define LOOK_DC 9

// An entry of the table of DC differences: bits 0-5 are the length to consume,
// 10-11 the kind, 16-31 the difference.
// An entry of a table of AC coefficients: bits 0-5 are the length to consume,
// 6-12 the positions that this advances, 13 whether the block ends, 14-15 the
// kind, 16-31 and 32-47 the values, 48-51 and 52-57 their positions from here,
// 58-63 the length of the first alone. With a single value both are the same.
// An end of block counts as one position and has the value 0 there, as have 16
// zeros in their first position: they need no branch of their own.
enum {
	KIND_VALUE = 0, // the values are in the entry
	KIND_BITS = 1,  // the value's bits follow: bits 16-19 say how many
	KIND_LONG = 2,  // the code is longer than the table's index
};
#define DC_KIND(e) ((e) >> 10 & 3)
#define LENGTH(e) ((int)((e)&63))
#define ADVANCE(e) ((int)((e) >> 6 & 127))
#define BLOCK_END ((uint64_t)1 << 13)
#define KIND(e) ((int)((e) >> 14 & 3))
#define VALUE(e) ((JCOEF)((e) >> 16))
#define SECOND(e) ((JCOEF)((e) >> 32))
#define AT(e) ((int)((e) >> 48 & 15))
#define AT_SECOND(e) ((int)((e) >> 52 & 63))
#define FIRST_LENGTH(e) ((int)((e) >> 58))

typedef struct {
	int made;
	uint8_t bits[17], values[256]; // of the JHUFF_TBL that it is made from
	// For codes of any length: as in the standard, F.2.2.3.
	int32_t max_code[18], offset[18];
} codes;

typedef struct {
	codes c;
	int32_t look[1 << LOOK_DC];
} dc_table;

typedef struct {
	codes c;
	uint64_t look[1 << LOOK];
} ac_table;

typedef struct {
	sk_dec *d;
	// The bits not yet used are the upper ones of buffer; count may be 64 with
	// zeros behind the end of the data, of which there are `zeros`.
	uint64_t buffer;
	int count, zeros;
	const uint8_t *p, *end, *next_ff;
	int at_end; // p is at a marker or at the end
	int column, passing;
	unsigned to_restart;
	int restart_number;
	int predict[MAX_COMPS_IN_SCAN];
	const dc_table *dc[D_MAX_BLOCKS_IN_MCU];
	const ac_table *ac[D_MAX_BLOCKS_IN_MCU];
	dc_table dc_tables[NUM_HUFF_TBLS];
	ac_table ac_tables[NUM_HUFF_TBLS];
} huffman;

// Natural order of zigzag positions; a run may lead up to 15 behind the end.
static const uint8_t natural[64 + 16] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,
    6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31,
    39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

// ---- tables

// Whether the table is already made from t; if not, its codes are.
static int codes_known(codes *c, const JHUFF_TBL *t)
{
	if (c->made && memcmp(c->bits, t->bits, sizeof c->bits) == 0 && memcmp(c->values, t->huffval, sizeof c->values) == 0)
		return 1;
	memcpy(c->bits, t->bits, sizeof c->bits);
	memcpy(c->values, t->huffval, sizeof c->values);
	int32_t code = 0, n = 0;
	for (int l = 1; l <= 16; l++) {
		c->offset[l] = n - code;
		n += c->bits[l];
		code += c->bits[l];
		c->max_code[l] = c->bits[l] ? code - 1 : -1;
		code <<= 1;
	}
	c->max_code[17] = INT32_MAX;
	c->made = 1;
	return 0;
}

// The value that `size` bits stand for.
static inline int extend(int bits, int size)
{
	return bits < 1 << (size - 1) ? bits - (1 << size) + 1 : bits;
}

static void fill_dc(dc_table *t)
{
	for (int i = 0; i < 1 << LOOK_DC; i++)
		t->look[i] = KIND_LONG << 10;
	int code = 0, n = 0;
	for (int l = 1; l <= LOOK_DC; l++, code <<= 1)
		for (int j = 0; j < t->c.bits[l]; j++, n++, code++) {
			const int size = t->c.values[n] & 15, rest = LOOK_DC - l;
			int32_t *to = t->look + (code << rest);
			for (int i = 0; i < 1 << rest; i++)
				if (size == 0)
					to[i] = l;
				else if (size <= rest)
					to[i] = (int32_t)((uint32_t)extend(i >> (rest - size), size) << 16) | (l + size);
				else
					to[i] = size << 16 | KIND_BITS << 10 | l;
		}
}

static void fill_ac(ac_table *t)
{
	// First entries of one symbol.
	for (int i = 0; i < 1 << LOOK; i++)
		t->look[i] = (uint64_t)KIND_LONG << 14;
	int code = 0, n = 0;
	for (int l = 1; l <= LOOK; l++, code <<= 1)
		for (int j = 0; j < t->c.bits[l]; j++, n++, code++) {
			const int symbol = t->c.values[n], size = symbol & 15, rest = LOOK - l;
			const uint64_t run = (uint64_t)(symbol >> 4);
			uint64_t *to = t->look + (code << rest), e;
			if (size == 0)
				e = (uint64_t)l | (uint64_t)l << 58 | (run == 15 ? 16 << 6 : 1 << 6 | BLOCK_END);
			else
				e = (uint64_t)(l + size) | (uint64_t)(l + size) << 58 | (run + 1) << 6 | run << 48 | run << 52;
			for (int i = 0; i < 1 << rest; i++)
				if (size == 0) {
					to[i] = e;
				} else if (size <= rest) {
					const uint64_t v = (uint16_t)extend(i >> (rest - size), size);
					to[i] = e | v << 16 | v << 32;
				} else {
					to[i] = e | (uint64_t)KIND_BITS << 14 | (uint64_t)size << 16;
				}
		}
	// Then a second symbol where it fits. The entry behind the first symbol may
	// itself have two by now: its first is what is taken.
	for (uint32_t i = 0; i < 1 << LOOK; i++) {
		const uint64_t a = t->look[i];
		if (KIND(a) != KIND_VALUE || VALUE(a) == 0)
			continue; // end of block or 16 zeros: alone
		const int used = FIRST_LENGTH(a);
		const uint64_t b = t->look[(i << used) & ((1 << LOOK) - 1)];
		const int more = FIRST_LENGTH(b), end = VALUE(b) == 0;
		if (KIND(b) != KIND_VALUE || used + more > LOOK || (end && !(b & BLOCK_END)))
			continue;
		const uint64_t first = a & ((uint64_t)0xfc0f << 48 | (uint64_t)0xffff << 16);
		const uint64_t second = (uint64_t)(AT(a) + 1 + AT(b));
		t->look[i] = first | (uint64_t)(used + more) | (second + 1) << 6 | (end ? BLOCK_END : 0) |
		             (uint64_t)(uint16_t)VALUE(b) << 32 | second << 52;
	}
}

// ---- bits

// The buffer near a marker, a stuffed byte or the end.
static __attribute__((noinline)) void refill_slow(huffman *h)
{
	while (h->count <= 56) {
		if (!h->at_end && h->p < h->end) {
			uint64_t c = *h->p;
			if (c != 0xff) {
				h->p++;
			} else if (h->end - h->p >= 2 && h->p[1] == 0) {
				h->p += 2;
			} else {
				h->at_end = 1;
				continue;
			}
			h->buffer |= c << (56 - h->count);
			h->count += 8;
		} else {
			h->at_end = 1;
			h->zeros += 64 - h->count;
			h->count = 64;
		}
	}
	if (h->p > h->next_ff) {
		const uint8_t *ff = memchr(h->p, 0xff, (size_t)(h->end - h->p));
		h->next_ff = ff != NULL ? ff : h->end;
	}
}

// Local copies of the bit state, for the loops.
#define BITS_LOCAL                                                                                                             \
	uint64_t buffer = h->buffer;                                                                                           \
	int count = h->count;                                                                                                  \
	const uint8_t *p = h->p;
#define BITS_SAVE                                                                                                              \
	do {                                                                                                                   \
		h->buffer = buffer;                                                                                            \
		h->count = count;                                                                                              \
		h->p = p;                                                                                                      \
	} while (0)
// At least 56 bits. Bits below count are garbage of the next byte, which is
// loaded again, so that or-ing it in changes nothing.
#define REFILL                                                                                                                 \
	do {                                                                                                                   \
		if (__builtin_expect(h->next_ff - p >= 8, 1)) {                                                                \
			uint64_t next;                                                                                         \
			memcpy(&next, p, 8);                                                                                   \
			buffer |= __builtin_bswap64(next) >> count;                                                            \
			p += (63 - count) >> 3;                                                                                \
			count |= 56;                                                                                           \
		} else {                                                                                                       \
			buffer &= count == 0 ? 0 : ~(uint64_t)0 << (64 - count);                                                       \
			BITS_SAVE;                                                                                             \
			refill_slow(h);                                                                                        \
			buffer = h->buffer;                                                                                    \
			count = h->count;                                                                                      \
			p = h->p;                                                                                              \
		}                                                                                                              \
	} while (0)
#define USE(N)                                                                                                                 \
	do {                                                                                                                   \
		const int used = (N);                                                                                          \
		buffer <<= used;                                                                                               \
		count -= used;                                                                                                 \
	} while (0)

// The symbol of a code longer than a table's index, and its length; -1 if
// there is no such code.
static __attribute__((noinline)) int long_code(const codes *c, uint64_t buffer, int from, int *length)
{
	for (int l = from; l <= 16; l++) {
		const int32_t code = (int32_t)(buffer >> (64 - l));
		if (c->max_code[l] >= 0 && code <= c->max_code[l]) {
			*length = l;
			return c->values[(code + c->offset[l]) & 255];
		}
	}
	return -1;
}

static void give_up(huffman *h)
{
	h->d->jcode = SK_RETRY;
	longjmp(h->d->jump, 1);
}

// ---- blocks

#define DECODE_DC(DIFF)                                                                                                        \
	do {                                                                                                                   \
		if (count < 32)                                                                                                \
			REFILL;                                                                                                \
		const int32_t e = dc->look[buffer >> (64 - LOOK_DC)];                                                          \
		if (__builtin_expect(DC_KIND(e) == KIND_VALUE, 1)) {                                                           \
			(DIFF) = e >> 16;                                                                                      \
			USE(LENGTH(e));                                                                                        \
		} else {                                                                                                       \
			int length = LENGTH(e), size = e >> 16 & 15;                                                           \
			if (DC_KIND(e) == KIND_LONG && (size = long_code(&dc->c, buffer, LOOK_DC + 1, &length)) < 0)           \
				return -1;                                                                                     \
			USE(length);                                                                                           \
			(DIFF) = 0;                                                                                            \
			if (size > 15)                                                                                         \
				return -1;                                                                                     \
			if (size > 0) {                                                                                        \
				(DIFF) = extend((int)(buffer >> (64 - size)), size);                                           \
				USE(size);                                                                                     \
			}                                                                                                      \
		}                                                                                                              \
	} while (0)

// Decodes a block into zeroed coefficients. Returns 0, or -1 to give up.
INLINE int decode_block(huffman *h, const dc_table *dc, const ac_table *ac, int *predict, JCOEF *block)
{
	BITS_LOCAL
	int diff;
	DECODE_DC(diff);
	*predict += diff;
	block[0] = (JCOEF)*predict;
	int k = 1;
	while (k < 64) {
		if (count < 32)
			REFILL;
		const uint64_t e = ac->look[buffer >> (64 - LOOK)];
		if (__builtin_expect(KIND(e) == KIND_VALUE && k + ADVANCE(e) <= 64, 1)) {
			USE(LENGTH(e));
			block[natural[k + AT(e)]] = VALUE(e);
			block[natural[k + AT_SECOND(e)]] = SECOND(e);
			k += ADVANCE(e);
			if (e & BLOCK_END)
				break;
			continue;
		}
		int length, run = AT(e), size = (int)(e >> 16 & 15);
		switch (KIND(e)) {
		case KIND_VALUE: // the second is not of this block, or 16 zeros too many
			if (VALUE(e) == 0)
				return -1;
			USE(FIRST_LENGTH(e));
			k += run;
			block[natural[k]] = VALUE(e);
			k++;
			continue;
		case KIND_BITS:
			length = FIRST_LENGTH(e) - size;
			break;
		default: {
			const int symbol = long_code(&ac->c, buffer, LOOK + 1, &length);
			if (symbol < 0)
				return -1;
			run = symbol >> 4;
			size = symbol & 15;
		}
		}
		USE(length);
		if (size == 0) {
			if (run != 15)
				break;
			k += 16;
			continue;
		}
		k += run;
		block[natural[k]] = (JCOEF)extend((int)(buffer >> (64 - size)), size);
		USE(size);
		k++;
	}
	BITS_SAVE;
	return k > 64 ? -1 : 0;
}

// Passes over a block: only the DC prediction is kept.
INLINE int pass_block(huffman *h, const dc_table *dc, const ac_table *ac, int *predict)
{
	BITS_LOCAL
	int diff;
	DECODE_DC(diff);
	*predict += diff;
	int k = 1;
	while (k < 64) {
		if (count < 32)
			REFILL;
		const uint64_t e = ac->look[buffer >> (64 - LOOK)];
		if (__builtin_expect(KIND(e) != KIND_LONG && k + ADVANCE(e) <= 64, 1)) {
			USE(LENGTH(e));
			k += ADVANCE(e);
			if (e & BLOCK_END)
				break;
			continue;
		}
		if (KIND(e) != KIND_LONG) {
			if (VALUE(e) == 0)
				return -1;
			USE(FIRST_LENGTH(e));
			k += AT(e) + 1;
			continue;
		}
		int length;
		const int symbol = long_code(&ac->c, buffer, LOOK + 1, &length);
		if (symbol < 0)
			return -1;
		USE(length + (symbol & 15));
		if ((symbol & 15) != 0)
			k += (symbol >> 4) + 1;
		else if (symbol >> 4 == 15)
			k += 16;
		else
			break;
	}
	BITS_SAVE;
	return k > 64 ? -1 : 0;
}

// ---- MCUs

static void find_ff(huffman *h)
{
	const uint8_t *ff = memchr(h->p, 0xff, (size_t)(h->end - h->p));
	h->next_ff = ff != NULL ? ff : h->end;
}

static int next_restart(huffman *h, unsigned interval)
{
	if (h->count - h->zeros >= 8) // whole bytes of data are left
		return -1;
	while (h->end - h->p >= 2 && h->p[0] == 0xff && h->p[1] == 0xff)
		h->p++;
	if (h->end - h->p < 2 || h->p[0] != 0xff || h->p[1] != 0xd0 + h->restart_number)
		return -1;
	h->p += 2;
	h->restart_number = (h->restart_number + 1) & 7;
	h->to_restart = interval;
	h->buffer = 0;
	h->count = h->zeros = h->at_end = 0;
	memset(h->predict, 0, sizeof h->predict);
	find_ff(h);
	return 0;
}

INLINE boolean decode(j_decompress_ptr ci, JBLOCKROW *mcu)
{
	huffman *h = (huffman *)((sk_dec *)ci->client_data)->lookup.p;
	const JDIMENSION column = (JDIMENSION)h->column;
	if (++h->column == (int)ci->MCUs_per_row)
		h->column = 0;
	if (ci->restart_interval) {
		if (h->to_restart == 0 && next_restart(h, ci->restart_interval) != 0)
			give_up(h);
		h->to_restart--;
	}
	const int blocks = ci->blocks_in_MCU;
	int bad = 0;
	if (mcu == NULL || column < ci->master->first_iMCU_col || column > ci->master->last_iMCU_col)
		for (int b = 0; b < blocks; b++)
			bad |= pass_block(h, h->dc[b], h->ac[b], &h->predict[ci->MCU_membership[b]]);
	else
		for (int b = 0; b < blocks; b++)
			bad |= decode_block(h, h->dc[b], h->ac[b], &h->predict[ci->MCU_membership[b]], mcu[b][0]);
	if (bad || h->zeros > h->count) // or used bits that are not there
		give_up(h);
	return TRUE;
}

static boolean decode_mcu(j_decompress_ptr ci, JBLOCKROW *mcu)
{
	return decode(ci, mcu);
}

#if defined(__x86_64__)
// With BMI2 a shift is one operation; the chain of shifts is the time.
__attribute__((target("bmi,bmi2"))) static boolean decode_mcu_bmi2(j_decompress_ptr ci, JBLOCKROW *mcu)
{
	return decode(ci, mcu);
}
#endif

// Whether the scan that begins is one that this decoder handles.
static int handles(const struct jpeg_decompress_struct *ci)
{
	return !ci->progressive_mode && !ci->arith_code && !ci->inputctl->has_multiple_scans && ci->Ss == 0 && ci->Se == 63 &&
	       ci->Ah == 0 && ci->Al == 0;
}

// Makes the tables of the components of the scan. They are there and sound.
static void make_tables(huffman *h, struct jpeg_decompress_struct *ci)
{
	for (int c = 0; c < ci->comps_in_scan; c++) {
		const jpeg_component_info *info = ci->cur_comp_info[c];
		dc_table *dc = &h->dc_tables[info->dc_tbl_no];
		if (!codes_known(&dc->c, ci->dc_huff_tbl_ptrs[info->dc_tbl_no]))
			fill_dc(dc);
		ac_table *ac = &h->ac_tables[info->ac_tbl_no];
		if (!codes_known(&ac->c, ci->ac_huff_tbl_ptrs[info->ac_tbl_no]))
			fill_ac(ac);
	}
}

// Begins at the data behind the header.
static void begin(huffman *h, const struct jpeg_decompress_struct *ci)
{
	h->buffer = 0;
	h->count = h->zeros = h->at_end = h->column = h->restart_number = 0;
	h->to_restart = ci->restart_interval;
	memset(h->predict, 0, sizeof h->predict);
	h->p = ci->src->next_input_byte;
	h->end = h->p + ci->src->bytes_in_buffer;
	find_ff(h);
}

int sk_huffman_start(sk_dec *d)
{
	struct jpeg_decompress_struct *ci = &d->ci;
	if (!handles(ci))
		return SK_OK;
	const int first = d->lookup.p == NULL;
	huffman *h = sk_need(&d->lookup, sizeof *h);
	if (h == NULL)
		return sk_fail(d, SK_NO_MEMORY, "no memory for %zu bytes of tables", sizeof *h);
	if (first)
		memset(h, 0, sizeof *h);
	make_tables(h, ci); // libjpeg has looked at them
	for (int b = 0; b < ci->blocks_in_MCU; b++) {
		const jpeg_component_info *info = ci->cur_comp_info[ci->MCU_membership[b]];
		h->dc[b] = &h->dc_tables[info->dc_tbl_no];
		h->ac[b] = &h->ac_tables[info->ac_tbl_no];
	}
	h->d = d;
	begin(h, ci);
	ci->entropy->decode_mcu = decode_mcu;
#if defined(__x86_64__)
	if (d->isa != SK_SCALAR)
		ci->entropy->decode_mcu = decode_mcu_bmi2;
#endif
	return SK_OK;
}

// ---- rows of coefficients

struct sk_scan {
	huffman h;
	int ncomp, mcols, columns[MAX_COMPS_IN_SCAN], rows[MAX_COMPS_IN_SCAN];
	unsigned interval;
	int isa;
	sk_buf coef;
	size_t size; // of coef in use
	JBLOCKROW block[MAX_COMPS_IN_SCAN];
};

sk_scan *sk_scan_new(void)
{
	return calloc(1, sizeof(sk_scan));
}

void sk_scan_free(sk_scan *s)
{
	if (s == NULL)
		return;
	sk_buf_free(&s->coef);
	free(s);
}

// What libjpeg would refuse: codes that do not fit in their lengths, or too many
// of them; differences of more than 15 bits.
static int sound(const JHUFF_TBL *t, int dc)
{
	if (t == NULL)
		return 0;
	int code = 0, n = 0;
	for (int l = 1; l <= 16; l++, code <<= 1) {
		n += t->bits[l];
		code += t->bits[l];
		if (n > 256 || (t->bits[l] > 0 && code >= 1 << l))
			return 0;
	}
	for (int i = 0; i < n && dc; i++)
		if (t->huffval[i] > 15)
			return 0;
	return 1;
}

int sk_scan_start(sk_scan *s, struct jpeg_decompress_struct *ci, int isa)
{
	if (!handles(ci) || ci->data_precision != 8 || ci->comps_in_scan != ci->num_components)
		return SK_RETRY;
	// A component alone has one block per MCU, whatever its factors say.
	const int alone = ci->comps_in_scan == 1;
	const int across = 8 * (alone ? 1 : ci->max_h_samp_factor);
	int blocks = 0;
	s->ncomp = ci->comps_in_scan;
	s->mcols = ((int)ci->image_width + across - 1) / across;
	for (int c = 0; c < s->ncomp; c++) {
		const jpeg_component_info *info = ci->cur_comp_info[c];
		if (info != &ci->comp_info[c] || !sound(ci->dc_huff_tbl_ptrs[info->dc_tbl_no & 3], 1) ||
		    !sound(ci->ac_huff_tbl_ptrs[info->ac_tbl_no & 3], 0) || info->dc_tbl_no > 3 || info->ac_tbl_no > 3)
			return SK_RETRY;
		s->columns[c] = alone ? 1 : info->h_samp_factor;
		s->rows[c] = alone ? 1 : info->v_samp_factor;
		blocks += s->columns[c] * s->rows[c];
	}
	if (blocks > D_MAX_BLOCKS_IN_MCU)
		return SK_RETRY;
	s->size = (size_t)blocks * (size_t)s->mcols * sizeof(JBLOCK);
	JBLOCKROW at = sk_need(&s->coef, s->size);
	if (at == NULL)
		return SK_NO_MEMORY;
	for (int c = 0; c < s->ncomp; c++) {
		s->block[c] = at;
		at += s->columns[c] * s->rows[c] * s->mcols;
	}
	make_tables(&s->h, ci);
	begin(&s->h, ci);
	s->interval = ci->restart_interval;
	for (int c = 0; c < s->ncomp; c++) {
		s->h.dc[c] = &s->h.dc_tables[ci->cur_comp_info[c]->dc_tbl_no];
		s->h.ac[c] = &s->h.ac_tables[ci->cur_comp_info[c]->ac_tbl_no];
	}
	s->isa = isa;
	return SK_OK;
}

INLINE int scan_row(sk_scan *s)
{
	huffman *h = &s->h;
	for (int m = 0; m < s->mcols; m++) {
		if (s->interval) {
			if (h->to_restart == 0 && next_restart(h, s->interval) != 0)
				return SK_RETRY;
			h->to_restart--;
		}
		int bad = 0;
		for (int c = 0; c < s->ncomp; c++) {
			const int columns = s->columns[c];
			for (int y = 0; y < s->rows[c]; y++) {
				JBLOCKROW to = s->block[c] + (y * s->mcols + m) * columns;
				for (int x = 0; x < columns; x++)
					bad |= decode_block(h, h->dc[c], h->ac[c], &h->predict[c], to[x]);
			}
		}
		if (bad || h->zeros > h->count)
			return SK_RETRY;
	}
	return SK_OK;
}

static int scan_row_any(sk_scan *s)
{
	return scan_row(s);
}

#if defined(__x86_64__)
__attribute__((target("bmi,bmi2"))) static int scan_row_bmi2(sk_scan *s)
{
	return scan_row(s);
}
#endif

int sk_scan_row(sk_scan *s)
{
	memset(s->block[0], 0, s->size);
#if defined(__x86_64__)
	if (s->isa != SK_SCALAR)
		return scan_row_bmi2(s);
#endif
	return scan_row_any(s);
}

JBLOCKROW sk_scan_blocks(const sk_scan *s, int c, int y)
{
	return s->block[c] + y * s->mcols * s->columns[c];
}

int sk_scan_end(const sk_scan *s)
{
	const huffman *h = &s->h;
	// What is buffered and not used are the bits that fill the last byte.
	if (h->count - h->zeros >= 8)
		return SK_RETRY;
	const ptrdiff_t left = h->end - h->p;
	return left == 0 || (left >= 2 && h->p[0] == 0xff && h->p[1] == JPEG_EOI) ? SK_OK : SK_RETRY;
}
