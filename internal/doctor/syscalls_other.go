//go:build !amd64 && !arm64

package doctor

// calls is empty where the numbers of the system calls are not known here: what
// a thread waits for is then told by its state and its frames alone.
var calls = map[int]call{}
