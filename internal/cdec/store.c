// Finished rows into the batch: element type, layout and normalisation.
#include "half.h"
#include "resize.h"

#include <math.h>
#include <string.h>

static uint8_t to_u8(float f)
{
	if (!(f > 0))
		return 0;
	return f >= 255 ? 255 : (uint8_t)lrintf(f);
}

// Pillow's convert("L").
static uint8_t luma(const uint8_t *p) { return (uint8_t)((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16); }

static inline void put(const sk_store *st, int c, uint8_t v, size_t i, uint8_t *dst)
{
	float f = (float)v * st->scale[c];
	f += st->bias[c];
	switch (st->dtype) {
	case SK_U8: dst[i] = to_u8(f); return;
	case SK_F32: memcpy(dst + 4 * i, &f, 4); return;
	default: {
		uint16_t h = st->dtype == SK_F16 ? sk_to_f16(f) : sk_to_bf16(f);
		memcpy(dst + 2 * i, &h, 2);
	}
	}
}

int sk_store_is_plain(const sk_store *st)
{
	if (st->dtype != SK_U8)
		return 0;
	for (int c = 0; c < st->channels; c++)
		if (st->scale[c] != 1 || st->bias[c] != 0)
			return 0;
	return 1;
}

void sk_store_range_scalar(const sk_store *st, const uint8_t *rgb, int w, int h, int y, int from, int to, uint8_t *dst)
{
	const size_t plane = (size_t)w * (size_t)h, row = (size_t)y * (size_t)w;
	if (st->channels == 1) {
		for (int i = from; i < to; i++)
			put(st, 0, luma(rgb + 3 * i), row + (size_t)i, dst);
	} else if (st->layout == SK_NHWC) {
		for (int i = from; i < to; i++)
			for (int c = 0; c < 3; c++)
				put(st, c, rgb[3 * i + c], (row + (size_t)i) * 3 + (size_t)c, dst);
	} else {
		for (int c = 0; c < 3; c++)
			for (int i = from; i < to; i++)
				put(st, c, rgb[3 * i + c], plane * (size_t)c + row + (size_t)i, dst);
	}
}

void sk_store_row_scalar(const sk_store *st, const uint8_t *rgb, int w, int h, int y, uint8_t *dst)
{
	sk_store_range_scalar(st, rgb, w, h, y, 0, w, dst);
}
