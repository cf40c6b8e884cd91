// Package tokensource reads files of tokens: those of nanoGPT (only tokens), of llm.c and modded-nanogpt (tokens
// after a header), NumPy arrays with one axis, and Megatron's pairs of .bin and .idx files.
//
// A record is a document or a window. Megatron's index defines the documents. In other files a document ends at a
// token that the user names, otherwise the whole file is one document. A window has L tokens, and the rest at the
// end of a file is not used.
package tokensource

import (
	"context"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// The names of the formats.
const (
	Bin      = "tokens"
	Megatron = "megatron"
)

// Field is the name of the field.
const Field = "tokens"

// None means that Options have no such token.
const None = -1

// Options configure Open and OpenMegatron. Nil means the defaults, which New returns.
type Options struct {
	// Names lists the files to open. Nil means all files of the folder.
	Names []string
	// Window is the number of tokens per record. 0 makes each document a record.
	Window int64
	// DType is the type of tokens in files without a header. "" is uint16.
	DType driver.DType
	// End is the token that ends documents, Begin the token that begins them, None for no such token. They are for
	// files without an index of documents.
	End, Begin int64
	// Sequences makes each sequence of a Megatron index a record. By default each document is one.
	Sequences bool
	// Threads is the maximum number of concurrent reads while opening. 0 means 4.
	Threads int
}

// New returns the defaults.
func New() *Options { return &Options{End: None, Begin: None} }

// source is the common part of the formats: files of elements, cut into records.
type source struct {
	list *filelist.List
	info driver.Info
	unit int64 // bytes of an element
	// base has the offset of the elements in each file. first has the first record of each file, and the number of
	// all records.
	base, first []int64
	// ends are the ends of documents, in elements from the start of their file. It is nil for windows, which have
	// window elements each.
	ends   []int64
	window int64
}

// span returns the position of record id: the file, and its range of elements.
func (s *source) span(id int64) (file int, from, to int64) {
	file = filelist.Find(s.first, id)
	for file+1 < len(s.first) && s.first[file+1] == id {
		file++ // skip files without records
	}
	switch {
	case s.ends == nil:
		from = (id - s.first[file]) * s.window
		to = from + s.window
	case id > s.first[file]:
		from, to = s.ends[id-1], s.ends[id]
	default:
		to = s.ends[id]
	}
	return file, from, to
}

// describe sets info from the records.
func (s *source) describe(dtype driver.DType) error {
	s.info.Len = s.first[len(s.first)-1]
	s.info.Objects = int64(s.list.Len())
	if s.info.Len == 0 {
		if s.window > 0 {
			return fmt.Errorf("%s has fewer tokens than a window of %d", s.info.URL, s.window)
		}
		return fmt.Errorf("%s has no documents", s.info.URL)
	}
	f := driver.Field{Name: Field, Kind: driver.KindRagged, DType: dtype}
	if s.ends == nil {
		f.Kind, f.Shape = driver.KindArray, []int{int(min(s.window, math.MaxInt32))}
		if _, err := driver.ArrayBytes(dtype, f.Shape); err != nil {
			return fmt.Errorf("%s: a window: %w", s.info.URL, err)
		}
		s.info.Fields = []driver.Field{f}
		return nil
	}
	if dtype == driver.Uint16 || dtype == driver.Uint32 {
		f.Kind = driver.KindTokens
	}
	rows := driver.RowStats{Min: math.MaxInt64}
	for file := range len(s.base) {
		at := int64(0)
		for _, end := range s.ends[s.first[file]:s.first[file+1]] {
			n := end - at
			rows.Min, rows.Max = min(rows.Min, n), max(rows.Max, n)
			rows.Total += n
			at = end
		}
	}
	f.MaxBytes = rows.Max * s.unit
	f.Stats = &driver.FieldStats{Count: s.info.Len, Bytes: rows.Total * s.unit, MinBytes: rows.Min * s.unit, MaxBytes: f.MaxBytes, Rows: &rows}
	s.info.Fields = []driver.Field{f}
	return nil
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	file, from, _ := s.span(id)
	what := "document"
	if s.ends == nil {
		what = "window"
	}
	return fmt.Sprintf("%s, %s %d (byte %d)", s.list.Path(file), what, id-s.first[file], s.base[file]+from*s.unit)
}

func (s *source) Object(n int64) driver.Object { return s.list.Object(n, true) }

// Sizes implements driver.Sizer.
func (s *source) Sizes(_ int, ids, sizes []int64) bool {
	for i, id := range ids {
		_, from, to := s.span(id)
		sizes[i] = (to - from) * s.unit
	}
	return true
}

func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(_ int, id int64) {
		file, from, to := s.span(id)
		g.Extents = append(g.Extents, driver.Extent{Object: int64(file), Offset: s.base[file] + from*s.unit, Size: (to - from) * s.unit})
	})
}

func (s *source) Parse(g *driver.Group) error {
	for k := range g.IDs {
		if rec := &g.Records[k]; rec.Err == nil {
			_, b := g.Of(k)
			rec.Values[0].Bytes = b[0]
		}
	}
	return nil
}

func (s *source) Close() error { return nil }

// files returns the files to open: the named ones, the single file that st is, or the files that keep accepts.
func files(ctx context.Context, st store.Store, names []string, keep func(name string) bool) (*filelist.List, error) {
	if names != nil {
		return filelist.Named(ctx, st, names)
	}
	return filelist.Scan(ctx, st, func(name string) bool { return name == "" || keep(name) }, 0)
}
