// Samples of files to floats from -1 to 1, as libsndfile scales them.
#include "csound.h"

#include <string.h>

typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));
typedef float any_f32 __attribute__((aligned(1), may_alias));
typedef double any_f64 __attribute__((aligned(1), may_alias));

#define EACH(value)                              \
	for (size_t c = 0; c < channels; c++) {      \
		float *to = dst + c * stride;            \
		if (channels == 1)                       \
			for (size_t i = 0; i < n; i++)       \
				to[i] = value(i);                \
		else if (channels == 2)                  \
			for (size_t i = 0; i < n; i++)       \
				to[i] = value(2 * i + c);        \
		else                                     \
			for (size_t i = 0; i < n; i++)       \
				to[i] = value(i * channels + c); \
	}

void ss_pcm(int type, const uint8_t *src, float *dst, size_t stride, size_t channels, size_t n, const float *table)
{
#define U8(i) ((float)(src[i] - 128) * (1.0f / 128))
#define S16(i) ((float)(int16_t)((const any_u16 *)src)[i] * (1.0f / 32768))
#define S24(i)                                                                          \
	((float)((int32_t)((uint32_t)src[3 * (i)] << 8 | (uint32_t)src[3 * (i) + 1] << 16 | \
	                   (uint32_t)src[3 * (i) + 2] << 24) >>                             \
	         8) *                                                                       \
	 (1.0f / 8388608))
#define S32(i) ((float)(int32_t)((const any_u32 *)src)[i] * (1.0f / 2147483648.0f))
#define F32(i) (((const any_f32 *)src)[i])
#define F64(i) ((float)((const any_f64 *)src)[i])
#define TABLE(i) (table[src[i]])
	switch (type) {
	case SS_PCM_U8: EACH(U8) return;
	case SS_PCM_S16: EACH(S16) return;
	case SS_PCM_S24: EACH(S24) return;
	case SS_PCM_S32: EACH(S32) return;
	case SS_PCM_F32: EACH(F32) return;
	case SS_PCM_F64: EACH(F64) return;
	case SS_PCM_TABLE: EACH(TABLE) return;
	}
}
