// Packing with AVX2 + BMI2, and with AVX-512 (VBMI2). The bytes are identical to those of the portable form.
#include "dct_pack.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define TARGET2 __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt")))
#define TARGET5 \
	__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi,bmi2,popcnt,lzcnt")))

// ---- AVX2

TARGET2 static int gather_256(const int16_t *block, uint64_t *nonzero, uint64_t *sign, uint16_t *mag)
{
	uint64_t zeros = 0, negative = 0;
	const __m256i zero = _mm256_setzero_si256();
	for (int i = 0; i < 64; i += 32) {
		const __m256i a = _mm256_loadu_si256((const void *)(block + i)),
					  b = _mm256_loadu_si256((const void *)(block + i + 16));
		const __m256i none = _mm256_packs_epi16(_mm256_cmpeq_epi16(a, zero), _mm256_cmpeq_epi16(b, zero));
		const __m256i less = _mm256_packs_epi16(_mm256_cmpgt_epi16(zero, a), _mm256_cmpgt_epi16(zero, b));
		zeros |= (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(none, 0xd8)) << i;
		negative |= (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(less, 0xd8)) << i;
	}
	const uint64_t some = ~zeros & ~1ull;
	*nonzero = some >> 1;
	*sign = _pext_u64(negative, some);
	int n = 0;
	for (uint64_t m = some; m != 0; m = _blsr_u64(m), n++) {
		const int v = block[_tzcnt_u64(m)];
		mag[n] = (uint16_t)(v < 0 ? -v : v);
	}
	return n;
}

// A map of which of 64 bytes are at least v.
TARGET2 static inline uint64_t at_least(__m256i lo, __m256i hi, int v)
{
	const __m256i k = _mm256_set1_epi8((char)v);
	return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(lo, k), lo)) |
	       (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(hi, k), hi)) << 32;
}

// A map of bit b of 64 bytes.
TARGET2 static inline uint64_t bit_map(__m256i lo, __m256i hi, int b)
{
	const __m128i shift = _mm_cvtsi32_si128(7 - b);
	return (uint32_t)_mm256_movemask_epi8(_mm256_sll_epi16(lo, shift)) |
	       (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_sll_epi16(hi, shift)) << 32;
}

// Low (shift 0) or high (shift 8) bytes of 32 numbers.
TARGET2 static inline __m256i bytes_of(const uint16_t *p, int shift)
{
	const __m128i s = _mm_cvtsi32_si128(shift);
	const __m256i low = _mm256_set1_epi16(255);
	const __m256i a = _mm256_and_si256(_mm256_srl_epi16(_mm256_loadu_si256((const void *)p), s), low);
	const __m256i b = _mm256_and_si256(_mm256_srl_epi16(_mm256_loadu_si256((const void *)(p + 16)), s), low);
	return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
}

// A map of the 56 magnitudes at p that reach plane k (are at least 2^(k-1)).
TARGET2 static inline uint64_t reaches(const uint16_t *p, int k, int high)
{
	const __m256i b0 = bytes_of(p, 8), b1 = bytes_of(p + 32, 8);
	if (k > 8)
		return at_least(b0, b1, 1 << (k - 9));
	const uint64_t low = at_least(bytes_of(p, 0), bytes_of(p + 32, 0), 1 << (k - 1));
	return high ? low | at_least(b0, b1, 1) : low;
}

TARGET2 static void planes_256(dct_packer *k, dct_writer *out, const uint16_t *mag, int n)
{
	dct_writer w = *out;
	const int words = (n + DCT_WORD - 1) / DCT_WORD;
	__m256i any = _mm256_setzero_si256();
	for (int i = 0; i < n; i += 16)
		any = _mm256_or_si256(any, _mm256_loadu_si256((const void *)(mag + i)));
	// Behind the last value there may be anything; then planes stay empty in vain.
	const int high = !_mm256_testz_si256(any, _mm256_set1_epi16((short)0xff00));
	for (int i = 0; i < words; i++)
		k->reach[i] = (1ull << DCT_WORD) - 1;
	if (words > 0)
		k->reach[words - 1] = (1ull << (n - DCT_WORD * (words - 1))) - 1;
	for (int plane = 2; plane <= DCT_MAX_PLANES && n > 0; plane++) {
		n = 0;
		for (int i = 0; i < words; i++) {
			const uint64_t from = k->reach[i], to = reaches(mag + DCT_WORD * i, plane, high) & from;
			dct_put(&w, _pext_u64(to, from), (int)_mm_popcnt_u64(from));
			k->reach[i] = to;
			n += (int)_mm_popcnt_u64(to);
		}
		const int shift = plane <= 9 ? 0 : 8, bit = plane - 2 - shift;
		for (int i = 0; i < words && n > 0; i++) {
			const uint16_t *p = mag + DCT_WORD * i;
			const uint64_t bits = bit_map(bytes_of(p, shift), bytes_of(p + 32, shift), bit);
			dct_put(&w, _pext_u64(bits, k->reach[i]), (int)_mm_popcnt_u64(k->reach[i]));
		}
	}
	*out = w;
}

// ---- AVX-512

TARGET5 static int gather_512(const int16_t *block, uint64_t *nonzero, uint64_t *sign, uint16_t *mag)
{
	const __m512i z0 = _mm512_loadu_si512(block), z1 = _mm512_loadu_si512(block + 32);
	const __mmask32 some0 = _mm512_test_epi16_mask(z0, z0) & ~1u, some1 = _mm512_test_epi16_mask(z1, z1);
	const uint64_t some = (uint64_t)some0 | (uint64_t)some1 << 32;
	const uint64_t negative = (uint64_t)_mm512_movepi16_mask(z0) | (uint64_t)_mm512_movepi16_mask(z1) << 32;
	*nonzero = some >> 1;
	*sign = _pext_u64(negative, some);
	const int n0 = (int)_mm_popcnt_u32(some0);
	_mm512_storeu_si512(mag, _mm512_maskz_compress_epi16(some0, _mm512_abs_epi16(z0)));
	_mm512_storeu_si512(mag + n0, _mm512_maskz_compress_epi16(some1, _mm512_abs_epi16(z1)));
	return n0 + (int)_mm_popcnt_u32(some1);
}

_Static_assert(DCT_MAX_VALUES % 64 == 0, "what is kept of 64 values is written as 64 into the list");

// The planes of tiles that have a magnitude above 255, which are few.
TARGET5 static void planes_wide(dct_packer *k, dct_writer *out, const uint16_t *mag, int n)
{
	dct_writer w = *out;
	uint16_t *at = k->list;
	for (int plane = 2; plane <= DCT_MAX_PLANES && n > 0; plane++, mag = at) {
		const __m512i least = _mm512_set1_epi16((short)(1 << (plane - 1)));
		int more = 0;
		for (int i = 0; i < n; i += 64) {
			const int take = n - i < 64 ? n - i : 64;
			const __m512i a = _mm512_loadu_si512(mag + i), b = _mm512_loadu_si512(mag + i + 32);
			const uint64_t both =
				(uint64_t)_mm512_cmpge_epu16_mask(a, least) | (uint64_t)_mm512_cmpge_epu16_mask(b, least) << 32;
			const uint64_t reach = _bzhi_u64(both, (unsigned)take);
			dct_put64(&w, reach, take);
			const int first = (int)_mm_popcnt_u32((uint32_t)reach);
			_mm512_storeu_si512(at + more, _mm512_maskz_compress_epi16((__mmask32)reach, a)); // more <= i
			_mm512_storeu_si512(at + more + first, _mm512_maskz_compress_epi16((__mmask32)(reach >> 32), b));
			more += (int)_mm_popcnt_u64(reach);
		}
		n = more;
		const __m512i bit = _mm512_set1_epi16((short)(1 << (plane - 2)));
		for (int i = 0; i < n; i += 64) {
			const int take = n - i < 64 ? n - i : 64;
			const uint64_t both = (uint64_t)_mm512_test_epi16_mask(_mm512_loadu_si512(at + i), bit) |
			                      (uint64_t)_mm512_test_epi16_mask(_mm512_loadu_si512(at + i + 32), bit) << 32;
			dct_put64(&w, _bzhi_u64(both, (unsigned)take), take);
		}
	}
	*out = w;
}

// Magnitudes as bytes. Only those that reach the next plane are kept. The writer of bits takes most of the time, and
// this gives it fewer and fuller words.
TARGET5 static void planes_512(dct_packer *k, dct_writer *out, const uint16_t *mag, int n)
{
	dct_writer w = *out;
	uint8_t *at = (uint8_t *)k->list; // twice as large as there are values
	__m512i any = _mm512_setzero_si512();
	for (int i = 0; i < n; i += 32) {
		const __mmask32 these = n - i < 32 ? (1u << (n - i)) - 1 : ~0u;
		const __m512i v = _mm512_maskz_loadu_epi16(these, mag + i);
		any = _mm512_or_si512(any, v);
		_mm256_storeu_si256((void *)(at + i), _mm512_cvtepi16_epi8(v));
	}
	if (_mm512_test_epi16_mask(any, _mm512_set1_epi16((short)0xff00)) != 0) {
		planes_wide(k, out, mag, n);
		return;
	}
	for (int plane = 2; plane <= 8 && n > 0; plane++) {
		const __m512i least = _mm512_set1_epi8((char)(1 << (plane - 1)));
		int more = 0;
		for (int i = 0; i < n; i += 64) {
			const int take = n - i < 64 ? n - i : 64;
			const __m512i v = _mm512_loadu_si512(at + i);
			const uint64_t reach = _bzhi_u64(_mm512_cmpge_epu8_mask(v, least), (unsigned)take);
			dct_put64(&w, reach, take);
			_mm512_storeu_si512(at + more, _mm512_maskz_compress_epi8(reach, v)); // more <= i
			more += (int)_mm_popcnt_u64(reach);
		}
		n = more;
		const __m512i bit = _mm512_set1_epi8((char)(1 << (plane - 2)));
		for (int i = 0; i < n; i += 64) {
			const int take = n - i < 64 ? n - i : 64;
			dct_put64(&w, _bzhi_u64(_mm512_test_epi8_mask(_mm512_loadu_si512(at + i), bit), (unsigned)take), take);
		}
	}
	for (; n > 0; n -= 32) // no value reaches the ninth plane
		dct_put(&w, 0, n < 32 ? n : 32);
	*out = w;
}

TARGET2 size_t dct_pack_avx2(dct_packer *k, const dct_shape *s, uint8_t *out)
{
	return dct_pack_tile(k, s, out, gather_256, planes_256);
}

TARGET5 size_t dct_pack_avx512(dct_packer *k, const dct_shape *s, uint8_t *out)
{
	return dct_pack_tile(k, s, out, gather_512, planes_512);
}

#endif
