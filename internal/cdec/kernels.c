#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

// Features that a form needs in addition to those of its set.
enum { PCLMUL = 1, VBMI2 = 2, VPCLMUL = 4, NO_FORM = 8 };

static const struct {
	const char *name;
	int needs[SK_SETS];
} kernels[SK_KERNELS] = {
	[SK_KERNEL_RESIZE] = {"resize", {0, 0, 0}},         [SK_KERNEL_PIXELS] = {"pixels", {0, 0, 0}},
	[SK_KERNEL_DCT] = {"dct", {0, 0, VBMI2}},           [SK_KERNEL_HUFFMAN] = {"huffman", {0, 0, NO_FORM}},
	[SK_KERNEL_AUGMENT] = {"augment", {0, 0, 0}},       [SK_KERNEL_INFLATE] = {"inflate", {0, 0, NO_FORM}},
	[SK_KERNEL_ADLER32] = {"adler32", {0, 0, NO_FORM}}, [SK_KERNEL_UNSHUFFLE] = {"unshuffle", {0, 0, NO_FORM}},
	[SK_KERNEL_GATHER] = {"gather", {0, 0, 0}},         [SK_KERNEL_CRC32C] = {"crc32c", {0, PCLMUL, PCLMUL | VPCLMUL}},
	[SK_KERNEL_VOXELS] = {"voxels", {0, 0, NO_FORM}},   [SK_KERNEL_SOUND] = {"sound", {0, 0, NO_FORM}},
};

int sk_sets[SK_KERNELS];

int sk_best_set(void)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
	    __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("bmi2"))
		return SK_AVX512;
	unsigned a, b, c, d; // clang's __builtin_cpu_supports does not know f16c
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
	    __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C))
		return SK_AVX2;
#endif
	return SK_SCALAR;
}

// The features of this processor that only some kernels need.
static int features(void)
{
	int have = 0;
#if defined(__x86_64__)
	__builtin_cpu_init();
	have |= __builtin_cpu_supports("pclmul") ? PCLMUL : 0;
	have |= __builtin_cpu_supports("avx512vbmi2") ? VBMI2 : 0;
	have |= __builtin_cpu_supports("vpclmulqdq") ? VPCLMUL : 0;
#endif
	return have;
}

void sk_use_set(int set)
{
	const int best = sk_best_set(), have = features();
	for (int k = 0; k < SK_KERNELS; k++) {
		int s = set < best ? set : best;
		while (s > SK_SCALAR && (kernels[k].needs[s] & ~have) != 0)
			s--;
		__atomic_store_n(&sk_sets[k], s, __ATOMIC_RELAXED);
	}
}

const char *sk_kernel_name(int kernel) { return kernels[kernel].name; }
