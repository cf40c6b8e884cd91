package driver

import (
	"context"
	"errors"
)

// Sequential is implemented by sources whose records cannot be located, such as
// compressed streams: they give their records in order. Info.Sequential says so;
// such a source can be packed, and read in order. Its Locate and Parse are those of
// InOrderOnly.
type Sequential interface {
	Source
	// Token returns a few printable characters from which Records goes on with
	// record id, 0 <= id <= Info.Len. It does no I/O.
	Token(id int64) string
	// Memory is about how many bytes a call of Records takes beside the values of
	// records.
	Memory() int64
	// Records gives records in ascending order to in.Record, from the one that the
	// token stands for, "" for the first one, until there are no more. A token of
	// other data, or one that is damaged, is refused. Who wants to go on later
	// asks for the Token of the record behind the last one.
	//
	// A record that cannot be had is given with its Err. So are all those that
	// cannot be reached because of one failure; behind them Records goes on. It
	// fails when ctx is done or Record does. All that it has started has ended
	// when it returns.
	Records(ctx context.Context, token string, in *InOrder) error
}

// InOrder is what a Sequential reads with and where its records go. Alloc and
// Record are called from the goroutine of Records, one call at a time; Read from
// several.
type InOrder struct {
	// Read fills p from an offset of an object (Source.Object), or fails with an
	// error that names both.
	Read func(ctx context.Context, object int64, p []byte, off int64) error
	// Alloc returns n bytes for a value of the record that comes next, not zeroed,
	// 64-byte aligned, with 64 readable bytes behind them. It may wait until there
	// is room. Its error becomes the record's.
	Alloc func(id int64, field int, n int64) ([]byte, error)
	// Record takes a record, which is valid until it returns, and says which one
	// it wants next: that behind it, or a later one, which the source goes to in
	// the cheapest way there is, or Info.Len to end.
	Record func(rec *Record) (next int64, err error)
}

// ErrInOrder is the error of a record that was to be located and cannot be.
var ErrInOrder = errors.New("its source can only be read in order")

// InOrderOnly is embedded by Sequential sources: nothing of them is located.
type InOrderOnly struct{}

// Locate finds nothing.
func (InOrderOnly) Locate(g *Group) {
	for k := range g.IDs {
		if rec := &g.Records[k]; rec.Err == nil {
			rec.Err = ErrInOrder
		}
		g.Next()
	}
}

// Parse has nothing to do: Records gives values.
func (InOrderOnly) Parse(*Group) error { return nil }
