// Voxels of volumes to floats. One loop for each type of voxels, compiled for AVX2 and for any processor; both give the
// same floats.
#include "voxels.h"

#include "sk.h"

#include <string.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

typedef uint16_t u16_any __attribute__((aligned(1), may_alias));
typedef int16_t i16_any __attribute__((aligned(1), may_alias));
typedef float f32_any __attribute__((aligned(1), may_alias));

#define INLINE static inline __attribute__((always_inline))

// Loops with a constant step are vectorized.
#define LOAD(T)                              \
	do {                                     \
		const T *p = (const T *)src + from;  \
		if (step == 1)                       \
			for (int64_t i = 0; i < n; i++)  \
				row[i] = (float)p[i];        \
		else if (step == -1)                 \
			for (int64_t i = 0; i < n; i++)  \
				row[i] = (float)p[-i];       \
		else                                 \
			for (int64_t i = 0; i < n; i++)  \
				row[i] = (float)p[i * step]; \
	} while (0)

INLINE void load(float *restrict row, const uint8_t *restrict src, int type, int64_t from, int64_t step, int64_t n)
{
	switch (type) {
	case SK_VOXELS_U8: LOAD(uint8_t); break;
	case SK_VOXELS_U16: LOAD(u16_any); break;
	case SK_VOXELS_I16: LOAD(i16_any); break;
	default: LOAD(f32_any);
	}
}

INLINE void box(float *dst, const uint8_t *src, const sk_voxels *v)
{
	const int64_t n = v->hi[2] - v->lo[2];
	for (int64_t c = 0; c < v->channels; c++)
		for (int64_t z = v->lo[0]; z < v->hi[0]; z++)
			for (int64_t y = v->lo[1]; y < v->hi[1]; y++) {
				float *row = dst + ((c * v->size[0] + z) * v->size[1] + y) * v->size[2] + v->lo[2];
				load(row, src, v->type,
				     c * v->plane + v->start + (z - v->lo[0]) * v->step[0] + (y - v->lo[1]) * v->step[1], v->step[2],
				     n);
				if (v->scale)
					for (int64_t i = 0; i < n; i++)
						row[i] = row[i] * v->a + v->b;
				if (v->clip) // not a number stays so
					for (int64_t i = 0; i < n; i++)
						row[i] = row[i] < v->least ? v->least : row[i] > v->most ? v->most : row[i];
			}
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void box_avx2(float *dst, const uint8_t *src, const sk_voxels *v)
{
	box(dst, src, v);
}
#endif

static void box_any(float *dst, const uint8_t *src, const sk_voxels *v) { box(dst, src, v); }

int sk_voxels_floats(float *dst, const uint8_t *src, const sk_voxels *v)
{
	sk_guard g;
	if (sigsetjmp(g.back, 0) != 0)
		return SK_UNREADABLE;
	sk_guard_on(&g);
#if defined(__x86_64__)
	if (sk_set(SK_KERNEL_VOXELS) != SK_SCALAR)
		box_avx2(dst, src, v);
	else
#endif
		box_any(dst, src, v);
	sk_guard_off();
	return SK_OK;
}
