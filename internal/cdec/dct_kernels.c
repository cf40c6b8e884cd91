// Selects the kernels for this machine.
#include "dct_pack.h"

const dct_kernels *dct_kernels_for(int isa)
{
#if defined(__x86_64__)
	// VBMI2 is not guaranteed by SK_AVX512, although every processor with VNNI and VBMI has it.
	if (isa >= SK_AVX512 && __builtin_cpu_supports("avx512vbmi2"))
		return &dct_kernels_avx512;
	if (isa >= SK_AVX2)
		return &dct_kernels_avx2;
#else
	(void)isa;
#endif
	return &dct_kernels_scalar;
}

dct_pack_tile_fn *dct_pack_for(int isa)
{
#if defined(__x86_64__)
	if (isa >= SK_AVX512 && __builtin_cpu_supports("avx512vbmi2"))
		return dct_pack_avx512;
	if (isa >= SK_AVX2)
		return dct_pack_avx2;
#else
	(void)isa;
#endif
	return dct_pack_scalar;
}
