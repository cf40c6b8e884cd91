//go:build !amd64 && !arm64

package doctor

// calls is empty if the numbers of the system calls are not known here. The object of a wait is then derived from the
// thread's state and frames alone.
var calls = map[int]call{}
