// Coefficients -> samples -> RGB, the portable form. The arithmetic is that of libjpeg-turbo's vector code. For every
// sane image it agrees with its C code (jidctint.c, jdsample.c, jdcolor.c). For absurd coefficients the two differ in
// where they wrap and saturate, and this code follows the vector code.
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

static inline int16_t wrap16(int32_t v) { return (int16_t)(uint16_t)v; }

static inline int32_t madd(int16_t a, int32_t fa, int16_t b, int32_t fb)
{
	return (int32_t)((uint32_t)(a * fa) + (uint32_t)(b * fb));
}

static inline int16_t descale(uint32_t v, int shift)
{
	const int32_t s = (int32_t)(v + (1u << (shift - 1))) >> shift;
	return (int16_t)(s < -32768 ? -32768 : s > 32767 ? 32767 : s);
}

// One pass over the columns of 8x8 numbers. Loops over the columns inside of a
// step, so that compilers make vectors of them.
static void pass(const int16_t in[64], int16_t out[64], int shift)
{
	uint32_t t10[8], t11[8], t12[8], t13[8], o0[8], o1[8], o2[8], o3[8];
	for (int x = 0; x < 8; x++) {
		const int16_t i0 = in[x], i2 = in[16 + x], i4 = in[32 + x], i6 = in[48 + x];
		const uint32_t t2 = (uint32_t)madd(i2, F_0_541, i6, F_0_541 - F_1_847);
		const uint32_t t3 = (uint32_t)madd(i2, F_0_541 + F_0_765, i6, F_0_541);
		const uint32_t t0 = (uint32_t)(wrap16(i0 + i4) * 8192), t1 = (uint32_t)(wrap16(i0 - i4) * 8192);
		t10[x] = t0 + t3;
		t13[x] = t0 - t3;
		t11[x] = t1 + t2;
		t12[x] = t1 - t2;
	}
	for (int x = 0; x < 8; x++) {
		const int16_t i1 = in[8 + x], i3 = in[24 + x], i5 = in[40 + x], i7 = in[56 + x];
		const int16_t z3 = wrap16(i7 + i3), z4 = wrap16(i5 + i1);
		const uint32_t y3 = (uint32_t)madd(z3, F_1_175 - F_1_961, z4, F_1_175);
		const uint32_t y4 = (uint32_t)madd(z3, F_1_175, z4, F_1_175 - F_0_390);
		o0[x] = (uint32_t)madd(i7, F_0_298 - F_0_899, i1, -F_0_899) + y3;
		o1[x] = (uint32_t)madd(i5, F_2_053 - F_2_562, i3, -F_2_562) + y4;
		o2[x] = (uint32_t)madd(i5, -F_2_562, i3, F_3_072 - F_2_562) + y3;
		o3[x] = (uint32_t)madd(i7, -F_0_899, i1, F_1_501 - F_0_899) + y4;
	}
	for (int x = 0; x < 8; x++) {
		out[x] = descale(t10[x] + o3[x], shift);
		out[56 + x] = descale(t10[x] - o3[x], shift);
		out[8 + x] = descale(t11[x] + o2[x], shift);
		out[48 + x] = descale(t11[x] - o2[x], shift);
		out[16 + x] = descale(t12[x] + o1[x], shift);
		out[40 + x] = descale(t12[x] - o1[x], shift);
		out[24 + x] = descale(t13[x] + o0[x], shift);
		out[32 + x] = descale(t13[x] - o0[x], shift);
	}
}

static void transpose(const int16_t in[64], int16_t out[64])
{
	for (int y = 0; y < 8; y++)
		for (int x = 0; x < 8; x++)
			out[8 * x + y] = in[8 * y + x];
}

static inline uint8_t sample(int16_t v) { return (uint8_t)((v < -128 ? -128 : v > 127 ? 127 : v) + 128); }

void dct_idct_one(const int16_t *coef, const uint16_t *quant, uint8_t *dst, ptrdiff_t stride)
{
	int16_t p[64], q[64];
	int ac = 0;
	for (int i = 8; i < 64; i++)
		ac |= coef[i];
	for (int i = 0; i < 64; i++)
		p[i] = wrap16(coef[i] * quant[i]);
	if (ac == 0) {
		// Rows 1 to 7 are zero: here libjpeg-turbo wraps where its transform
		// would saturate.
		for (int y = 0; y < 8; y++)
			for (int x = 0; x < 8; x++)
				q[8 * y + x] = wrap16(p[x] * 4);
	} else {
		pass(p, q, 11);
	}
	transpose(q, p);
	pass(p, q, 18);
	for (int y = 0; y < 8; y++, dst += stride)
		for (int x = 0; x < 8; x++)
			dst[x] = sample(q[8 * x + y]);
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

static inline uint8_t clamp(int v) { return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v); }

static void color(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, int n)
{
	// In pieces: loops that only compute become vectors, stores of 4 bytes at a
	// time too.
	enum { PIECE = 32 };
	for (int i = 0; i < n; i += PIECE, out += 4 * PIECE) {
		uint32_t px[PIECE];
		for (int j = 0; j < PIECE; j++) {
			const int l = y[i + j], b = cb[i + j] - 128, r = cr[i + j] - 128;
			const uint32_t red = clamp(l + ((91881 * r + 32768) >> 16));
			const uint32_t green = clamp(l + ((-22554 * b - 46802 * r + 32768) >> 16));
			const uint32_t blue = clamp(l + ((116130 * b + 32768) >> 16));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
			px[j] = red << 24 | green << 16 | blue << 8 | 255;
#else
			px[j] = red | green << 8 | blue << 16 | 255u << 24;
#endif
		}
		memcpy(out, px, sizeof px);
	}
}

const dct_kernels dct_kernels_scalar = {dct_unpack_scalar, idct4, h2v1, h2v2, h1v2, color};
