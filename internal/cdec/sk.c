// The decoder object: life, scratch memory, errors.
#include "sk.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#include <sys/resource.h>
#endif

// Scratch buffers above this size are released after the run that needed them, so that one huge image does not keep
// its memory allocated.
#define SK_KEEP_BYTES ((size_t)8 << 20)

static sk_buf *const *buffers(sk_dec *d, sk_buf *list[8])
{
	sk_buf *all[8] = {&d->band, &d->taps_x, &d->taps_y, &d->table, &d->ring, &d->row, &d->tail, &d->lookup};
	memcpy(list, all, sizeof all);
	return list;
}

sk_dec *sk_dec_new(void)
{
	sk_dec *d = calloc(1, sizeof *d);
	if (d == NULL)
		return NULL;
	d->max_pixels = SK_MAX_PIXELS;
	if (sk_jpeg_init(d) != SK_OK) {
		free(d);
		return NULL;
	}
	return d;
}

void sk_dec_free(sk_dec *d)
{
	sk_buf *list[8];
	if (d == NULL)
		return;
	jpeg_destroy_decompress(&d->ci);
	if (d->dct_free != NULL)
		d->dct_free(d->dct);
	buffers(d, list);
	for (int i = 0; i < 8; i++)
		sk_buf_free(list[i]);
	free(d);
}

void sk_set_max_pixels(sk_dec *d, int64_t n) { d->max_pixels = n < SK_MAX_PIXELS ? n : SK_MAX_PIXELS; }

void sk_set_max_memory(sk_dec *d, int64_t n)
{
	d->max_memory = n;
	if (d->ci.mem != NULL)
		d->ci.mem->max_memory_to_use = (long)n;
}

#ifdef __GLIBC__
// By default most threads get a heap of their own, which takes 64 MiB of address space, used or not. Under a limit of
// address space (ulimit -v) heaps may take a sixteenth of it. This runs before Go starts threads, since a thread keeps
// the heap that it has.
__attribute__((constructor)) static void limit_heaps(void)
{
	struct rlimit space;
	if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY)
		return;
	rlim_t heaps = space.rlim_cur >> 30;
	(void)mallopt(M_ARENA_MAX, heaps < 1 ? 1 : heaps > 1024 ? 1024 : (int)heaps);
}
#endif

int sk_return_memory(void)
{
#ifdef __GLIBC__
	// By default the first large free() makes the library keep up to twice as
	// much, in each thread.
	return mallopt(M_MMAP_THRESHOLD, 4 << 20) && mallopt(M_TRIM_THRESHOLD, 4 << 20);
#else
	return 0;
#endif
}

void sk_set_plain(sk_dec *d, int plain) { d->always_plain = plain; }

int64_t sk_retries(const sk_dec *d) { return d->retries; }

void sk_trim(sk_dec *d)
{
	sk_buf *list[8];
	buffers(d, list);
	for (int i = 0; i < 8; i++)
		if (list[i]->cap > SK_KEEP_BYTES)
			sk_buf_free(list[i]);
}

void *sk_need(sk_buf *b, size_t size)
{
	if (size > b->cap) {
		sk_buf_free(b);
		size_t cap = (size + size / 8 + 63) & ~(size_t)63;
		b->p = aligned_alloc(64, cap);
		if (b->p == NULL)
			return NULL;
		b->cap = cap;
	}
	return b->p;
}

void sk_buf_free(sk_buf *b)
{
	free(b->p);
	b->p = NULL;
	b->cap = 0;
}

int sk_fail(sk_dec *d, int code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(d->message, sizeof d->message, format, args);
	va_end(args);
	return code;
}

int sk_check_size(sk_dec *d, int64_t w, int64_t h)
{
	if (w < 1 || h < 1)
		return sk_fail(d, SK_CORRUPT, "the image is %lld x %lld pixels", (long long)w, (long long)h);
	if (w > SK_MAX_SIDE || h > SK_MAX_SIDE)
		return sk_fail(d, SK_LIMIT, "the image is %lld x %lld pixels; at most %d per side are supported", (long long)w,
		               (long long)h, SK_MAX_SIDE);
	if (w * h > d->max_pixels)
		return sk_fail(d, SK_LIMIT, "the image is %lld x %lld pixels; the limit is %lld in all", (long long)w,
		               (long long)h, (long long)d->max_pixels);
	return SK_OK;
}

int sk_check_box(sk_dec *d, int w, int h, int x, int y, int bw, int bh)
{
	if (x < 0 || y < 0 || bw < 1 || bh < 1 || x > w - bw || y > h - bh)
		return sk_fail(d, SK_BAD_ARGUMENT, "the box %dx%d at (%d,%d) is not inside the image of %dx%d pixels", bw, bh,
		               x, y, w, h);
	return SK_OK;
}

// ---- memory sink

static int memory_rows(sk_sink *s, const uint8_t *px0, ptrdiff_t stride, int n)
{
	sk_memory_sink *m = (sk_memory_sink *)s;
	for (int i = 0; i < n; i++, m->dst += m->stride)
		memcpy(m->dst, px0 + i * stride, (size_t)m->w * (size_t)s->px);
	return SK_OK;
}

void sk_memory_sink_init(sk_memory_sink *s, uint8_t *dst, ptrdiff_t stride, int w)
{
	s->sink.rows = memory_rows;
	s->sink.px = 0;
	s->dst = dst;
	s->stride = stride;
	s->w = w;
}
