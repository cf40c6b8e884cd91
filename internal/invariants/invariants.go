// Package invariants holds checks that cost nothing in release builds: what a
// program with bugs in its use of memory gets away with for a long time. Programs
// and tests that are built with the tag invariants (`make test-invariants`) find
// memory destroyed as soon as it is given back, and stop at what is given back
// twice.
//
//	if invariants.Enabled && refs < 0 {
//		invariants.Broken("a block is released twice")
//	}
package invariants

import "fmt"

// mangled is what memory holds after Mangle: as numbers it is far off, as sizes
// and offsets it is out of range.
const mangled = 0xdb

// Mangle destroys memory that nobody may use any more. Without the tag it does
// nothing.
func Mangle(b []byte) {
	if !Enabled {
		return
	}
	for i := range b {
		b[i] = mangled
	}
}

// IsMangled says whether Mangle has been at work on b, and nobody since.
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
