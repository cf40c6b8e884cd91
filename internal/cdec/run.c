// Jobs from Go, several in one call.
#include "huffman.h"
#include "pixels.h"
#include "resize.h"

#include <string.h>

// A raw image: rows of px bytes per pixel in memory.
static int raw_box(sk_dec *d, const sk_job *job, int px, int x, int y, int w, int h, sk_sink *sink)
{
	int code = sk_check_size(d, job->width, job->height);
	if (code == SK_OK)
		code = sk_check_box(d, job->width, job->height, x, y, w, h);
	if (code != SK_OK)
		return code;
	const size_t row = (size_t)job->width * (size_t)px;
	if (job->stride < (int64_t)row || job->stride > INT32_MAX)
		return sk_fail(d, SK_BAD_ARGUMENT, "rows of %zu bytes with a stride of %lld", row, (long long)job->stride);
	const size_t stride = (size_t)job->stride, need = stride * (size_t)(job->height - 1) + row;
	if (job->src_len < need)
		return sk_fail(d, SK_CORRUPT, "a raw image of %dx%dx%d needs %zu bytes, not %zu", job->width, job->height, px,
		               need, job->src_len);
	sink->px = px;
	// Rows whose padding would extend past the source are copied first.
	const size_t bytes = (size_t)w * (size_t)px;
	size_t at = (size_t)y * stride + (size_t)x * (size_t)px;
	int whole = h;
	while (whole > 0 && at + (size_t)(whole - 1) * stride + bytes + SK_PAD > job->src_len)
		whole--;
	code = sink->rows(sink, (const uint8_t *)job->src + at, (ptrdiff_t)stride, whole);
	if (code != SK_OK || whole == h)
		return code;
	uint8_t *copy = sk_need(&d->tail, bytes + SK_PAD);
	if (copy == NULL)
		return sk_fail(d, SK_NO_MEMORY, "no memory for a row of %zu bytes", bytes);
	for (int i = whole; i < h; i++) {
		memcpy(copy, (const uint8_t *)job->src + at + (size_t)i * stride, bytes);
		code = sink->rows(sink, copy, 0, 1);
		if (code != SK_OK)
			return code;
	}
	return SK_OK;
}

static int run_one(sk_dec *d, const sk_job *job)
{
	const uint8_t *src = (const uint8_t *)job->src;
	sk_resizer r;
	int code = sk_check_job(d, job);
	if (code != SK_OK)
		return code;
	if (job->format == SK_FORMAT_PIXELS)
		return sk_pixels_run(d, job);
	code = sk_resizer_init(&r, d, job);
	if (code != SK_OK)
		return code;
	switch (job->format) {
	case SK_FORMAT_JPEG:
		d->plain = d->always_plain;
		code = sk_jpeg_decode_box(d, src, job->src_len, r.x, r.y, r.bw, r.bh, &r.sink);
		if (code == SK_RETRY) {
			d->plain = 1;
			d->retries++;
			code = sk_resizer_init(&r, d, job);
			if (code == SK_OK)
				code = sk_jpeg_decode_box(d, src, job->src_len, r.x, r.y, r.bw, r.bh, &r.sink);
		}
		break;
	case SK_FORMAT_DCT: code = sk_dct_decode_box(d, src, job->src_len, r.x, r.y, r.bw, r.bh, &r.sink); break;
	case SK_FORMAT_RGB: code = raw_box(d, job, 3, r.x, r.y, r.bw, r.bh, &r.sink); break;
	case SK_FORMAT_GRAY: code = raw_box(d, job, 1, r.x, r.y, r.bw, r.bh, &r.sink); break;
	case SK_FORMAT_RGBX: code = raw_box(d, job, 4, r.x, r.y, r.bw, r.bh, &r.sink); break;
	default: return sk_fail(d, SK_BAD_ARGUMENT, "format %d is not known", job->format);
	}
	return code == SK_OK ? sk_resizer_done(&r) : code;
}

// run_guarded is run_one for a source that may be a mapped file.
static int run_guarded(sk_dec *d, const sk_job *job)
{
	sk_guard g;
	if (sigsetjmp(g.back, 0) != 0) {
		sk_jpeg_failed(d); // aborts the image
		return sk_fail(d, SK_UNREADABLE,
		               "a page of its file cannot be read: the file has become shorter, or the disk has failed");
	}
	sk_guard_on(&g);
	int code = run_one(d, job);
	sk_guard_off();
	return code;
}

void sk_run(sk_dec *d, sk_job *jobs, int n)
{
	for (int i = 0; i < n; i++) {
		jobs[i].code = run_guarded(d, &jobs[i]);
		if (jobs[i].code != SK_OK)
			memcpy(jobs[i].message, d->message, SK_MESSAGE);
	}
	sk_trim(d);
}
