package npysink

// combine returns the CRC-32 of two byte strings joined together, from their checksums and the
// length n of the second. A checksum is a polynomial over bits, and n zero bytes after the first
// string multiply it by x to the power of 8n.
func combine(first, second uint32, n int64) uint32 {
	square := make([]uint32, 32) // multiplies by x, then by x^2, x^4, ...
	square[0] = 0xEDB88320
	for i := 1; i < 32; i++ {
		square[i] = 1 << (i - 1)
	}
	for range 3 {
		square = times(square) // by x^8: a byte
	}
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			first = apply(square, first)
		}
		square = times(square)
	}
	return first ^ second
}

// apply returns the product of a bit matrix and a vector.
func apply(m []uint32, v uint32) (out uint32) {
	for i := 0; v != 0; i++ {
		if v&1 != 0 {
			out ^= m[i]
		}
		v >>= 1
	}
	return out
}

// times returns the square of a matrix.
func times(m []uint32) []uint32 {
	out := make([]uint32, len(m))
	for i := range m {
		out[i] = apply(m, m[i])
	}
	return out
}
