package driver

import (
	"fmt"
	"math"

	"github.com/stokerdata/stoker/store"
)

// A source separates two steps of reading a record. Locate returns the bytes that hold the record,
// as ranges of objects, without I/O. The caller reads these bytes, and decides when, in which order
// and together with which neighbours. Package fetch plans this from the order of the epoch; package
// internal/recordread reads immediately. Parse then makes values from the bytes, without waiting.

// Object is a file, or an object of a bucket, that contains records or parts of them.
type Object struct {
	Store store.Store
	// Entry is the state of the object when the source was opened. An object with another size or
	// version is not read.
	Entry store.Entry
	// Keep reports that the object contains many records. It stays open between reads, and is
	// mapped if the store supports that.
	Keep bool
}

// Extent is a range of bytes of an object: Size bytes, starting at Offset.
type Extent struct {
	Object int64
	Offset int64
	Size   int64
	// Field is the field whose value these bytes are, unmodified, so that they can be read directly
	// into the batch. It is -1 if Parse makes the value.
	Field int32
	// Tail reports that decoding reads up to 64 bytes after the value. Memory without such bytes
	// must be copied first.
	Tail bool
}

// Missing is a part of a source's index that must be read and passed to Indexer.Learn before a
// record can be located.
type Missing struct {
	// K is the index of the record in the group.
	K int
	Extent
}

// Group is a set of records that pass through Locate and Parse together. The caller owns it and
// reuses it. A source must not keep references to it.
type Group struct {
	// IDs are the records, each in [0, Info.Len).
	IDs []int64
	// Want reports for each field whether it is needed; nil means all. A source may skip the other
	// fields and leave their values unset.
	Want []bool
	// Extents are set by Locate. The extents of record k are Extents[First[k]:First[k+1]], so First
	// has one element more than IDs.
	Extents []Extent
	First   []int32
	// Missing is set by Locate: the parts of the index that it needs first. A record that needs one
	// has no extents.
	Missing []Missing
	// Bytes are the bytes read for each extent, for Parse. They are read-only. If the extent has
	// Tail set, 64 readable bytes follow.
	Bytes [][]byte
	// Records are the results of Parse, with len(Values) == len(Info.Fields). Locate and Parse set
	// Err of records that cannot be read. Locate does so for files that were bad when the source
	// was opened (Info.BadFiles). Parse skips records with Err already set.
	Records []Record
	// Alloc returns n bytes for Parse. They are not zeroed, are 64-byte aligned, have 64 readable
	// bytes after them, and are valid as long as Bytes. It fails if the memory budget is exceeded;
	// Parse then returns its error.
	Alloc func(n int) ([]byte, error)
	// Place is optional. It returns the n bytes of the batch for the value of a field of
	// Records[k], nil if the batch has no slot of that size. Parse calls it through Take.
	Place func(k, field int, n int64) []byte
	// Box is optional. It returns the needed part of the KindVolume of a field of Records[k], and
	// false for all of it. Sources that are a Cutter call it.
	Box func(k, field int) (Box, bool)
	// Unproven reports that the bytes came over a network, or from another location than usual because those were
	// damaged.
	// A source that skips the check of values that it has checked before checks these again.
	Unproven bool

	values []Value // the values of all Records, one record after the other
	fields int     // of each record
}

// Wants reports whether a field is wanted.
func (g *Group) Wants(field int) bool { return g.Want == nil || g.Want[field] }

// Take returns n bytes for a value that Parse makes: the slot in the batch if there is one, else
// memory from Alloc. The source must not write after the n bytes. It fails with a MemoryError.
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

// MemoryError is the failure to get memory for a value. Parse returns it as the error of the group,
// since the record itself may be intact.
type MemoryError struct{ Err error }

// Error returns the message of Err.
func (e *MemoryError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *MemoryError) Unwrap() error { return e.Err }

// Indexer is implemented by sources that read their index in parts while they are used, for example
// packs, whose chunks have an index each.
type Indexer interface {
	// Learn takes the bytes of a Group.Missing. If they are damaged it fails, with an error that
	// names their location. It is called again when one of the records is needed again.
	Learn(e Extent, b []byte) error
}

// Begin prepares g for Locate of the records ids, for a source with the given number of fields.
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

// Relocate clears the results of Locate, so that it can be called again.
func (g *Group) Relocate() {
	g.Extents, g.First, g.Missing, g.Bytes = g.Extents[:0], append(g.First[:0], 0), g.Missing[:0], g.Bytes[:0]
}

// Next ends the extents of a record. Locate calls it once per record, in order, after it has
// appended to Extents.
func (g *Group) Next() { g.First = append(g.First, int32(len(g.Extents))) }

// BeginIn makes g ready for the records of outer: g is the group of a wrapped source, in which
// they have the numbers ids.
func (g *Group) BeginIn(outer *Group, ids []int64, fields int) {
	g.Begin(ids, fields)
	g.Unproven = outer.Unproven
	for k := range outer.Records {
		g.Records[k].Err = outer.Records[k].Err
	}
}

// Hand copies the result of Locate from inner, the group of a wrapped source. Change, if it is set,
// is called for each extent.
func (g *Group) Hand(inner *Group, change func(e *Extent)) {
	for k := range g.IDs {
		g.hand(inner.Extents[inner.First[k]:inner.First[k+1]], change)
		g.Records[k].Err = inner.Records[k].Err
		g.Next()
	}
	g.Missing = append(g.Missing, inner.Missing...)
}

// HandBytes copies what was read from outer to g, the group of a wrapped source, for Parse.
// Change, if it is set, is called for each extent.
func (g *Group) HandBytes(outer *Group, change func(e *Extent)) {
	g.First = append(g.First[:0], outer.First...)
	g.hand(outer.Extents, change)
	g.Bytes = append(g.Bytes[:0], outer.Bytes...)
	g.Alloc, g.Unproven = outer.Alloc, outer.Unproven
}

func (g *Group) hand(extents []Extent, change func(e *Extent)) {
	at := len(g.Extents)
	g.Extents = append(g.Extents, extents...)
	for i := at; change != nil && i < len(g.Extents); i++ {
		change(&g.Extents[i])
	}
}

// Release drops the references to values, bytes and functions, so that a group which is kept for
// later does not keep their memory.
func (g *Group) Release() {
	g.Want, g.Alloc, g.Place, g.Unproven = nil, nil, nil, false
	clear(g.Bytes)
	for k := range g.Records {
		clear(g.Records[k].Values)
		g.Records[k].Err = nil
	}
}

// Of returns the extents of record k and their bytes.
func (g *Group) Of(k int) ([]Extent, [][]byte) {
	lo, hi := g.First[k], g.First[k+1]
	return g.Extents[lo:hi], g.Bytes[lo:hi]
}

// InMemory is embedded by sources with their values in memory. Nothing needs to be located or read.
type InMemory struct{}

// Object is never called, since there are no objects.
func (InMemory) Object(int64) Object { return Object{} }

// Locate sets no extents.
func (InMemory) Locate(g *Group) {
	for range g.IDs {
		g.Next()
	}
}

// Box is a part of a volume: Size voxels, starting at At, along z, y and x.
type Box struct{ At, Size [3]int }

// Cutter is implemented by sources that can read a part of a volume without the rest.
type Cutter interface {
	// Cuts reports whether Locate and Parse call Group.Box for a field, an index of Info.Fields.
	Cuts(field int) bool
	// Sides returns the sides z, y and x of the volume of a record in [0, Len).
	Sides(id int64, field int) [3]int
}
