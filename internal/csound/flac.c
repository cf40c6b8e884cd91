// Frames of FLAC, as RFC 9639 describes them: integers of up to 32 bits.
#include "csound.h"

#include <pthread.h>
#include <string.h>

// --- checksums ---------------------------------------------------------------

static uint8_t crc8_table[256];
static uint16_t crc16_table[8][256]; // [k][b]: byte b followed by k bytes

static void make_tables(void)
{
	for (int b = 0; b < 256; b++) {
		unsigned c8 = (unsigned)b, c16 = (unsigned)b << 8;
		for (int i = 0; i < 8; i++) {
			c8 = c8 << 1 ^ (c8 & 0x80 ? 0x107 : 0);
			c16 = c16 << 1 ^ (c16 & 0x8000 ? 0x18005 : 0);
		}
		crc8_table[b] = (uint8_t)c8;
		crc16_table[0][b] = (uint16_t)c16;
	}
	for (int k = 1; k < 8; k++)
		for (int b = 0; b < 256; b++) {
			uint16_t c = crc16_table[k - 1][b];
			crc16_table[k][b] = (uint16_t)(c << 8 ^ crc16_table[0][c >> 8]);
		}
}

static void tables(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, make_tables);
}

static uint8_t crc8(const uint8_t *p, size_t n)
{
	uint8_t c = 0;
	while (n--)
		c = crc8_table[c ^ *p++];
	return c;
}

static uint16_t crc16(const uint8_t *p, size_t n)
{
	uint16_t c = 0;
	for (; n >= 8; n -= 8, p += 8)
		c = (uint16_t)(crc16_table[7][p[0] ^ c >> 8] ^ crc16_table[6][p[1] ^ (c & 255)] ^ crc16_table[5][p[2]] ^
		               crc16_table[4][p[3]] ^ crc16_table[3][p[4]] ^ crc16_table[2][p[5]] ^ crc16_table[1][p[6]] ^
		               crc16_table[0][p[7]]);
	while (n--)
		c = (uint16_t)(c << 8 ^ crc16_table[0][*p++ ^ c >> 8]);
	return c;
}

// --- bits --------------------------------------------------------------------

// The next bits are the highest of cache, of which left are valid. After the end there are zeros; past() returns
// whether some of them were used.
typedef struct {
	const uint8_t *p, *end;
	uint64_t cache;
	int left;
	int64_t beyond; // bits after the end that went into cache
} bits;

static inline void fill(bits *b)
{
	if (b->end - b->p >= 8) {
		uint64_t v;
		memcpy(&v, b->p, 8);
		b->cache |= __builtin_bswap64(v) >> b->left;
		b->p += (63 - b->left) >> 3;
		b->left |= 56;
		return;
	}
	while (b->left <= 56) {
		if (b->p < b->end)
			b->cache |= (uint64_t)*b->p++ << (56 - b->left);
		else
			b->beyond += 8;
		b->left += 8;
	}
}

static inline int past(const bits *b) { return b->beyond > b->left; }

static inline void skip(bits *b, int n)
{
	b->cache <<= n;
	b->left -= n;
}

// n from 0 to 32.
static inline uint32_t get(bits *b, int n)
{
	if (n == 0)
		return 0;
	if (b->left < n)
		fill(b);
	uint32_t v = (uint32_t)(b->cache >> (64 - n));
	skip(b, n);
	return v;
}

static inline int32_t get_signed(bits *b, int n)
{
	if (n == 0)
		return 0;
	if (b->left < n)
		fill(b);
	int32_t v = (int32_t)((int64_t)b->cache >> (64 - n));
	skip(b, n);
	return v;
}

// The number of zeros before the next one. The one is also consumed. Returns -1 for too many.
static inline int unary(bits *b)
{
	int n = 0;
	for (;;) {
		if (b->left < 32)
			fill(b);
		if (b->cache != 0) {
			int z = __builtin_clzll(b->cache);
			if (z < b->left) {
				b->cache <<= z; // in two steps: z + 1 may be 64
				b->cache <<= 1;
				b->left -= z + 1;
				return n + z;
			}
		}
		n += b->left;
		b->cache = 0;
		b->left = 0;
		if (b->p >= b->end)
			return -1;
	}
}

static int64_t position(const bits *b, const uint8_t *from) { return 8 * (b->p - from) + b->beyond - b->left; }

// --- frames ------------------------------------------------------------------

// A number in the form of UTF-8, with up to 36 bits. Returns its bytes, 0 when damaged.
static int coded(const uint8_t *p, size_t size, uint64_t *out)
{
	if (size < 1)
		return 0;
	if (p[0] < 0x80) {
		*out = p[0];
		return 1;
	}
	int n = 0;
	while (n < 8 && p[0] & (0x80 >> n))
		n++;
	if (n < 2 || n > 7 || size < (size_t)n)
		return 0;
	uint64_t v = n == 7 ? 0 : p[0] & (0x7f >> n);
	for (int i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		v = v << 6 | (p[i] & 0x3f);
	}
	*out = v;
	return n;
}

typedef struct {
	int mode; // how channels are related
	int bits;
	size_t size;
} head;

static int read_head(ss_flac *f, const uint8_t *p, size_t size, head *h)
{
	static const int depth[8] = {0, 8, 12, -1, 16, 20, 24, 32};
	if (size < 6)
		return SS_CUT;
	if (p[0] != 0xff || (p[1] & 0xfe) != 0xf8)
		return SS_DAMAGED;
	int block = p[2] >> 4, rate = p[2] & 15, mode = p[3] >> 4, bits = depth[p[3] >> 1 & 7];
	if (block == 0 || rate == 15 || mode > 10 || bits < 0 || p[3] & 1)
		return SS_DAMAGED;
	uint64_t number;
	int n = coded(p + 4, size - 4, &number);
	if (n == 0)
		return SS_DAMAGED;
	size_t at = 4 + (size_t)n;
	const size_t more = (block == 6 ? 1 : block == 7 ? 2 : 0) + (rate == 12 ? 1 : rate >= 13 ? 2 : 0);
	if (size < at + more + 1)
		return SS_CUT;
	if (block == 1)
		f->block = 192;
	else if (block <= 5)
		f->block = 144 << block;
	else if (block == 6)
		f->block = p[at++] + 1;
	else if (block == 7) {
		f->block = (p[at] << 8 | p[at + 1]) + 1;
		at += 2;
	} else
		f->block = 1 << block;
	at += rate == 12 ? 1 : rate >= 13 ? 2 : 0;
	if (crc8(p, at) != p[at])
		return SS_CHECKSUM;
	h->mode = mode;
	h->bits = bits ? bits : f->bits;
	h->size = at + 1;
	f->variable = p[1] & 1;
	if (f->block > f->max_block || (f->bits && h->bits != f->bits) || (mode < 8 ? mode + 1 : 2) != f->channels)
		return SS_DAMAGED;
	if (number > (f->variable ? (uint64_t)1 << 36 : (uint64_t)1 << 31))
		return SS_DAMAGED;
	f->sample = f->variable ? (int64_t)number : (int64_t)number * f->unit;
	return SS_OK;
}

int ss_flac_header(ss_flac *f, const uint8_t *data, size_t size)
{
	head h;
	tables();
	const int err = read_head(f, data, size, &h);
	if (err == SS_OK)
		f->bits = h.bits;
	return err;
}

int ss_flac_find(ss_flac *f, const uint8_t *data, size_t size, size_t *at)
{
	head h;
	tables();
	for (size_t i = *at; i + 6 <= size; i++) {
		const uint8_t *p = memchr(data + i, 0xff, size - i - 5);
		if (p == NULL)
			break;
		i = (size_t)(p - data);
		if ((p[1] & 0xfe) == 0xf8 && read_head(f, p, size - i, &h) == SS_OK) {
			*at = i;
			return SS_OK;
		}
	}
	return SS_CUT;
}

static int residual(bits *b, int block, int order, int32_t *out)
{
	const int method = (int)get(b, 2);
	if (method > 1)
		return SS_DAMAGED;
	const int width = method == 0 ? 4 : 5, escape = method == 0 ? 15 : 31;
	const int parts = (int)get(b, 4), per = block >> parts;
	if (per << parts != block || per < order)
		return SS_DAMAGED;
	out += order;
	for (int part = 0; part < 1 << parts; part++) {
		int n = part == 0 ? per - order : per;
		const int k = (int)get(b, width);
		if (k == escape) {
			const int raw = (int)get(b, 5);
			for (int i = 0; i < n; i++)
				out[i] = get_signed(b, raw);
		} else {
			bits r = *b;
			for (int i = 0; i < n; i++) {
				fill(&r);
				// One fill has at least 56 bits, enough for nearly every number.
				const int z = r.cache ? __builtin_clzll(r.cache) : 64;
				uint32_t v;
				if (__builtin_expect(z + 1 + k <= 56, 1)) {
					uint64_t c = r.cache << z << 1;
					v = (uint32_t)z << k | (uint32_t)(c >> 1 >> (63 - k));
					r.cache = c << k;
					r.left -= z + 1 + k;
				} else {
					int q = unary(&r);
					if (q < 0 || (k > 0 && q >> (31 - k) > 1))
						return q < 0 ? SS_CUT : SS_DAMAGED;
					v = (uint32_t)q << k | get(&r, k);
				}
				out[i] = (int32_t)(v >> 1 ^ -(v & 1));
			}
			*b = r;
		}
		if (past(b))
			return SS_CUT;
		out += n;
	}
	return SS_OK;
}

// Sums wrap around in damaged files, never in others.
#define AT(i) ((uint32_t)out[i])

static void fixed(int order, int block, int32_t *out)
{
	switch (order) {
	case 1:
		for (int i = 1; i < block; i++)
			out[i] = (int32_t)(AT(i) + AT(i - 1));
		return;
	case 2:
		for (int i = 2; i < block; i++)
			out[i] = (int32_t)(AT(i) + 2 * AT(i - 1) - AT(i - 2));
		return;
	case 3:
		for (int i = 3; i < block; i++)
			out[i] = (int32_t)(AT(i) + 3 * AT(i - 1) - 3 * AT(i - 2) + AT(i - 3));
		return;
	case 4:
		for (int i = 4; i < block; i++)
			out[i] = (int32_t)(AT(i) + 4 * AT(i - 1) - 6 * AT(i - 2) + 4 * AT(i - 3) - AT(i - 4));
		return;
	}
}

__attribute__((always_inline)) static inline void predict32(const int order, const int32_t *coef, int shift, int block,
                                                            int32_t *out)
{
	int32_t c[32];
	for (int j = 0; j < order; j++)
		c[j] = coef[j];
	for (int i = order; i < block; i++) {
		uint32_t sum = 0;
		for (int j = order - 1; j >= 0; j--) // the newest sample last: it is waited for
			sum += (uint32_t)c[j] * AT(i - 1 - j);
		out[i] = (int32_t)(AT(i) + (uint32_t)((int32_t)sum >> shift));
	}
}

__attribute__((always_inline)) static inline void predict64(const int order, const int32_t *coef, int shift, int block,
                                                            int32_t *out)
{
	int64_t c[32];
	for (int j = 0; j < order; j++)
		c[j] = coef[j];
	for (int i = order; i < block; i++) {
		uint64_t sum = 0;
		for (int j = order - 1; j >= 0; j--)
			sum += (uint64_t)(c[j] * out[i - 1 - j]);
		out[i] = (int32_t)(AT(i) + (uint32_t)((int64_t)sum >> shift));
	}
}

// Loops of a known length are unrolled.
#define ORDERS(f)                                    \
	switch (order) {                                 \
	case 1: f(1, coef, shift, block, out); return;   \
	case 2: f(2, coef, shift, block, out); return;   \
	case 3: f(3, coef, shift, block, out); return;   \
	case 4: f(4, coef, shift, block, out); return;   \
	case 5: f(5, coef, shift, block, out); return;   \
	case 6: f(6, coef, shift, block, out); return;   \
	case 7: f(7, coef, shift, block, out); return;   \
	case 8: f(8, coef, shift, block, out); return;   \
	case 9: f(9, coef, shift, block, out); return;   \
	case 10: f(10, coef, shift, block, out); return; \
	case 11: f(11, coef, shift, block, out); return; \
	case 12: f(12, coef, shift, block, out); return; \
	default: f(order, coef, shift, block, out);      \
	}

static void linear32(int order, const int32_t *coef, int shift, int block, int32_t *out) { ORDERS(predict32) }
static void linear64(int order, const int32_t *coef, int shift, int block, int32_t *out) { ORDERS(predict64) }

static int bit_length(uint32_t v) { return v ? 32 - __builtin_clz(v) : 0; }

static int subframe(bits *b, int depth, int block, int32_t *out)
{
	if (get(b, 1))
		return SS_DAMAGED;
	const int type = (int)get(b, 6);
	int wasted = 0;
	if (get(b, 1)) {
		wasted = unary(b);
		if (wasted < 0)
			return SS_CUT;
		wasted++;
		if (wasted >= depth)
			return SS_DAMAGED;
	}
	depth -= wasted;
	if (depth > 32)
		return SS_UNSUPPORTED; // the difference of two channels of 32 bits
	int err = SS_OK;
	if (type == 0) {
		const int32_t v = get_signed(b, depth);
		for (int i = 0; i < block; i++)
			out[i] = v;
	} else if (type == 1) {
		for (int i = 0; i < block; i++)
			out[i] = get_signed(b, depth);
	} else if (type >= 8 && type <= 12) {
		const int order = type - 8;
		if (order > block)
			return SS_DAMAGED;
		for (int i = 0; i < order; i++)
			out[i] = get_signed(b, depth);
		err = residual(b, block, order, out);
		if (err == SS_OK)
			fixed(order, block, out);
	} else if (type >= 32) {
		const int order = type - 31;
		if (order > block)
			return SS_DAMAGED;
		for (int i = 0; i < order; i++)
			out[i] = get_signed(b, depth);
		const int precision = (int)get(b, 4) + 1;
		const int shift = get_signed(b, 5);
		if (precision == 16 || shift < 0)
			return SS_DAMAGED;
		int32_t coef[32];
		uint32_t sum = 0;
		for (int i = 0; i < order; i++) {
			coef[i] = get_signed(b, precision);
			sum += (uint32_t)(coef[i] < 0 ? -coef[i] : coef[i]);
		}
		err = residual(b, block, order, out);
		if (err == SS_OK) {
			if (depth + bit_length(sum) <= 32)
				linear32(order, coef, shift, block, out);
			else
				linear64(order, coef, shift, block, out);
		}
	} else
		return SS_DAMAGED;
	if (err == SS_OK && past(b))
		err = SS_CUT;
	if (err == SS_OK && wasted)
		for (int i = 0; i < block; i++)
			out[i] = (int32_t)((uint32_t)out[i] << wasted);
	return err;
}

// Decodes the frame at data into channels*max_block numbers.
static int frame(ss_flac *f, const uint8_t *data, size_t size, int32_t *out)
{
	head h;
	tables();
	int err = read_head(f, data, size, &h);
	if (err)
		return err;
	bits b = {.p = data + h.size, .end = data + size};
	const int block = f->block;
	for (int c = 0; c < f->channels; c++) {
		const int side = (h.mode == 8 && c == 1) || (h.mode == 9 && c == 0) || (h.mode == 10 && c == 1);
		err = subframe(&b, h.bits + side, block, out + (size_t)c * (size_t)f->max_block);
		if (err)
			return err;
	}
	const size_t bytes = (size_t)((position(&b, data) + 7) / 8);
	if (bytes + 2 > size)
		return SS_CUT;
	if (crc16(data, bytes) != (data[bytes] << 8 | data[bytes + 1]))
		return SS_CHECKSUM;
	f->bytes = bytes + 2;
	int32_t *a = out, *s = out + f->max_block;
	switch (h.mode) {
	case 8:
		for (int i = 0; i < block; i++)
			s[i] = (int32_t)((uint32_t)a[i] - (uint32_t)s[i]);
		break;
	case 9:
		for (int i = 0; i < block; i++)
			a[i] = (int32_t)((uint32_t)a[i] + (uint32_t)s[i]);
		break;
	case 10:
		for (int i = 0; i < block; i++) {
			const uint32_t side = (uint32_t)s[i], mid = (uint32_t)a[i] << 1 | (side & 1);
			a[i] = (int32_t)(mid + side) >> 1;
			s[i] = (int32_t)(mid - side) >> 1;
		}
		break;
	}
	return SS_OK;
}

int ss_flac_decode(ss_flac *f, const uint8_t *data, size_t size, size_t *at, int32_t *room, int64_t from, int64_t n,
                   float *dst, size_t stride, int64_t *done)
{
	const float scale = 1.0f / (float)((uint32_t)1 << (f->bits - 1));
	int64_t next = -1;
	*done = 0;
	while (*done < n && *at < size) {
		const int err = frame(f, data + *at, size - *at, room);
		if (err)
			return err;
		if (next >= 0 && f->sample != next)
			return SS_DAMAGED;
		next = f->sample + f->block;
		*at += f->bytes;
		int64_t lo = from + *done - f->sample;
		if (lo < 0)
			return SS_DAMAGED;
		if (lo >= f->block)
			continue;
		int64_t count = f->block - lo;
		if (count > n - *done)
			count = n - *done;
		for (int c = 0; c < f->channels; c++) {
			const int32_t *src = room + (size_t)c * (size_t)f->max_block + lo;
			float *to = dst + (size_t)c * stride + *done;
			for (int64_t i = 0; i < count; i++)
				to[i] = (float)src[i] * scale;
		}
		*done += count;
	}
	return SS_OK;
}
