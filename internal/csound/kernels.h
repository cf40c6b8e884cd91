// The loops of kernels.c, for the file that defines FN and TARGET. Vectors hold the same value of several frames, or
// several taps of one sum. The order of sums is that of the source on every machine.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "csound.h"

#include <math.h>
#include <string.h>

typedef float vec __attribute__((vector_size(4 * SS_LANES)));
typedef float vec_any __attribute__((vector_size(4 * SS_LANES), aligned(4)));

TARGET void FN(resample)(const float *coefs, const int32_t *start, int phases, int step, int taps, const float *x,
                         int64_t first, int64_t from, int64_t n, float *out)
{
	int64_t turn = from / phases;
	int phase = (int)(from % phases);
	for (int64_t o = 0; o < n; o++) {
		const float *c = coefs + (size_t)phase * (size_t)taps;
		const float *p = x + (turn * step + start[phase] - first);
		vec sum = {0};
		for (int k = 0; k < taps; k += SS_LANES)
			sum += *(const vec_any *)(c + k) * *(const vec_any *)(p + k);
		out[o] = ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
		if (++phase == phases) {
			phase = 0;
			turn++;
		}
	}
}

// The sum of two logarithms: that of the mantissa, from sqrt(1/2) to sqrt(2), as the series of atanh, and that of the
// exponent. The error is below 3e-7 of the result, or of 1.
TARGET void FN(log)(float *x, size_t n, float floor, float add, float scale)
{
	for (size_t i = 0; i < n; i++) {
		const float v = (x[i] > floor ? x[i] : floor) + add;
		uint32_t u;
		memcpy(&u, &v, 4);
		const int32_t e = (int32_t)(u - 0x3f3504f3) >> 23;
		u -= (uint32_t)e << 23;
		float m;
		memcpy(&m, &u, 4);
		const float s = (m - 1.0f) / (m + 1.0f), q = s * s;
		const float l = 2.0f * s * (1.0f + q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9)))));
		const float w = (l + (float)e * 0.693147181f) * scale;
		x[i] = v != v ? v : w;
	}
}

// One step of a Stockham FFT: n is the remaining length, s the stride, w the twiddles of this step, (p-1) complex
// numbers for each q.
TARGET static void FN(radix2)(int n, int s, const float *w, const vec *ar, const vec *ai, vec *br, vec *bi)
{
	const int m = n / 2;
	for (int q = 0; q < m; q++, w += 2) {
		const float wr = w[0], wi = w[1];
		for (int k = 0; k < s; k++) {
			const int a = k + s * q, b = a + s * m, o = k + s * 2 * q;
			const vec dr = ar[a] - ar[b], di = ai[a] - ai[b];
			br[o] = ar[a] + ar[b];
			bi[o] = ai[a] + ai[b];
			br[o + s] = dr * wr - di * wi;
			bi[o + s] = dr * wi + di * wr;
		}
	}
}

TARGET static void FN(radix4)(int n, int s, const float *w, const vec *ar, const vec *ai, vec *br, vec *bi)
{
	const int m = n / 4;
	for (int q = 0; q < m; q++, w += 6)
		for (int k = 0; k < s; k++) {
			const int a = k + s * q, b = a + s * m, c = b + s * m, d = c + s * m, o = k + s * 4 * q;
			const vec t0r = ar[a] + ar[c], t0i = ai[a] + ai[c], t1r = ar[a] - ar[c], t1i = ai[a] - ai[c];
			const vec t2r = ar[b] + ar[d], t2i = ai[b] + ai[d], t3r = ar[b] - ar[d], t3i = ai[b] - ai[d];
			br[o] = t0r + t2r;
			bi[o] = t0i + t2i;
			const vec y1r = t1r + t3i, y1i = t1i - t3r, y2r = t0r - t2r, y2i = t0i - t2i, y3r = t1r - t3i,
					  y3i = t1i + t3r;
			br[o + s] = y1r * w[0] - y1i * w[1];
			bi[o + s] = y1r * w[1] + y1i * w[0];
			br[o + 2 * s] = y2r * w[2] - y2i * w[3];
			bi[o + 2 * s] = y2r * w[3] + y2i * w[2];
			br[o + 3 * s] = y3r * w[4] - y3i * w[5];
			bi[o + 3 * s] = y3r * w[5] + y3i * w[4];
		}
}

// Any factor p: r has its p roots of one.
TARGET static void FN(radix)(int p, int n, int s, const float *w, const float *r, const vec *ar, const vec *ai, vec *br,
                             vec *bi)
{
	const int m = n / p;
	for (int q = 0; q < m; q++, w += 2 * (p - 1))
		for (int k = 0; k < s; k++) {
			const int a = k + s * q, o = k + s * p * q;
			for (int j = 0; j < p; j++) {
				vec yr = ar[a], yi = ai[a];
				for (int i = 1, e = j; i < p; i++, e = e + j < p ? e + j : e + j - p) {
					const vec xr = ar[a + s * m * i], xi = ai[a + s * m * i];
					yr += xr * r[2 * e] - xi * r[2 * e + 1];
					yi += xr * r[2 * e + 1] + xi * r[2 * e];
				}
				if (j == 0) {
					br[o] = yr;
					bi[o] = yi;
				} else {
					const float wr = w[2 * j - 2], wi = w[2 * j - 1];
					br[o + s * j] = yr * wr - yi * wi;
					bi[o + s * j] = yr * wi + yi * wr;
				}
			}
		}
}

// Twiddles: for each factor its p roots of one, then the multipliers of its step.
TARGET static int FN(fft)(const ss_spectrum *f, const float *twiddles, vec *re[2], vec *im[2])
{
	int n = f->n, s = 1, at = 0;
	for (int i = 0; i < f->count; i++) {
		const int p = f->factors[i];
		const float *w = twiddles + 2 * p;
		if (p == 4)
			FN(radix4)(n, s, w, re[at], im[at], re[!at], im[!at]);
		else if (p == 2)
			FN(radix2)(n, s, w, re[at], im[at], re[!at], im[!at]);
		else
			FN(radix)(p, n, s, w, twiddles, re[at], im[at], re[!at], im[!at]);
		twiddles += 2 * p + 2 * (n / p) * (p - 1);
		n /= p;
		s *= p;
		at = !at;
	}
	return at;
}

TARGET static void FN(root)(vec *v)
{
	for (int i = 0; i < SS_LANES; i++)
		(*v)[i] = sqrtf((*v)[i]);
}

TARGET static void FN(put)(const vec *v, float *to, int n)
{
	if (n == SS_LANES)
		*(vec_any *)to = *v;
	else
		memcpy(to, v, sizeof(float) * (size_t)n);
}

// Two real frames are transformed as one complex one, so that a call of the FFT does
// SS_FRAMES frames.
TARGET void FN(spectra)(const ss_spectrum *f, const float *window, const float *twiddles, const int32_t *lo,
                        const int32_t *hi, const float *weights, const float *x, int64_t frames, float *out,
                        size_t stride, float *room)
{
	const int n = f->n;
	vec *re[2] = {(vec *)room, (vec *)room + n}, *im[2] = {re[1] + n, re[1] + 2 * n};
	vec *first = im[1] + n, *second = first + f->bins; // powers
	for (int64_t t = 0; t < frames; t += SS_FRAMES) {
		const float *at[SS_FRAMES];
		for (int l = 0; l < SS_FRAMES; l++) { // the last frame is repeated after the end
			const int64_t frame = t + l < frames ? t + l : frames - 1;
			at[l] = x + frame * f->hop;
		}
		for (int i = 0; i < n; i++) {
			const float w = window[i];
			vec a, b;
			for (int l = 0; l < SS_LANES; l++) {
				a[l] = at[l][i];
				b[l] = at[l + SS_LANES][i];
			}
			re[0][i] = a * w;
			im[0][i] = b * w;
		}
		const int in = FN(fft)(f, twiddles, re, im);
		const vec *zr = re[in], *zi = im[in];
		for (int k = 0; k < f->bins; k++) {
			const int mirror = k == 0 ? 0 : n - k;
			const vec sr = (zr[k] + zr[mirror]) * 0.5f, di = (zi[k] - zi[mirror]) * 0.5f;
			const vec si = (zi[k] + zi[mirror]) * 0.5f, dr = (zr[mirror] - zr[k]) * 0.5f;
			first[k] = sr * sr + di * di;
			second[k] = si * si + dr * dr;
			if (f->magnitude) {
				FN(root)(&first[k]);
				FN(root)(&second[k]);
			}
		}
		const int64_t left = frames - t;
		const int n1 = left < SS_LANES ? (int)left : SS_LANES;
		const int n2 = left <= SS_LANES ? 0 : left < SS_FRAMES ? (int)left - SS_LANES : SS_LANES;
		if (f->mels == 0) {
			for (int k = 0; k < f->bins; k++) {
				FN(put)(&first[k], out + (size_t)k * stride + t, n1);
				if (n2)
					FN(put)(&second[k], out + (size_t)k * stride + t + SS_LANES, n2);
			}
			continue;
		}
		const float *w = weights;
		for (int m = 0; m < f->mels; m++) {
			vec a = {0}, b = {0};
			for (int k = lo[m]; k < hi[m]; k++, w++) {
				a += first[k] * *w;
				b += second[k] * *w;
			}
			FN(put)(&a, out + (size_t)m * stride + t, n1);
			if (n2)
				FN(put)(&b, out + (size_t)m * stride + t + SS_LANES, n2);
		}
	}
}
