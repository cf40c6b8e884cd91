// The forms of SK_KERNEL_DCT.
#include "dct_pack.h"
#include "kernels.h"

const dct_kernels *dct_kernels_for(void)
{
	switch (sk_set(SK_KERNEL_DCT)) {
#if defined(__x86_64__)
	case SK_AVX512: return &dct_kernels_avx512;
	case SK_AVX2: return &dct_kernels_avx2;
#endif
	default: return &dct_kernels_scalar;
	}
}

dct_pack_tile_fn *dct_pack_for(void)
{
	switch (sk_set(SK_KERNEL_DCT)) {
#if defined(__x86_64__)
	case SK_AVX512: return dct_pack_avx512;
	case SK_AVX2: return dct_pack_avx2;
#endif
	default: return dct_pack_scalar;
	}
}
