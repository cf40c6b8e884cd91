// Taps of antialiased filters, as Pillow defines them (Resample.c), in fixed
// point.
#include "resize.h"

#include <math.h>
#include <string.h>

static double bilinear(double x)
{
	x = fabs(x);
	return x < 1 ? 1 - x : 0;
}

static double bicubic(double x)
{
	const double a = -0.5;
	x = fabs(x);
	if (x < 1)
		return ((a + 2) * x - (a + 3)) * x * x + 1;
	if (x < 2)
		return (((x - 5) * x + 8) * x - 4) * a;
	return 0;
}

// Pillow's nearest is an affine transform that adds up the step: the sum is
// done as there, so that rounding picks the same pixels.
static void nearest(sk_axis *a, int in, int out, int win, int reverse)
{
	const double step = (double)in / out;
	double pos = step * 0.5;
	int lo = in, hi = 0;
	for (int i = 0; i < win + a->n; i++, pos += step) {
		if (i < win)
			continue;
		int p = (int)pos;
		if (p > in - 1)
			p = in - 1;
		if (p < lo)
			lo = p;
		if (p >= hi)
			hi = p + 1;
		a->start[reverse ? a->n - 1 - (i - win) : i - win] = p;
	}
	for (int i = 0; i < a->n; i++) {
		a->start[i] -= lo;
		a->count[i] = 1;
	}
	a->lo = lo;
	a->hi = hi;
	a->max_count = 1;
	a->q = 0;
}

static int most_taps(int filter, int in, double support)
{
	int most = (int)ceil(support) * 2 + 1;
	if (filter == SK_NEAREST)
		most = 1;
	return most > in ? in : most;
}

int sk_taps(sk_dec *d, sk_buf *b, sk_axis *a, int filter, int in, int out, int win, int n, int reverse, int max_q)
{
	const double scale = (double)in / out;
	const double fscale = scale < 1 ? 1 : scale;
	const double support = (filter == SK_BICUBIC ? 2.0 : 1.0) * fscale;
	const int most = most_taps(filter, in, support);
	a->n = n;
	a->kstride = (most + 1) & ~1;

	// start, count, k, then the weights of one output during computation.
	const size_t ints = ((size_t)n * 4 + 63) & ~(size_t)63;
	const size_t ks = ((size_t)n * (size_t)a->kstride * 2 + 64 + 63) & ~(size_t)63;
	uint8_t *p = sk_need(b, ints * 2 + ks + (size_t)most * sizeof(double));
	if (p == NULL)
		return sk_fail(d, SK_NO_MEMORY, "no memory for the taps of a resize from %d to %d pixels", in, out);
	a->start = (int32_t *)p;
	a->count = (int32_t *)(p + ints);
	a->k = (int16_t *)(p + 2 * ints);
	double *w = (double *)(p + 2 * ints + ks);
	if (filter == SK_NEAREST) {
		nearest(a, in, out, win, reverse);
		return SK_OK;
	}

	// A tap is at most about 1.2 / fscale: as many bits as still fit in 16.
	int q = 14;
	for (double f = fscale; f >= 2 && q < max_q; f /= 2)
		q++;
again:
	a->q = q;
	a->max_count = 0;
	memset(a->k, 0, (size_t)n * (size_t)a->kstride * 2);
	const double one = (double)(1 << q), inv = 1 / fscale;
	int lo = in, hi = 0, end = 0;
	for (int i = 0; i < n; i++) {
		const double center = (win + i + 0.5) * scale;
		int first = (int)(center - support + 0.5), last = (int)(center + support + 0.5);
		if (first < 0)
			first = 0;
		if (last > in)
			last = in;
		int count = last - first;
		double sum = 0;
		if (filter == SK_BICUBIC) {
			for (int j = 0; j < count; j++)
				sum += w[j] = bicubic((first + j - center + 0.5) * inv);
		} else {
			for (int j = 0; j < count; j++)
				sum += w[j] = bilinear((first + j - center + 0.5) * inv);
		}
		// Rounding the running sum instead of each tap keeps the sum at exactly 1 << q and lets the errors of
		// neighbours cancel each other.
		const int o = reverse ? n - 1 - i : i;
		int16_t *k = a->k + (size_t)o * (size_t)a->kstride;
		const double unit = one / sum;
		double running = 0;
		long before = 0;
		int from = count, to = 0;
		for (int j = 0; j < count; j++) {
			running += w[j];
			long now = lrint(running * unit), tap = now - before;
			if (tap > INT16_MAX && q > 14) {
				q--;
				goto again;
			}
			before = now;
			w[j] = (double)tap;
			if (tap != 0) {
				if (from == count)
					from = j;
				to = j + 1;
			}
		}
		// The vertical pass finishes rows in order. Ends must therefore not decrease, which could happen after a tap
		// was rounded to zero.
		if (first + to < end)
			to = end - first;
		end = first + to;
		for (int j = from; j < to; j++)
			k[j - from] = (int16_t)w[j];
		first += from;
		count = to - from;
		a->start[o] = first;
		a->count[o] = count;
		if (count > a->max_count)
			a->max_count = count;
		if (first < lo)
			lo = first;
		if (first + count > hi)
			hi = first + count;
	}
	a->lo = lo;
	a->hi = hi;
	for (int i = 0; i < n; i++)
		a->start[i] -= lo;
	return SK_OK;
}

int sk_taps_float(sk_dec *d, sk_buf *b, sk_axis *a, int filter, int in, int out, int win, int n, int reverse)
{
	const double scale = (double)in / out;
	const double fscale = scale < 1 ? 1 : scale, inv = 1 / fscale;
	const double support = (filter == SK_BICUBIC ? 2.0 : 1.0) * fscale;
	const int most = most_taps(filter, in, support);
	const size_t ints = ((size_t)n * 4 + 63) & ~(size_t)63;
	uint8_t *p = sk_need(b, ints * 2 + (size_t)n * (size_t)most * sizeof(float));
	if (p == NULL)
		return sk_fail(d, SK_NO_MEMORY, "no memory for the taps of a resize from %d to %d pixels", in, out);
	memset(a, 0, sizeof *a);
	a->n = n;
	a->kstride = most;
	a->start = (int32_t *)p;
	a->count = (int32_t *)(p + ints);
	a->f = (float *)(p + 2 * ints);
	if (filter == SK_NEAREST) {
		nearest(a, in, out, win, reverse);
		return SK_OK;
	}
	int lo = in, hi = 0;
	for (int i = 0; i < n; i++) {
		const double center = (win + i + 0.5) * scale;
		int first = (int)(center - support + 0.5), last = (int)(center + support + 0.5);
		first = first < 0 ? 0 : first;
		last = last > in ? in : last;
		const int o = reverse ? n - 1 - i : i, count = last - first;
		float *k = a->f + (size_t)o * (size_t)most;
		double sum = 0;
		for (int j = 0; j < count; j++) {
			const double x = (first + j - center + 0.5) * inv;
			sum += filter == SK_BICUBIC ? bicubic(x) : bilinear(x);
		}
		for (int j = 0; j < count; j++) {
			const double x = (first + j - center + 0.5) * inv;
			k[j] = (float)((filter == SK_BICUBIC ? bicubic(x) : bilinear(x)) / sum);
		}
		a->start[o] = first;
		a->count[o] = count;
		a->max_count = count > a->max_count ? count : a->max_count;
		lo = first < lo ? first : lo;
		hi = last > hi ? last : hi;
	}
	a->lo = lo;
	a->hi = hi;
	for (int i = 0; i < n; i++)
		a->start[i] -= lo;
	return SK_OK;
}
