// AVX-512 kernels (with VBMI and VNNI: Ice Lake, Zen 4 and later). The same
// arithmetic as resize.c in another order of operations: equal bytes.
#include "resize.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define T512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni,avx2,bmi2,f16c")))
#define INLINE static inline __attribute__((always_inline))

// ---- horizontal pass
//
// One byte permute does three things. It gathers the pixels of a pair of taps for four outputs, puts the two values
// of each colour next to each other for the multiply-add, and widens them to 16 bits. Bytes that are not selected are
// zeroed. A result register has four outputs of R, G, B and a spare.
//
// Narrow tables: the pixels of four outputs are in one window of 64 bytes (scales up to 2 or 3). Wide tables: sixteen
// bytes, four taps, are loaded for each of the four outputs, as in resize_avx2.c.

typedef struct {
	int32_t wide, groups, steps, spare[13];
} head512;

// Words of an index vector: bytes lo0 and lo1 of tap t and t+1, colour c.
static void index_pair(uint8_t *o, int px, int tap)
{
	for (int c = 0; c < 4; c++) {
		const int channel = px == 1 ? 0 : c < 3 ? c : 2;
		o[4 * c] = (uint8_t)(px * tap + channel);
		o[4 * c + 2] = (uint8_t)(px * (tap + 1) + channel);
		o[4 * c + 1] = o[4 * c + 3] = 0; // zeroed by the mask
	}
}

// Taps t and t+1 as a dword; k is 0 from count up to the next even number.
static int32_t tap_pair(const int16_t *k, int count, int t)
{
	const uint32_t lo = t >= 0 && t < count ? (uint16_t)k[t] : 0;
	const uint32_t hi = t >= -1 && t + 1 < count ? (uint16_t)k[t + 1] : 0;
	return (int32_t)(lo | hi << 16);
}

INLINE int imin(int a, int b) { return a < b ? a : b; }

// First pixel, window and pairs of taps of the group of outputs from i on.
static void group_of(const sk_axis *a, int i, int *first, int *window, int *pairs)
{
	int lo = a->start[i], hi = 0, most = 0;
	for (int j = i; j < imin(i + 4, a->n); j++) {
		lo = imin(lo, a->start[j]);
		if (a->start[j] + a->count[j] > hi)
			hi = a->start[j] + a->count[j];
		if (a->count[j] > most)
			most = a->count[j];
	}
	*first = lo;
	*window = hi - lo;
	*pairs = (most + 1) / 2;
}

// Four dwords, each to the four dwords of its lane.
T512 INLINE __m512i spread(const int32_t *four)
{
	return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
	                                _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)four)));
}

// A group of a wide table: 4 offsets (padded to 64 bytes), then for each quad
// of taps two registers of them.
T512 static void wide_table(const sk_axis *a, int px, int quads, uint8_t *p)
{
	for (int i = 0; i < a->n; i += 4) {
		int32_t *offset = (int32_t *)p;
		int shift[4];
		for (int j = 0; j < 4; j++) {
			const int o = imin(i + j, a->n - 1);
			// All quads are read: move the start so that they end in the row.
			int start = imin(a->start[o], a->hi - a->lo - 4 * quads);
			if (start < 0)
				start = 0;
			shift[j] = a->start[o] - start;
			offset[j] = start * px;
		}
		p += 64;
		for (int q = 0; q < quads; q++, p += 128) {
			int32_t x[4], y[4];
			for (int j = 0; j < 4; j++) {
				const int o = imin(i + j, a->n - 1);
				const int16_t *k = a->k + (size_t)o * (size_t)a->kstride;
				x[j] = tap_pair(k, a->count[o], 4 * q - shift[j]);
				y[j] = tap_pair(k, a->count[o], 4 * q + 2 - shift[j]);
			}
			_mm512_store_si512(p, spread(x));
			_mm512_store_si512(p + 64, spread(y));
		}
	}
}

// A group of a narrow table: for each pair of taps the index and the taps.
T512 static void narrow_table(const sk_axis *a, int px, int steps, int32_t *offset, uint8_t *p)
{
	uint8_t base[64];
	for (int lane = 0; lane < 4; lane++)
		index_pair(base + 16 * lane, px, 0);
	const __m512i pattern = _mm512_loadu_si512(base), step = _mm512_set1_epi8((char)(2 * px));
	for (int i = 0; i < a->n; i += 4) {
		int first, window, pairs;
		int32_t shift[4];
		group_of(a, i, &first, &window, &pairs);
		*offset++ = first * px;
		for (int j = 0; j < 4; j++)
			shift[j] = (a->start[imin(i + j, a->n - 1)] - first) * px * 0x01010101;
		__m512i index = _mm512_add_epi8(pattern, spread(shift));
		for (int t = 0; t < steps; t++, p += 128) {
			int32_t pair[4];
			for (int j = 0; j < 4; j++) {
				const int o = imin(i + j, a->n - 1);
				pair[j] = 0;
				if (2 * t < a->kstride) // zero after count
					memcpy(&pair[j], a->k + (size_t)o * (size_t)a->kstride + 2 * t, 4);
			}
			_mm512_store_si512(p, index);
			_mm512_store_si512(p + 64, spread(pair));
			index = _mm512_add_epi8(index, step);
		}
	}
}

static size_t offsets_size(const sk_axis *a) { return (((size_t)a->n + 3) / 4 * 4 + 63) & ~(size_t)63; }

static size_t h_table_512(const sk_resizer *r, void *table)
{
	const sk_axis *a = &r->ax;
	const int px = r->sink.px, groups = (a->n + 3) / 4;
	int first, window, pairs, most = 1, wide = 0;
	for (int g = 0; g < groups; g++) {
		group_of(a, 4 * g, &first, &window, &pairs);
		if (window * px > 64)
			wide = 1;
		if (pairs > most)
			most = pairs;
	}
	const int quads = (a->max_count + 3) / 4;
	if (table == NULL)
		return sizeof(head512) + (wide ? (size_t)groups * (64 + (size_t)quads * 128)
		                               : offsets_size(a) + (size_t)groups * (size_t)most * 128);
	head512 *head = table;
	head->wide = wide;
	head->groups = groups;
	head->steps = wide ? quads : most;
	uint8_t *p = (uint8_t *)(head + 1);
	if (wide)
		wide_table(a, px, quads, p);
	else
		narrow_table(a, px, most, (int32_t *)p, p + offsets_size(a));
	return 0;
}

#define WORDS ((__mmask64)0x5555555555555555)

// by8: the shift is 8 bits, so that selecting bytes does it. clamp: bicubic. Rows that are processed together share
// the loads of the table, which is larger than the rows.
T512 INLINE void h_narrow(const sk_resizer *r, const uint8_t *src, ptrdiff_t stride, int16_t *const *mid, int rows,
                          int steps, int by8, int clamp)
{
	const head512 *head = r->table;
	const int32_t *offset = (const int32_t *)(head + 1);
	const uint8_t *p = (const uint8_t *)offset + offsets_size(&r->ax);
	const int shift = r->ax.q - r->mid_bits;
	const __m512i round = _mm512_set1_epi32(1 << (shift - 1));
	const __m128i by = _mm_cvtsi32_si128(shift - 8);
	// Bytes 1 and 2 of the dwords of R, G and B.
	const __m256i pick = _mm256_setr_epi8(1, 2, 5, 6, 9, 10, 17, 18, 21, 22, 25, 26, 33, 34, 37, 38, 41, 42, 49, 50, 53,
	                                      54, 57, 58, 0, 0, 0, 0, 0, 0, 0, 0);
	const __m256i top = _mm256_set1_epi16((int16_t)(255 << r->mid_bits));
	const int groups = head->groups;
	for (int g = 0; g < groups; g++) {
		__m512i window[4], sum[4];
		for (int i = 0; i < rows; i++) {
			window[i] = _mm512_loadu_si512(src + offset[g] + i * stride);
			sum[i] = round;
		}
		for (int t = 0; t < steps; t++, p += 128) {
			const __m512i index = _mm512_load_si512(p), taps = _mm512_load_si512(p + 64);
			for (int i = 0; i < rows; i++)
				sum[i] = _mm512_dpwssd_epi32(sum[i], _mm512_maskz_permutexvar_epi8(WORDS, index, window[i]), taps);
		}
		for (int i = 0; i < rows; i++) {
			if (!by8)
				sum[i] = _mm512_sra_epi32(sum[i], by);
			__m256i rgb = _mm512_castsi512_si256(_mm512_permutexvar_epi8(_mm512_castsi256_si512(pick), sum[i]));
			if (clamp)
				rgb = _mm256_min_epi16(_mm256_max_epi16(rgb, _mm256_setzero_si256()), top);
			_mm256_storeu_si256((__m256i *)(mid[i] + 12 * g), rgb);
		}
	}
}

T512 INLINE __m512i load4(const uint8_t *src, const int32_t *offset)
{
	__m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(src + offset[0])));
	v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(src + offset[1])), 1);
	v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(src + offset[2])), 2);
	return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(src + offset[3])), 3);
}

T512 static void h_wide(const sk_resizer *r, const uint8_t *src, int16_t *mid)
{
	const head512 *head = r->table;
	const uint8_t *p = (const uint8_t *)(head + 1);
	const int px = r->sink.px, shift = r->ax.q - r->mid_bits, quads = head->steps, groups = head->groups;
	uint8_t ia[64], ib[64];
	for (int lane = 0; lane < 4; lane++) { // the shuffle is within lanes
		index_pair(ia + 16 * lane, px, 0);
		index_pair(ib + 16 * lane, px, 2);
	}
	const __m512i index_a = _mm512_loadu_si512(ia), index_b = _mm512_loadu_si512(ib);
	const __m512i round = _mm512_set1_epi32(1 << (shift - 1));
	const __m128i by = _mm_cvtsi32_si128(shift);
	const __m256i top = _mm256_set1_epi16((int16_t)(255 << r->mid_bits));
	const __m256i pick = _mm256_setr_epi16(0, 2, 4, 8, 10, 12, 16, 18, 20, 24, 26, 28, 0, 0, 0, 0);
	for (int g = 0; g < groups; g++, mid += 12) {
		const int32_t *offset = (const int32_t *)p;
		const uint8_t *s = src;
		__m512i a = round, b = _mm512_setzero_si512();
		p += 64;
		for (int q = 0; q < quads; q++, p += 128, s += 4 * px) {
			const __m512i v = load4(s, offset);
			a = _mm512_dpwssd_epi32(a, _mm512_maskz_shuffle_epi8(WORDS, v, index_a), _mm512_load_si512(p));
			b = _mm512_dpwssd_epi32(b, _mm512_maskz_shuffle_epi8(WORDS, v, index_b), _mm512_load_si512(p + 64));
		}
		a = _mm512_sra_epi32(_mm512_add_epi32(a, b), by);
		const __m256i rgb = _mm512_castsi512_si256(_mm512_permutexvar_epi16(_mm512_castsi256_si512(pick), a));
		_mm256_storeu_si256((__m256i *)mid, _mm256_min_epi16(_mm256_max_epi16(rgb, _mm256_setzero_si256()), top));
	}
}

T512 INLINE void h_rows(const sk_resizer *r, const uint8_t *src, ptrdiff_t stride, int16_t *const *mid, int rows)
{
	const int by8 = r->ax.q - r->mid_bits == 8, steps = ((const head512 *)r->table)->steps;
	if (r->g->filter == SK_BILINEAR && by8 && steps == 1)
		h_narrow(r, src, stride, mid, rows, 1, 1, 0);
	else if (r->g->filter == SK_BILINEAR && by8 && steps == 2)
		h_narrow(r, src, stride, mid, rows, 2, 1, 0);
	else if (r->g->filter == SK_BILINEAR && by8 && steps == 3)
		h_narrow(r, src, stride, mid, rows, 3, 1, 0);
	else
		h_narrow(r, src, stride, mid, rows, steps, 0, 1);
}

T512 static void h_rows_512(const sk_resizer *r, const uint8_t *src, ptrdiff_t stride, int n, int16_t *const *mid)
{
	if (((const head512 *)r->table)->wide) {
		for (int i = 0; i < n; i++)
			h_wide(r, src + i * stride, mid[i]);
	} else if (n == SK_ROWS) {
		h_rows(r, src, stride, mid, SK_ROWS);
	} else {
		for (int i = 0; i < n; i++)
			h_rows(r, src + i * stride, stride, mid + i, 1);
	}
}

// ---- vertical pass

// Two rows of 32 values each, as pairs, times their taps.
#define PAIR(T)                                                                                                   \
	do {                                                                                                          \
		const __m512i a0 = _mm512_loadu_si512(rows[2 * (T)] + i), b0 = _mm512_loadu_si512(rows[2 * (T) + 1] + i); \
		const __m512i a1 = _mm512_loadu_si512(rows[2 * (T)] + i + 32);                                            \
		const __m512i b1 = _mm512_loadu_si512(rows[2 * (T) + 1] + i + 32);                                        \
		const __m512i kk = _mm512_set1_epi32(taps[T]);                                                            \
		s0 = _mm512_dpwssd_epi32(s0, _mm512_unpacklo_epi16(a0, b0), kk);                                          \
		s1 = _mm512_dpwssd_epi32(s1, _mm512_unpackhi_epi16(a0, b0), kk);                                          \
		s2 = _mm512_dpwssd_epi32(s2, _mm512_unpacklo_epi16(a1, b1), kk);                                          \
		s3 = _mm512_dpwssd_epi32(s3, _mm512_unpackhi_epi16(a1, b1), kk);                                          \
	} while (0)

T512 INLINE void v_pairs(const sk_resizer *r, const int16_t *const *rows, const int32_t *taps, int pairs, uint8_t *dst)
{
	const int n = r->w * 3, shift = r->mid_bits + r->ay.q;
	const __m512i round = _mm512_set1_epi32(1 << (shift - 1));
	const __m128i by = _mm_cvtsi32_si128(shift);
	const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
	for (int i = 0; i < n; i += 64) {
		__m512i s0 = round, s1 = round, s2 = round, s3 = round;
		for (int t = 0; t < pairs; t++)
			PAIR(t);
		const __m512i lo = _mm512_packs_epi32(_mm512_sra_epi32(s0, by), _mm512_sra_epi32(s1, by));
		const __m512i hi = _mm512_packs_epi32(_mm512_sra_epi32(s2, by), _mm512_sra_epi32(s3, by));
		const __m512i v = _mm512_permutexvar_epi64(order, _mm512_packus_epi16(lo, hi));
		if (n - i >= 64)
			_mm512_storeu_si512(dst + i, v);
		else
			_mm512_mask_storeu_epi8(dst + i, _bzhi_u64(~0ull, (unsigned)(n - i)), v);
	}
}

T512 static void v_row_512(const sk_resizer *r, const int16_t *const *rows, const int16_t *k, int n, uint8_t *dst)
{
	int32_t taps[SK_RING_TAPS / 2 + 1];
	const int pairs = (n + 1) / 2;
	memcpy(taps, k, (size_t)pairs * 4); // zero after n
	switch (pairs) {
	case 1: v_pairs(r, rows, taps, 1, dst); return;
	case 2: v_pairs(r, rows, taps, 2, dst); return;
	case 3: v_pairs(r, rows, taps, 3, dst); return;
	}
	v_pairs(r, rows, taps, pairs, dst);
}

// ---- packing to RGB

T512 static void pack_row_512(const uint8_t *src, int px, int w, int flip, uint8_t *dst)
{
	if (px == 3 && !flip) {
		memcpy(dst, src, (size_t)w * 3);
		return;
	}
	// Pixels per step: the number that fits into 64 bytes of source and of target.
	const int step = px == 4 ? 16 : 21;
	uint8_t bytes[64] = {0};
	for (int j = 0; j < 63; j++)
		bytes[j] = (uint8_t)((flip ? step - 1 - j / 3 : j / 3) * px + (px == 1 ? 0 : j % 3));
	const __m512i index = _mm512_loadu_si512(bytes);
	const __mmask64 mask = _bzhi_u64(~0ull, (unsigned)(step * 3));
	int i = 0;
	for (; i + step <= w; i += step) {
		const uint8_t *s = src + (size_t)(flip ? w - step - i : i) * (size_t)px;
		_mm512_mask_storeu_epi8(dst + 3 * (size_t)i, mask, _mm512_permutexvar_epi8(index, _mm512_loadu_si512(s)));
	}
	// The rest of a mirrored row is the beginning of the source.
	sk_pack_row_scalar(flip ? src : src + (size_t)i * (size_t)px, px, w - i, flip, dst + 3 * (size_t)i);
}

// ---- storing

T512 INLINE void put16(int dtype, __m512 f, uint8_t *dst)
{
	if (dtype == SK_F32) {
		_mm512_storeu_ps(dst, f);
	} else if (dtype == SK_F16) {
		_mm256_storeu_si256((__m256i *)dst, _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
	} else {
		const __m512i u = _mm512_castps_si512(f);
		const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
		__m512i v = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
		const __mmask16 nan = _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q);
		v = _mm512_mask_or_epi32(v, nan, _mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
		_mm256_storeu_si256((__m256i *)dst, _mm512_cvtepi32_epi16(v));
	}
}

// Two roundings, like the scalar code: the explicit rounding mode keeps the compiler from fusing them.
T512 INLINE __m512 scaled(__m512i v, __m512 scale, __m512 bias)
{
	const __m512 f = _mm512_mul_round_ps(_mm512_cvtepi32_ps(v), scale, _MM_FROUND_CUR_DIRECTION);
	return _mm512_add_round_ps(f, bias, _MM_FROUND_CUR_DIRECTION);
}

T512 INLINE void store_nhwc(const sk_store *st, const uint8_t *rgb, int n, uint8_t *dst, int dtype)
{
	const size_t size = dtype == SK_F32 ? 4 : 2;
	float sv[48], bv[48];
	for (int i = 0; i < 48; i++) {
		sv[i] = st->scale[i % 3];
		bv[i] = st->bias[i % 3];
	}
	__m512 s[3], b[3];
	for (int j = 0; j < 3; j++) {
		s[j] = _mm512_loadu_ps(sv + 16 * j);
		b[j] = _mm512_loadu_ps(bv + 16 * j);
	}
	for (int i = 0; i + 48 <= n; i += 48)
		for (int j = 0; j < 3; j++) {
			const __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(rgb + i + 16 * j)));
			put16(dtype, scaled(v, s[j], b[j]), dst + (size_t)(i + 16 * j) * size);
		}
}

T512 INLINE void store_nchw(const sk_store *st, const uint8_t *rgb, int w, size_t plane, uint8_t *dst, int dtype)
{
	const size_t size = dtype == SK_F32 ? 4 : 2;
	const __mmask64 low_bytes = 0x1111111111111111;
	for (int c = 0; c < 3; c++) {
		uint8_t bytes[64] = {0};
		for (int i = 0; i < 16; i++)
			bytes[4 * i] = (uint8_t)(3 * i + c);
		const __m512i index = _mm512_loadu_si512(bytes);
		const __m512 s = _mm512_set1_ps(st->scale[c]), b = _mm512_set1_ps(st->bias[c]);
		uint8_t *o = dst + plane * (size_t)c * size;
		for (int i = 0; i + 16 <= w; i += 16) {
			const __m512i v = _mm512_maskz_loadu_epi8(0xffffffffffff, rgb + 3 * (size_t)i);
			put16(dtype, scaled(_mm512_maskz_permutexvar_epi8(low_bytes, index, v), s, b), o + (size_t)i * size);
		}
	}
}

T512 static void split_planes(const uint8_t *rgb, int w, size_t plane, uint8_t *dst)
{
	uint8_t bytes[64] = {0};
	for (int i = 0; i < 48; i++)
		bytes[i] = (uint8_t)(i % 16 * 3 + i / 16);
	const __m512i index = _mm512_loadu_si512(bytes);
	for (int i = 0; i + 16 <= w; i += 16) {
		const __m512i v = _mm512_permutexvar_epi8(index, _mm512_maskz_loadu_epi8(0xffffffffffff, rgb + 3 * (size_t)i));
		_mm_storeu_si128((__m128i *)(dst + i), _mm512_castsi512_si128(v));
		_mm_storeu_si128((__m128i *)(dst + plane + (size_t)i), _mm512_extracti32x4_epi32(v, 1));
		_mm_storeu_si128((__m128i *)(dst + 2 * plane + (size_t)i), _mm512_extracti32x4_epi32(v, 2));
	}
}

T512 static void store_row_512(const sk_store *st, const uint8_t *rgb, int w, int h, int y, uint8_t *dst)
{
	const size_t plane = (size_t)w * (size_t)h, row = (size_t)y * (size_t)w, size = st->dtype == SK_F32 ? 4 : 2;
	const int done = w & ~15;
	if (st->channels == 1 || (st->dtype == SK_U8 && (st->layout == SK_NHWC || !sk_store_is_plain(st)))) {
		sk_store_range_scalar(st, rgb, w, h, y, 0, w, dst);
		return;
	}
	if (st->dtype == SK_U8) {
		split_planes(rgb, w, plane, dst + row);
	} else if (st->layout == SK_NHWC) {
		uint8_t *o = dst + row * 3 * size;
		if (st->dtype == SK_F32)
			store_nhwc(st, rgb, w * 3, o, SK_F32);
		else if (st->dtype == SK_F16)
			store_nhwc(st, rgb, w * 3, o, SK_F16);
		else
			store_nhwc(st, rgb, w * 3, o, SK_BF16);
	} else {
		uint8_t *o = dst + row * size;
		if (st->dtype == SK_F32)
			store_nchw(st, rgb, w, plane, o, SK_F32);
		else if (st->dtype == SK_F16)
			store_nchw(st, rgb, w, plane, o, SK_F16);
		else
			store_nchw(st, rgb, w, plane, o, SK_BF16);
	}
	if (done < w)
		sk_store_range_scalar(st, rgb, w, h, y, done, w, dst);
}

const sk_kernels sk_kernels_avx512 = {h_table_512, h_rows_512, v_row_512, pack_row_512, store_row_512};

#endif
