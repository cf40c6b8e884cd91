// The rate of gathering records from memory into batches: random records of a large array, copied into a ring of
// slots.
//
//   copy ROUNDS RECORD_BYTES TOTAL_BYTES THREADS BATCH
//
// memcpy is the C library's; stream writes past the caches (non-temporal), which is the ceiling for large records. One
// line of JSON per round and variant, GB/s of payload.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { SLOTS = 6 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if defined(__x86_64__)
// dst is 64-byte aligned and n a multiple of 64.
__attribute__((target("avx512f"))) static void stream512(uint8_t *dst, const uint8_t *src, size_t n)
{
	for (size_t i = 0; i < n; i += 256) {
		for (size_t k = i; k < i + 256 && k < n; k += 64) {
			_mm_prefetch((const char *)src + k + 2048, _MM_HINT_T0);
			_mm512_stream_si512((__m512i *)(void *)(dst + k), _mm512_loadu_si512(src + k));
		}
	}
}

__attribute__((target("avx2"))) static void stream256(uint8_t *dst, const uint8_t *src, size_t n)
{
	for (size_t i = 0; i < n; i += 64) {
		_mm_prefetch((const char *)src + i + 2048, _MM_HINT_T0);
		__m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(src + i));
		__m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(src + i + 32));
		_mm256_stream_si256((__m256i *)(void *)(dst + i), a);
		_mm256_stream_si256((__m256i *)(void *)(dst + i + 32), b);
	}
}
#endif

static void stream(uint8_t *dst, const uint8_t *src, size_t n)
{
#if defined(__x86_64__)
	if (n % 64 == 0) {
		if (__builtin_cpu_supports("avx512f"))
			stream512(dst, src, n);
		else
			stream256(dst, src, n);
		_mm_sfence();
		return;
	}
#endif
	memcpy(dst, src, n);
}

typedef struct {
	uint8_t *ring;
	const uint8_t *from;
	size_t record, records, batch, batches;
	uint64_t seed;
	int streaming;
} work;

static void *gather(void *p)
{
	work *w = p;
	uint64_t s = w->seed;
	for (size_t b = 0; b < w->batches; b++) {
		uint8_t *dst = w->ring + (b % SLOTS) * w->batch * w->record;
		for (size_t i = 0; i < w->batch; i++) {
			s ^= s << 13, s ^= s >> 7, s ^= s << 17;
			const uint8_t *src = w->from + (s % w->records) * w->record;
			if (w->streaming)
				stream(dst + i * w->record, src, w->record);
			else
				memcpy(dst + i * w->record, src, w->record);
		}
	}
	return NULL;
}

static uint8_t *take(size_t n)
{
	uint8_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		fprintf(stderr, "ceiling: copy: no memory for %zu bytes\n", n);
		exit(1);
	}
	madvise(p, n, MADV_HUGEPAGE);
	memset(p, 1, n);
	return p;
}

int main(int argc, char **argv)
{
	if (argc < 6) {
		fprintf(stderr, "usage: copy ROUNDS RECORD_BYTES TOTAL_BYTES THREADS BATCH\n");
		return 1;
	}
	int rounds = atoi(argv[1]), threads = atoi(argv[4]);
	size_t record = (size_t)atoll(argv[2]), total = (size_t)atoll(argv[3]), batch = (size_t)atoll(argv[5]);
	uint8_t *from = take(total);
	work jobs[64];
	pthread_t ids[64];
	if (threads < 1 || threads > 64)
		return 1;
	for (int t = 0; t < threads; t++)
		jobs[t] = (work){take(SLOTS * batch * record), from, record, total / record, batch, 0, (uint64_t)t + 99, 0};
	for (int round = 0; round < rounds; round++) {
		for (int streaming = 0; streaming < 2; streaming++) {
			size_t batches = 1 + (size_t)4000000000 / (record * batch) / (size_t)threads;
			double start = now();
			for (int t = 0; t < threads; t++) {
				jobs[t].batches = batches;
				jobs[t].streaming = streaming;
				pthread_create(&ids[t], NULL, gather, &jobs[t]);
			}
			for (int t = 0; t < threads; t++)
				pthread_join(ids[t], NULL);
			double bytes = (double)batches * (double)batch * (double)record * threads;
			printf("{\"variant\": \"%s\", \"round\": %d, \"threads\": %d, \"record_bytes\": %zu, \"gb_s\": %.3f}\n",
			       streaming ? "stream" : "memcpy", round, threads, record, bytes / (now() - start) / 1e9);
			fflush(stdout);
		}
	}
	return 0;
}
