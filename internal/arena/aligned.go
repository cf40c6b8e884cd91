package arena

import "unsafe"

// Aligned returns n bytes of the Go heap whose address is a multiple of to, a power of two, for direct reads.
func Aligned(n, to int) []byte {
	b := make([]byte, n+to)
	at := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (to - 1)
	return b[at : at+n : at+n]
}

// IsAligned reports whether the address of b is a multiple of to, a power of two.
func IsAligned(b []byte, to int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))&uintptr(to-1) == 0
}
