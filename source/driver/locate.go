package driver

import (
	"fmt"
	"math"

	"github.com/stokerdata/stoker/store"
)

// Reading a record has two halves that a source keeps apart. Locate says which
// bytes of which objects hold it, from memory. Whoever reads them decides when,
// in which order, how many at once and together with which neighbours (package
// fetch plans that from the order of the epoch; package source/direct reads them
// at once). Parse then makes values of the bytes, without waiting for anything.

// Object is something in a store that holds records or parts of them: a file,
// or an object of a bucket.
type Object struct {
	Store store.Store
	// Entry is what the object was when the source was opened. One that has
	// another size or version by now is not read.
	Entry store.Entry
	// Keep says that the object holds many records: it stays open between
	// reads and is mapped where the store can do that.
	Keep bool
}

// Extent is a range of bytes of an object: Size bytes from Offset on.
type Extent struct {
	Object int64
	Offset int64
	Size   int64
	// Field is the field whose value these bytes are as they stand, so that they
	// can be read to where the batch wants them; -1 where Parse makes the value.
	Field int32
	// Tail says that who decodes the bytes looks up to 64 bytes behind them:
	// memory of which that cannot be said is not used as it is.
	Tail bool
}

// Missing is a piece of a source's index that has to be read before a record
// can be located: bytes for Indexer.Learn.
type Missing struct {
	// K is the place of the record in the group.
	K int
	Extent
}

// Group is a number of records on their way from Locate to Parse. It belongs to
// the caller and is used again; a source keeps nothing of it.
type Group struct {
	// IDs are the records, each in [0, Info.Len).
	IDs []int64
	// Want says of each field whether it is wanted; nil means that all are. A
	// source may leave the others out: their values are then not set.
	Want []bool
	// Extents, by Locate, say where the records lie: those of record k are
	// Extents[First[k]:First[k+1]], so that First has one element more than IDs.
	Extents []Extent
	First   []int32
	// Missing, by Locate, lists what it has to learn before it can locate a
	// record. Such a record has no extents.
	Missing []Missing
	// Bytes are what was read, by extent, for Parse. They are read-only and,
	// where the extent says so, with 64 readable bytes behind them.
	Bytes [][]byte
	// Records are what Parse makes, by record, with len(Values) ==
	// len(Info.Fields). Locate and Parse set Err of records that cannot be had: Locate
	// those of files that were bad when the source was opened (Info.BadFiles). Parse
	// leaves those alone in which it is set already.
	Records []Record
	// Alloc returns n bytes for Parse, not zeroed, 64-byte aligned, with 64
	// readable bytes behind them, valid as long as the group's Bytes. It fails
	// when the memory budget would be passed; Parse then fails with its error.
	Alloc func(n int) ([]byte, error)
	// Place, when it is set, returns the n bytes of the batch in which the value
	// of a field of Records[k] is wanted, nil when it has no place of that size.
	// Parse uses it through Take.
	Place func(k, field int, n int64) []byte
	// Box, when it is set, says which part of the KindVolume of a field is wanted of
	// Records[k], and false for all of it. Sources that are a Cutter ask it.
	Box func(k, field int) (Box, bool)

	values []Value // those of all Records, one behind the other
	fields int     // of each
}

// Wants reports whether a field is wanted.
func (g *Group) Wants(field int) bool { return g.Want == nil || g.Want[field] }

// Take returns n bytes for a value that Parse makes: its place in the batch
// where there is one, else memory of Alloc. Bytes behind the value are not the
// source's. It fails with a MemoryError.
func (g *Group) Take(k, field int, n int64) ([]byte, error) {
	if g.Place != nil {
		if p := g.Place(k, field, n); p != nil {
			return p, nil
		}
	}
	if n > math.MaxInt-64 {
		return nil, &MemoryError{fmt.Errorf("a value of %d bytes", n)}
	}
	p, err := g.Alloc(int(n))
	if err != nil {
		return nil, &MemoryError{err}
	}
	return p, nil
}

// MemoryError is the failure to get memory for a value: that of the group, which Parse
// returns, and not of the record, which may be as good as any.
type MemoryError struct{ Err error }

// Error is that of whoever has the memory.
func (e *MemoryError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *MemoryError) Unwrap() error { return e.Err }

// Indexer is implemented by sources that learn where records lie while they are
// used, such as packs, whose chunks have an index each.
type Indexer interface {
	// Learn takes the bytes of a Group.Missing. It fails, with an error that
	// names the place, when they are damaged; it is asked again when one of the
	// records is wanted again.
	Learn(e Extent, b []byte) error
}

// Begin makes g ready for Locate of the records ids of a source with a number
// of fields.
func (g *Group) Begin(ids []int64, fields int) {
	g.IDs = ids
	g.Relocate()
	n := len(ids)
	if cap(g.Records) < n || len(g.values) < n*fields || g.fields != fields {
		n := max(n, cap(g.Records))
		g.Records, g.values, g.fields = make([]Record, n), make([]Value, n*fields), fields
		for k := range g.Records {
			g.Records[k].Values = g.values[k*fields : (k+1)*fields : (k+1)*fields]
		}
	}
	g.Records = g.Records[:n]
	clear(g.values[:n*fields])
	for k, id := range ids {
		rec := &g.Records[k]
		rec.ID, rec.Err = id, nil
	}
}

// Relocate forgets what Locate wrote, for another call of it.
func (g *Group) Relocate() {
	g.Extents, g.First, g.Missing, g.Bytes = g.Extents[:0], append(g.First[:0], 0), g.Missing[:0], g.Bytes[:0]
}

// Next ends the extents of a record: Locate calls it once for each record, in
// their order, after it has appended to Extents.
func (g *Group) Next() { g.First = append(g.First, int32(len(g.Extents))) }

// Hand gives the extents of another group to this one, record by record, and what else
// Locate says: for a source whose records are those of another source, seen differently.
func (g *Group) Hand(inner *Group) {
	for k := range g.IDs {
		g.Extents = append(g.Extents, inner.Extents[inner.First[k]:inner.First[k+1]]...)
		g.Records[k].Err = inner.Records[k].Err
		g.Next()
	}
	g.Missing = append(g.Missing, inner.Missing...)
}

// Of returns the extents of record k and their bytes.
func (g *Group) Of(k int) ([]Extent, [][]byte) {
	lo, hi := g.First[k], g.First[k+1]
	return g.Extents[lo:hi], g.Bytes[lo:hi]
}

// InMemory is embedded by sources whose values lie in memory: nothing of them has
// to be located or read, and Parse has the values.
type InMemory struct{}

// Object is not called: there are none.
func (InMemory) Object(int64) Object { return Object{} }

// Locate finds no extents.
func (InMemory) Locate(g *Group) {
	for range g.IDs {
		g.Next()
	}
}

// Box is a part of a volume: Size voxels from At on, along z, y and x.
type Box struct{ At, Size [3]int }

// Cutter is implemented by sources that can read a part of a volume without the rest.
type Cutter interface {
	// Cuts says whether Locate and Parse ask Group.Box about a field, given by its place
	// in Info.Fields.
	Cuts(field int) bool
	// Sides are the sides z, y and x of the volume of a record in [0, Len).
	Sides(id int64, field int) [3]int
}
