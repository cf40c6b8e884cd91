// Selects the loops for the processor. The loops in this file run on every processor.
#define TARGET
#define FN(name) ss_##name##_any
#include "kernels.h"

#if defined(__x86_64__)
void ss_resample_avx2(const float *coefs, const int32_t *start, int phases, int step, int taps, const float *x,
                      int64_t first, int64_t from, int64_t n, float *out);
void ss_log_avx2(float *x, size_t n, float floor, float add, float scale);
void ss_spectra_avx2(const ss_spectrum *s, const float *window, const float *twiddles, const int32_t *lo,
                     const int32_t *hi, const float *weights, const float *x, int64_t frames, float *out, size_t stride,
                     float *room);
#endif

void ss_resample(int set, const float *coefs, const int32_t *start, int phases, int step, int taps, const float *x,
                 int64_t first, int64_t from, int64_t n, float *out)
{
#if defined(__x86_64__)
	if (set != 0) {
		ss_resample_avx2(coefs, start, phases, step, taps, x, first, from, n, out);
		return;
	}
#endif
	(void)set;
	ss_resample_any(coefs, start, phases, step, taps, x, first, from, n, out);
}

void ss_log(int set, float *x, size_t n, float floor, float add, float scale)
{
#if defined(__x86_64__)
	if (set != 0) {
		ss_log_avx2(x, n, floor, add, scale);
		return;
	}
#endif
	(void)set;
	ss_log_any(x, n, floor, add, scale);
}

void ss_spectra(int set, const ss_spectrum *s, const float *window, const float *twiddles, const int32_t *lo,
                const int32_t *hi, const float *weights, const float *x, int64_t frames, float *out, size_t stride,
                float *room)
{
#if defined(__x86_64__)
	if (set != 0) {
		ss_spectra_avx2(s, window, twiddles, lo, hi, weights, x, frames, out, stride, room);
		return;
	}
#endif
	(void)set;
	ss_spectra_any(s, window, twiddles, lo, hi, weights, x, frames, out, stride, room);
}
