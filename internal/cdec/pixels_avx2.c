// The loops of pixels_kernels.h with AVX2.
#if defined(__x86_64__)
#define TARGET __attribute__((target("avx2")))
#define FN(name) name##_avx2
#include "pixels_kernels.h"
#else
typedef int nothing; // a file of C has at least one declaration
#endif
