package sampler

// Variant returns which of n variants of a record an epoch has. In n epochs from a multiple of n on, each variant of a
// record comes once, in a record-specific order.
func Variant(seed uint64, epoch, record int64, n int) int {
	if n < 2 {
		return 0
	}
	k := uint64(n)
	round, turn := uint64(epoch)/k, uint64(epoch)%k
	h := mix64(mix64(mix64(seed+golden)^uint64(record)*golden+golden) + round*golden)
	// The hash sets the start and the step. The step has no common divisor with n, so that it reaches all variants.
	step := h>>32%k + 1
	for divisor(step, k) != 1 {
		step = step%k + 1
	}
	return int((h%k + turn*step) % k)
}

// divisor returns the greatest common divisor.
func divisor[T int | uint64](a, b T) T {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
