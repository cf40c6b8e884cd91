// MPEG audio layer III (ISO/IEC 11172-3 and 13818-3), and the lower rates that are called MPEG 2.5. The slow parts
// are written as products with small matrices, which compilers vectorise.
#include "csound.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "mp3_tables.h"

enum { LINES = 576, BANDS = 32, RESERVOIR = 511, MOST_MAIN = 2881 };

// --- tables ------------------------------------------------------------------

// Decoding by the next 9 bits, and then by the rest of a code.
typedef struct {
	uint8_t pair, bits; // bits 0: go on at `next` with `more` bits
	uint8_t more;
	uint16_t next;
} step;
enum { FIRST = 9, STEPS = 1 << 13 };
typedef struct {
	step first[1 << FIRST];
	step rest[3072];
	int used;
} tree;

static tree trees[34];
static float power43[8207], window_f[512], cosines[BANDS][BANDS], imdct_long[4][18][36], imdct_short[6][12], alias_s[8],
	alias_a[8];
static float quarter[4];

static void plant(tree *t, const code *codes, int n)
{
	uint8_t deep[1 << FIRST] = {0};
	for (int i = 0; i < n; i++)
		if (codes[i].bits > FIRST) {
			const uint32_t head = codes[i].code >> (codes[i].bits - FIRST);
			if (codes[i].bits - FIRST > deep[head])
				deep[head] = codes[i].bits - FIRST;
		}
	for (int h = 0; h < 1 << FIRST; h++)
		if (deep[h]) {
			t->first[h] = (step){0, 0, deep[h], (uint16_t)t->used};
			t->used += 1 << deep[h];
		}
	for (int i = 0; i < n; i++) {
		const code *c = &codes[i];
		if (c->bits <= FIRST) {
			const uint32_t from = c->code << (FIRST - c->bits);
			for (uint32_t k = 0; k < 1u << (FIRST - c->bits); k++)
				t->first[from + k] = (step){c->pair, c->bits, 0, 0};
		} else {
			const int below = c->bits - FIRST;
			const step *s = &t->first[c->code >> below];
			const uint32_t from = (c->code & ((1u << below) - 1)) << (s->more - below);
			for (uint32_t k = 0; k < 1u << (s->more - below); k++)
				t->rest[s->next + from + k] = (step){c->pair, (uint8_t)below, 0, 0};
		}
	}
}

static void make(void)
{
#define PLANT(n) plant(&trees[n], codes_##n, (int)(sizeof codes_##n / sizeof *codes_##n))
	PLANT(1);
	PLANT(2);
	PLANT(3);
	PLANT(5);
	PLANT(6);
	PLANT(7);
	PLANT(8);
	PLANT(9);
	PLANT(10);
	PLANT(11);
	PLANT(12);
	PLANT(13);
	PLANT(15);
	PLANT(16);
	PLANT(24);
	PLANT(32);
	PLANT(33);
	for (int i = 0; i < 8207; i++)
		power43[i] = (float)pow(i, 4.0 / 3);
	for (int i = 0; i < 512; i++)
		window_f[i] = (float)window[i] / 65536;
	for (int i = 0; i < 4; i++)
		quarter[i] = (float)pow(2, i / 4.0);
	for (int k = 0; k < BANDS; k++)
		for (int j = 0; j < BANDS; j++)
			cosines[k][j] = (float)cos(M_PI / 64 * j * (2 * k + 1));
	for (int type = 0; type < 4; type++)
		for (int i = 0; i < 36; i++) {
			double w = sin(M_PI / 36 * (i + 0.5));
			if (type == 1 && i >= 18)
				w = i < 24 ? 1 : i < 30 ? sin(M_PI / 12 * (i - 18 + 0.5)) : 0;
			if (type == 3 && i < 18)
				w = i < 6 ? 0 : i < 12 ? sin(M_PI / 12 * (i - 6 + 0.5)) : 1;
			for (int k = 0; k < 18; k++)
				imdct_long[type][k][i] = (float)(w * cos(M_PI / 72 * (2 * i + 1 + 18) * (2 * k + 1)));
		}
	for (int i = 0; i < 12; i++)
		for (int k = 0; k < 6; k++)
			imdct_short[k][i] = (float)(sin(M_PI / 12 * (i + 0.5)) * cos(M_PI / 24 * (2 * i + 1 + 6) * (2 * k + 1)));
	static const double c[8] = {-0.6, -0.535, -0.33, -0.185, -0.095, -0.041, -0.0142, -0.0037};
	for (int i = 0; i < 8; i++) {
		alias_s[i] = (float)(1 / sqrt(1 + c[i] * c[i]));
		alias_a[i] = (float)(c[i] / sqrt(1 + c[i] * c[i]));
	}
}

// By version (1, 2, 2.5) and rate: the first lines of scale factor bands.
static const uint16_t long_bands[7][23] = {
	{0, 4, 8, 12, 16, 20, 24, 30, 36, 44, 52, 62, 74, 90, 110, 134, 162, 196, 238, 288, 342, 418, 576},
	{0, 4, 8, 12, 16, 20, 24, 30, 36, 42, 50, 60, 72, 88, 106, 128, 156, 190, 230, 276, 330, 384, 576},
	{0, 4, 8, 12, 16, 20, 24, 30, 36, 44, 54, 66, 82, 102, 126, 156, 194, 240, 296, 364, 448, 550, 576},
	{0, 6, 12, 18, 24, 30, 36, 44, 54, 66, 80, 96, 116, 140, 168, 200, 238, 284, 336, 396, 464, 522, 576},
	{0, 6, 12, 18, 24, 30, 36, 44, 54, 66, 80, 96, 114, 136, 162, 194, 232, 278, 332, 394, 464, 540, 576},
	{0, 6, 12, 18, 24, 30, 36, 44, 54, 66, 80, 96, 116, 140, 168, 200, 238, 284, 336, 396, 464, 522, 576},
	{0, 12, 24, 36, 48, 60, 72, 88, 108, 132, 160, 192, 232, 280, 336, 400, 476, 566, 568, 570, 572, 574, 576},
};
static const uint16_t short_bands[7][14] = {
	{0, 4, 8, 12, 16, 22, 30, 40, 52, 66, 84, 106, 136, 192},
	{0, 4, 8, 12, 16, 22, 28, 38, 50, 64, 80, 100, 126, 192},
	{0, 4, 8, 12, 16, 22, 30, 42, 58, 78, 104, 138, 180, 192},
	{0, 4, 8, 12, 18, 24, 32, 42, 56, 74, 100, 132, 174, 192},
	{0, 4, 8, 12, 18, 26, 36, 48, 62, 80, 104, 136, 180, 192},
	{0, 4, 8, 12, 18, 26, 36, 48, 62, 80, 104, 134, 174, 192},
	{0, 8, 16, 24, 36, 52, 72, 96, 124, 160, 162, 164, 166, 192},
};
static const uint8_t pretab[22] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 2, 0};

// --- bits --------------------------------------------------------------------

typedef struct {
	const uint8_t *p; // with 8 readable bytes after the end
	int at, end;      // in bits
} reader;

static inline uint32_t peek(const reader *r, int n) // n <= 25
{
	if (n == 0 || r->at >= r->end)
		return 0;
	uint32_t v;
	memcpy(&v, r->p + (r->at >> 3), 4);
	return __builtin_bswap32(v) << (r->at & 7) >> (32 - n);
}

static inline uint32_t get(reader *r, int n)
{
	const uint32_t v = peek(r, n);
	r->at += n;
	return v;
}

// --- frames ------------------------------------------------------------------

typedef struct {
	int part23, big_values, gain, compress, switching, type, mixed, tables[3], sub_gain[3], region[2];
	int pre, scale, count1;
	int band_count;                // of scalefactors in `scales`
	int end;                       // of the nonzero lines
	uint8_t scales[39], slots[39]; // and, for intensity stereo, the invalid values
} granule;

struct ss_mp3 {
	int channels, lsf, bands;
	uint8_t main[RESERVOIR + MOST_MAIN + 16];
	int have;
	uint8_t first_scales[2][39]; // of the first granule
	float overlap[2][LINES];
	float v[2][1024];
	int at; // in v
};

ss_mp3 *ss_mp3_new(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, make);
	return calloc(1, sizeof(ss_mp3));
}

void ss_mp3_free(ss_mp3 *d) { free(d); }

int ss_mp3_header(const uint8_t *p, ss_mp3_frame *f)
{
	static const uint16_t rates[2][15] = {
		{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
		{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
	};
	static const int hz[3] = {44100, 48000, 32000};
	if (p[0] != 0xff || (p[1] & 0xe0) != 0xe0)
		return SS_DAMAGED;
	const int version = p[1] >> 3 & 3, layer = p[1] >> 1 & 3, rate = p[2] >> 4, freq = p[2] >> 2 & 3;
	if (version == 1 || layer != 1 || rate == 15 || rate == 0 || freq == 3)
		return SS_DAMAGED;
	f->lsf = version != 3;
	f->crc = !(p[1] & 1);
	f->rate = hz[freq] >> (version == 3 ? 0 : version == 2 ? 1 : 2);
	f->bands = version == 3 ? freq : version == 2 ? 3 + freq : freq == 2 ? 6 : 5;
	f->channels = p[3] >> 6 == 3 ? 1 : 2;
	f->mode = p[3] >> 6 == 1 ? p[3] >> 4 & 3 : 0;
	f->samples = f->lsf ? LINES : 2 * LINES;
	f->bytes = (f->lsf ? 72 : 144) * 1000 * rates[f->lsf][rate] / f->rate + (p[2] >> 1 & 1);
	f->side = f->lsf ? (f->channels == 1 ? 9 : 17) : f->channels == 1 ? 17 : 32;
	return f->bytes > 4 + 2 * f->crc + f->side ? SS_OK : SS_DAMAGED;
}

static void side(reader *r, const ss_mp3_frame *f, granule *g)
{
	g->part23 = (int)get(r, 12);
	g->big_values = (int)get(r, 9);
	g->gain = (int)get(r, 8);
	g->compress = (int)get(r, f->lsf ? 9 : 4);
	g->switching = (int)get(r, 1);
	g->type = g->mixed = 0;
	const uint16_t *lines = long_bands[f->bands];
	if (g->switching) {
		g->type = (int)get(r, 2);
		g->mixed = (int)get(r, 1);
		for (int i = 0; i < 2; i++)
			g->tables[i] = (int)get(r, 5);
		for (int i = 0; i < 3; i++)
			g->sub_gain[i] = (int)get(r, 3);
		g->tables[2] = 0;
		g->region[0] = g->type == 2 && !g->mixed ? 3 * short_bands[f->bands][3] : lines[8];
		g->region[1] = LINES;
	} else {
		for (int i = 0; i < 3; i++)
			g->tables[i] = (int)get(r, 5);
		const int a = (int)get(r, 4), b = (int)get(r, 3);
		g->region[0] = lines[a + 1];
		g->region[1] = lines[a + b + 2 < 22 ? a + b + 2 : 22];
		g->sub_gain[0] = g->sub_gain[1] = g->sub_gain[2] = 0;
	}
	g->pre = f->lsf ? 0 : (int)get(r, 1);
	g->scale = (int)get(r, 1);
	g->count1 = (int)get(r, 1);
}

// Scale factors are ordered by band, those of short blocks by band and window.
static void scales1(reader *r, granule *g, int scfsi, uint8_t *before)
{
	static const uint8_t slen[2][16] = {{0, 0, 0, 0, 3, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4},
	                                    {0, 1, 2, 3, 0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 2, 3}};
	const int s1 = slen[0][g->compress], s2 = slen[1][g->compress];
	memset(g->scales, 0, sizeof g->scales);
	if (g->type == 2) {
		const int first = g->mixed ? 17 : 18; // 8 long ones and 3 times 3, or 6 times 3
		for (int i = 0; i < first; i++)
			g->scales[i] = (uint8_t)get(r, s1);
		for (int i = first; i < first + 18; i++)
			g->scales[i] = (uint8_t)get(r, s2);
	} else {
		static const uint8_t groups[5] = {0, 6, 11, 16, 21};
		for (int k = 0; k < 4; k++)
			for (int i = groups[k]; i < groups[k + 1]; i++)
				g->scales[i] = scfsi >> (3 - k) & 1 ? before[i] : (uint8_t)get(r, k < 2 ? s1 : s2);
	}
	memcpy(before, g->scales, sizeof g->scales);
	memset(g->slots, 7, sizeof g->slots);
}

static void scales2(reader *r, granule *g, int intensity)
{
	static const uint8_t counts[6][3][4] = {
		{{6, 5, 5, 5}, {9, 9, 9, 9}, {6, 9, 9, 9}},       {{6, 5, 7, 3}, {9, 9, 12, 6}, {6, 9, 12, 6}},
		{{11, 10, 0, 0}, {18, 18, 0, 0}, {15, 18, 0, 0}}, {{7, 7, 7, 0}, {12, 12, 12, 0}, {6, 15, 12, 0}},
		{{6, 6, 6, 3}, {12, 9, 9, 6}, {6, 12, 9, 6}},     {{8, 8, 5, 0}, {15, 12, 9, 0}, {6, 18, 9, 0}},
	};
	int c = g->compress, s[4] = {0}, kind;
	if (!intensity) {
		if (c < 400) {
			kind = 0, s[0] = (c >> 4) / 5, s[1] = (c >> 4) % 5, s[2] = (c & 15) >> 2, s[3] = c & 3;
		} else if (c < 500) {
			c -= 400;
			kind = 1, s[0] = (c >> 2) / 5, s[1] = (c >> 2) % 5, s[2] = c & 3;
		} else {
			c -= 500;
			kind = 2, s[0] = c / 3, s[1] = c % 3, g->pre = 1;
		}
	} else {
		c >>= 1;
		if (c < 180) {
			kind = 3, s[0] = c / 36, s[1] = c % 36 / 6, s[2] = c % 6;
		} else if (c < 244) {
			c -= 180;
			kind = 4, s[0] = (c & 63) >> 4, s[1] = (c & 15) >> 2, s[2] = c & 3;
		} else {
			c -= 244;
			kind = 5, s[0] = c / 3, s[1] = c % 3;
		}
	}
	memset(g->scales, 0, sizeof g->scales);
	memset(g->slots, 0, sizeof g->slots);
	const uint8_t *n = counts[kind][g->type == 2 ? 1 + g->mixed : 0];
	for (int k = 0, at = 0; k < 4; k++)
		for (int i = 0; i < n[k]; i++, at++) {
			g->scales[at] = (uint8_t)get(r, s[k]);
			g->slots[at] = (uint8_t)((1 << s[k]) - 1);
		}
}

static const uint8_t linbits[32] = {0, 0, 0, 0, 0, 0, 0,  0,  0, 0, 0, 0, 0, 0, 0,  0,
                                    1, 2, 3, 4, 6, 8, 10, 13, 4, 5, 6, 7, 8, 9, 11, 13};

static inline int next(reader *r, const tree *t)
{
	const step *s = &t->first[peek(r, FIRST)];
	if (s->bits == 0) {
		r->at += FIRST;
		s = &t->rest[s->next + peek(r, s->more)];
	}
	r->at += s->bits;
	return s->pair;
}

static inline float value(reader *r, int v, int bits)
{
	if (v == 0)
		return 0;
	if (v == 15 && bits)
		v += (int)get(r, bits);
	return get(r, 1) ? -power43[v] : power43[v];
}

// Reads the lines of a granule, as powers of 4/3.
static int lines(reader *r, granule *g, float *x)
{
	const int end = r->end;
	int i = 0;
	const int big = 2 * g->big_values;
	if (big > LINES)
		return SS_DAMAGED;
	for (int region = 0; region < 3; region++) {
		int to = region < 2 ? g->region[region] : big;
		to = to < big ? to : big;
		const int n = g->tables[region];
		if (n == 4 || n == 14)
			return SS_DAMAGED;
		if (n == 0) {
			for (; i < to; i++)
				x[i] = 0;
			continue;
		}
		const tree *t = &trees[n < 16 ? n : n < 24 ? 16 : 24];
		const int extra = linbits[n];
		while (i < to) {
			const int pair = next(r, t);
			x[i] = value(r, pair >> 4, extra);
			x[i + 1] = value(r, pair & 15, extra);
			i += 2;
			if (r->at > end)
				return SS_DAMAGED;
		}
	}
	const tree *t = &trees[32 + g->count1];
	while (r->at < end && i <= LINES - 4) {
		const int was = r->at, quad = next(r, t);
		for (int k = 0; k < 4; k++)
			x[i + k] = quad >> (3 - k) & 1 ? (get(r, 1) ? -1.0f : 1.0f) : 0;
		if (r->at > end) { // the last one was only padding
			r->at = was;
			break;
		}
		i += 4;
	}
	while (i > 0 && x[i - 1] == 0)
		i--;
	g->end = i;
	memset(x + i, 0, sizeof(float) * (size_t)(LINES - i));
	return SS_OK;
}

// 2^(e/4)
static inline float fourth(int e) { return ldexpf(quarter[e & 3], e >> 2); }

static void requantize(const granule *g, int bands, float *x)
{
	const int shift = g->scale ? 4 : 2; // of scale factors, in quarters of powers of two
	const int base = g->gain - 210;
	int scale = 0, i = 0;
	if (g->type != 2 || g->mixed) {
		const uint16_t *b = long_bands[bands];
		const int last = g->type != 2 ? 22 : b[8] == 36 ? 8 : 6;
		for (int k = 0; k < last && i < g->end; k++, scale++) {
			const float f = fourth(base - shift * (g->scales[scale] + (g->pre ? pretab[k] : 0)));
			for (; i < b[k + 1]; i++)
				x[i] *= f;
		}
		i = b[last];
		scale = last;
	}
	if (g->type == 2) {
		const uint16_t *b = short_bands[bands];
		for (int k = g->mixed ? 3 : 0; k < 13 && i < g->end; k++)
			for (int w = 0; w < 3; w++, scale++) {
				const int s = k < 12 ? g->scales[scale] : 0;
				const float f = fourth(base - 8 * g->sub_gain[w] - shift * s);
				for (int n = b[k + 1] - b[k]; n > 0; n--, i++)
					x[i] *= f;
			}
	}
}

// Sum and difference, or one channel and how it is spread, above the last line of the
// right one.
static void intensity_band(const granule *g, int lsf, int ms, int compress, int scale, float *l, float *r, int n)
{
	const int pos = g->scales[scale], none = g->slots[scale];
	float kl, kr;
	if (pos == none || (!lsf && pos > 6)) {
		if (ms)
			for (int i = 0; i < n; i++) {
				const float m = l[i] * (float)M_SQRT1_2, s = r[i] * (float)M_SQRT1_2;
				l[i] = m + s;
				r[i] = m - s;
			}
		return;
	}
	if (lsf) {
		const float part = powf(compress & 1 ? (float)M_SQRT1_2 : 0.840896415f, (float)((pos + 1) >> 1));
		kl = pos & 1 ? part : 1;
		kr = pos & 1 ? 1 : pos ? part : 1;
	} else {
		const float t = pos == 6 ? 1 : tanf((float)pos * (float)M_PI / 12);
		kl = pos == 6 ? 1 : t / (1 + t);
		kr = pos == 6 ? 0 : 1 / (1 + t);
	}
	for (int i = 0; i < n; i++) {
		r[i] = l[i] * kr;
		l[i] *= kl;
	}
}

static void sum_difference(float *l, float *r, int n)
{
	for (int i = 0; i < n; i++) {
		const float m = l[i] * (float)M_SQRT1_2, s = r[i] * (float)M_SQRT1_2;
		l[i] = m + s;
		r[i] = m - s;
	}
}

static void stereo(const ss_mp3_frame *f, granule *g, float *l, float *r)
{
	const int ms = f->mode & 2, right = g[1].end;
	int until = LINES; // the first line of intensity stereo
	if (f->mode & 1) {
		const granule *of = &g[1];
		if (of->type == 2) {
			// By window: the bands after the last one that has lines.
			const uint16_t *b = short_bands[f->bands];
			const int first = of->mixed ? 3 : 0, at0 = of->mixed ? (long_bands[f->bands][8] == 36 ? 8 : 6) : 0;
			int last[3] = {first, first, first};
			int i = 3 * b[first];
			for (int k = first; k < 13; k++)
				for (int w = 0; w < 3; w++)
					for (int n = b[k + 1] - b[k]; n > 0; n--, i++)
						if (r[i] != 0)
							last[w] = k + 1;
			i = 3 * b[first];
			if (ms)
				sum_difference(l, r, i);
			for (int k = first; k < 13; k++)
				for (int w = 0; w < 3; w++) {
					const int n = b[k + 1] - b[k], s = at0 + 3 * ((k < 12 ? k : 11) - first) + w;
					if (k >= last[w])
						intensity_band(of, f->lsf, ms, of->compress, s, l + i, r + i, n);
					else if (ms)
						sum_difference(l + i, r + i, n);
					i += n;
				}
			return;
		}
		const uint16_t *b = long_bands[f->bands];
		int k = 0;
		while (k < 22 && b[k] < right)
			k++;
		until = b[k];
		for (; k < 22; k++)
			intensity_band(of, f->lsf, ms, of->compress, k < 21 ? k : 20, l + b[k], r + b[k], b[k + 1] - b[k]);
	}
	if (ms)
		sum_difference(l, r, until);
}

// Lines of short blocks are stored by window, and are reordered by frequency.
static void reorder(const granule *g, int bands, float *x)
{
	float y[LINES];
	const uint16_t *b = short_bands[bands];
	const int first = g->mixed ? 3 : 0;
	const int from = 3 * b[first];
	int i = from, o = from;
	for (int k = first; k < 13; k++) {
		const int n = b[k + 1] - b[k];
		for (int j = 0; j < n; j++)
			for (int w = 0; w < 3; w++)
				y[o++] = x[i + w * n + j];
		i += 3 * n;
	}
	memcpy(x + from, y + from, sizeof(float) * (size_t)(LINES - from));
}

static void hybrid(const granule *g, float *x, float *overlap, float (*out)[BANDS], int used)
{
	const int smooth = g->type != 2 ? BANDS - 1 : g->mixed ? 1 : 0;
	for (int b = 1; b <= smooth && 18 * b < used + 18; b++)
		for (int i = 0; i < 8; i++) {
			float *up = x + 18 * b - 1 - i, *down = x + 18 * b + i;
			const float u = *up, d = *down;
			*up = u * alias_s[i] - d * alias_a[i];
			*down = d * alias_s[i] + u * alias_a[i];
		}
	int last = used ? (used + (smooth ? 8 : 0) + 17) / 18 : 0; // bands with something in them
	if (last > BANDS)
		last = BANDS;
	for (int b = 0; b < BANDS; b++) {
		float y[36] = {0}, *o = overlap + 18 * b;
		const float *in = x + 18 * b;
		if (b < last && g->type == 2 && !(g->mixed && b < 2)) {
			for (int w = 0; w < 3; w++)
				for (int k = 0; k < 6; k++)
					for (int i = 0; i < 12; i++)
						y[6 + 6 * w + i] += in[3 * k + w] * imdct_short[k][i];
		} else if (b < last) {
			const int type = g->type == 2 || (g->mixed && b < 2) ? 0 : g->type;
			for (int k = 0; k < 18; k++) {
				const float v = in[k];
				for (int i = 0; i < 36; i++)
					y[i] += v * imdct_long[type][k][i];
			}
		}
		for (int i = 0; i < 18; i++) {
			const float v = y[i] + o[i];
			out[i][b] = i & b & 1 ? -v : v;
			o[i] = y[18 + i];
		}
	}
}

// 32 samples of every time slot.
static void synthesis(float *v, int *at, float (*in)[BANDS], float *out)
{
	for (int t = 0; t < 18; t++) {
		float c[BANDS] = {0};
		for (int k = 0; k < BANDS; k++) {
			const float s = in[t][k];
			for (int j = 0; j < BANDS; j++)
				c[j] += s * cosines[k][j];
		}
		*at = (*at - 64) & 1023;
		float *to = v + *at;
		for (int i = 0; i < 16; i++)
			to[i] = c[16 + i];
		to[16] = 0;
		for (int i = 17; i <= 48; i++)
			to[i] = -c[48 - i];
		for (int i = 49; i < 64; i++)
			to[i] = -c[i - 48];
		float sum[BANDS] = {0};
		for (int i = 0; i < 8; i++) {
			const float *a = v + ((*at + 128 * i) & 1023), *b = v + ((*at + 128 * i + 96) & 1023);
			const float *w = window_f + 64 * i;
			for (int j = 0; j < BANDS; j++)
				sum[j] += a[j] * w[j] + b[j] * w[32 + j];
		}
		memcpy(out + 32 * t, sum, sizeof sum);
	}
}

// A frame with all of its bytes. If out is NULL, only the main data is read.
int ss_mp3_decode(ss_mp3 *d, const uint8_t *data, const ss_mp3_frame *f, float *out, size_t stride)
{
	uint8_t head[48] = {0};
	memcpy(head, data + 4 + 2 * f->crc, (size_t)f->side);
	reader r = {head, 0, 8 * f->side};
	const int begin = (int)get(&r, f->lsf ? 8 : 9);
	const int own = f->bytes - 4 - 2 * f->crc - f->side;
	const uint8_t *main = data + f->bytes - own;
	int scfsi[2] = {0}, granules = f->lsf ? 1 : 2, missing = begin > d->have;
	// The data kept from earlier frames, followed by this frame's own.
	if (own > MOST_MAIN)
		return SS_DAMAGED;
	memcpy(d->main + d->have, main, (size_t)own);
	const int total = d->have + own;
	reader m = {d->main, 8 * (d->have - begin), 8 * total};
	memset(d->main + total, 0, 16);
	int err = SS_OK;
	if (out) {
		granule g[2][2];
		get(&r, f->lsf ? f->channels : f->channels == 1 ? 5 : 3);
		if (!f->lsf)
			for (int c = 0; c < f->channels; c++)
				scfsi[c] = (int)get(&r, 4);
		for (int k = 0; k < granules; k++)
			for (int c = 0; c < f->channels; c++)
				side(&r, f, &g[k][c]);
		for (int k = 0; k < granules; k++) {
			float x[2][LINES], slots[18][BANDS];
			for (int c = 0; c < f->channels; c++) {
				granule *of = &g[k][c];
				of->end = 0;
				const int end = m.at + of->part23;
				if (missing || err || end > 8 * total) {
					memset(x[c], 0, sizeof x[c]);
					memset(of->scales, 0, sizeof of->scales);
					memset(of->slots, 0, sizeof of->slots);
					if (!missing)
						err = SS_DAMAGED;
					continue;
				}
				m.end = end;
				if (f->lsf)
					scales2(&m, of, c == 1 && f->mode & 1);
				else
					scales1(&m, of, k == 1 ? scfsi[c] : 0, d->first_scales[c]);
				if (m.at > end || lines(&m, of, x[c])) {
					err = SS_DAMAGED;
					memset(x[c], 0, sizeof x[c]);
					of->end = 0;
				}
				m.at = end;
				m.end = 8 * total;
				requantize(of, f->bands, x[c]);
			}
			if (f->channels == 2 && f->mode)
				stereo(f, g[k], x[0], x[1]);
			int at = d->at;
			for (int c = 0; c < f->channels; c++) {
				int used = g[k][c].end;
				if (f->channels == 2 && f->mode && g[k][!c].end > used)
					used = g[k][!c].end;
				if (g[k][c].type == 2) {
					reorder(&g[k][c], f->bands, x[c]);
					used = used ? LINES : 0;
				}
				hybrid(&g[k][c], x[c], d->overlap[c], slots, used);
				at = d->at;
				synthesis(d->v[c], &at, slots, out + (size_t)c * stride + (size_t)(k * LINES));
			}
			d->at = at;
		}
	}
	d->have = total < RESERVOIR ? total : RESERVOIR;
	memmove(d->main, d->main + total - d->have, (size_t)d->have);
	return err;
}

void ss_mp3_reset(ss_mp3 *d) { memset(d, 0, sizeof *d); }
