// Copies of whole records into a batch, past the caches: the batch is written
// once here and read later by another process, so that bringing its lines into
// the cache first (as an ordinary store does) is waste.
#include "cdec.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

// Records shorter than this are copied through the cache: their lines are too
// few for the write-combining buffers to pay.
#define STREAM_BYTES 1024

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

__attribute__((target("avx2"))) static void stream_avx2(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t i = head(dst, src, n, 32);
	for (; i + 128 <= n; i += 128) {
		const __m256i a = _mm256_loadu_si256((const __m256i *)(src + i));
		const __m256i b = _mm256_loadu_si256((const __m256i *)(src + i + 32));
		const __m256i c = _mm256_loadu_si256((const __m256i *)(src + i + 64));
		const __m256i d = _mm256_loadu_si256((const __m256i *)(src + i + 96));
		_mm_prefetch((const char *)(src + i + 512), _MM_HINT_T0);
		_mm_prefetch((const char *)(src + i + 576), _MM_HINT_T0);
		_mm256_stream_si256((__m256i *)(dst + i), a);
		_mm256_stream_si256((__m256i *)(dst + i + 32), b);
		_mm256_stream_si256((__m256i *)(dst + i + 64), c);
		_mm256_stream_si256((__m256i *)(dst + i + 96), d);
	}
	memcpy(dst + i, src + i, n - i);
}

__attribute__((target("avx512f"))) static void stream_avx512(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t i = head(dst, src, n, 64);
	for (; i + 128 <= n; i += 128) {
		const __m512i a = _mm512_loadu_si512(src + i), b = _mm512_loadu_si512(src + i + 64);
		_mm_prefetch((const char *)(src + i + 512), _MM_HINT_T0);
		_mm_prefetch((const char *)(src + i + 576), _MM_HINT_T0);
		_mm512_stream_si512((__m512i *)(dst + i), a);
		_mm512_stream_si512((__m512i *)(dst + i + 64), b);
	}
	memcpy(dst + i, src + i, n - i);
}
#endif

void sk_gather(int isa, uint8_t *dst, const uintptr_t *src, int n, size_t row_bytes)
{
#if defined(__x86_64__)
	if (isa != SK_SCALAR && row_bytes >= STREAM_BYTES) {
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
	(void)isa;
	for (int i = 0; i < n; i++, dst += row_bytes)
		memcpy(dst, (const void *)src[i], row_bytes);
}
