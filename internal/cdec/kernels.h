// The registry of kernels. A kernel is a group of loops that is compiled for several sets of instructions. All of its
// forms give the same bytes. Code with a kernel asks for the set of the form to run with sk_set.
#ifndef STOKER_KERNELS_H
#define STOKER_KERNELS_H

// Kernel sets, by the required processor features. Each includes the ones before it.
enum { SK_SCALAR = 0, SK_AVX2 = 1, SK_AVX512 = 2, SK_SETS = 3 };

enum {
	SK_KERNEL_RESIZE,    // resize.c: resize and store of u8 RGB
	SK_KERNEL_PIXELS,    // pixels.c: the same for other pixels
	SK_KERNEL_DCT,       // dct_kernels.c: unpacking and packing of dct, and the inverse transform
	SK_KERNEL_HUFFMAN,   // huffman.c
	SK_KERNEL_AUGMENT,   // aug_*.c
	SK_KERNEL_INFLATE,   // inflate.c
	SK_KERNEL_ADLER32,   // inflate.c
	SK_KERNEL_UNSHUFFLE, // inflate.c
	SK_KERNEL_GATHER,    // gather.c
	SK_KERNEL_CRC32C,    // gather.c: without a scalar form, which Go has
	SK_KERNEL_VOXELS,    // voxels.c
	SK_KERNEL_SOUND,     // package csound
	SK_KERNELS,
};

// The sets of the forms in use, all scalar at first. Only sk_use_set writes them.
extern int sk_sets[SK_KERNELS];

// The set of the form of a kernel to run: SK_SCALAR, or a set for which the kernel has a form.
static inline int sk_set(int kernel) { return __atomic_load_n(&sk_sets[kernel], __ATOMIC_RELAXED); }

// The best set of this processor.
int sk_best_set(void);
// Makes each kernel use the best form that a set allows and this processor runs.
void sk_use_set(int set);
const char *sk_kernel_name(int kernel);

#endif
