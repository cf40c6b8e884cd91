package cdec

/*
#include "kernels.h"
*/
import "C"

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"
)

// KernelsEnv is the environment variable that names the kernel set of the process, in place of the best one that the
// processor supports. All sets give the same bytes.
const KernelsEnv = "STOKER_KERNELS"

var kernelNames = [...]string{C.SK_SCALAR: "scalar", C.SK_AVX2: "avx2", C.SK_AVX512: "avx512"}

var (
	kernelSet  atomic.Int32 // the set in use
	kernelsErr error        // of the environment variable
)

func init() {
	set := os.Getenv(KernelsEnv)
	if set != "" {
		kernelsErr = SetKernels(set)
	}
	if set == "" || kernelsErr != nil {
		useKernels(int32(C.sk_best_set()))
	}
}

func useKernels(set int32) {
	kernelSet.Store(set)
	C.sk_use_set(C.int(set))
}

// CheckKernels returns the error of a STOKER_KERNELS that this process cannot follow.
func CheckKernels() error {
	if kernelsErr != nil {
		return fmt.Errorf("%s: %w", KernelsEnv, kernelsErr)
	}
	return nil
}

// Kernels returns the name of the set of kernels in use: the best that the processor supports, unless STOKER_KERNELS or
// SetKernels chose another one.
func Kernels() string { return kernelNames[kernelSet.Load()] }

// SetKernels chooses the kernels "scalar", "avx2" or "avx512" for the whole process.
func SetKernels(name string) error {
	best := int(C.sk_best_set())
	for i, n := range kernelNames {
		if n != name {
			continue
		}
		if i > best {
			return fmt.Errorf("kernels %q: this processor has at most %q", name, kernelNames[best])
		}
		useKernels(int32(i))
		return nil
	}
	return fmt.Errorf("kernels %q: want one of scalar, avx2, avx512", name)
}

// KernelForm is a kernel and the name of the set whose form is in use.
type KernelForm struct {
	Kernel string `json:"kernel"`
	Set    string `json:"set"`
}

// KernelForms returns the form in use of each kernel.
func KernelForms() []KernelForm {
	forms := make([]KernelForm, C.SK_KERNELS)
	for k := range forms {
		forms[k] = KernelForm{C.GoString(C.sk_kernel_name(C.int(k))), kernelNames[C.sk_set(C.int(k))]}
	}
	return forms
}

// SoundKernels returns the number of the set that package csound uses: 0 for the portable form.
func SoundKernels() int {
	return int(atomic.LoadInt32((*int32)(unsafe.Pointer(&C.sk_sets[C.SK_KERNEL_SOUND]))))
}
