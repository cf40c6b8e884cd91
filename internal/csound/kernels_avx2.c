// The loops of kernels.h with AVX2.
#if defined(__x86_64__)
#define TARGET __attribute__((target("avx2")))
#define FN(name) ss_##name##_avx2
#include "kernels.h"
#else
typedef int nothing; // a file of C has at least one declaration
#endif
