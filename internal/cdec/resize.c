// The row sink that resizes and stores, and the scalar kernels: the reference
// that the others must equal.
#include "resize.h"

#include <math.h>
#include <string.h>

enum { MODE_COPY, MODE_NEAREST, MODE_RING, MODE_TALL };

// ---- finished rows

// The destination of output row out_row: the batch, or r->row if the row must be converted first.
static uint8_t *row_target(const sk_resizer *r)
{
	int y = r->g->flip_v ? r->h - 1 - r->out_row : r->out_row;
	return r->direct ? r->dst + (size_t)y * (size_t)r->w * 3 : r->row;
}

static void row_finished(sk_resizer *r, const uint8_t *rgb)
{
	int y = r->g->flip_v ? r->h - 1 - r->out_row : r->out_row;
	if (!r->direct)
		r->k->store_row(r->st, rgb, r->w, r->h, y, r->dst);
	r->out_row++;
}

// ---- rows coming in

static void copy_row(sk_resizer *r, const uint8_t *src)
{
	if (!r->direct && r->sink.px == 3 && !r->g->flip_h) {
		row_finished(r, src);
		return;
	}
	uint8_t *to = row_target(r);
	r->k->pack_row(src, r->sink.px, r->w, r->g->flip_h, to);
	row_finished(r, to);
}

static void nearest_row(sk_resizer *r, const uint8_t *src)
{
	const int px = r->sink.px;
	int made = 0;
	// An input row may be the source of several output rows, or of none.
	for (uint8_t *to; r->out_row < r->h && r->ay.start[r->out_row] == r->in_row; row_finished(r, to)) {
		to = row_target(r);
		if (made && !r->direct)
			continue; // r->row still holds it
		made = 1;
		for (int i = 0; i < r->w; i++) {
			const uint8_t *p = src + (size_t)r->ax.start[i] * (size_t)px;
			to[3 * i] = p[0];
			to[3 * i + 1] = px == 1 ? p[0] : p[1];
			to[3 * i + 2] = px == 1 ? p[0] : p[2];
		}
	}
}

// n rows, at most SK_ROWS: the ring has space for them in addition to the rows that the next output row needs.
static void ring_rows(sk_resizer *r, const uint8_t *src, ptrdiff_t stride, int n)
{
	const sk_axis *ay = &r->ay;
	const int16_t *rows[SK_RING_TAPS + 2];
	int16_t *mid[SK_ROWS];
	for (int i = 0; i < n; i++)
		mid[i] = r->ring + ((r->in_row + i) & r->ring_mask) * r->mid_stride;
	r->k->h_rows(r, src, stride, n, mid);
	r->in_row += n;
	while (r->out_row < r->h && ay->start[r->out_row] + ay->count[r->out_row] <= r->in_row) {
		const int taps = ay->count[r->out_row], first = ay->start[r->out_row];
		for (int t = 0; t < taps; t++)
			rows[t] = r->ring + ((first + t) & r->ring_mask) * r->mid_stride;
		rows[taps] = rows[0]; // partner of the last tap when their number is odd; its tap is 0
		uint8_t *to = row_target(r);
		r->k->v_row(r, rows, ay->k + (size_t)r->out_row * (size_t)ay->kstride, taps, to);
		row_finished(r, to);
	}
}

static void tall_row(sk_resizer *r, const uint8_t *src)
{
	const sk_axis *ay = &r->ay;
	const int n = r->w * 3, shift = r->mid_bits + ay->q;
	r->k->h_rows(r, src, 0, 1, &r->ring);
	for (int y = r->out_row; y < r->h && ay->start[y] <= r->in_row; y++) {
		int32_t *restrict sums = r->sums + (size_t)(y & (SK_OPEN - 1)) * (size_t)r->mid_stride;
		const int16_t *restrict mid = r->ring;
		const int t = r->in_row - ay->start[y];
		const int32_t k = ay->k[(size_t)y * (size_t)ay->kstride + (size_t)t];
		if (t == 0)
			for (int i = 0; i < n; i++)
				sums[i] = 1 << (shift - 1);
		for (int i = 0; i < n; i++)
			sums[i] += mid[i] * k;
		if (t == ay->count[y] - 1) { // y == r->out_row: ends come in order
			uint8_t *to = row_target(r);
			for (int i = 0; i < n; i++) {
				int32_t v = sums[i] >> shift;
				to[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
			}
			row_finished(r, to);
		}
	}
}

static int make_table(sk_resizer *r)
{
	size_t size = r->k->h_table(r, NULL);
	r->table = sk_need(&r->d->table, size + 64);
	if (r->table == NULL)
		return sk_fail(r->d, SK_NO_MEMORY, "no memory for a resize table of %zu bytes", size);
	r->k->h_table(r, r->table);
	r->table_px = r->sink.px;
	return SK_OK;
}

static int resizer_rows(sk_sink *s, const uint8_t *px0, ptrdiff_t stride, int n)
{
	sk_resizer *r = (sk_resizer *)s;
	if (r->mode >= MODE_RING && r->table_px != s->px) {
		int code = make_table(r);
		if (code != SK_OK)
			return code;
	}
	if (n > r->bh - r->in_row)
		n = r->bh - r->in_row;
	for (int step; n > 0; n -= step, px0 += step * stride) {
		step = 1;
		switch (r->mode) {
		case MODE_COPY:
			copy_row(r, px0);
			r->in_row++;
			break;
		case MODE_NEAREST:
			nearest_row(r, px0);
			r->in_row++;
			break;
		case MODE_RING:
			step = n < SK_ROWS ? n : SK_ROWS;
			ring_rows(r, px0, stride, step);
			break;
		default: tall_row(r, px0); r->in_row++;
		}
	}
	return SK_OK;
}

int sk_resizer_done(sk_resizer *r)
{
	if (r->out_row != r->h)
		return sk_fail(r->d, SK_BAD_ARGUMENT, "%d of %d rows were made", r->out_row, r->h);
	return SK_OK;
}

// ---- set-up

int sk_elem_size(int dtype) { return dtype == SK_U8 ? 1 : dtype == SK_F32 ? 4 : 2; }

int sk_check_job(sk_dec *d, const sk_job *job)
{
	const sk_geom *g = &job->geom;
	const sk_store *st = &job->store;
	if (g->box_w < 1 || g->box_h < 1 || g->box_w > SK_MAX_SIDE || g->box_h > SK_MAX_SIDE || g->box_x < 0 ||
	    g->box_y < 0)
		return sk_fail(d, SK_BAD_ARGUMENT, "the box %dx%d at (%d,%d) makes no sense", g->box_w, g->box_h, g->box_x,
		               g->box_y);
	if (g->resize_w < 1 || g->resize_h < 1 || g->resize_w > SK_MAX_SIDE || g->resize_h > SK_MAX_SIDE)
		return sk_fail(d, SK_BAD_ARGUMENT, "a resize to %dx%d: sides are 1 to %d", g->resize_w, g->resize_h,
		               SK_MAX_SIDE);
	if (g->win_w < 1 || g->win_h < 1 || g->win_x < 0 || g->win_y < 0 || g->win_x > g->resize_w - g->win_w ||
	    g->win_y > g->resize_h - g->win_h)
		return sk_fail(d, SK_BAD_ARGUMENT, "the window %dx%d at (%d,%d) is not inside the resized %dx%d", g->win_w,
		               g->win_h, g->win_x, g->win_y, g->resize_w, g->resize_h);
	if (g->filter < SK_BILINEAR || g->filter > SK_NEAREST)
		return sk_fail(d, SK_BAD_ARGUMENT, "filter %d is not known", g->filter);
	const int any = job->format == SK_FORMAT_PIXELS;
	if ((st->dtype < SK_U8 || st->dtype > SK_F32) && !(any && st->dtype == SK_U16))
		return sk_fail(d, SK_BAD_ARGUMENT, "element type %d is not one of pixels", st->dtype);
	if ((st->layout != SK_NHWC && st->layout != SK_NCHW) || st->channels < 1 || st->channels > 4 ||
	    (!any && st->channels % 2 == 0))
		return sk_fail(d, SK_BAD_ARGUMENT, "layout %d with %d channels is not supported", st->layout, st->channels);
	const size_t need = (size_t)g->win_w * (size_t)g->win_h * (size_t)st->channels * (size_t)sk_elem_size(st->dtype);
	if (job->dst_len < need)
		return sk_fail(d, SK_BAD_ARGUMENT, "the output of %dx%d pixels needs %zu bytes, not %zu", g->win_w, g->win_h,
		               need, job->dst_len);
	return SK_OK;
}

static const sk_kernels *kernels_in_use(void)
{
	switch (sk_set(SK_KERNEL_RESIZE)) {
#if defined(__x86_64__)
	case SK_AVX512: return &sk_kernels_avx512;
	case SK_AVX2: return &sk_kernels_avx2;
#endif
	default: return &sk_kernels_scalar;
	}
}

int sk_resizer_init(sk_resizer *r, sk_dec *d, const sk_job *job)
{
	const sk_geom *g = &job->geom;
	int code;
	memset(r, 0, sizeof *r);
	r->sink.rows = resizer_rows;
	r->d = d;
	r->k = kernels_in_use();
	r->g = g;
	r->st = &job->store;
	r->dst = (uint8_t *)job->dst;
	r->w = g->win_w;
	r->h = g->win_h;
	r->direct = job->store.layout == SK_NHWC && job->store.channels == 3 && sk_store_is_plain(&job->store);
	r->row = sk_need(&d->row, (size_t)r->w * 3 + 4 * SK_PAD);
	if (r->row == NULL)
		return sk_fail(d, SK_NO_MEMORY, "no memory for a row of %d pixels", r->w);

	if (g->resize_w == g->box_w && g->resize_h == g->box_h) {
		r->mode = MODE_COPY;
		r->x = g->box_x + g->win_x;
		r->y = g->box_y + g->win_y;
		r->bw = r->w;
		r->bh = r->h;
		return SK_OK;
	}

	// The vertical taps come first: how wide they are decides the precision
	// between the passes.
	code = sk_taps(d, &d->taps_y, &r->ay, g->filter, g->box_h, g->resize_h, g->win_y, r->h, 0, SK_SUM_BITS - 3);
	if (code == SK_OK)
		code = sk_taps(d, &d->taps_x, &r->ax, g->filter, g->box_w, g->resize_w, g->win_x, r->w, g->flip_h, SK_SUM_BITS);
	if (code != SK_OK)
		return code;
	r->x = g->box_x + r->ax.lo;
	r->y = g->box_y + r->ay.lo;
	r->bw = r->ax.hi - r->ax.lo;
	r->bh = r->ay.hi - r->ay.lo;
	if (g->filter == SK_NEAREST) {
		r->mode = MODE_NEAREST;
		return SK_OK;
	}
	r->mid_bits = SK_SUM_BITS - r->ay.q < SK_MID_BITS ? SK_SUM_BITS - r->ay.q : SK_MID_BITS;
	r->mid_stride = (r->w * 3 + SK_MID_PAD + 63) & ~63;
	size_t rows = 1, sums = 0;
	if (r->ay.max_count > SK_RING_TAPS) {
		r->mode = MODE_TALL;
		sums = SK_OPEN;
	} else {
		r->mode = MODE_RING;
		while (rows < (size_t)r->ay.max_count + SK_ROWS)
			rows *= 2;
	}
	r->ring_mask = (int)rows - 1;
	const size_t row_bytes = (size_t)r->mid_stride * sizeof(int16_t);
	uint8_t *p = sk_need(&d->ring, row_bytes * (rows + 2 * sums));
	if (p == NULL)
		return sk_fail(d, SK_NO_MEMORY, "no memory for %zu resized rows of %d pixels", rows, r->w);
	r->ring = (int16_t *)p;
	r->sums = (int32_t *)(p + row_bytes * rows);
	return SK_OK;
}

// ---- scalar kernels

static size_t h_table_scalar(const sk_resizer *r, void *table)
{
	(void)r;
	(void)table;
	return 0; // works on the axis as it is
}

// Bicubic overshoots; Pillow cuts that off after each pass.
static int16_t clamp(int32_t v, int top) { return (int16_t)(v < 0 ? 0 : v > top ? top : v); }

static void h_row_scalar(const sk_resizer *r, const uint8_t *src, int16_t *mid)
{
	const sk_axis *a = &r->ax;
	const int px = r->sink.px, shift = a->q - r->mid_bits, top = 255 << r->mid_bits;
	const int g = px > 1, b = px > 1 ? 2 : 0;
	for (int i = 0; i < a->n; i++) {
		const uint8_t *p = src + (size_t)a->start[i] * (size_t)px;
		const int16_t *k = a->k + (size_t)i * (size_t)a->kstride;
		int32_t s0 = 1 << (shift - 1), s1 = s0, s2 = s0;
		for (int t = 0; t < a->count[i]; t++, p += px) {
			s0 += p[0] * k[t];
			s1 += p[g] * k[t];
			s2 += p[b] * k[t];
		}
		mid[3 * i] = clamp(s0 >> shift, top);
		mid[3 * i + 1] = clamp(s1 >> shift, top);
		mid[3 * i + 2] = clamp(s2 >> shift, top);
	}
}

static void h_rows_scalar(const sk_resizer *r, const uint8_t *src, ptrdiff_t stride, int n, int16_t *const *mid)
{
	for (int i = 0; i < n; i++)
		h_row_scalar(r, src + i * stride, mid[i]);
}

static void v_row_scalar(const sk_resizer *r, const int16_t *const *rows, const int16_t *k, int n, uint8_t *dst)
{
	const int shift = r->mid_bits + r->ay.q;
	for (int i = 0; i < r->w * 3; i++) {
		int32_t s = 1 << (shift - 1);
		for (int t = 0; t < n; t++)
			s += rows[t][i] * k[t];
		s >>= shift;
		dst[i] = (uint8_t)(s < 0 ? 0 : s > 255 ? 255 : s);
	}
}

void sk_pack_row_scalar(const uint8_t *src, int px, int w, int flip, uint8_t *dst)
{
	const int g = px > 1, b = px > 1 ? 2 : 0;
	ptrdiff_t step = px;
	if (px == 3 && !flip) {
		memcpy(dst, src, (size_t)w * 3);
		return;
	}
	if (flip) {
		src += (ptrdiff_t)(w - 1) * px;
		step = -px;
	}
	for (int i = 0; i < w; i++, src += step, dst += 3) {
		dst[0] = src[0];
		dst[1] = src[g];
		dst[2] = src[b];
	}
}

const sk_kernels sk_kernels_scalar = {h_table_scalar, h_rows_scalar, v_row_scalar, sk_pack_row_scalar,
                                      sk_store_row_scalar};
