// The entropy decoder for baseline JPEGs, which replaces libjpeg's. Most of the decoding time of a JPEG is spent
// here. It is faster because:
//
//   - A table lookup gives two coefficients (runs, values and the length of both)
//     where their codes fit in it, else one.
//   - A run of blocks is one loop of lookups without branches that cannot be foreseen:
//     the ends of blocks and bits of values that follow their code are arithmetic. A
//     branch foreseen wrongly takes as long as three lookups.
//   - Bits are loaded while the entry of a lookup is on its way.
//   - DC values are sums, made behind the loop.
//   - Stuffed bytes are looked for ahead (one memchr each), so that a refill
//     is one load of eight bytes; where all of an image is decoded they are taken
//     out first.
//   - MCUs outside the crop are only measured, not decoded.
//
// It has two users: libjpeg calls it MCU by MCU to make pixels, and sk_scan returns only rows of coefficients.
//
// It handles valid data. Any irregularity (a code that does not exist, a block that overflows, data that ends early,
// an unexpected marker) results in SK_RETRY. The image is then decoded again with libjpeg's own decoder, which gives
// its usual pixels or error.
#include "huffman.h"

#include <stdlib.h>
#include <string.h>

#include "huffman_table.h"

#define INLINE static inline __attribute__((always_inline))

// The most MCUs in one run.
#define RUN_MCUS 16
#define RUN_BLOCKS (RUN_MCUS * D_MAX_BLOCKS_IN_MCU)

typedef struct huffman huffman;

typedef struct turn turn;
struct turn {
	const sk_codes *table;
	const turn *next;
};

// The ways to process the next n MCUs. to is all zeros. They return whether they succeeded.
typedef struct {
	int (*zigzag)(huffman *h, int n, JCOEF *to); // blocks in zigzag order
	int (*natural)(huffman *h, int n, JCOEF *to);
	int (*pass)(huffman *h, int n); // only the DC prediction is updated
} forms;

struct huffman {
	const forms *forms;
	// The unused bits are the upper ones of buffer. `zeros` of them are after the end of the data.
	uint64_t buffer;
	int count, zeros;
	const uint8_t *p, *end, *next_ff;
	int at_end;    // p is at a marker or at the end
	int unstuffed; // the data have no stuffed bytes any more and end before the marker
	unsigned interval, to_restart;
	int restart_number;
	uint16_t predict[MAX_COMPS_IN_SCAN];     // modulo 2^16, as coefficients are
	int blocks, member[D_MAX_BLOCKS_IN_MCU]; // of an MCU, and whose each is
	// The tables in their order, in a ring: for each block the table of its DC difference, then the table of the
	// rest.
	turn turns[2 * D_MAX_BLOCKS_IN_MCU];
	sk_codes dc_tables[NUM_HUFF_TBLS], ac_tables[NUM_HUFF_TBLS];
	// For libjpeg: the next MCU of the row, the end of the finished MCUs, and the first of them in `ready`.
	int column, done, from;
	JCOEF ready[RUN_BLOCKS][DCTSIZE2];
};

// Natural order of zigzag positions. A run may lead up to 15 positions past the end.
static const uint8_t natural[64 + 16] = {
	0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,
	6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31,
	39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

// ---- bits

// A copy of the bit state, for the loops. Of count the lower six bits count.
typedef struct {
	uint64_t buffer, count;
	const uint8_t *p;
} bits;

INLINE void save(huffman *h, const bits *b)
{
	// The bits below the counted ones are the beginning of the next byte.
	h->count = (int)(b->count & 63);
	h->buffer = h->count == 0 ? 0 : b->buffer & ~(uint64_t)0 << (64 - h->count);
	h->p = b->p;
}

INLINE void restore(const huffman *h, bits *b) { *b = (bits){h->buffer, (uint64_t)h->count, h->p}; }

static void find_ff(huffman *h)
{
	const uint8_t *ff = memchr(h->p, 0xff, (size_t)(h->end - h->p));
	h->next_ff = ff != NULL ? ff : h->end;
}

// The buffer near a marker, a stuffed byte or the end. It is full then, though
// not all of it counts.
static __attribute__((noinline)) void refill_slow(huffman *h)
{
	for (; h->count < 56; h->count += 8) {
		if (!h->at_end && h->p < h->end && (h->p[0] != 0xff || h->unstuffed)) {
			h->buffer |= (uint64_t)*h->p++ << (56 - h->count);
		} else if (!h->at_end && h->end - h->p >= 2 && h->p[1] == 0) {
			h->buffer |= (uint64_t)0xff << (56 - h->count);
			h->p += 2;
		} else {
			h->at_end = 1;
			h->zeros += 8;
		}
	}
	if (!h->at_end && h->p < h->end && (h->p[0] != 0xff || h->unstuffed || (h->end - h->p >= 2 && h->p[1] == 0)))
		h->buffer |= (uint64_t)h->p[0] << 56 >> h->count;
	if (h->p > h->next_ff)
		find_ff(h);
}

// Fills the buffer, so that at least 56 bits count. The others are bits of the next byte, which is loaded again.
// Or-ing it in then changes nothing. Returns 0 without a change near a marker, a stuffed byte or the end.
INLINE int refill(const huffman *h, bits *b)
{
	if (__builtin_expect(h->next_ff - b->p < 8, 0))
		return 0;
	uint64_t next;
	memcpy(&next, b->p, 8);
	b->buffer |= __builtin_bswap64(next) >> (b->count & 63);
	b->p += ~b->count >> 3 & 7;
	b->count |= 56;
	return 1;
}

INLINE void refill_any(huffman *h, bits *b)
{
	if (refill(h, b))
		return;
	save(h, b);
	refill_slow(h);
	restore(h, b);
}

// ---- runs of blocks

enum { PASS, ZIGZAG, NATURAL };

// The saved result of a lookup, and its buffer.
typedef struct {
	uint64_t entry, buffer;
} found;

// The state of a run.
typedef struct {
	const sk_codes *table;
	const turn *next;
	size_t k; // position in the block
	JCOEF *block;
	found *log; // with PASS, of the block's DC difference, then unused
} place;

// Switches to the next table if the entry e requires it.
INLINE void switch_table(place *t, uint64_t e)
{
	const sk_codes *table = t->next->table;
	const turn *next = t->next->next;
#if defined(__x86_64__)
	// Compilers make a branch of it.
	__asm__("testb %3, %b2\n\tcmovne %4, %0\n\tcmovne %5, %1"
	        : "+&r"(t->table), "+r"(t->next)
	        : "q"(e), "i"(SK_SWITCH), "rm"(table), "rm"(next)
	        : "cc");
#else
	t->table = e & SK_SWITCH ? table : t->table;
	t->next = e & SK_SWITCH ? next : t->next;
#endif
}

// The bits of a value are the last ones that are used.
INLINE uint64_t value_of(uint64_t buffer, uint64_t used, unsigned following, int last)
{
	const uint64_t v = buffer >> (-used & 63) & (((uint64_t)1 << following) - 1);
	const uint64_t positive = v >> ((following - 1) & 63);
	return v + ((uint64_t)(int64_t)last & (positive - 1));
}

INLINE size_t index_of(const bits *b) { return b->buffer >> (64 - SK_LOOK); }

// Processes the result of a lookup at index, at most SK_MOST_BITS. Returns 0 and does nothing if it is not one of the
// common cases.
INLINE int step(bits *b, place *t, size_t index, int how)
{
	uint64_t e; // the entry, whose lower bits are `used`
	memcpy(&e, &t->table->look[index], sizeof e);
	__asm__("" : "+r"(index)); // its fields are to be loaded
	const sk_code *c = &t->table->look[index];
	size_t next = t->k + c->advance;
	int64_t used = (int8_t)c->used;
	if (__builtin_expect(next >= 64, 0)) {
		if (c->advance == SK_NOT_HERE) {
			c = &t->table->more[b->buffer << t->table->ones >> (64 - SK_LOOK_MORE)];
			memcpy(&e, c, sizeof e);
			next = t->k + c->advance;
			used = (int8_t)c->used;
		}
		if (next > 64)
			return 0;
		if (next == 64) { // full: the block ends without a code
			used |= -SK_SWITCH;
			e |= SK_SWITCH | SK_END;
		}
	}
	if (how == PASS) {
		*t->log = (found){e, b->buffer};
		t->log += e >> 6 & 1;
	} else {
		const size_t first = t->k + c->place, last = next - 1;
		t->block[how == NATURAL ? natural[first] : first] = c->first;
		t->block[how == NATURAL ? natural[last] : last] = (JCOEF)value_of(b->buffer, e, c->following, c->last);
	}
	b->buffer <<= e & 63;
	b->count -= e;
	switch_table(t, e);
	const uint64_t end = (uint64_t)(used >> 63); // all ones at the end of a block
	t->k = next & ~end;
	if (how != PASS)
		t->block += end & DCTSIZE2;
	return 1;
}

// One symbol of any kind; returns 0 to give up.
static __attribute__((noinline)) int slow_step(huffman *h, place *t, int how)
{
	if (h->count < 32)
		refill_slow(h);
	int length, value = 0;
	const int symbol = sk_codes_symbol(t->table, h->buffer, &length);
	if (symbol < 0)
		return 0;
	const int size = symbol & 15;
	const uint64_t before = h->buffer;
	h->buffer <<= length;
	if (size > 0)
		value = sk_extend((int)(h->buffer >> (64 - size)), size);
	h->buffer <<= size;
	h->count -= length + size;
	if (t->table->dc) {
		t->k = 0;
	} else if (size > 0) {
		t->k += (size_t)(symbol >> 4);
	} else {
		t->k = symbol >> 4 == 15 ? t->k + 15 : 63;
	}
	if (t->k >= 64)
		return 0;
	if (how == PASS) {
		const sk_code c = {.used = (uint8_t)(length + size), .last = (int16_t)value};
		t->log->buffer = before;
		memcpy(&t->log->entry, &c, sizeof c);
	} else if (size > 0) {
		t->block[how == NATURAL ? natural[t->k] : t->k] = (JCOEF)value;
	}
	t->k++;
	if (!t->table->dc && t->k < 64)
		return 1;
	t->table = t->next->table;
	t->next = t->next->next;
	if (how == PASS)
		t->log++;
	if (t->k < 64)
		return 1;
	t->k = 0;
	if (how != PASS)
		t->block += DCTSIZE2;
	return 1;
}

// Decodes or passes over n MCUs that have no restart between them.
INLINE int run(huffman *h, int n, JCOEF *blocks, found *log, int how)
{
	const JCOEF *const last = how == PASS ? NULL : blocks + n * h->blocks * DCTSIZE2;
	const found *const last_found = how == PASS ? log + 2 * n * h->blocks : NULL;
#define RUN_ENDS(t) (how == PASS ? (t).log == last_found : (t).block == last)
	bits b;
	restore(h, &b);
	refill_any(h, &b);
	place t = {h->turns[0].table, h->turns[0].next, 0, blocks, log};
	for (;;) {
		// Two lookups leave enough bits in a full buffer for the index of a third.
		size_t index = index_of(&b);
		if (!refill(h, &b)) {
			refill_any(h, &b);
			index = index_of(&b);
		}
		if (step(&b, &t, index, how)) {
			if (RUN_ENDS(t))
				break;
			if (step(&b, &t, index_of(&b), how)) {
				if (RUN_ENDS(t))
					break;
				continue;
			}
		}
		place slow = t;
		save(h, &b);
		if (!slow_step(h, &slow, how))
			return 0;
		t = slow;
		restore(h, &b);
		if (RUN_ENDS(t))
			break;
		refill_any(h, &b);
	}
#undef RUN_ENDS
	save(h, &b);
	return h->zeros <= h->count; // or bits were used that are not there
}

static int next_restart(huffman *h)
{
	if (h->count - h->zeros >= 8) // whole bytes of data are left
		return 0;
	while (h->end - h->p >= 2 && h->p[0] == 0xff && h->p[1] == 0xff)
		h->p++;
	if (h->end - h->p < 2 || h->p[0] != 0xff || h->p[1] != 0xd0 + h->restart_number)
		return 0;
	h->p += 2;
	h->restart_number = (h->restart_number + 1) & 7;
	h->to_restart = h->interval;
	h->buffer = 0;
	h->count = h->zeros = h->at_end = 0;
	memset(h->predict, 0, sizeof h->predict);
	find_ff(h);
	return 1;
}

// The number of the n MCUs that can be one run; 0 to give up.
static int next_run(huffman *h, int n)
{
	if (n > RUN_MCUS)
		n = RUN_MCUS;
	if (h->interval == 0)
		return n;
	if (h->to_restart == 0 && !next_restart(h))
		return 0;
	if ((unsigned)n > h->to_restart)
		n = (int)h->to_restart;
	h->to_restart -= (unsigned)n;
	return n;
}

INLINE int decode(huffman *h, int n, JCOEF *to, int how)
{
	while (n > 0) {
		const int m = next_run(h, n);
		if (m == 0 || !run(h, m, to, NULL, how))
			return 0;
		for (int i = 0; i < m; i++)
			for (int b = 0; b < h->blocks; b++, to += DCTSIZE2)
				to[0] = (JCOEF)(h->predict[h->member[b]] = (uint16_t)(h->predict[h->member[b]] + to[0]));
		n -= m;
	}
	return 1;
}

INLINE int pass(huffman *h, int n)
{
	found log[2 * RUN_BLOCKS];
	while (n > 0) {
		const int m = next_run(h, n);
		if (m == 0 || !run(h, m, NULL, log, PASS))
			return 0;
		const found *f = log;
		for (int i = 0; i < m; i++)
			for (int b = 0; b < h->blocks; b++, f += 2) {
				sk_code c;
				memcpy(&c, &f->entry, sizeof c);
				uint16_t *to = &h->predict[h->member[b]];
				*to = (uint16_t)(*to + value_of(f->buffer, f->entry, c.following, c.last));
			}
		n -= m;
	}
	return 1;
}

#define FORMS(name, attributes)                                                                              \
	attributes static int zigzag_##name(huffman *h, int n, JCOEF *to) { return decode(h, n, to, ZIGZAG); }   \
	attributes static int natural_##name(huffman *h, int n, JCOEF *to) { return decode(h, n, to, NATURAL); } \
	attributes static int pass_##name(huffman *h, int n) { return pass(h, n); }                              \
	static const forms forms_##name = {zigzag_##name, natural_##name, pass_##name};

FORMS(any, )
#if defined(__x86_64__)
FORMS(bmi2, __attribute__((target("bmi,bmi2"))))
#endif

static const forms *forms_for(void)
{
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_HUFFMAN) != SK_SCALAR)
		return &forms_bmi2;
#endif
	return &forms_any;
}

// ---- the beginning

// Whether the scan that begins is one that this decoder handles.
static int handles(const struct jpeg_decompress_struct *ci)
{
	return !ci->progressive_mode && !ci->arith_code && !ci->inputctl->has_multiple_scans && ci->Ss == 0 &&
	       ci->Se == 63 && ci->Ah == 0 && ci->Al == 0;
}

// Starts at the data after the header. The tables exist and are valid, and member and blocks are set.
static void begin(huffman *h, const struct jpeg_decompress_struct *ci)
{
	h->forms = forms_for();
	for (int b = 0; b < h->blocks; b++) {
		const jpeg_component_info *info = ci->cur_comp_info[h->member[b]];
		const int dc = info->dc_tbl_no, ac = info->ac_tbl_no;
		if (b == 0 || h->member[b] != h->member[b - 1]) {
			sk_codes_make(&h->dc_tables[dc], ci->dc_huff_tbl_ptrs[dc], 1);
			sk_codes_make(&h->ac_tables[ac], ci->ac_huff_tbl_ptrs[ac], 0);
		}
		h->turns[2 * b] = (turn){&h->dc_tables[dc], &h->turns[2 * b + 1]};
		h->turns[2 * b + 1] = (turn){&h->ac_tables[ac], &h->turns[b + 1 < h->blocks ? 2 * b + 2 : 0]};
	}
	h->buffer = 0;
	h->count = h->zeros = h->at_end = h->unstuffed = h->restart_number = 0;
	h->column = h->done = h->from = 0;
	h->interval = h->to_restart = ci->restart_interval;
	memset(h->predict, 0, sizeof h->predict);
	h->p = ci->src->next_input_byte;
	h->end = h->p + ci->src->bytes_in_buffer;
	find_ff(h);
}

// ---- for libjpeg

static void give_up(huffman *h, sk_dec *d)
{
	h->done = 0;
	d->jcode = SK_RETRY;
	longjmp(d->jump, 1);
}

// Scans on from MCU `column` of the row: the requested ones, some ahead, or those up to the next change.
static int scan_on(huffman *h, j_decompress_ptr ci, int column, int wanted)
{
	const int left = (int)ci->master->first_iMCU_col, right = (int)ci->master->last_iMCU_col + 1;
	const int all = (int)ci->MCUs_per_row;
	if (!wanted || column < left || column >= right) {
		h->done = wanted && column < left && left < all ? left : all;
		h->from = h->done;
		return h->forms->pass(h, h->done - column);
	}
	const int n = right - column < RUN_MCUS ? right - column : RUN_MCUS;
	h->from = column;
	h->done = column + n;
	memset(h->ready, 0, (size_t)(n * h->blocks) * sizeof h->ready[0]);
	return h->forms->natural(h, n, h->ready[0]);
}

static boolean decode_mcu(j_decompress_ptr ci, JBLOCKROW *mcu)
{
	sk_dec *d = ci->client_data;
	huffman *h = (huffman *)d->lookup.p;
	const int column = h->column;
	if (column >= h->done && !scan_on(h, ci, column, mcu != NULL))
		give_up(h, d);
	if (++h->column == (int)ci->MCUs_per_row)
		h->column = h->done = 0;
	if (mcu == NULL || column < (int)ci->master->first_iMCU_col || column > (int)ci->master->last_iMCU_col)
		return TRUE;
	if (column < h->from) // it was passed over
		give_up(h, d);
	const JCOEF(*from)[DCTSIZE2] = h->ready + (column - h->from) * h->blocks;
	for (int b = 0; b < h->blocks; b++)
		memcpy(mcu[b][0], from[b], sizeof from[b]);
	return TRUE;
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
	h->blocks = ci->blocks_in_MCU;
	for (int b = 0; b < h->blocks; b++)
		h->member[b] = ci->MCU_membership[b];
	begin(h, ci); // libjpeg has looked at the tables
	ci->entropy->decode_mcu = decode_mcu;
	return SK_OK;
}

// ---- coefficients alone

struct sk_scan {
	huffman h;
	// The data without stuffed bytes. About one byte in 200 is stuffed, and each costs a mispredicted branch and a
	// slow refill. behind is their end position in the file, before end.
	uint8_t *plain;
	size_t room;
	const uint8_t *behind, *end;
	JCOEF blocks[SK_SCAN_BLOCKS][DCTSIZE2];
};

sk_scan *sk_scan_new(void) { return calloc(1, sizeof(sk_scan)); }

void sk_scan_free(sk_scan *s)
{
	if (s != NULL)
		free(s->plain);
	free(s);
}

// Larger data keeps its stuffed bytes, so that the memory of a scan is limited.
#define UNSTUFF_MOST (4 << 20)

// Copies the data without stuffed bytes. Does nothing if there is no data, no memory, or if there are restarts.
static void unstuff(sk_scan *s)
{
	huffman *h = &s->h;
	const size_t n = (size_t)(h->end - h->p);
	if (h->interval != 0 || n == 0 || n > UNSTUFF_MOST)
		return;
	if (n > s->room) {
		free(s->plain);
		s->plain = malloc(n + n / 4);
		s->room = s->plain == NULL ? 0 : n + n / 4;
		if (s->plain == NULL)
			return;
	}
	const uint8_t *from = h->p, *const end = h->end;
	uint8_t *to = s->plain;
	for (const uint8_t *ff = h->next_ff;; ff = memchr(from, 0xff, (size_t)(end - from))) {
		if (ff == NULL)
			ff = end;
		memcpy(to, from, (size_t)(ff - from));
		to += ff - from;
		from = ff;
		if (end - ff < 2 || ff[1] != 0)
			break;
		*to++ = 0xff;
		from += 2;
	}
	s->behind = from;
	s->end = end;
	h->unstuffed = 1;
	h->p = s->plain;
	h->end = h->next_ff = to;
}

int sk_scan_start(sk_scan *s, struct jpeg_decompress_struct *ci)
{
	if (!handles(ci) || ci->data_precision != 8 || ci->comps_in_scan != ci->num_components)
		return SK_RETRY;
	// A single component has one block per MCU, regardless of its sampling factors.
	const int alone = ci->comps_in_scan == 1;
	s->h.blocks = 0;
	for (int c = 0; c < ci->comps_in_scan; c++) {
		const jpeg_component_info *info = ci->cur_comp_info[c];
		if (info != &ci->comp_info[c] || !sk_codes_sound(ci->dc_huff_tbl_ptrs[info->dc_tbl_no & 3], 1) ||
		    !sk_codes_sound(ci->ac_huff_tbl_ptrs[info->ac_tbl_no & 3], 0) || info->dc_tbl_no > 3 || info->ac_tbl_no > 3)
			return SK_RETRY;
		for (int b = alone ? 1 : info->h_samp_factor * info->v_samp_factor; b > 0; b--) {
			if (s->h.blocks == D_MAX_BLOCKS_IN_MCU)
				return SK_RETRY;
			s->h.member[s->h.blocks++] = c;
		}
	}
	begin(&s->h, ci);
	unstuff(s);
	return SK_OK;
}

const JCOEF (*sk_scan_next(sk_scan *s, int n)) [DCTSIZE2] {
	if (n * s->h.blocks > SK_SCAN_BLOCKS)
		return NULL;
	memset(s->blocks, 0, (size_t)(n * s->h.blocks) * sizeof s->blocks[0]);
	return s->h.forms->zigzag(&s->h, n, s->blocks[0]) ? (const JCOEF(*)[DCTSIZE2])s->blocks : NULL;
}

int sk_scan_end(const sk_scan *s)
{
	const huffman *h = &s->h;
	// The buffered and unused bits are the padding of the last byte.
	if (h->count - h->zeros >= 8)
		return SK_RETRY;
	if (h->unstuffed && h->p != h->end)
		return SK_RETRY;
	const uint8_t *p = h->unstuffed ? s->behind : h->p;
	const ptrdiff_t left = (h->unstuffed ? s->end : h->end) - p;
	return left == 0 || (left >= 2 && p[0] == 0xff && p[1] == JPEG_EOI) ? SK_OK : SK_RETRY;
}
