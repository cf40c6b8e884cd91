package driver

import "errors"

// ErrDamaged is in the error of a record whose bytes are not those that were written, as a checksum of the format shows.
// Another copy of the bytes may be right.
var ErrDamaged = errors.New("the bytes are damaged")

// Damaged marks an error as one of damage. Its text stays the same.
func Damaged(err error) error {
	if err == nil {
		return nil
	}
	return &damage{err}
}

type damage struct{ error }

// Unwrap returns the error that was marked.
func (d *damage) Unwrap() error { return d.error }

// Is makes errors.Is find ErrDamaged.
func (d *damage) Is(target error) bool { return target == ErrDamaged }
