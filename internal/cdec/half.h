// Floats of 16 bits.
#ifndef STOKER_HALF_H
#define STOKER_HALF_H

#include <stdint.h>
#include <string.h>

// Round to nearest even, like the vcvtps2ph instruction.
static inline uint16_t sk_to_f16(float f)
{
	uint32_t u, sign;
	memcpy(&u, &f, 4);
	sign = (u >> 16) & 0x8000;
	u &= 0x7fffffff;
	if (u > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | ((u >> 13) & 0x3ff)); // NaN, quiet
	if (u >= 0x47800000)
		return (uint16_t)(sign | 0x7c00); // too large: infinity
	if (u < 0x38800000) {                 // subnormal or zero
		if (u < 0x33000000)
			return (uint16_t)sign;
		uint32_t m = (u & 0x7fffff) | 0x800000, shift = 126 - (u >> 23), half = 1u << (shift - 1);
		uint32_t v = m >> shift, rest = m & ((1u << shift) - 1);
		if (rest > half || (rest == half && (v & 1)))
			v++;
		return (uint16_t)(sign | v);
	}
	u += 0xfff + ((u >> 13) & 1);
	return (uint16_t)(sign | ((u - 0x38000000) >> 13));
}

static inline uint16_t sk_to_bf16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)((u >> 16) | 0x40);
	return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

#endif
