// Copies of whole records into a batch. A batch that is too large for the caches
// is written past them: its lines are written once here and read later by
// another process, so that bringing them into the cache first (as an ordinary
// store does) is waste. A small one stays in the cache for its reader.
#include "sk.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

// Records shorter than this are copied through the cache: their lines are too
// few for the write-combining buffers to pay.
#define STREAM_BYTES 1024
// Longer ones are copied in PARTS places at a time. One core's reads of one page
// after another do not keep the memory busy: the prefetcher stops at the end of
// each page, and the next one waits for its address. Four of them do.
#define PARTS 4
#define PARTS_BYTES (PARTS * 2048)
// How far ahead of the copy lines are asked for, into the second-level cache:
// those asked for into the first would take the few buffers of its misses.
#define AHEAD 512

// Copies up to the first address of dst that is a multiple of align; returns
// how much.
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

// stream copies n bytes past the caches, in PARTS places at a time when there
// are many.
#define STREAM(name, isa, lines, align)                                                                  \
	__attribute__((target(isa))) static void name(uint8_t *dst, const uint8_t *src, size_t n)        \
	{                                                                                                \
		const size_t h = head(dst, src, n, align);                                               \
		dst += h, src += h, n -= h;                                                              \
		if (n >= PARTS_BYTES) {                                                                  \
			const size_t part = n / PARTS & ~(size_t)127;                                    \
			for (size_t i = 0; i < part; i += 128)                                           \
				for (size_t k = 0; k < PARTS; k++)                                       \
					lines(dst + k * part + i, src + k * part + i);                   \
			dst += PARTS * part, src += PARTS * part, n -= PARTS * part;                     \
		}                                                                                        \
		for (; n >= 128; dst += 128, src += 128, n -= 128)                                       \
			lines(dst, src);                                                                 \
		memcpy(dst, src, n);                                                                     \
	}

STREAM(stream_avx2, "avx2", lines_avx2, 32)
STREAM(stream_avx512, "avx512f", lines_avx512, 64)
#endif

static void copy_rows(int isa, int past_caches, uint8_t *dst, const uintptr_t *src, int n, size_t row_bytes)
{
#if defined(__x86_64__)
	if (past_caches && isa != SK_SCALAR && row_bytes >= STREAM_BYTES) {
		for (int i = 0; i < n; i++, dst += row_bytes) {
			if (isa == SK_AVX512)
				stream_avx512(dst, (const uint8_t *)src[i], row_bytes);
			else
				stream_avx2(dst, (const uint8_t *)src[i], row_bytes);
		}
		_mm_sfence(); // the stores are seen before the batch is announced
		return;
	}
#endif
	(void)isa, (void)past_caches;
	for (int i = 0; i < n; i++, dst += row_bytes)
		memcpy(dst, (const void *)src[i], row_bytes);
}

int sk_gather(int isa, int past_caches, uint8_t *dst, const uintptr_t *src, int n, size_t row_bytes)
{
	sk_guard g;
	if (sigsetjmp(g.back, 0) != 0)
		return SK_UNREADABLE;
	sk_guard_on(&g);
	copy_rows(isa, past_caches, dst, src, n, row_bytes);
	sk_guard_off();
	return SK_OK;
}
