// Deflate data (RFC 1951) that is completely in memory. One table lookup gives two literals if their codes are short.
// Only at the ends are bytes read one at a time.
//
// The fields of a table entry:
//
//	bits 0-5    number of bits of code and extra bits together
//	bits 8-11   number of bits of the code; for two literals, of the first code
//	bit  12     SPECIAL, not one of the common cases; with bit 13 or 14, or alone for invalid codes
//	bit  13     a further table: bits 8-11 are the number of bits of its index
//	bit  14     the end of the block; for a literal: a second one follows
//	bit  15     a literal
//	bits 16-31  the literals, the base of a length or distance, or the offset of a table
//
// Safety: the fast loop runs while SRC_REACH bytes can be read and DST_REACH written, more than one iteration can
// use. `careful` compares before each byte. A distance is compared with the number of bytes written. Codes are
// complete, or the entries without a code are SPECIAL, so no other kinds of entries exist.
#include "inflate.h"

#include <pthread.h>
#include <string.h>

#include "sk.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
	SPECIAL = 1 << 12,
	FURTHER = 1 << 13,
	FINAL = 1 << 14,
	PAIR = 1 << 14,
	LITERAL = 1 << 15,

	LIT_BITS = 11,
	DIST_BITS = 8,
	CODE_BITS = 7,
	// With their further tables, codes of at most 15 bits take at most 2342 and 402 entries.
	LIT_SIZE = 2560,
	DIST_SIZE = 512,

	SRC_REACH = 24,           // three loads of 8 bytes, each at most 7 further on
	DST_REACH = 258 + 16 + 8, // a match, the bytes copied after it, the literals before it
};

typedef struct {
	const uint8_t *src;
	size_t n, at;
	uint64_t hold; // the next bits
	unsigned have; // how many of them are valid
	uint8_t *dst;
	size_t room, made;
	const uint32_t *lit, *dist;
	uint32_t lits[LIT_SIZE], dists[DIST_SIZE];
} inflater;

#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t load64(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	return v;
}

// The entry of a symbol, without the size of its code.
static uint32_t of_literal(unsigned sym)
{
	if (sym < 256)
		return LITERAL | sym << 16;
	if (sym == 256)
		return SPECIAL | FINAL;
	if (sym < 265)
		return (sym - 254) << 16;
	if (sym < 285) {
		const unsigned extra = (sym - 261) / 4;
		return (3 + ((4 + (sym - 261) % 4) << extra)) << 16 | extra;
	}
	return sym == 285 ? 258 << 16 : SPECIAL;
}

static uint32_t of_distance(unsigned sym)
{
	if (sym < 4)
		return (sym + 1) << 16;
	if (sym < 30) {
		const unsigned extra = (sym - 2) / 2;
		return (1 + ((2 + sym % 2) << extra)) << 16 | extra;
	}
	return SPECIAL;
}

static uint32_t of_length(unsigned sym) { return sym << 16; }

// A code of at most 16 bits, which are written from the last one on.
static unsigned reversed(unsigned code, unsigned bits)
{
	code = (code & 0x5555) << 1 | (code >> 1 & 0x5555);
	code = (code & 0x3333) << 2 | (code >> 2 & 0x3333);
	code = (code & 0x0F0F) << 4 | (code >> 4 & 0x0F0F);
	return (code << 8 | code >> 8) % 65536 >> (16 - bits);
}

// Makes a table of `size` entries, of codes by their lengths; 0 for lengths that are none of a code.
static int build(uint32_t *table, unsigned size, unsigned bits, const uint8_t *lens, unsigned n,
                 uint32_t (*entry)(unsigned))
{
	unsigned count[16] = {0}, next[16], most = 0, used = 0;
	for (unsigned i = 0; i < n; i++) {
		count[lens[i]]++;
		if (lens[i] > most)
			most = lens[i];
		used += lens[i] != 0;
	}
	count[0] = 0;
	unsigned code = 0;
	int left = 1;
	for (int k = 1; k < 16; k++) {
		left = left * 2 - (int)count[k];
		if (left < 0)
			return 0;
		code = (code + count[k - 1]) << 1;
		next[k] = code;
	}
	// One code of one bit may leave the other one open, as may none at all.
	if (left > 0 && used > 0 && (used > 1 || most > 1))
		return 0;
	for (unsigned i = 0; i < size; i++)
		table[i] = SPECIAL;
	// The maximum code length after each prefix of `bits` bits.
	uint8_t deep[1 << LIT_BITS];
	const unsigned mask = (1u << bits) - 1;
	if (most > bits) {
		unsigned at[16];
		memcpy(at, next, sizeof(at));
		memset(deep, 0, mask + 1);
		for (unsigned i = 0; i < n; i++) {
			if (lens[i] == 0)
				continue;
			const unsigned c = at[lens[i]]++;
			if (lens[i] <= bits)
				continue;
			uint8_t *d = &deep[reversed(c, lens[i]) & mask];
			if (lens[i] - bits > *d)
				*d = (uint8_t)(lens[i] - bits);
		}
	}
	unsigned end = mask + 1;
	for (unsigned sym = 0; sym < n; sym++) {
		const unsigned len = lens[sym];
		if (len == 0)
			continue;
		const unsigned r = reversed(next[len]++, len);
		const uint32_t e = entry(sym);
		if (len <= bits) {
			for (unsigned i = r; i <= mask; i += 1u << len)
				table[i] = e + (len << 8 | len);
			continue;
		}
		uint32_t *first = &table[r & mask];
		const unsigned sub = deep[r & mask], rest = len - bits;
		if (!(*first & FURTHER)) {
			if (end + (1u << sub) > size)
				return 0;
			*first = SPECIAL | FURTHER | end << 16 | sub << 8 | bits;
			end += 1u << sub;
		}
		for (unsigned i = r >> bits; i < 1u << sub; i += 1u << rest)
			table[(*first >> 16) + i] = e + (rest << 8 | rest);
	}
	return 1;
}

// Joins literals whose codes fit into one index.
static void pair(uint32_t *table)
{
	for (unsigned i = 1 << LIT_BITS; i-- > 0;) {
		const uint32_t e = table[i];
		const unsigned size = e >> 8 & 15;
		if (!(e & LITERAL) || size >= LIT_BITS)
			continue;
		const uint32_t f = table[i >> size];
		const unsigned both = size + (f >> 8 & 15);
		if (f & LITERAL && both <= LIT_BITS)
			table[i] = LITERAL | PAIR | (f & 0xFF0000) << 8 | (e & 0xFF0000) | size << 8 | both;
	}
}

// Makes at least n bits valid, n <= 32; 0 at the end of src.
static int need(inflater *s, unsigned n)
{
	while (s->have < n) {
		if (s->at == s->n)
			return 0;
		s->hold |= (uint64_t)s->src[s->at++] << s->have;
		s->have += 8;
	}
	return 1;
}

static unsigned take(inflater *s, unsigned n)
{
	const unsigned v = (unsigned)(s->hold & ((1ull << n) - 1));
	s->hold >>= n;
	s->have -= n;
	return v;
}

static int stored(inflater *s)
{
	take(s, s->have % 8);
	s->at -= s->have / 8;
	s->hold = 0, s->have = 0;
	if (s->n - s->at < 4)
		return SK_INFLATE_SHORT;
	const uint8_t *p = s->src + s->at;
	const unsigned size = p[0] | p[1] << 8, other = p[2] | p[3] << 8;
	if ((size ^ other) != 0xFFFF)
		return SK_INFLATE_DATA;
	s->at += 4;
	if (size > s->n - s->at)
		return SK_INFLATE_SHORT;
	if (size > s->room - s->made)
		return SK_INFLATE_SIZE;
	if (size > 0)
		memcpy(s->dst + s->made, s->src + s->at, size);
	s->at += size, s->made += size;
	return SK_OK;
}

// Reads the codes of a block.
static int header(inflater *s)
{
	static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
	if (!need(s, 14))
		return SK_INFLATE_SHORT;
	const unsigned nlit = take(s, 5) + 257, ndist = take(s, 5) + 1, ncode = take(s, 4) + 4;
	if (nlit > 286 || ndist > 30)
		return SK_INFLATE_DATA;
	uint8_t lens[320] = {0};
	for (unsigned i = 0; i < ncode; i++) {
		if (!need(s, 3))
			return SK_INFLATE_SHORT;
		lens[order[i]] = (uint8_t)take(s, 3);
	}
	uint32_t codes[1 << CODE_BITS];
	if (!build(codes, 1 << CODE_BITS, CODE_BITS, lens, 19, of_length))
		return SK_INFLATE_DATA;
	memset(lens, 0, 19);
	for (unsigned i = 0; i < nlit + ndist;) {
		need(s, 14); // zeros are read after the end: a code may be shorter than 7 bits
		const uint32_t e = codes[s->hold & ((1 << CODE_BITS) - 1)];
		if (e & SPECIAL)
			return SK_INFLATE_DATA;
		const unsigned sym = e >> 16, bits = e & 63;
		const unsigned more = sym < 16 ? 0 : sym == 16 ? 2 : sym == 17 ? 3 : 7;
		if (s->have < bits + more)
			return SK_INFLATE_SHORT;
		take(s, bits);
		if (sym < 16) {
			lens[i++] = (uint8_t)sym;
			continue;
		}
		if (sym == 16 && i == 0)
			return SK_INFLATE_DATA;
		const uint8_t value = sym == 16 ? lens[i - 1] : 0;
		const unsigned count = (sym == 18 ? 11 : 3) + take(s, more);
		if (count > nlit + ndist - i)
			return SK_INFLATE_DATA;
		memset(lens + i, value, count);
		i += count;
	}
	if (lens[256] == 0 || !build(s->lits, LIT_SIZE, LIT_BITS, lens, nlit, of_literal) ||
	    !build(s->dists, DIST_SIZE, DIST_BITS, lens + nlit, ndist, of_distance))
		return SK_INFLATE_DATA;
	pair(s->lits);
	s->lit = s->lits, s->dist = s->dists;
	return SK_OK;
}

// The codes of blocks that bring none are always the same: their tables are made once in the process.
static struct {
	pthread_once_t once;
	uint32_t lits[1 << LIT_BITS], dists[1 << DIST_BITS];
} fixed_codes = {.once = PTHREAD_ONCE_INIT};

static void make_fixed(void)
{
	uint8_t lens[288];
	for (unsigned i = 0; i < sizeof(lens); i++)
		lens[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
	build(fixed_codes.lits, 1 << LIT_BITS, LIT_BITS, lens, 288, of_literal);
	pair(fixed_codes.lits);
	// Two of the 32 codes of distances are none: an incomplete code, so it is made here.
	for (unsigned i = 0; i < 1 << DIST_BITS; i++) {
		const unsigned sym = reversed(i & 31, 5);
		fixed_codes.dists[i] = sym < 30 ? of_distance(sym) + (5 << 8 | 5) : SPECIAL;
	}
}

static void fixed(inflater *s)
{
	pthread_once(&fixed_codes.once, make_fixed);
	s->lit = fixed_codes.lits, s->dist = fixed_codes.dists;
}

// One code of a table, and its extra bits.
static int code(inflater *s, const uint32_t *table, unsigned bits, uint32_t *e, unsigned *extra)
{
	need(s, bits); // fewer may be enough
	*e = table[s->hold & ((1u << bits) - 1)];
	if (!(*e & LITERAL) && *e & FURTHER) {
		if (s->have < bits)
			return SK_INFLATE_SHORT;
		take(s, bits);
		need(s, 15);
		*e = table[(*e >> 16) + (s->hold & ((1u << (*e >> 8 & 15)) - 1))];
	}
	const unsigned size = *e >> 8 & 15;
	if (size == 0)
		return s->have < bits ? SK_INFLATE_SHORT : SK_INFLATE_DATA;
	if (s->have < size)
		return SK_INFLATE_SHORT;
	take(s, size);
	if (*e & LITERAL)
		return SK_OK;
	const unsigned more = (*e & 63) - size;
	if (!need(s, more))
		return SK_INFLATE_SHORT;
	*extra = take(s, more);
	return SK_OK;
}

// Decodes the rest of a block, one code after another.
static int careful(inflater *s)
{
	for (;;) {
		uint32_t e;
		unsigned extra = 0;
		int err = code(s, s->lit, LIT_BITS, &e, &extra);
		if (err)
			return err;
		if (e & LITERAL) {
			if (s->made == s->room)
				return SK_INFLATE_SIZE;
			s->dst[s->made++] = (uint8_t)(e >> 16);
			continue;
		}
		if (e & SPECIAL)
			return e & FINAL ? SK_OK : SK_INFLATE_DATA;
		const size_t length = (e >> 16) + extra;
		if ((err = code(s, s->dist, DIST_BITS, &e, &extra)))
			return err;
		const size_t back = (e >> 16) + extra;
		if (e & SPECIAL || back > s->made)
			return SK_INFLATE_DATA;
		if (length > s->room - s->made)
			return SK_INFLATE_SIZE;
		for (uint8_t *p = s->dst + s->made, *end = p + length; p < end; p++)
			*p = *(p - back);
		s->made += length;
	}
}

// Copies a match. May also write up to 16 bytes after it.
INLINE void copy_match(uint8_t *out, size_t back, size_t length)
{
	const uint8_t *from = out - back;
	uint8_t *const end = out + length;
	if (back >= 16) {
		do {
			memcpy(out, from, 16);
			out += 16, from += 16;
		} while (out < end);
		return;
	}
	if (back == 1) {
		const uint64_t v = 0x0101010101010101u * *from;
		do {
			memcpy(out, &v, 8);
			out += 8;
		} while (out < end);
		return;
	}
	if (back < 8) { // a pattern: 8 bytes of it, and then from a multiple of its length before
		for (int i = 0; i < 8; i++)
			out[i] = from[i];
		static const uint8_t again[8] = {0, 0, 8, 9, 8, 10, 12, 14};
		out += 8;
		from = out - again[back];
		if (out >= end)
			return;
	}
	do {
		memcpy(out, from, 8);
		out += 8, from += 8;
	} while (out < end);
}

// 56 bits or more are valid after it. Bits above those may be set already: they are of the bytes that come next.
#define REFILL()                          \
	do {                                  \
		hold |= load64(src + at) << have; \
		at += (63 - have) >> 3;           \
		have |= 56;                       \
	} while (0)
#define CONSUME(bits) (hold >>= (bits), have -= (unsigned)(bits))
#define BELOW(bits) ((1ull << (bits)) - 1)
#define NEXT() (lit[hold & BELOW(LIT_BITS)])
#define EMIT()                       \
	do {                             \
		out[0] = (uint8_t)(e >> 16); \
		out[1] = (uint8_t)(e >> 24); \
		out += 1 + (e >> 14 & 1);    \
		CONSUME(e & 63);             \
		e = NEXT();                  \
	} while (0)

// Decodes a block with its codes, in the end carefully.
INLINE int block(inflater *s)
{
	if (s->n < SRC_REACH || s->n - SRC_REACH < s->at || s->room < DST_REACH || s->room - DST_REACH < s->made)
		return careful(s);
	const uint8_t *const src = s->src;
	const uint32_t *const lit = s->lit, *const dist = s->dist;
	uint8_t *const dst = s->dst, *out = dst + s->made;
	const size_t src_last = s->n - SRC_REACH;
	uint8_t *const out_last = dst + (s->room - DST_REACH);
	size_t at = s->at;
	uint64_t hold = s->hold;
	unsigned have = s->have;
	int err = SK_OK, ended = 0;

	REFILL();
	uint32_t e = NEXT();
	// Here e is of the next bits, of which LIT_BITS are valid at least.
	while (at <= src_last && out <= out_last) {
		REFILL();
		if (e & LITERAL) {
			EMIT();
			if (e & LITERAL) {
				EMIT();
				if (e & LITERAL) {
					EMIT();
					if (e & LITERAL) {
						EMIT(); // 12 bits are left
						continue;
					}
				}
			}
		}
		// 23 bits are left, a length has at most 20.
		if (__builtin_expect(e & SPECIAL, 0)) {
			if (e & FURTHER) {
				CONSUME(LIT_BITS);
				e = lit[(e >> 16) + (hold & BELOW(e >> 8 & 15))];
				if (e & LITERAL) {
					*out++ = (uint8_t)(e >> 16);
					CONSUME(e & 63);
					REFILL();
					e = NEXT();
					continue;
				}
			}
			if (e & SPECIAL) {
				CONSUME(e & 63);
				ended = 1;
				err = e & FINAL ? SK_OK : SK_INFLATE_DATA;
				break;
			}
		}
		const size_t length = (e >> 16) + ((hold & BELOW(e & 63)) >> (e >> 8 & 15));
		CONSUME(e & 63);
		REFILL();
		e = dist[hold & BELOW(DIST_BITS)];
		if (__builtin_expect(e & SPECIAL, 0)) {
			if (e & FURTHER) {
				CONSUME(DIST_BITS);
				e = dist[(e >> 16) + (hold & BELOW(e >> 8 & 15))];
			}
			if (e & SPECIAL) {
				err = SK_INFLATE_DATA;
				break;
			}
		}
		const size_t back = (e >> 16) + ((hold & BELOW(e & 63)) >> (e >> 8 & 15));
		CONSUME(e & 63);
		if (__builtin_expect(back > (size_t)(out - dst), 0)) {
			err = SK_INFLATE_DATA;
			break;
		}
		e = NEXT(); // while the copy runs
		copy_match(out, back, length);
		out += length;
	}
	s->at = at;
	s->hold = hold & BELOW(have);
	s->have = have;
	s->made = (size_t)(out - dst);
	return err || ended ? err : careful(s);
}

static int block_plain(inflater *s) { return block(s); }

#if defined(__x86_64__)
__attribute__((target("bmi,bmi2"))) static int block_bmi2(inflater *s) { return block(s); }
#endif

static int blocks(inflater *s)
{
	int (*decode)(inflater *) = block_plain;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_INFLATE) != SK_SCALAR)
		decode = block_bmi2;
#endif
	for (int last = 0; !last;) {
		if (!need(s, 3))
			return SK_INFLATE_SHORT;
		last = (int)take(s, 1);
		int err = SK_OK;
		switch (take(s, 2)) {
		case 0: err = stored(s); break;
		case 1:
			fixed(s);
			err = decode(s);
			break;
		case 2:
			if (!(err = header(s)))
				err = decode(s);
			break;
		default: err = SK_INFLATE_DATA;
		}
		if (err)
			return err;
	}
	return SK_OK;
}

int sk_inflate(uint8_t *dst, size_t room, const uint8_t *src, size_t n, size_t *made, size_t *used)
{
	sk_guard g;
	if (sigsetjmp(g.back, 0) != 0)
		return SK_UNREADABLE;
	inflater s; // whose tables are not cleared: they are made before they are looked into
	s.src = src, s.n = n, s.at = 0, s.hold = 0, s.have = 0;
	s.dst = dst, s.room = room, s.made = 0;
	sk_guard_on(&g);
	const int err = blocks(&s);
	sk_guard_off();
	*made = s.made;
	*used = err ? 0 : s.at - s.have / 8;
	return err;
}

// ---- Adler-32 (RFC 1950)

enum {
	ADLER_MOD = 65521,
	ADLER_MOST = 5536, // as many bytes as 32 bits hold the sums of, a multiple of 32
};

static void adler_plain(uint32_t *a, uint32_t *b, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		*a += p[i];
		*b += *a;
	}
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint32_t sum_avx2(__m256i v)
{
	__m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
	x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4E));
	x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0xB1));
	return (uint32_t)_mm_cvtsi128_si32(x);
}

// 32 bytes at a time: b grows by 32 times the previous a, and by each byte as many times as a contains it.
__attribute__((target("avx2"))) static size_t adler_avx2(uint32_t *a, uint32_t *b, const uint8_t *p, size_t n)
{
	const __m256i often = _mm256_setr_epi8(32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14,
	                                       13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1);
	const __m256i one = _mm256_set1_epi16(1), zero = _mm256_setzero_si256();
	__m256i sums = zero, before = zero, weighted = zero;
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		const __m256i x = _mm256_loadu_si256((const __m256i *)(p + i));
		before = _mm256_add_epi32(before, sums);
		sums = _mm256_add_epi32(sums, _mm256_sad_epu8(x, zero));
		weighted = _mm256_add_epi32(weighted, _mm256_madd_epi16(_mm256_maddubs_epi16(x, often), one));
	}
	*b += (uint32_t)i * *a + 32 * sum_avx2(before) + sum_avx2(weighted);
	*a += sum_avx2(sums);
	return i;
}
#endif

uint32_t sk_adler32(const uint8_t *p, size_t n)
{
	uint32_t a = 1, b = 0;
	while (n > 0) {
		const size_t part = n < ADLER_MOST ? n : ADLER_MOST;
		size_t done = 0;
#if defined(__x86_64__)
		if (sk_set(SK_KERNEL_ADLER32) != SK_SCALAR)
			done = adler_avx2(&a, &b, p, part);
#endif
		adler_plain(&a, &b, p + done, part - done);
		a %= ADLER_MOD, b %= ADLER_MOD;
		p += part, n -= part;
	}
	return b << 16 | a;
}

// ---- bytes of numbers, stored by their place

INLINE void join(uint8_t *restrict dst, const uint8_t *restrict src, size_t n, int size)
{
	for (size_t i = 0; i < n; i++)
		for (int k = 0; k < size; k++)
			dst[i * (size_t)size + (size_t)k] = src[(size_t)k * n + i];
}

#define UNSHUFFLE(name, attributes)                                                                     \
	attributes static void name(uint8_t *restrict dst, const uint8_t *restrict src, size_t n, int size) \
	{                                                                                                   \
		switch (size) {                                                                                 \
		case 2: join(dst, src, n, 2); break;                                                            \
		case 4: join(dst, src, n, 4); break;                                                            \
		case 8: join(dst, src, n, 8); break;                                                            \
		default: join(dst, src, n, size);                                                               \
		}                                                                                               \
	}

UNSHUFFLE(unshuffle_plain, )
#if defined(__x86_64__)
UNSHUFFLE(unshuffle_avx2, __attribute__((target("avx2"))))
#endif

int sk_unshuffle(uint8_t *dst, const uint8_t *src, size_t bytes, int size)
{
	sk_guard g;
	if (sigsetjmp(g.back, 0) != 0)
		return SK_UNREADABLE;
	sk_guard_on(&g);
	const size_t n = bytes / (size_t)size, whole = n * (size_t)size;
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_UNSHUFFLE) != SK_SCALAR)
		unshuffle_avx2(dst, src, n, size);
	else
#endif
		unshuffle_plain(dst, src, n, size);
	if (bytes > whole) // as they are
		memcpy(dst + whole, src + whole, bytes - whole);
	sk_guard_off();
	return SK_OK;
}
