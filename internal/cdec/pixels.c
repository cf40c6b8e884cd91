// Jobs of SK_FORMAT_PIXELS, and their scalar loops: the reference.
#define TARGET
#define FN(name) name##_scalar
#include "pixels_kernels.h"

typedef struct {
	sk_dec *d;
	const sk_pixel_kernels *k;
	const sk_job *job;
	const sk_geom *g;
	const sk_store *st;
	int elem, size, ch;  // of a pixel: type and bytes of an element, channels
	int w, h;            // of the output
	int out_row;         // rows that are finished, before vertical flip
	int plain;           // pixels are stored as they are
	float top;           // largest value of an integer, 0 for floats
	float *values;       // one finished row
	float *scale, *bias; // by element of a row
	uint8_t *pixels;     // one finished row in elements of their own type
} state;

// Elements of a row without gaps, or spread over the planes of NCHW.
static void put_plain(const state *s, const uint8_t *src, int y)
{
	uint8_t *dst = (uint8_t *)s->job->dst;
	const size_t size = (size_t)s->size, w = (size_t)s->w, ch = (size_t)s->ch, row = (size_t)y * w;
	if (s->st->layout == SK_NHWC) {
		memcpy(dst + row * ch * size, src, w * ch * size);
		return;
	}
	for (size_t c = 0; c < ch; c++) {
		uint8_t *to = dst + (c * w * (size_t)s->h + row) * size;
		const uint8_t *from = src + c * size;
		switch (size) {
		case 1:
			for (size_t i = 0; i < w; i++)
				to[i] = from[i * ch];
			break;
		case 2:
			for (size_t i = 0; i < w; i++)
				((any_u16 *)to)[i] = ((const any_u16 *)from)[i * ch];
			break;
		default: // as integers: not even a NaN changes
			for (size_t i = 0; i < w; i++)
				memcpy(to + 4 * i, from + 4 * i * ch, 4);
		}
	}
}

// Changes values.
static void put_values(const state *s, float *values, int y)
{
	uint8_t *dst = (uint8_t *)s->job->dst;
	const size_t size = (size_t)sk_elem_size(s->st->dtype), w = (size_t)s->w, ch = (size_t)s->ch, row = (size_t)y * w;
	s->k->affine(values, s->scale, s->bias, w * ch);
	if (s->st->layout == SK_NHWC) {
		s->k->put(s->st->dtype, values, 1, dst + row * ch * size, w * ch);
		return;
	}
	for (size_t c = 0; c < ch; c++)
		s->k->put(s->st->dtype, values + c, ch, dst + (c * w * (size_t)s->h + row) * size, w);
}

static int next_row(state *s)
{
	const int y = s->out_row++;
	return s->g->flip_v ? s->h - 1 - y : y;
}

// A finished row of pixels in their own type.
static void finish_pixels(state *s, const uint8_t *src)
{
	const int y = next_row(s);
	if (s->plain) {
		put_plain(s, src, y);
		return;
	}
	s->k->widen(s->elem, src, s->values, (size_t)s->w * (size_t)s->ch);
	put_values(s, s->values, y);
}

// The finished row s->values, out of a filter.
static void finish_values(state *s)
{
	const int y = next_row(s);
	const size_t n = (size_t)s->w * (size_t)s->ch;
	if (s->plain) {
		s->k->narrow(s->elem, s->values, s->pixels, n);
		put_plain(s, s->pixels, y);
		return;
	}
	if (s->top > 0)
		s->k->round(s->values, n, s->top);
	put_values(s, s->values, y);
}

static void pick(uint8_t *dst, const uint8_t *src, const int32_t *start, int w, int px)
{
	// A size that the compiler knows becomes one load and one store.
#define PICK(n)                                                         \
	case n:                                                             \
		for (int i = 0; i < w; i++)                                     \
			memcpy(dst + (size_t)i * n, src + (size_t)start[i] * n, n); \
		break
	switch (px) {
		PICK(1);
		PICK(2);
		PICK(3);
		PICK(4);
		PICK(6);
		PICK(8);
		PICK(12);
		PICK(16);
	}
#undef PICK
}

// Pixels that are only moved: a cut, perhaps a resize to the nearest.
static int run_nearest(state *s, const uint8_t *box, ptrdiff_t stride)
{
	const sk_geom *g = s->g;
	const int px = s->size * s->ch;
	const int resized = g->resize_w != g->box_w || g->resize_h != g->box_h;
	sk_axis ax, ay;
	int code = sk_taps_float(s->d, &s->d->taps_y, &ay, SK_NEAREST, g->box_h, g->resize_h, g->win_y, s->h, 0);
	if (code == SK_OK)
		code = sk_taps_float(s->d, &s->d->taps_x, &ax, SK_NEAREST, g->box_w, g->resize_w, g->win_x, s->w, g->flip_h);
	if (code != SK_OK)
		return code;
	box += ay.lo * stride + (ptrdiff_t)ax.lo * px;
	const int whole = !resized && !g->flip_h;
	for (int y = 0, made = -1; y < s->h; y++) {
		const uint8_t *src = box + ay.start[y] * stride;
		if (whole) {
			finish_pixels(s, src);
			continue;
		}
		if (made != ay.start[y])
			pick(s->pixels, src, ax.start, s->w, px);
		made = ay.start[y];
		finish_pixels(s, s->pixels);
	}
	return SK_OK;
}

// Rows arrive from the top. Each is resized horizontally. A ring keeps as many of them as an output row needs. If
// that is too many, the sums of the unfinished output rows are kept instead.
static int run_filter(state *s, const uint8_t *box, ptrdiff_t stride)
{
	const sk_geom *g = s->g;
	sk_dec *d = s->d;
	sk_axis ax, ay;
	int code = sk_taps_float(d, &d->taps_y, &ay, g->filter, g->box_h, g->resize_h, g->win_y, s->h, 0);
	if (code == SK_OK)
		code = sk_taps_float(d, &d->taps_x, &ax, g->filter, g->box_w, g->resize_w, g->win_x, s->w, g->flip_h);
	if (code != SK_OK)
		return code;
	const size_t n = (size_t)s->w * (size_t)s->ch, stored = (n + 15) & ~(size_t)15;
	const size_t in = (size_t)(ax.hi - ax.lo) * (size_t)s->ch;
	const int tall = ay.max_count > SK_RING_TAPS;
	const size_t rows = tall ? SK_OPEN + 1 : (size_t)ay.max_count;
	float *wide = sk_need(&d->row, in * sizeof(float)), *ring = sk_need(&d->ring, rows * stored * sizeof(float));
	if (wide == NULL || ring == NULL)
		return sk_fail(d, SK_NO_MEMORY, "no memory for %zu resized rows of %d pixels", rows, s->w);
	// Bicubic overshoots. Of u8, Pillow and torchvision cut that off after each
	// pass, of u16 torchvision only at the end.
	const float top = g->filter == SK_BICUBIC && s->elem == SK_U8 ? s->top : 0;
	box += ay.lo * stride + (ptrdiff_t)ax.lo * s->size * s->ch;
	for (int y = 0; y < ay.hi - ay.lo && s->out_row < s->h; y++, box += stride) {
		s->k->widen(s->elem, box, wide, in);
		float *mid = ring + (tall ? SK_OPEN : (size_t)y % rows) * stored;
		s->k->h_row(&ax, s->ch, wide, mid, top);
		for (int o = s->out_row; o < s->h && ay.start[o] <= y; o++) {
			const float *k = ay.f + (size_t)o * (size_t)ay.kstride;
			const int t = y - ay.start[o], last = t == ay.count[o] - 1;
			float *sum = s->values;
			if (tall) {
				sum = ring + ((size_t)o % SK_OPEN) * stored;
				(t == 0 ? s->k->v_first : s->k->v_next)(sum, mid, k[t], n);
			} else if (last) {
				for (int i = 0; i <= t; i++)
					(i == 0 ? s->k->v_first : s->k->v_next)(sum, ring + ((size_t)(ay.start[o] + i) % rows) * stored,
					                                        k[i], n);
			}
			if (!last)
				continue;
			if (tall)
				memcpy(s->values, sum, n * sizeof(float));
			finish_values(s); // o was s->out_row: ends come in order
		}
	}
	if (s->out_row != s->h)
		return sk_fail(d, SK_BAD_ARGUMENT, "%d of %d rows were made", s->out_row, s->h);
	return SK_OK;
}

static int check_pixels(sk_dec *d, const sk_job *job)
{
	const sk_geom *g = &job->geom;
	if ((job->elem != SK_U8 && job->elem != SK_U16 && job->elem != SK_F32) || job->channels < 1 || job->channels > 4)
		return sk_fail(d, SK_BAD_ARGUMENT, "pixels of type %d with %d channels", job->elem, job->channels);
	if (job->store.channels != job->channels)
		return sk_fail(d, SK_BAD_ARGUMENT, "%d channels cannot be stored as %d", job->channels, job->store.channels);
	int code = sk_check_size(d, job->width, job->height);
	if (code == SK_OK)
		code = sk_check_box(d, job->width, job->height, g->box_x, g->box_y, g->box_w, g->box_h);
	if (code != SK_OK)
		return code;
	const size_t px = (size_t)(sk_elem_size(job->elem) * job->channels), row = (size_t)job->width * px;
	if (job->stride < (int64_t)row || job->stride > INT32_MAX)
		return sk_fail(d, SK_BAD_ARGUMENT, "rows of %zu bytes with a stride of %lld", row, (long long)job->stride);
	const size_t need = (size_t)job->stride * (size_t)(job->height - 1) + row;
	if (job->src_len < need)
		return sk_fail(d, SK_CORRUPT, "a raw image of %dx%dx%d needs %zu bytes, not %zu", job->width, job->height,
		               job->channels, need, job->src_len);
	return SK_OK;
}

int sk_pixels_run(sk_dec *d, const sk_job *job)
{
	const sk_geom *g = &job->geom;
	const sk_store *st = &job->store;
	int code = check_pixels(d, job);
	if (code != SK_OK)
		return code;
	state s = {
		.d = d,
		.k = &sk_pixel_kernels_scalar,
		.job = job,
		.g = g,
		.st = st,
		.elem = job->elem,
		.size = sk_elem_size(job->elem),
		.ch = job->channels,
		.w = g->win_w,
		.h = g->win_h,
	};
#if defined(__x86_64__)
	const int set = sk_set(SK_KERNEL_PIXELS);
	if (set == SK_AVX512)
		s.k = &sk_pixel_kernels_avx512;
	else if (set == SK_AVX2)
		s.k = &sk_pixel_kernels_avx2;
#endif
	s.top = s.elem == SK_U8 ? 255 : s.elem == SK_U16 ? 65535 : 0;
	s.plain = st->dtype == s.elem;
	for (int c = 0; c < s.ch; c++)
		s.plain = s.plain && st->scale[c] == 1 && st->bias[c] == 0;
	const size_t n = (size_t)s.w * (size_t)s.ch;
	float *p = sk_need(&d->table, n * 4 * sizeof(float));
	if (p == NULL)
		return sk_fail(d, SK_NO_MEMORY, "no memory for a row of %d pixels", s.w);
	s.values = p;
	s.pixels = (uint8_t *)(p + n);
	s.scale = p + 2 * n;
	s.bias = p + 3 * n;
	for (size_t i = 0; i < n && !s.plain; i++) {
		s.scale[i] = st->scale[i % (size_t)s.ch];
		s.bias[i] = st->bias[i % (size_t)s.ch];
	}
	const ptrdiff_t stride = (ptrdiff_t)job->stride;
	const uint8_t *box = (const uint8_t *)job->src + g->box_y * stride + (ptrdiff_t)g->box_x * s.size * s.ch;
	if (g->filter == SK_NEAREST || (g->resize_w == g->box_w && g->resize_h == g->box_h))
		return run_nearest(&s, box, stride);
	return run_filter(&s, box, stride);
}
