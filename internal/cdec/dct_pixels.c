// Coefficients -> samples -> RGB, the portable form. The arithmetic is that of
// libjpeg-turbo's vector code, which agrees with its C code (jidctint.c,
// jdsample.c, jdcolor.c) on every sane image and differs in where it wraps and
// saturates when coefficients are absurd: here too.
#include <string.h>

#include "dct.h"

// ---- inverse DCT (ISLOW): 13 bits of fraction, 2 of them kept between passes

enum {
	F_0_298 = 2446,
	F_0_390 = 3196,
	F_0_541 = 4433,
	F_0_765 = 6270,
	F_0_899 = 7373,
	F_1_175 = 9633,
	F_1_501 = 12299,
	F_1_847 = 15137,
	F_1_961 = 16069,
	F_2_053 = 16819,
	F_2_562 = 20995,
	F_3_072 = 25172,
};

static inline int16_t wrap16(int32_t v)
{
	return (int16_t)(uint16_t)v;
}

static inline int32_t madd(int16_t a, int32_t fa, int16_t b, int32_t fb)
{
	return (int32_t)((uint32_t)(a * fa) + (uint32_t)(b * fb));
}

static inline int16_t descale(uint32_t v, int shift)
{
	const int32_t s = (int32_t)(v + (1u << (shift - 1))) >> shift;
	return (int16_t)(s < -32768 ? -32768 : s > 32767 ? 32767 : s);
}

static inline void idct8(const int16_t in[8], int16_t out[8], int shift)
{
	const uint32_t t2 = (uint32_t)madd(in[2], F_0_541, in[6], F_0_541 - F_1_847);
	const uint32_t t3 = (uint32_t)madd(in[2], F_0_541 + F_0_765, in[6], F_0_541);
	const uint32_t t0 = (uint32_t)(wrap16(in[0] + in[4]) * 8192), t1 = (uint32_t)(wrap16(in[0] - in[4]) * 8192);
	const uint32_t t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;

	const int16_t z3 = wrap16(in[7] + in[3]), z4 = wrap16(in[5] + in[1]);
	const uint32_t y3 = (uint32_t)madd(z3, F_1_175 - F_1_961, z4, F_1_175);
	const uint32_t y4 = (uint32_t)madd(z3, F_1_175, z4, F_1_175 - F_0_390);
	const uint32_t o0 = (uint32_t)madd(in[7], F_0_298 - F_0_899, in[1], -F_0_899) + y3;
	const uint32_t o1 = (uint32_t)madd(in[5], F_2_053 - F_2_562, in[3], -F_2_562) + y4;
	const uint32_t o2 = (uint32_t)madd(in[5], -F_2_562, in[3], F_3_072 - F_2_562) + y3;
	const uint32_t o3 = (uint32_t)madd(in[7], -F_0_899, in[1], F_1_501 - F_0_899) + y4;

	out[0] = descale(t10 + o3, shift);
	out[7] = descale(t10 - o3, shift);
	out[1] = descale(t11 + o2, shift);
	out[6] = descale(t11 - o2, shift);
	out[2] = descale(t12 + o1, shift);
	out[5] = descale(t12 - o1, shift);
	out[3] = descale(t13 + o0, shift);
	out[4] = descale(t13 - o0, shift);
}

static inline uint8_t sample(int16_t v)
{
	return (uint8_t)((v < -128 ? -128 : v > 127 ? 127 : v) + 128);
}

void dct_idct_one(const int16_t *coef, const uint16_t *quant, uint8_t *dst, ptrdiff_t stride)
{
	int16_t half[64], in[8], out[8]; // half: columns of the first pass as rows
	int ac = 0;
	for (int i = 8; i < 64; i++)
		ac |= coef[i];
	for (int x = 0; x < 8; x++) {
		if (ac == 0) {
			// Rows 1 to 7 are zero: here libjpeg-turbo wraps where its
			// transform would saturate.
			const int16_t dc = wrap16(wrap16(coef[x] * quant[x]) * 4);
			for (int y = 0; y < 8; y++)
				half[8 * y + x] = dc;
			continue;
		}
		for (int y = 0; y < 8; y++)
			in[y] = wrap16(coef[8 * y + x] * quant[8 * y + x]);
		idct8(in, out, 11);
		for (int y = 0; y < 8; y++)
			half[8 * y + x] = out[y];
	}
	for (int y = 0; y < 8; y++) {
		idct8(half + 8 * y, out, 18);
		for (int x = 0; x < 8; x++)
			dst[x] = sample(out[x]);
		dst += stride;
	}
}

static void idct4(const int16_t (*coef)[64], const uint16_t *quant, int end, uint8_t *dst, ptrdiff_t stride)
{
	for (int b = 0; b < 4; b++) {
		if (end > 0) {
			dct_idct_one(coef[b], quant, dst + 8 * b, stride);
			continue;
		}
		const int16_t dc = wrap16(wrap16(coef[b][0] * quant[0]) * 4);
		const uint8_t v = sample(wrap16((dc + 16) >> 5));
		for (int y = 0; y < 8; y++)
			memset(dst + y * stride + 8 * b, v, 8);
	}
}

// ---- fancy upsampling: a triangle filter, 3/4 of the nearer sample. With the
// outermost samples repeated (the caller's part) the edges come out as in
// jdsample.c: (3a + a + 1) >> 2 = (3a + a + 2) >> 2 = a.

static void h2v1(const uint8_t *in, uint8_t *out, int n)
{
	for (int i = 0; i < n; i++) {
		const int v = 3 * in[i];
		out[2 * i] = (uint8_t)((v + in[i - 1] + 1) >> 2);
		out[2 * i + 1] = (uint8_t)((v + in[i + 1] + 2) >> 2);
	}
}

static void h2v2(const uint8_t *near, const uint8_t *far, uint8_t *out, int n, int16_t *sums)
{
	(void)sums;
	int last = 3 * near[-1] + far[-1], here = 3 * near[0] + far[0];
	for (int i = 0; i < n; i++) {
		const int next = 3 * near[i + 1] + far[i + 1];
		out[2 * i] = (uint8_t)((3 * here + last + 8) >> 4);
		out[2 * i + 1] = (uint8_t)((3 * here + next + 7) >> 4);
		last = here;
		here = next;
	}
}

static void h1v2(const uint8_t *near, const uint8_t *far, uint8_t *out, int n, int bias)
{
	for (int i = 0; i < n; i++)
		out[i] = (uint8_t)((3 * near[i] + far[i] + bias) >> 2);
}

// ---- colour: jdcolor.c's tables, computed

static inline uint8_t clamp(int v)
{
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void color(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, int n)
{
	for (int i = 0; i < n; i++, out += 4) {
		const int b = cb[i] - 128, r = cr[i] - 128;
		out[0] = clamp(y[i] + ((91881 * r + 32768) >> 16));
		out[1] = clamp(y[i] + ((-22554 * b - 46802 * r + 32768) >> 16));
		out[2] = clamp(y[i] + ((116130 * b + 32768) >> 16));
		out[3] = 255;
	}
}

const dct_kernels dct_kernels_scalar = {dct_unpack_scalar, idct4, h2v1, h2v2, h1v2, color};
