package pack

import (
	"context"

	"github.com/stokerdata/stoker/store"
)

// Extras reads the parts of records that a loader never reads: original paths, and metadata of images. It belongs to
// one goroutine and is fast for consecutive records.
type Extras struct {
	r     *Reader
	chunk int
	obj   store.Object
	view  *view
	head  []byte
	rec   Record
}

// Extras returns a reader for the paths and metadata of records.
func (r *Reader) Extras() *Extras { return &Extras{r: r, chunk: -1} }

// Read reads record id, 0 <= id < Len. It sets only Path in the record, and only Path, EXIF and ICC in its values.
// The result is valid until the next Read.
func (x *Extras) Read(ctx context.Context, id int64) (*Record, error) {
	c, row := x.r.row(id)
	if c != x.chunk {
		x.Close()
		var err error
		if x.obj, x.view, err = x.r.openChunk(ctx, c, &x.head); err != nil {
			return nil, err
		}
		x.chunk = c
	}
	return &x.rec, x.view.record(ctx, x.obj, row, &x.rec, onlyTail)
}

// Close ends reading.
func (x *Extras) Close() {
	if x.obj != nil {
		_ = x.obj.Close()
		x.obj, x.chunk = nil, -1
	}
}
