package recordread

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/source/driver"
)

// maxRounds bounds how often a source may ask for more of its index before it
// can locate a record.
const maxRounds = 16

// Direct reads records of a source without a fetcher, one call at a time. It belongs to one goroutine. Several may share
// Objects.
type Direct struct {
	// Alloc returns memory for values, and Place returns their destination, as in driver.Group. Place may be nil.
	Alloc func(n int) ([]byte, error)
	Place func(k, field int, n int64) []byte
	// Want selects the fields, nil for all.
	Want []bool
	// Unproven is the same as in driver.Group.
	Unproven bool

	src driver.Source
	seq driver.Sequential // src, if it can only be read in order
	obj *Objects
	g   driver.Group
}

// NewDirect returns a Direct that takes memory from the Go heap, unless its
// Alloc is set.
func NewDirect(src driver.Source, obj *Objects) *Direct {
	seq, _ := driver.As[driver.Sequential](src)
	return &Direct{src: src, seq: seq, obj: obj, Alloc: func(n int) ([]byte, error) { return make([]byte, n+Tail)[:n], nil }}
}

// Read reads records. The error of a single record is in its Err. Read itself fails if ctx is done or there is no
// memory. The records are valid until the next Read.
func (r *Direct) Read(ctx context.Context, ids []int64) ([]driver.Record, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	g := &r.g
	g.Alloc, g.Place, g.Want, g.Unproven = r.Alloc, r.Place, r.Want, r.Unproven
	g.Begin(ids, len(r.src.Info().Fields))
	if r.seq != nil {
		return g.Records, r.inOrder(ctx, r.seq)
	}
	if err := Locate(ctx, r.src, g, r.learn); err != nil {
		return nil, err
	}
	now := time.Now()
	g.Bytes = g.Bytes[:0]
	for range g.Extents {
		g.Bytes = append(g.Bytes, nil)
	}
	for k := range ids {
		rec := &g.Records[k]
		for i := g.First[k]; i < g.First[k+1] && rec.Err == nil; i++ {
			e := &g.Extents[i]
			if g.Bytes[i] = r.obj.Resident(e, now); g.Bytes[i] != nil || e.Size == 0 {
				continue
			}
			var b []byte
			var err error
			if e.Field >= 0 {
				b, err = g.Take(k, int(e.Field), e.Size)
			} else {
				b, err = g.Alloc(int(e.Size))
			}
			if err != nil {
				return nil, fmt.Errorf("no memory for %d bytes of %s: %w", e.Size, r.obj.Place(e), err)
			}
			g.Bytes[i] = b
			if rec.Err = r.obj.Read(ctx, e.Object, b, e.Offset); rec.Err != nil && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	}
	if err := Parse(r.src, g); err != nil {
		return nil, err
	}
	return g.Records, nil
}

// learn reads one piece of the index.
func (r *Direct) learn(ctx context.Context, e driver.Extent) error {
	b := make([]byte, e.Size+Tail)[:e.Size]
	if err := r.obj.Read(ctx, e.Object, b, e.Offset); err != nil {
		return err
	}
	return Learn(r.src, e, b)
}

// Locate locates the records of a group. learn reads the pieces of the index that are not known yet.
func Locate(ctx context.Context, src driver.Source, g *driver.Group, learn func(ctx context.Context, e driver.Extent) error) error {
	for range maxRounds {
		if err := LocateOnce(src, g); err != nil {
			return err
		}
		if len(g.Missing) == 0 {
			return nil
		}
		missing := append([]driver.Missing(nil), g.Missing...)
		done := map[[2]int64]error{}
		for i := range missing {
			m := &missing[i]
			at := [2]int64{m.Object, m.Offset}
			err, ok := done[at]
			if !ok {
				if err = learn(ctx, m.Extent); err != nil && ctx.Err() != nil {
					return context.Cause(ctx)
				}
				done[at] = err
			}
			if err != nil && g.Records[m.K].Err == nil {
				g.Records[m.K].Err = err
			}
		}
	}
	for i := range g.Missing {
		rec := &g.Records[g.Missing[i].K]
		if rec.Err == nil {
			rec.Err = fmt.Errorf("internal error: the index of %s has no end", src.Info().URL)
		}
	}
	return LocateOnce(src, g)
}

// LocateOnce calls Locate; a panic of the source becomes an error.
func LocateOnce(src driver.Source, g *driver.Group) (err error) {
	defer guard("locating", &err)
	g.Relocate()
	src.Locate(g)
	if len(g.First) != len(g.IDs)+1 {
		return fmt.Errorf("internal error: %s located %d of %d records", src.Info().Format, len(g.First)-1, len(g.IDs))
	}
	return nil
}

// locating is the number of records that Sizes locates together.
const locating = 1024

// Sizes locates all records of a source and calls each with the number of bytes of a record's selected fields. want is
// nil for all fields.
func Sizes(src driver.Source, want []bool, each func(id, size int64) error) error {
	info := src.Info()
	g := driver.Group{Want: want}
	ids := make([]int64, 0, locating)
	for at := int64(0); at < info.Len; at += locating {
		ids = ids[:0]
		for id := at; id < min(at+locating, info.Len); id++ {
			ids = append(ids, id)
		}
		g.Begin(ids, len(info.Fields))
		if err := LocateOnce(src, &g); err != nil {
			return err
		}
		for k, id := range ids {
			size := int64(0)
			for _, e := range g.Extents[g.First[k]:g.First[k+1]] {
				size += e.Size
			}
			if err := each(id, size); err != nil {
				return err
			}
		}
	}
	return nil
}

// Learn passes a piece of the index to a source; a panic becomes an error.
func Learn(src driver.Source, e driver.Extent, b []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard("reading the index", &err)
	x, ok := driver.As[driver.Indexer](src)
	if !ok {
		return fmt.Errorf("internal error: %s has an index and does not read it", src.Info().Format)
	}
	return x.Learn(e, b)
}

// Unreadable returns the error for a panic that comes from reading mapped memory, or nil. Goroutines that read such
// memory must enable these panics (debug.SetPanicOnFault).
func Unreadable(panicked any) error {
	switch p := panicked.(type) {
	case *cdec.Error:
		if p.Kind == cdec.ErrUnreadable {
			return p
		}
	case interface{ Addr() uintptr }:
		return &cdec.Error{Kind: cdec.ErrUnreadable, Msg: cdec.Unreadable}
	}
	return nil
}

// Parse calls Parse; a panic of the source becomes an error.
func Parse(src driver.Source, g *driver.Group) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard("parsing", &err)
	return src.Parse(g)
}

func guard(doing string, err *error) {
	if p := recover(); p != nil {
		if *err = Unreadable(p); *err != nil {
			return
		}
		*err = fmt.Errorf("internal error while %s: %v\n%s", doing, p, debug.Stack())
	}
}
