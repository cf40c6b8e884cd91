// Copies of whole records into a batch. A batch that is too large for the caches is written past them. Its lines are
// written once here and read later by another process, so loading them into the cache first (like an ordinary store)
// would be wasted work. A small batch stays in the cache for its reader.
#include "sk.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

// Records shorter than this are copied through the cache: their lines are too
// few for the write-combining buffers to pay.
#define STREAM_BYTES 1024
// Longer ones are copied at PARTS positions in parallel. Reading one page after another does not saturate the memory:
// the prefetcher stops at the end of each page, and the next page waits for its address. Four positions are enough.
#define PARTS 4
#define PARTS_BYTES (PARTS * 2048)
// How far ahead of the copy lines are prefetched into the second-level cache. Prefetches into the first level would
// take the few buffers for its misses.
#define AHEAD 512

// Copies up to the first address of dst that is a multiple of align, and returns the number of bytes.
static size_t head(uint8_t *dst, const uint8_t *src, size_t n, size_t align)
{
	size_t h = (align - ((uintptr_t)dst & (align - 1))) & (align - 1);
	if (h > n)
		h = n;
	memcpy(dst, src, h);
	return h;
}

// Copies 128 bytes to dst, which is a multiple of 32.
__attribute__((target("avx2"))) static inline void lines_avx2(uint8_t *dst, const uint8_t *src)
{
	_mm_prefetch((const char *)(src + AHEAD), _MM_HINT_T1);
	_mm_prefetch((const char *)(src + AHEAD + 64), _MM_HINT_T1);
	const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)src);
	const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(src + 32));
	const __m256i c = _mm256_loadu_si256((const __m256i *)(const void *)(src + 64));
	const __m256i d = _mm256_loadu_si256((const __m256i *)(const void *)(src + 96));
	_mm256_stream_si256((__m256i *)(void *)dst, a);
	_mm256_stream_si256((__m256i *)(void *)(dst + 32), b);
	_mm256_stream_si256((__m256i *)(void *)(dst + 64), c);
	_mm256_stream_si256((__m256i *)(void *)(dst + 96), d);
}

// The same to a multiple of 64.
__attribute__((target("avx512f"))) static inline void lines_avx512(uint8_t *dst, const uint8_t *src)
{
	_mm_prefetch((const char *)(src + AHEAD), _MM_HINT_T1);
	_mm_prefetch((const char *)(src + AHEAD + 64), _MM_HINT_T1);
	const __m512i a = _mm512_loadu_si512(src), b = _mm512_loadu_si512(src + 64);
	_mm512_stream_si512((__m512i *)(void *)dst, a);
	_mm512_stream_si512((__m512i *)(void *)(dst + 64), b);
}

// stream copies n bytes past the caches, at PARTS positions in parallel if there are enough bytes.
#define STREAM(name, isa, lines, align)                                                       \
	__attribute__((target(isa))) static void name(uint8_t *dst, const uint8_t *src, size_t n) \
	{                                                                                         \
		const size_t h = head(dst, src, n, align);                                            \
		dst += h, src += h, n -= h;                                                           \
		if (n >= PARTS_BYTES) {                                                               \
			const size_t part = n / PARTS & ~(size_t)127;                                     \
			for (size_t i = 0; i < part; i += 128)                                            \
				for (size_t k = 0; k < PARTS; k++)                                            \
					lines(dst + k * part + i, src + k * part + i);                            \
			dst += PARTS * part, src += PARTS * part, n -= PARTS * part;                      \
		}                                                                                     \
		for (; n >= 128; dst += 128, src += 128, n -= 128)                                    \
			lines(dst, src);                                                                  \
		memcpy(dst, src, n);                                                                  \
	}

STREAM(stream_avx2, "avx2", lines_avx2, 32)
STREAM(stream_avx512, "avx512f", lines_avx512, 64)

// ---- the same with a checksum
//
// A CRC-32C is a remainder of polynomials over GF(2), in which bit 31 of a word is x^0. The CRC of two pieces is the
// CRC of the first, times x^bits of the second, plus the CRC of the second, started with 0. So each of PARTS
// positions has its own CRC, and the time of the CRC instruction overlaps with that of the memory.

// a * t * x^33: the product as 64 bits is one times x short, the reduction adds x^32.
__attribute__((target("sse4.2,pclmul"))) static inline uint32_t product(uint32_t a, uint32_t t)
{
	const __m128i p = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)t), 0);
	return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(p));
}

// x^(8n - 33): the factor for product that appends n bytes to a checksum.
__attribute__((target("sse4.2,pclmul"))) static uint32_t followed(size_t n)
{
	// x^(2^k - 33), k from 3 on. x^(2^31) is x^1, so that they repeat.
	static const uint32_t powers[31] = {
		0xbf818109, 0x780d5a4d, 0x05ec76f1, 0x00000001, 0x493c7d27, 0xba4fc28e, 0x9e4addf8, 0x0d3b6092,
		0xb9e02b86, 0xdd7e3b0c, 0x170076fa, 0xa51b6135, 0x82f89c77, 0x54a86326, 0x1dc403cc, 0x5ae703ab,
		0xc5013a36, 0xac2ac6dd, 0x9b4615a9, 0x688d1c61, 0xf6af14e6, 0xb6ffe386, 0xb717425b, 0x478b0d30,
		0x54cc62e5, 0x7b2102ee, 0x8a99adef, 0xa7568c8f, 0xd610d67e, 0x6b086b3f, 0xd94f3c0b,
	};
	uint32_t x = 0xa9cdda0d; // x^-33
	for (unsigned k = 0; n != 0; n >>= 1, k++)
		if (n & 1)
			x = product(x, powers[k % 31]);
	return x;
}

__attribute__((target("sse4.2"))) static inline uint32_t sum(uint32_t crc, const uint8_t *p, size_t n)
{
	uint64_t c = crc, word;
	for (; n >= 8; p += 8, n -= 8) {
		memcpy(&word, p, 8);
		c = _mm_crc32_u64(c, word);
	}
	for (; n > 0; p++, n--)
		c = _mm_crc32_u8((uint32_t)c, *p);
	return (uint32_t)c;
}

__attribute__((target("avx2,sse4.2,pclmul"))) static uint32_t stream_sum_avx2(uint8_t *dst, const uint8_t *src,
                                                                              size_t n, uint32_t crc)
{
	const size_t h = head(dst, src, n, 32);
	crc = sum(crc, src, h);
	dst += h, src += h, n -= h;
	if (n >= PARTS_BYTES) {
		const size_t part = n / PARTS & ~(size_t)127;
		uint32_t c[PARTS] = {crc};
		for (size_t i = 0; i < part; i += 128)
			for (size_t k = 0; k < PARTS; k++) {
				lines_avx2(dst + k * part + i, src + k * part + i);
				c[k] = sum(c[k], src + k * part + i, 128);
			}
		const uint32_t x = followed(part);
		crc = c[0];
		for (size_t k = 1; k < PARTS; k++)
			crc = product(crc, x) ^ c[k];
		dst += PARTS * part, src += PARTS * part, n -= PARTS * part;
	}
	memcpy(dst, src, n);
	return sum(crc, src, n);
}

// With VPCLMULQDQ, the bytes at a position are summed modulo the polynomial, 64 at a time: acc, times x^512, plus the
// next ones. The checksum of the rest is the checksum of all of them.
#define FOLD "avx512f,vpclmulqdq,sse4.2,pclmul"

__attribute__((target(FOLD))) static inline __m512i folded(__m512i acc, __m512i next)
{
	// The first of the two halves of 16 bytes is 64 bits higher. A product of two 64-bit words lacks one factor x.
	const __m512i x =
		_mm512_broadcast_i32x4(_mm_set_epi64x((long long)(0x75bba45bull << 32), (long long)(0x1c19243bull << 32)));
	const __m512i lo = _mm512_clmulepi64_epi128(acc, x, 0x00), hi = _mm512_clmulepi64_epi128(acc, x, 0x11);
	return _mm512_ternarylogic_epi64(lo, hi, next, 0x96);
}

__attribute__((target(FOLD))) static uint32_t stream_sum_fold(uint8_t *dst, const uint8_t *src, size_t n, uint32_t crc)
{
	const size_t h = head(dst, src, n, 64);
	crc = sum(crc, src, h);
	dst += h, src += h, n -= h;
	if (n >= PARTS_BYTES) {
		const size_t part = n / PARTS & ~(size_t)127;
		__m512i acc[PARTS];
		for (size_t i = 0; i < part; i += 128)
			for (size_t k = 0; k < PARTS; k++) {
				const uint8_t *from = src + k * part + i;
				uint8_t *to = dst + k * part + i;
				_mm_prefetch((const char *)(from + AHEAD), _MM_HINT_T1);
				_mm_prefetch((const char *)(from + AHEAD + 64), _MM_HINT_T1);
				const __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + 64);
				_mm512_stream_si512((__m512i *)(void *)to, a);
				_mm512_stream_si512((__m512i *)(void *)(to + 64), b);
				if (i == 0) // the checksum so far is added to the first four bytes
					acc[k] = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128(k == 0 ? (int)crc : 0)));
				else
					acc[k] = folded(acc[k], a);
				acc[k] = folded(acc[k], b);
			}
		const uint32_t x = followed(part);
		crc = 0;
		for (size_t k = 0; k < PARTS; k++) {
			uint8_t left[64];
			_mm512_storeu_si512(left, acc[k]);
			crc = (k == 0 ? 0 : product(crc, x)) ^ sum(0, left, 64);
		}
		dst += PARTS * part, src += PARTS * part, n -= PARTS * part;
	}
	memcpy(dst, src, n);
	return sum(crc, src, n);
}
#endif

static void copy_rows(int past_caches, uint8_t *dst, const uintptr_t *src, int n, size_t row_bytes)
{
#if defined(__x86_64__)
	const int set = sk_set(SK_KERNEL_GATHER);
	if (past_caches && set != SK_SCALAR && row_bytes >= STREAM_BYTES) {
		for (int i = 0; i < n; i++, dst += row_bytes) {
			if (set == SK_AVX512)
				stream_avx512(dst, (const uint8_t *)src[i], row_bytes);
			else
				stream_avx2(dst, (const uint8_t *)src[i], row_bytes);
		}
		_mm_sfence(); // the stores are seen before the batch is announced
		return;
	}
#endif
	(void)past_caches;
	for (int i = 0; i < n; i++, dst += row_bytes)
		memcpy(dst, (const void *)src[i], row_bytes);
}

int sk_gather(int past_caches, uint8_t *dst, const uintptr_t *src, int n, size_t row_bytes)
{
	sk_guard g;
	if (sigsetjmp(g.back, 0) != 0)
		return SK_UNREADABLE;
	sk_guard_on(&g);
	copy_rows(past_caches, dst, src, n, row_bytes);
	sk_guard_off();
	return SK_OK;
}

int sk_copy_crc32c(uint8_t *dst, const uint8_t *src, size_t n, uint32_t *crc)
{
#if defined(__x86_64__)
	const int set = sk_set(SK_KERNEL_CRC32C);
	if (set != SK_SCALAR) { // AVX2 comes with SSE4.2
		sk_guard g;
		if (sigsetjmp(g.back, 0) != 0)
			return SK_UNREADABLE;
		sk_guard_on(&g);
		if (set == SK_AVX512)
			*crc = stream_sum_fold(dst, src, n, *crc);
		else
			*crc = stream_sum_avx2(dst, src, n, *crc);
		_mm_sfence();
		sk_guard_off();
		return SK_OK;
	}
#endif
	(void)dst, (void)src, (void)n, (void)crc;
	return SK_BAD_ARGUMENT;
}
