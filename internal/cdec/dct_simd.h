// Transform, upsampling and colour for a vector width. The file is included once per width with these defined: V
// (vector), HALF (half of it), LANES (16-byte lanes), TARGET, FN(name), and OP(x), which completes the name of an
// intrinsic.
//
// Blocks are next to each other in the 16-byte lanes of a vector: LANES of them are transformed together. The
// arithmetic is that of jidctint-avx2.asm, see dct_pixels.c.

#define F_0_298 2446
#define F_0_390 3196
#define F_0_541 4433
#define F_0_765 6270
#define F_0_899 7373
#define F_1_175 9633
#define F_1_501 12299
#define F_1_847 15137
#define F_1_961 16069
#define F_2_053 16819
#define F_2_562 20995
#define F_3_072 25172

#define PAIR(a, b) OP(set1_epi32)((int)((uint32_t)(uint16_t)(int16_t)(a) | (uint32_t)(uint16_t)(int16_t)(b) << 16))

// Sums and differences of the even part e and the odd part o, descaled.
#define BUTTERFLY(lo, hi, e, o)                                               \
	lo = OP(packs_epi32)(OP(srai_epi32)(OP(add_epi32)(e##_l, o##_l), shift),  \
	                     OP(srai_epi32)(OP(add_epi32)(e##_h, o##_h), shift)); \
	hi = OP(packs_epi32)(OP(srai_epi32)(OP(sub_epi32)(e##_l, o##_l), shift),  \
	                     OP(srai_epi32)(OP(sub_epi32)(e##_h, o##_h), shift))

// One pass over 8 vectors of 16-bit numbers, in place.
TARGET static inline __attribute__((always_inline)) void FN(pass)(V r[8], const int shift)
{
	const V zero = OP(set1_epi32)(0), round = OP(set1_epi32)(1 << (shift - 1));

	const V sum = OP(add_epi16)(r[0], r[4]), diff = OP(sub_epi16)(r[0], r[4]);
	const V t0_l = OP(add_epi32)(OP(srai_epi32)(OP(unpacklo_epi16)(zero, sum), 3), round);
	const V t0_h = OP(add_epi32)(OP(srai_epi32)(OP(unpackhi_epi16)(zero, sum), 3), round);
	const V t1_l = OP(add_epi32)(OP(srai_epi32)(OP(unpacklo_epi16)(zero, diff), 3), round);
	const V t1_h = OP(add_epi32)(OP(srai_epi32)(OP(unpackhi_epi16)(zero, diff), 3), round);

	const V e_l = OP(unpacklo_epi16)(r[2], r[6]), e_h = OP(unpackhi_epi16)(r[2], r[6]);
	const V c3 = PAIR(F_0_541 + F_0_765, F_0_541), n3 = PAIR(-F_0_541 - F_0_765, -F_0_541);
	const V c2 = PAIR(F_0_541, F_0_541 - F_1_847), n2 = PAIR(-F_0_541, F_1_847 - F_0_541);
	const V t10_l = MADD_TO(t0_l, e_l, c3), t10_h = MADD_TO(t0_h, e_h, c3);
	const V t13_l = MADD_TO(t0_l, e_l, n3), t13_h = MADD_TO(t0_h, e_h, n3);
	const V t11_l = MADD_TO(t1_l, e_l, c2), t11_h = MADD_TO(t1_h, e_h, c2);
	const V t12_l = MADD_TO(t1_l, e_l, n2), t12_h = MADD_TO(t1_h, e_h, n2);

	const V z3 = OP(add_epi16)(r[7], r[3]), z4 = OP(add_epi16)(r[5], r[1]);
	const V z_l = OP(unpacklo_epi16)(z3, z4), z_h = OP(unpackhi_epi16)(z3, z4);
	const V k3 = PAIR(F_1_175 - F_1_961, F_1_175), k4 = PAIR(F_1_175, F_1_175 - F_0_390);
	const V y3_l = OP(madd_epi16)(z_l, k3), y3_h = OP(madd_epi16)(z_h, k3);
	const V y4_l = OP(madd_epi16)(z_l, k4), y4_h = OP(madd_epi16)(z_h, k4);

	const V a_l = OP(unpacklo_epi16)(r[7], r[1]), a_h = OP(unpackhi_epi16)(r[7], r[1]);
	const V b_l = OP(unpacklo_epi16)(r[5], r[3]), b_h = OP(unpackhi_epi16)(r[5], r[3]);
	const V k0 = PAIR(F_0_298 - F_0_899, -F_0_899), k7 = PAIR(-F_0_899, F_1_501 - F_0_899);
	const V k1 = PAIR(F_2_053 - F_2_562, -F_2_562), k2 = PAIR(-F_2_562, F_3_072 - F_2_562);
	const V o0_l = MADD_TO(y3_l, a_l, k0), o0_h = MADD_TO(y3_h, a_h, k0);
	const V o3_l = MADD_TO(y4_l, a_l, k7), o3_h = MADD_TO(y4_h, a_h, k7);
	const V o1_l = MADD_TO(y4_l, b_l, k1), o1_h = MADD_TO(y4_h, b_h, k1);
	const V o2_l = MADD_TO(y3_l, b_l, k2), o2_h = MADD_TO(y3_h, b_h, k2);

	BUTTERFLY(r[0], r[7], t10, o3);
	BUTTERFLY(r[1], r[6], t11, o2);
	BUTTERFLY(r[2], r[5], t12, o1);
	BUTTERFLY(r[3], r[4], t13, o0);
}

// The same when r[4] to r[7] are zero.
TARGET static inline __attribute__((always_inline)) void FN(pass_low)(V r[8], const int shift)
{
	const V round = OP(set1_epi32)(1 << (shift - 1));
	const V e_l = OP(unpacklo_epi16)(r[0], r[2]), e_h = OP(unpackhi_epi16)(r[0], r[2]);
	const V c3 = PAIR(8192, F_0_541 + F_0_765), n3 = PAIR(8192, -F_0_541 - F_0_765);
	const V c2 = PAIR(8192, F_0_541), n2 = PAIR(8192, -F_0_541);
	const V t10_l = MADD_TO(round, e_l, c3), t10_h = MADD_TO(round, e_h, c3);
	const V t13_l = MADD_TO(round, e_l, n3), t13_h = MADD_TO(round, e_h, n3);
	const V t11_l = MADD_TO(round, e_l, c2), t11_h = MADD_TO(round, e_h, c2);
	const V t12_l = MADD_TO(round, e_l, n2), t12_h = MADD_TO(round, e_h, n2);
	const V a_l = OP(unpacklo_epi16)(r[1], r[3]), a_h = OP(unpackhi_epi16)(r[1], r[3]);
	const V k0 = PAIR(F_1_175 - F_0_899, F_1_175 - F_1_961), k1 = PAIR(F_1_175 - F_0_390, F_1_175 - F_2_562);
	const V k2 = PAIR(F_1_175, F_3_072 - F_2_562 + F_1_175 - F_1_961);
	const V k3 = PAIR(F_1_501 - F_0_899 + F_1_175 - F_0_390, F_1_175);
	const V o0_l = OP(madd_epi16)(a_l, k0), o0_h = OP(madd_epi16)(a_h, k0);
	const V o1_l = OP(madd_epi16)(a_l, k1), o1_h = OP(madd_epi16)(a_h, k1);
	const V o2_l = OP(madd_epi16)(a_l, k2), o2_h = OP(madd_epi16)(a_h, k2);
	const V o3_l = OP(madd_epi16)(a_l, k3), o3_h = OP(madd_epi16)(a_h, k3);
	BUTTERFLY(r[0], r[7], t10, o3);
	BUTTERFLY(r[1], r[6], t11, o2);
	BUTTERFLY(r[2], r[5], t12, o1);
	BUTTERFLY(r[3], r[4], t13, o0);
}

// Transposes the 8x8 numbers of each lane.
TARGET static inline __attribute__((always_inline)) void FN(transpose)(V r[8])
{
	const V a0 = OP(unpacklo_epi16)(r[0], r[1]), a1 = OP(unpackhi_epi16)(r[0], r[1]);
	const V a2 = OP(unpacklo_epi16)(r[2], r[3]), a3 = OP(unpackhi_epi16)(r[2], r[3]);
	const V a4 = OP(unpacklo_epi16)(r[4], r[5]), a5 = OP(unpackhi_epi16)(r[4], r[5]);
	const V a6 = OP(unpacklo_epi16)(r[6], r[7]), a7 = OP(unpackhi_epi16)(r[6], r[7]);
	const V b0 = OP(unpacklo_epi32)(a0, a2), b1 = OP(unpackhi_epi32)(a0, a2);
	const V b2 = OP(unpacklo_epi32)(a1, a3), b3 = OP(unpackhi_epi32)(a1, a3);
	const V b4 = OP(unpacklo_epi32)(a4, a6), b5 = OP(unpackhi_epi32)(a4, a6);
	const V b6 = OP(unpacklo_epi32)(a5, a7), b7 = OP(unpackhi_epi32)(a5, a7);
	r[0] = OP(unpacklo_epi64)(b0, b4);
	r[1] = OP(unpackhi_epi64)(b0, b4);
	r[2] = OP(unpacklo_epi64)(b1, b5);
	r[3] = OP(unpackhi_epi64)(b1, b5);
	r[4] = OP(unpacklo_epi64)(b2, b6);
	r[5] = OP(unpackhi_epi64)(b2, b6);
	r[6] = OP(unpacklo_epi64)(b3, b7);
	r[7] = OP(unpackhi_epi64)(b3, b7);
}

// Columns of samples -> rows. z[i] then holds rows 2i and 2i+1 of each block.
TARGET static inline __attribute__((always_inline)) void FN(to_rows)(const V r[8], V z[4])
{
	const V center = OP(set1_epi8)((char)0x80);
	const V p0 = OP(packs_epi16)(r[0], r[4]), p1 = OP(packs_epi16)(r[1], r[5]);
	const V p2 = OP(packs_epi16)(r[2], r[6]), p3 = OP(packs_epi16)(r[3], r[7]);
	const V x0 = OP(unpacklo_epi8)(p0, p1), x1 = OP(unpackhi_epi8)(p0, p1);
	const V x2 = OP(unpacklo_epi8)(p2, p3), x3 = OP(unpackhi_epi8)(p2, p3);
	const V y0 = OP(unpacklo_epi16)(x0, x2), y1 = OP(unpackhi_epi16)(x0, x2);
	const V y2 = OP(unpacklo_epi16)(x1, x3), y3 = OP(unpackhi_epi16)(x1, x3);
	z[0] = OP(add_epi8)(OP(unpacklo_epi32)(y0, y2), center);
	z[1] = OP(add_epi8)(OP(unpackhi_epi32)(y0, y2), center);
	z[2] = OP(add_epi8)(OP(unpacklo_epi32)(y1, y3), center);
	z[3] = OP(add_epi8)(OP(unpackhi_epi32)(y1, y3), center);
}

// ---- upsampling

// (3 * near + far + add) >> 2 of the low and high bytes of each lane.
#define TRIANGLE(part, near, far, add) \
	OP(srli_epi16)(OP(add_epi16)(OP(maddubs_epi16)(OP(part)(near, far), weights), add), 2)

TARGET static void FN(h2v1)(const uint8_t *in, uint8_t *out, int n)
{
	const V weights = OP(set1_epi16)(0x0103), one = OP(set1_epi16)(1), two = OP(set1_epi16)(2);
	for (int i = 0; i < n; i += 16 * LANES, in += 16 * LANES, out += 32 * LANES) {
		const V here = LOAD(in), left = LOAD(in - 1), right = LOAD(in + 1);
		const V lo =
			TRIANGLE(unpacklo_epi8, here, left, one) | OP(slli_epi16)(TRIANGLE(unpacklo_epi8, here, right, two), 8);
		const V hi =
			TRIANGLE(unpackhi_epi8, here, left, one) | OP(slli_epi16)(TRIANGLE(unpackhi_epi8, here, right, two), 8);
		FN(store_lanes)(out, lo, hi);
	}
}

TARGET static void FN(h2v2)(const uint8_t *near, const uint8_t *far, uint8_t *out, int n, int16_t *sums)
{
	const V eight = OP(set1_epi16)(8), seven = OP(set1_epi16)(7);
	// From -1 on: the samples to the left of the first one count.
	for (int i = -1; i <= n; i += 8 * LANES) {
		const V a = OP(cvtepu8_epi16)(LOAD_HALF(near + i)), b = OP(cvtepu8_epi16)(LOAD_HALF(far + i));
		STORE(sums + i, OP(add_epi16)(OP(add_epi16)(a, b), OP(slli_epi16)(a, 1)));
	}
	for (int i = 0; i < n; i += 8 * LANES, out += 16 * LANES) {
		const V here = LOAD(sums + i), left = LOAD(sums + i - 1), right = LOAD(sums + i + 1);
		const V thrice = OP(add_epi16)(here, OP(slli_epi16)(here, 1));
		const V even = OP(srli_epi16)(OP(add_epi16)(OP(add_epi16)(thrice, left), eight), 4);
		const V odd = OP(srli_epi16)(OP(add_epi16)(OP(add_epi16)(thrice, right), seven), 4);
		STORE(out, even | OP(slli_epi16)(odd, 8));
	}
}

TARGET static void FN(h1v2)(const uint8_t *near, const uint8_t *far, uint8_t *out, int n, int bias)
{
	const V weights = OP(set1_epi16)(0x0103), add = OP(set1_epi16)((short)bias);
	for (int i = 0; i < n; i += 16 * LANES) {
		const V a = LOAD(near + i), b = LOAD(far + i);
		STORE(out + i, OP(packus_epi16)(TRIANGLE(unpacklo_epi8, a, b, add), TRIANGLE(unpackhi_epi8, a, b, add)));
	}
}

// ---- colour

// R, G and B minus Y of 8 pixels per lane, computed like in jdcolext-avx2.asm. The results equal the tables of
// jdcolor.c exactly.
TARGET static inline __attribute__((always_inline)) void FN(chroma)(V b, V r, V *dr, V *dg, V *db)
{
	const V one = OP(set1_epi16)(1), half = OP(set1_epi32)(32768), k = PAIR(-22554, 18734);
	const V b2 = OP(add_epi16)(b, b), r2 = OP(add_epi16)(r, r);
	*dr = OP(add_epi16)(OP(srai_epi16)(OP(add_epi16)(OP(mulhi_epi16)(r2, OP(set1_epi16)(26345)), one), 1), r);
	*db = OP(add_epi16)(OP(srai_epi16)(OP(add_epi16)(OP(mulhi_epi16)(b2, OP(set1_epi16)(-14942)), one), 1), b2);
	const V g_l = OP(srai_epi32)(MADD_TO(half, OP(unpacklo_epi16)(b, r), k), 16);
	const V g_h = OP(srai_epi32)(MADD_TO(half, OP(unpackhi_epi16)(b, r), k), 16);
	*dg = OP(sub_epi16)(OP(packs_epi32)(g_l, g_h), r);
}

TARGET static void FN(color)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, int n)
{
	const V zero = OP(set1_epi32)(0), opaque = OP(set1_epi8)((char)0xff), center = OP(set1_epi16)(128);
	const V order = FN(color_order)();
	for (int i = 0; i < n; i += 16 * LANES, out += 64 * LANES) {
		const V yy = PERMUTE32(order, LOAD(y + i)), b = PERMUTE32(order, LOAD(cb + i)),
				r = PERMUTE32(order, LOAD(cr + i));
		const V y_l = OP(unpacklo_epi8)(yy, zero), y_h = OP(unpackhi_epi8)(yy, zero);
		V dr_l, dg_l, db_l, dr_h, dg_h, db_h;
		FN(chroma)(OP(sub_epi16)(OP(unpacklo_epi8)(b, zero), center), OP(sub_epi16)(OP(unpacklo_epi8)(r, zero), center),
		           &dr_l, &dg_l, &db_l);
		FN(chroma)(OP(sub_epi16)(OP(unpackhi_epi8)(b, zero), center), OP(sub_epi16)(OP(unpackhi_epi8)(r, zero), center),
		           &dr_h, &dg_h, &db_h);
		const V rr = OP(packus_epi16)(OP(add_epi16)(y_l, dr_l), OP(add_epi16)(y_h, dr_h));
		const V gg = OP(packus_epi16)(OP(add_epi16)(y_l, dg_l), OP(add_epi16)(y_h, dg_h));
		const V bb = OP(packus_epi16)(OP(add_epi16)(y_l, db_l), OP(add_epi16)(y_h, db_h));
		const V rg_l = OP(unpacklo_epi8)(rr, gg), rg_h = OP(unpackhi_epi8)(rr, gg);
		const V bx_l = OP(unpacklo_epi8)(bb, opaque), bx_h = OP(unpackhi_epi8)(bb, opaque);
		STORE(out, OP(unpacklo_epi16)(rg_l, bx_l));
		STORE(out + 16 * LANES, OP(unpackhi_epi16)(rg_l, bx_l));
		STORE(out + 32 * LANES, OP(unpacklo_epi16)(rg_h, bx_h));
		STORE(out + 48 * LANES, OP(unpackhi_epi16)(rg_h, bx_h));
	}
}

// ---- blocks without AC coefficients

static inline uint64_t FN(flat)(int16_t dc, uint16_t quant)
{
	const int16_t q = (int16_t)(uint16_t)(dc * quant), v = (int16_t)(uint16_t)((uint32_t)q * 4);
	const int s = ((v + 16) >> 5) + 128;
	return 0x0101010101010101ull * (uint64_t)(s < 0 ? 0 : s > 255 ? 255 : s);
}
