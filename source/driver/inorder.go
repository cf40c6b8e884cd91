package driver

import (
	"context"
	"errors"
)

// Sequential is implemented by sources that cannot locate records and can only read them in order,
// for example compressed streams. Info.Sequential is true for them. Such a source can be packed, or
// read in order. It embeds InOrderOnly for Locate and Parse.
type Sequential interface {
	Source
	// Token returns a few printable characters. With them, Records continues at record id, 0 <= id
	// <= Info.Len. Token does no I/O.
	Token(id int64) string
	// Memory returns about how many bytes a call of Records takes, in addition to the values.
	Memory() int64
	// Records passes records to in.Record in ascending order until there are no more. It starts at
	// the record of the token, or at the first one if the token is "". It refuses a token that is
	// damaged or belongs to other data. To continue later, get the Token of the record after the
	// last one.
	//
	// A record that cannot be read is passed with its Err. If one failure makes several records
	// unreadable, all of them are passed with an Err, and Records continues after them. Records
	// fails if ctx is done or in.Record fails. When it returns, everything that it started has
	// ended.
	Records(ctx context.Context, token string, in *InOrder) error
}

// InOrder has the functions that a Sequential reads with and passes records to. Alloc and Record
// are called from the goroutine of Records, one call at a time. Read may be called from several
// goroutines.
type InOrder struct {
	// Read fills p from an offset of an object (Source.Object), or fails with an error that names
	// both.
	Read func(ctx context.Context, object int64, p []byte, off int64) error
	// Alloc returns n bytes for a value of the next record. They are not zeroed, are 64-byte
	// aligned, and have 64 readable bytes after them. Alloc may wait until memory is free. Its
	// error becomes the error of the record.
	Alloc func(id int64, field int, n int64) ([]byte, error)
	// Record takes a record, which is valid until Record returns. It returns the record to read
	// next: the following one, a later one, or Info.Len to end. The source skips to a later record
	// in the cheapest way.
	Record func(rec *Record) (next int64, err error)
}

// ErrInOrder is the error of Locate for a record of a Sequential.
var ErrInOrder = errors.New("its source can only be read in order")

// InOrderOnly is embedded by Sequential sources. Its Locate fails for all records.
type InOrderOnly struct{}

// Locate sets ErrInOrder for all records.
func (InOrderOnly) Locate(g *Group) {
	for k := range g.IDs {
		if rec := &g.Records[k]; rec.Err == nil {
			rec.Err = ErrInOrder
		}
		g.Next()
	}
}

// Parse does nothing, since Records passes the values.
func (InOrderOnly) Parse(*Group) error { return nil }
