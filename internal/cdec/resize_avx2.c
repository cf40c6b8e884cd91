// AVX2 kernels (Haswell, Zen and later). The same arithmetic as resize.c in
// another order of operations: equal bytes.
#include "resize.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define T256 __attribute__((target("avx2,bmi2,f16c")))
#define INLINE static inline __attribute__((always_inline))

// ---- horizontal pass
//
// Four outputs at a time. Sixteen bytes of source hold four taps of an output;
// two byte shuffles make the pairs of taps 0, 1 and 2, 3 out of them, widened
// to 16 bits for the multiply-add. One register holds outputs 0 and 2, another
// 1 and 3, so that packing them brings them into order.

typedef struct {
	int32_t quads, spare[7];
} head256;

typedef struct {
	int32_t offset[4];
	int32_t spare[4];
} group256;

static int imin(int a, int b) { return a < b ? a : b; }

static int quads_of(const sk_axis *a) { return (a->max_count + 3) / 4; }

static void coefs(int32_t *o, const int16_t *k, int count, int tap)
{
	const uint32_t lo = tap >= 0 && tap < count ? (uint16_t)k[tap] : 0;
	const uint32_t hi = tap + 1 >= 0 && tap + 1 < count ? (uint16_t)k[tap + 1] : 0;
	o[0] = o[1] = o[2] = o[3] = (int32_t)(lo | hi << 16);
}

static size_t h_table_256(const sk_resizer *r, void *table)
{
	const sk_axis *a = &r->ax;
	const int px = r->sink.px, quads = quads_of(a), groups = (a->n + 3) / 4;
	if (table == NULL)
		return sizeof(head256) + (size_t)groups * (sizeof(group256) + (size_t)quads * 128);
	head256 *head = table;
	head->quads = quads;
	uint8_t *p = (uint8_t *)(head + 1);
	for (int g = 0; g < groups; g++) {
		group256 *group = (group256 *)p;
		p += sizeof *group;
		for (int j = 0; j < 4; j++) {
			const int i = imin(4 * g + j, a->n - 1);
			const int16_t *k = a->k + (size_t)i * (size_t)a->kstride;
			// All quads are read: move the start so that they end in the row.
			int start = imin(a->start[i], a->hi - a->lo - 4 * quads);
			if (start < 0)
				start = 0;
			const int shift = a->start[i] - start;
			group->offset[j] = start * px;
			for (int q = 0; q < quads; q++) {
				// Registers of the quad: (0, 2) taps 01, 23; (1, 3) taps 01, 23.
				int32_t *o = (int32_t *)(p + 128 * q) + (j & 1) * 16 + (j >> 1) * 4;
				coefs(o, k, a->count[i], 4 * q - shift);
				coefs(o + 8, k, a->count[i], 4 * q + 2 - shift);
			}
		}
		p += (size_t)quads * 128;
	}
	return 0;
}

T256 INLINE __m256i load2(const uint8_t *lo, const uint8_t *hi)
{
	return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)lo)),
	                               _mm_loadu_si128((const __m128i *)hi), 1);
}

T256 INLINE void h_quads(const sk_resizer *r, const uint8_t *src, int16_t *mid, int quads)
{
	const int px = r->sink.px, shift = r->ax.q - r->mid_bits, groups = (r->ax.n + 3) / 4;
	const uint8_t *p = (const uint8_t *)((const head256 *)r->table + 1);
	uint8_t ia[16], ib[16];
	for (int c = 0; c < 4; c++) {
		const int channel = px == 1 ? 0 : c < 3 ? c : 2;
		for (int t = 0; t < 2; t++) {
			ia[4 * c + 2 * t] = (uint8_t)(px * t + channel);
			ib[4 * c + 2 * t] = (uint8_t)(px * (t + 2) + channel);
			ia[4 * c + 2 * t + 1] = ib[4 * c + 2 * t + 1] = 0x80;
		}
	}
	const __m256i index_a = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)ia));
	const __m256i index_b = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)ib));
	const __m256i round = _mm256_set1_epi32(1 << (shift - 1));
	const __m128i by = _mm_cvtsi32_si128(shift);
	const __m256i drop = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, -1, -1, -1, -1, 0, 1, 2, 3, 4, 5, 8,
	                                      9, 10, 11, 12, 13, -1, -1, -1, -1);
	const __m256i top = _mm256_set1_epi16((int16_t)(255 << r->mid_bits));
	for (int g = 0; g < groups; g++, mid += 12) {
		const group256 *group = (const group256 *)p;
		const uint8_t *s0 = src + group->offset[0], *s1 = src + group->offset[1];
		const uint8_t *s2 = src + group->offset[2], *s3 = src + group->offset[3];
		const __m256i *k = (const __m256i *)(p + sizeof *group);
		__m256i even = round, odd = round;
		for (int q = 0, at = 0; q < quads; q++, at += 4 * px, k += 4) {
			const __m256i v = load2(s0 + at, s2 + at), w = load2(s1 + at, s3 + at);
			even = _mm256_add_epi32(even, _mm256_madd_epi16(_mm256_shuffle_epi8(v, index_a), _mm256_load_si256(k)));
			even = _mm256_add_epi32(even, _mm256_madd_epi16(_mm256_shuffle_epi8(v, index_b), _mm256_load_si256(k + 1)));
			odd = _mm256_add_epi32(odd, _mm256_madd_epi16(_mm256_shuffle_epi8(w, index_a), _mm256_load_si256(k + 2)));
			odd = _mm256_add_epi32(odd, _mm256_madd_epi16(_mm256_shuffle_epi8(w, index_b), _mm256_load_si256(k + 3)));
		}
		p = (const uint8_t *)k;
		const __m256i v = _mm256_packs_epi32(_mm256_sra_epi32(even, by), _mm256_sra_epi32(odd, by));
		const __m256i rgb =
			_mm256_shuffle_epi8(_mm256_min_epi16(_mm256_max_epi16(v, _mm256_setzero_si256()), top), drop);
		_mm_storeu_si128((__m128i *)mid, _mm256_castsi256_si128(rgb));
		_mm_storeu_si128((__m128i *)(mid + 6), _mm256_extracti128_si256(rgb, 1));
	}
}

T256 static void h_rows_256(const sk_resizer *r, const uint8_t *src, ptrdiff_t stride, int n, int16_t *const *mid)
{
	const int quads = ((const head256 *)r->table)->quads;
	for (int i = 0; i < n; i++, src += stride) {
		if (quads == 1)
			h_quads(r, src, mid[i], 1);
		else
			h_quads(r, src, mid[i], quads);
	}
}

// ---- vertical pass

T256 INLINE void v_pairs(const sk_resizer *r, const int16_t *const *rows, const int32_t *taps, int pairs, uint8_t *dst)
{
	const int n = r->w * 3, shift = r->mid_bits + r->ay.q;
	const __m256i round = _mm256_set1_epi32(1 << (shift - 1));
	const __m128i by = _mm_cvtsi32_si128(shift);
	for (int i = 0; i < n; i += 32) {
		__m256i s0 = round, s1 = round, s2 = round, s3 = round;
		for (int t = 0; t < pairs; t++) {
			const __m256i a0 = _mm256_loadu_si256((const __m256i *)(rows[2 * t] + i));
			const __m256i b0 = _mm256_loadu_si256((const __m256i *)(rows[2 * t + 1] + i));
			const __m256i a1 = _mm256_loadu_si256((const __m256i *)(rows[2 * t] + i + 16));
			const __m256i b1 = _mm256_loadu_si256((const __m256i *)(rows[2 * t + 1] + i + 16));
			const __m256i k = _mm256_set1_epi32(taps[t]);
			s0 = _mm256_add_epi32(s0, _mm256_madd_epi16(_mm256_unpacklo_epi16(a0, b0), k));
			s1 = _mm256_add_epi32(s1, _mm256_madd_epi16(_mm256_unpackhi_epi16(a0, b0), k));
			s2 = _mm256_add_epi32(s2, _mm256_madd_epi16(_mm256_unpacklo_epi16(a1, b1), k));
			s3 = _mm256_add_epi32(s3, _mm256_madd_epi16(_mm256_unpackhi_epi16(a1, b1), k));
		}
		const __m256i lo = _mm256_packs_epi32(_mm256_sra_epi32(s0, by), _mm256_sra_epi32(s1, by));
		const __m256i hi = _mm256_packs_epi32(_mm256_sra_epi32(s2, by), _mm256_sra_epi32(s3, by));
		const __m256i v = _mm256_permute4x64_epi64(_mm256_packus_epi16(lo, hi), 0xd8);
		if (n - i >= 32) {
			_mm256_storeu_si256((__m256i *)(dst + i), v);
		} else {
			uint8_t rest[32];
			_mm256_storeu_si256((__m256i *)rest, v);
			memcpy(dst + i, rest, (size_t)(n - i));
		}
	}
}

T256 static void v_row_256(const sk_resizer *r, const int16_t *const *rows, const int16_t *k, int n, uint8_t *dst)
{
	int32_t taps[SK_RING_TAPS / 2 + 1];
	const int pairs = (n + 1) / 2;
	memcpy(taps, k, (size_t)pairs * 4); // zero after n
	switch (pairs) {
	case 1: v_pairs(r, rows, taps, 1, dst); return;
	case 2: v_pairs(r, rows, taps, 2, dst); return;
	}
	v_pairs(r, rows, taps, pairs, dst);
}

// ---- packing to RGB

T256 static void pack_row_256(const uint8_t *src, int px, int w, int flip, uint8_t *dst)
{
	if (px == 3 && !flip) {
		memcpy(dst, src, (size_t)w * 3);
		return;
	}
	const int step = px == 4 ? 4 : 5;
	uint8_t bytes[16];
	memset(bytes, 0x80, sizeof bytes);
	for (int i = 0; i < step; i++)
		for (int c = 0; c < 3; c++)
			bytes[3 * i + c] = (uint8_t)((flip ? step - 1 - i : i) * px + (px == 1 ? 0 : c));
	const __m128i index = _mm_loadu_si128((const __m128i *)bytes);
	int i = 0;
	for (; i + 6 <= w; i += step) { // sixteen bytes are written
		const uint8_t *s = src + (size_t)(flip ? w - step - i : i) * (size_t)px;
		_mm_storeu_si128((__m128i *)(dst + 3 * (size_t)i),
		                 _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)s), index));
	}
	sk_pack_row_scalar(flip ? src : src + (size_t)i * (size_t)px, px, w - i, flip, dst + 3 * (size_t)i);
}

// ---- storing

T256 INLINE void put8(int dtype, __m256 f, uint8_t *dst)
{
	if (dtype == SK_F32) {
		_mm256_storeu_ps((float *)dst, f);
	} else if (dtype == SK_F16) {
		_mm_storeu_si128((__m128i *)dst, _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
	} else {
		const __m256i u = _mm256_castps_si256(f);
		const __m256i high = _mm256_srli_epi32(u, 16);
		const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
		const __m256i v = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
		const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
		const __m256i w = _mm256_blendv_epi8(v, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
		_mm_storeu_si128((__m128i *)dst, _mm_packus_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
	}
}

// No fused multiply-add in the target: two roundings, like the scalar code.
T256 INLINE __m256 scaled(__m128i bytes, __m256 scale, __m256 bias)
{
	return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), scale), bias);
}

T256 INLINE void store_nhwc(const sk_store *st, const uint8_t *rgb, int n, uint8_t *dst, int dtype)
{
	const size_t size = dtype == SK_F32 ? 4 : 2;
	float sv[24], bv[24];
	for (int i = 0; i < 24; i++) {
		sv[i] = st->scale[i % 3];
		bv[i] = st->bias[i % 3];
	}
	__m256 s[3], b[3];
	for (int j = 0; j < 3; j++) {
		s[j] = _mm256_loadu_ps(sv + 8 * j);
		b[j] = _mm256_loadu_ps(bv + 8 * j);
	}
	for (int i = 0; i + 24 <= n; i += 24)
		for (int j = 0; j < 3; j++)
			put8(dtype, scaled(_mm_loadl_epi64((const __m128i *)(rgb + i + 8 * j)), s[j], b[j]),
			     dst + (size_t)(i + 8 * j) * size);
}

// Shuffles that bring colour c of eight pixels to the front, from bytes 0..15
// and from bytes 8..23 of them.
T256 INLINE void plane_index(int c, __m128i *lo, __m128i *hi)
{
	uint8_t a[16], b[16];
	memset(a, 0x80, sizeof a);
	memset(b, 0x80, sizeof b);
	for (int i = 0; i < 8; i++) {
		const int at = 3 * i + c;
		if (at < 16)
			a[i] = (uint8_t)at;
		else
			b[i] = (uint8_t)(at - 8);
	}
	*lo = _mm_loadu_si128((const __m128i *)a);
	*hi = _mm_loadu_si128((const __m128i *)b);
}

T256 INLINE __m128i plane8(const uint8_t *rgb, __m128i lo, __m128i hi)
{
	return _mm_or_si128(_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)rgb), lo),
	                    _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(rgb + 8)), hi));
}

T256 INLINE void store_nchw(const sk_store *st, const uint8_t *rgb, int w, size_t plane, uint8_t *dst, int dtype)
{
	const size_t size = dtype == SK_F32 ? 4 : dtype == SK_U8 ? 1 : 2;
	for (int c = 0; c < 3; c++) {
		__m128i lo, hi;
		plane_index(c, &lo, &hi);
		const __m256 s = _mm256_set1_ps(st->scale[c]), b = _mm256_set1_ps(st->bias[c]);
		uint8_t *o = dst + plane * (size_t)c * size;
		for (int i = 0; i + 8 <= w; i += 8) {
			const __m128i v = plane8(rgb + 3 * (size_t)i, lo, hi);
			if (dtype == SK_U8)
				_mm_storel_epi64((__m128i *)(o + i), v);
			else
				put8(dtype, scaled(v, s, b), o + (size_t)i * size);
		}
	}
}

T256 static void store_row_256(const sk_store *st, const uint8_t *rgb, int w, int h, int y, uint8_t *dst)
{
	const size_t plane = (size_t)w * (size_t)h, row = (size_t)y * (size_t)w, size = st->dtype == SK_F32 ? 4 : 2;
	const int done = w & ~7;
	if (st->channels == 1 || (st->dtype == SK_U8 && (st->layout == SK_NHWC || !sk_store_is_plain(st)))) {
		sk_store_range_scalar(st, rgb, w, h, y, 0, w, dst);
		return;
	}
	if (st->dtype == SK_U8) {
		store_nchw(st, rgb, w, plane, dst + row, SK_U8);
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

const sk_kernels sk_kernels_avx2 = {h_table_256, h_rows_256, v_row_256, pack_row_256, store_row_256};

#endif
