package cdec

import (
	"slices"
	"testing"
)

// TestKernelForms compares the form of each kernel with the set that is allowed, for each set of this processor.
func TestKernelForms(t *testing.T) {
	defer useKernels(kernelSet.Load())
	for limit, name := range kernelSets() {
		use(t, name)
		if Kernels() != name {
			t.Errorf("kernels %s: %s are in use", name, Kernels())
		}
		seen := map[string]bool{}
		for _, f := range KernelForms() {
			set := slices.Index(kernelNames[:], f.Set)
			if f.Kernel == "" || seen[f.Kernel] || set < 0 || set > limit {
				t.Errorf("kernels %s: the form %q of the kernel %q", name, f.Set, f.Kernel)
			}
			// Every processor with these sets has the other features that forms of AVX2 need.
			if limit > 0 && set == 0 {
				t.Errorf("kernels %s: the kernel %s has no form", name, f.Kernel)
			}
			seen[f.Kernel] = true
		}
		if want := min(limit, 1); SoundKernels() != want {
			t.Errorf("kernels %s: the set of sound is %d, want %d", name, SoundKernels(), want)
		}
	}
	if err := SetKernels("sse9"); err == nil {
		t.Error("unknown kernels were accepted")
	}
	if err := CheckKernels(); err != nil {
		t.Error(err)
	}
}
