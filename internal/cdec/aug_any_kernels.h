// The kernels of aug_any.h for elements of type T with the maximum value TOP. FN makes their names. WHOLE is 1 if T
// is an integer.

static inline T FN(cut)(float v)
{
	v = v > 0.0f ? v : 0.0f; // in this order NaN becomes 0
	v = v < TOP ? v : TOP;
	return (T)v; // integers: cut off, as torch casts
}

// The value of a float that was computed exactly: integers are rounded.
static inline T FN(rounded)(float v)
{
#if WHOLE
	return FN(cut)(rintf(v));
#else
	return v;
#endif
}

static inline float FN(luma)(const T *p)
{
	const float v = (float)p[0] * 0.2989f + (float)p[1] * 0.587f + (float)p[2] * 0.114f;
	return WHOLE ? (float)(int32_t)v : v;
}

static void FN(scale_bias)(T *p, size_t n, float scale, float bias)
{
	for (size_t i = 0; i < n; i++)
		p[i] = FN(cut)((float)p[i] * scale + bias);
}

static double FN(sum)(const T *p, size_t n)
{
	double s = 0;
	for (size_t i = 0; i < n; i++)
		s += p[i];
	return s;
}

static double FN(luma_sum)(const T *p, size_t np)
{
	double s = 0;
	for (size_t i = 0; i < np; i++)
		s += FN(luma)(p + 3 * i);
	return s;
}

static void FN(gray)(T *dst, const T *src, size_t np, int channels)
{
	for (size_t i = 0; i < np; i++) {
		const T l = (T)FN(luma)(src + 3 * i);
		for (int c = 0; c < channels; c++)
			*dst++ = l;
	}
}

static void FN(saturate)(T *p, size_t np, float ratio)
{
	for (size_t i = 0; i < np; i++, p += 3) {
		const float l = FN(luma)(p) * (1.0f - ratio);
		for (int c = 0; c < 3; c++)
			p[c] = FN(cut)((float)p[c] * ratio + l);
	}
}

static void FN(hue)(T *p, size_t np, float shift)
{
	// torchvision scales to [0, 1] and back by a little more than TOP.
	const float up = WHOLE ? ((float)TOP + 0.999f) / (float)TOP : 1.0f;
	for (size_t i = 0; i < np; i++, p += 3) {
		float out[3];
		sk_hue(p[0], p[1], p[2], shift * 6.0f, out);
		for (int c = 0; c < 3; c++)
			p[c] = FN(cut)(out[c] * up);
	}
}

static void FN(invert)(T *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (T)(TOP - p[i]);
}

static void FN(posterize)(T *p, size_t n, int bits)
{
#if WHOLE
	const unsigned mask = (0xff00u >> bits & 0xff) << (8 * sizeof(T) - 8);
	for (size_t i = 0; i < n; i++)
		p[i] = (T)(p[i] & mask);
#else
	const float levels = (float)(1 << bits), top = levels - 1.0f, step = 1.0f / levels;
	for (size_t i = 0; i < n; i++) {
		float v = floorf(p[i] * levels);
		v = v > 0.0f ? v : 0.0f;
		p[i] = (v < top ? v : top) * step;
	}
#endif
}

static void FN(solarize)(T *p, size_t n, float threshold)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (float)p[i] >= threshold ? (T)(TOP - p[i]) : p[i];
}

static void FN(autocontrast)(T *p, size_t np, int channels)
{
	for (int c = 0; c < channels; c++) {
		T *q = p + c;
		float lo = (float)q[0], hi = lo;
		for (size_t i = 0; i < np; i++) {
			const float v = (float)q[i * (size_t)channels];
			lo = v < lo ? v : lo;
			hi = v > hi ? v : hi;
		}
		float scale = (hi - lo) * (1.0f / (float)TOP);
		if (!(hi > lo))
			lo = 0.0f, scale = 1.0f;
		for (size_t i = 0; i < np; i++)
			q[i * (size_t)channels] = FN(cut)(((float)q[i * (size_t)channels] - lo) / scale);
	}
}

// A value in 256 steps, and back.
static inline unsigned FN(step)(T v)
{
#if WHOLE
	return (unsigned)v >> (8 * sizeof(T) - 8);
#else
	v *= 255.999f;
	v = v > 0.0f ? v : 0.0f;
	return (unsigned)(v < 255.0f ? v : 255.0f);
#endif
}

static inline T FN(unstep)(unsigned v)
{
#if WHOLE
	return (T)(v << (8 * sizeof(T) - 8));
#else
	return (float)v * (1.0f / 255.0f);
#endif
}

static void FN(equalize)(T *p, size_t np, int channels)
{
	const size_t ch = (size_t)channels;
	for (size_t c = 0; c < ch; c++) {
		uint32_t hist[256] = {0};
		uint8_t table[256];
		for (size_t i = 0; i < np; i++)
			hist[FN(step)(p[i * ch + c])]++;
		sk_equalize_table(hist, np, table);
		for (size_t i = 0; i < np; i++)
			p[i * ch + c] = FN(unstep)(table[FN(step)(p[i * ch + c])]);
	}
}

static void FN(sharpen)(T *dst, const T *src, int w, int h, int channels, float rest, float *tmp)
{
	const size_t row = (size_t)w * (size_t)channels, ch = (size_t)channels;
	if (w <= 2 || h <= 2) {
		memcpy(dst, src, row * (size_t)h * sizeof *dst);
		return;
	}
	// Floats are cut off to [0, 1] everywhere, also at the borders.
	for (size_t i = 0; i < row; i++)
		dst[i] = FN(cut)((float)src[i]);
	for (int y = 1; y < h - 1; y++) {
		const T *s = src + row * (size_t)y;
		T *d = dst + row * (size_t)y;
		for (size_t i = 0; i < row; i++)
			tmp[i] = (float)s[i - row] + (float)s[i] + (float)s[i + row];
		for (size_t i = 0; i < ch; i++) {
			d[i] = FN(cut)((float)s[i]);
			d[row - ch + i] = FN(cut)((float)s[row - ch + i]);
		}
		for (size_t i = ch; i < row - ch; i++) {
			const float x = (float)s[i];
			float smooth = (tmp[i - ch] + tmp[i] + tmp[i + ch] + 4.0f * x) / 13.0f;
			if (WHOLE)
				smooth = rintf(smooth);
			d[i] = FN(cut)((smooth - x) * rest + x);
		}
	}
	for (size_t i = row * (size_t)(h - 1); i < row * (size_t)h; i++)
		dst[i] = FN(cut)((float)src[i]);
}

static void FN(blur)(T *dst, const T *src, int w, int h, int channels, const float *kx, int rx, const float *ky, int ry,
                     float *tmp)
{
	const size_t row = (size_t)w * (size_t)channels;
	const ptrdiff_t ch = channels;
	float *t = tmp + (size_t)rx * (size_t)channels;
	for (int y = 0; y < h; y++) {
		const T *s = src + row * (size_t)y;
		for (size_t i = 0; i < row; i++)
			t[i] = (float)s[i] * ky[0];
		for (int k = 1; k <= ry; k++) {
			const T *a = src + row * (size_t)sk_reflect(y - k, h), *b = src + row * (size_t)sk_reflect(y + k, h);
			for (size_t i = 0; i < row; i++)
				t[i] += ((float)a[i] + (float)b[i]) * ky[k];
		}
		for (int x = 1; x <= rx; x++) {
			memcpy(t - x * ch, t + x * ch, (size_t)ch * sizeof *t);
			memcpy(t + (w - 1 + x) * ch, t + (w - 1 - x) * ch, (size_t)ch * sizeof *t);
		}
		T *d = dst + row * (size_t)y;
		for (size_t i = 0; i < row; i++) {
			const float *c = t + i;
			float v = c[0] * kx[0];
			for (int k = 1; k <= rx; k++)
				v += (c[-k * ch] + c[k * ch]) * kx[k];
			d[i] = FN(rounded)(v);
		}
	}
}

static void FN(nearest_pixel)(T *d, const T *src, int w, int h, int ch, const T *fill, float sx, float sy)
{
	const T *p = fill;
	if (sk_within(sx, w) && sk_within(sy, h)) {
		const int x = (int)rintf(sx), y = (int)rintf(sy);
		if (x >= 0 && x < w && y >= 0 && y < h)
			p = src + ((size_t)y * (size_t)w + (size_t)x) * (size_t)ch;
	}
	for (int c = 0; c < ch; c++)
		d[c] = p[c];
}

static void FN(bilinear_pixel)(T *d, const T *src, int w, int h, int ch, const sk_any_map *m, const T *fill, float sx,
                               float sy)
{
	if (!sk_within(sx, w) || !sk_within(sy, h)) {
		for (int c = 0; c < ch && c < 4; c++)
			d[c] = fill[c];
		return;
	}
	const float left = floorf(sx), top = floorf(sy), fx = sx - left, fy = sy - top;
	const int x0 = (int)left, y0 = (int)top;
	float k[4] = {(1.0f - fx) * (1.0f - fy), fx * (1.0f - fy), (1.0f - fx) * fy, fx * fy}, inside = 0.0f;
	const T *p[4];
	int missing = 0;
	for (int i = 0; i < 4; i++) {
		const int x = x0 + (i & 1), y = y0 + (i >> 1);
		p[i] = src;
		if (x < 0 || x >= w || y < 0 || y >= h) {
			k[i] = 0.0f;
			missing = 1;
			continue;
		}
		p[i] = src + ((size_t)y * (size_t)w + (size_t)x) * (size_t)ch;
		inside += k[i];
	}
	for (int c = 0; c < ch; c++) {
		float v = k[0] * (float)p[0][c] + k[1] * (float)p[1][c] + k[2] * (float)p[2][c] + k[3] * (float)p[3][c];
		// torchvision blends with the fill a sum that already lacks the outer
		// neighbours.
		if (missing && m->has_fill)
			v = (v - m->fill[c]) * inside + m->fill[c];
		d[c] = FN(rounded)(v);
	}
}

static void FN(warp)(T *dst, int dw, int dh, const T *src, int sw, int sh, int channels, const sk_any_map *m)
{
	const float ax = (float)m->m[0], ay = (float)m->m[3];
	T fill[4] = {0};
	for (int c = 0; c < 4; c++)
		fill[c] = m->has_fill ? FN(rounded)(m->fill[c]) : 0;
	for (int y = 0; y < dh; y++) {
		// The row's constant in double: float would lose the low bits of m*y.
		const float bx = (float)(m->m[1] * y + m->m[2]), by = (float)(m->m[4] * y + m->m[5]);
		for (int x = 0; x < dw; x++, dst += channels) {
			const float sx = (float)x * ax + bx, sy = (float)x * ay + by;
			if (m->bilinear)
				FN(bilinear_pixel)(dst, src, sw, sh, channels, m, fill, sx, sy);
			else
				FN(nearest_pixel)(dst, src, sw, sh, channels, fill, sx, sy);
		}
	}
}

static void FN(remap)(T *dst, int n, const T *src, int sw, int sh, int channels, const sk_any_map *m, const float *xs,
                      const float *ys)
{
	T fill[4] = {0};
	for (int c = 0; c < 4; c++)
		fill[c] = m->has_fill ? FN(rounded)(m->fill[c]) : 0;
	for (int i = 0; i < n; i++, dst += channels) {
		if (m->bilinear)
			FN(bilinear_pixel)(dst, src, sw, sh, channels, m, fill, xs[i], ys[i]);
		else
			FN(nearest_pixel)(dst, src, sw, sh, channels, fill, xs[i], ys[i]);
	}
}

#undef T
#undef TOP
#undef FN
#undef WHOLE
