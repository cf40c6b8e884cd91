// Package invariants holds checks that cost nothing in release builds. They find bugs in the use of memory that can
// otherwise stay unnoticed for a long time. In programs and tests with the build tag invariants (`make
// test-invariants`), memory is destroyed when it is released, and a second release stops the program. Counters that are
// kept by hand are compared with what they count.
//
//	if invariants.Enabled && refs < 0 {
//		invariants.Broken("a block is released twice")
//	}
package invariants

import "fmt"

// mangled is the content of memory after Mangle. Numbers made of it are far off, and sizes and offsets are out of
// range.
const mangled = 0xdb

// Mangle destroys memory that must not be used any more. Without the tag it does nothing.
func Mangle(b []byte) {
	if !Enabled {
		return
	}
	for i := range b {
		b[i] = mangled
	}
}

// IsMangled reports whether Mangle has destroyed b and b has not been written since.
func IsMangled(b []byte) bool {
	for _, v := range b {
		if v != mangled {
			return false
		}
	}
	return len(b) > 0
}

// Broken ends the program: a bug was found. Callers ask Enabled first.
func Broken(format string, args ...any) { panic("invariant broken: " + fmt.Sprintf(format, args...)) }
