package driver

import (
	"context"
	"slices"
	"sync"
)

// Abilities are the optional interfaces of sources, such as Sizer and Leaver. Look for them with As
// and never with a type assertion: most sources have wrappers around them (caches, views, clips),
// and As finds what the wrapped source can do. There are two groups:
//
//   - Abilities of the whole source: Skipper, Leaver, Holder, Cacher, Seeded, Indexer and every
//     interface of another package. A wrapper with a method Unwrap passes them on. Embed Wrapper
//     for that.
//   - Abilities of records: Sizer, Shaper, Pather, Finder, Cutter, Varied, Epochs, Chunker and
//     Deriver. They take or return numbers of records and fields, and a wrapper may number these
//     differently than its base. A wrapper that embeds Mapped passes them on with the numbers
//     translated.
//
// Sequential is in neither group: a wrapper of a Sequential has to implement it.
//
// A wrapper that changes the answers of an ability implements the interface itself. A wrapper that
// cannot pass an ability on lists it in Wrapper.Without. The suite drivertest.Wrapped fails if a
// wrapper loses an ability that its test does not name.

// As returns the ability T, an interface, of a source: s itself if it implements T, or else what s
// passes on from the source that it wraps. The result is valid as long as s is open. As can
// allocate memory: call it when you open something, not for each record.
func As[T any](s Source) (T, bool) {
	var none T
	_, ofRecords := any((*mapped)(nil)).(T)
	_, inOrder := any(&none).(*Sequential)
	for s != nil {
		if h, ok := s.(interface{ Hides(ability any) bool }); ok && h.Hides((*T)(nil)) {
			break
		}
		if t, ok := s.(T); ok {
			return t, true
		}
		if m, ok := s.(interface{ mapping() *Mapped }); ok && ofRecords {
			return mapTo[T](s, m.mapping())
		}
		w, ok := s.(interface{ Unwrap() Source })
		if !ok || ofRecords || inOrder {
			break
		}
		s = w.Unwrap()
	}
	return none, false
}

// mapTo returns the ability T of the base of s, with the numbers of s.
func mapTo[T any](s Source, m *Mapped) (t T, ok bool) {
	_, origin := any(&t).(*Deriver)
	_, chunks := any(&t).(*Chunker)
	if chunks && m.Record != nil {
		return t, false
	}
	of := mapped{Mapped: m, self: s}
	if !origin {
		base, ok := As[T](m.Base)
		if !ok || m.Record == nil && m.Field == nil {
			return base, ok
		}
		of.base = base
	}
	t, ok = any(&of).(T)
	return t, ok
}

// Wrapper is embedded by sources that wrap another one. It has the parts of Source that most
// wrappers do not change, and passes on the abilities of the whole source.
type Wrapper struct {
	// Base is the wrapped source. The wrapper owns it.
	Base Source
	// Without lists abilities that the wrapper does not have although its methods or its base
	// would give it them, each as a nil pointer to the interface: (*Chunker)(nil).
	Without []any
}

// Unwrap returns the wrapped source, for As.
func (w *Wrapper) Unwrap() Source { return w.Base }

// Hides reports whether As must not find an ability, given as a nil pointer to its interface.
func (w *Wrapper) Hides(ability any) bool { return slices.Contains(w.Without, ability) }

// Object implements Source: the objects are those of the base.
func (w *Wrapper) Object(n int64) Object { return w.Base.Object(n) }

// Close implements Source: it closes the base.
func (w *Wrapper) Close() error { return w.Base.Close() }

// Mapped is embedded by wrappers whose records are records of their base. It passes on all
// abilities of the base, with the numbers of records and fields translated.
type Mapped struct {
	Wrapper
	// Record returns the number in the base of a record of the wrapper, or -1 if there is none.
	// Numbers keep their epoch or variant (InEpoch) unless the wrapper hides Epochs and Varied.
	// Nil means that the numbers are the same. Otherwise the wrapper has no chunks, unless it
	// implements Chunker.
	Record func(id int64) int64
	// Field returns the field of the base that a field of the wrapper is made of, or -1 if there
	// is none. Same reports that the values are those of the base: the wrapper does not convert
	// them. Sizes and shapes of other fields are not known. Nil means that all fields are the same.
	Field func(field int) (of int, same bool)
}

func (m *Mapped) mapping() *Mapped { return m }

// record returns the number in the base of a record.
func (m *Mapped) record(id int64) int64 {
	if m.Record == nil {
		return id
	}
	return m.Record(id)
}

// field returns the number in the base of a field, and whether the values are the same.
func (m *Mapped) field(field int) (of int, same bool) {
	if m.Field == nil {
		return field, true
	}
	return m.Field(field)
}

// Name implements Source: the record has the name that it has in the base.
func (m *Mapped) Name(id int64) string { return m.Base.Name(m.record(id)) }

// mapped is one ability of a Mapped. It implements all abilities of records, so that As can tell
// from its methods which these are.
type mapped struct {
	*Mapped
	self  Source // the wrapper
	base  any    // the ability of the base
	spare sync.Pool
}

// inBase calls f with the numbers that ids have in the base.
func (m *mapped) inBase(ids []int64, f func(ids []int64) bool) bool {
	if m.Record == nil {
		return f(ids)
	}
	buf, _ := m.spare.Get().(*[]int64)
	if buf == nil {
		buf = new([]int64)
	}
	defer m.spare.Put(buf)
	*buf = (*buf)[:0]
	for _, id := range ids {
		*buf = append(*buf, m.Record(id))
	}
	return f(*buf)
}

// Sizes implements Sizer.
func (m *mapped) Sizes(field int, ids, sizes []int64) bool {
	of, same := m.field(field)
	return same && m.inBase(ids, func(ids []int64) bool { return m.base.(Sizer).Sizes(of, ids, sizes) })
}

// Shapes implements Shaper.
func (m *mapped) Shapes(field int, ids []int64, shapes []Shape) bool {
	of, same := m.field(field)
	return same && m.inBase(ids, func(ids []int64) bool { return m.base.(Shaper).Shapes(of, ids, shapes) })
}

// Path implements Pather.
func (m *mapped) Path(id int64, field int) string {
	n, of, _ := m.at(id, field)
	if n < 0 || of < 0 {
		return ""
	}
	return m.base.(Pather).Path(n, of)
}

// Find implements Finder.
func (m *mapped) Find(ctx context.Context, id int64) string {
	if n := m.record(id); n >= 0 {
		return m.base.(Finder).Find(ctx, n)
	}
	return m.self.Name(id)
}

// Cuts implements Cutter.
func (m *mapped) Cuts(field int) bool {
	of, same := m.field(field)
	return same && m.base.(Cutter).Cuts(of)
}

// Sides implements Cutter.
func (m *mapped) Sides(id int64, field int) [3]int {
	n, of, _ := m.at(id, field)
	return m.base.(Cutter).Sides(n, of)
}

// Variants implements Varied.
func (m *mapped) Variants() int { return m.base.(Varied).Variants() }

// Varies implements Varied.
func (m *mapped) Varies(field int) bool {
	of, _ := m.field(field)
	return of >= 0 && m.base.(Varied).Varies(of)
}

// EpochRecords implements Epochs.
func (m *mapped) EpochRecords() {}

// Chunks implements Chunker.
func (m *mapped) Chunks() []int64 { return m.base.(Chunker).Chunks() }

// Chunk implements Chunker.
func (m *mapped) Chunk(n int) Extent { return m.base.(Chunker).Chunk(n) }

// Origin implements Deriver.
func (m *mapped) Origin(id int64, field int) (src Source, record int64, of int) {
	record, of, _ = m.at(id, field)
	return m.Base, record, of
}

// at returns the numbers in the base of a record and a field.
func (m *mapped) at(id int64, field int) (n int64, of int, same bool) {
	of, same = m.field(field)
	return m.record(id), of, same
}
