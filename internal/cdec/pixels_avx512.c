// The loops of pixels_kernels.h with AVX-512.
#if defined(__x86_64__)
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")))
#define FN(name) name##_avx512
#include "pixels_kernels.h"
#else
typedef int nothing; // a file of C has at least one declaration
#endif
