// Package tokensource reads files of tokens that others have made: those of
// nanoGPT (numbers of tokens and nothing else), of llm.c and modded-nanogpt (the same
// behind a header of 256 numbers), NumPy arrays of one axis, and Megatron's pairs of
// .bin and .idx files.
//
// A record is a document: of Megatron's files what their index says, of the others
// what lies between two ends of documents when it is said which token that is, else
// all of a file. Or a record is a window: L tokens each, what is left at the end of
// a file is not used.
package tokensource

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// The names of the formats.
const (
	Bin      = "tokens"
	Megatron = "megatron"
)

// Field is the name of the one field.
const Field = "tokens"

// None is no token, in Options.
const None = -1

// Options change how files are read. Nil means the defaults, New them as a value.
type Options struct {
	// Names are the files, where not all of a folder are meant.
	Names []string
	// Window makes records of that many tokens each; 0: a record is a document.
	Window int64
	// DType is the type of tokens in files that do not say it themselves; "" is
	// uint16.
	DType driver.DType
	// End is the token that ends documents, Begin the one that begins them, None
	// for none. Only for files without an index of documents.
	End, Begin int64
	// Sequences makes each sequence of a Megatron index a record, and not each
	// document, which may have several.
	Sequences bool
	// Threads bounds how many pieces of files are looked through at once, 0 for 4.
	Threads int
}

// New returns the defaults.
func New() *Options { return &Options{End: None, Begin: None} }

// ParseQuery reads what may stand behind the path of a URL:
// window=1024, dtype=uint32, eot=50256, bos=1, records=sequences.
func (o *Options) ParseQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%q is not understood", query)
	}
	for key, all := range values {
		v := all[len(all)-1]
		n, err := strconv.ParseInt(v, 10, 64)
		number := err == nil
		switch {
		case key == "window" && number && n > 0:
			o.Window = n
		case key == "eot" && number && n >= 0:
			o.End = n
		case key == "bos" && number && n >= 0:
			o.Begin = n
		case key == "dtype" && integer(driver.DType(v)):
			o.DType = driver.DType(v)
		case key == "records" && (v == "sequences" || v == "documents"):
			o.Sequences = v == "sequences"
		case slices.Contains([]string{"window", "eot", "bos", "dtype", "records"}, key):
			return fmt.Errorf("%s=%s is not understood: a window and the numbers of tokens (eot, bos) are whole numbers, "+
				"dtype is a type of whole numbers such as uint32, records are documents or sequences", key, v)
		default:
			return fmt.Errorf("%q is not known: of tokens there are window=1024, dtype=uint32, eot=50256 (ends documents), bos=1 (begins them) and, of Megatron's, records=sequences", key)
		}
	}
	return nil
}

// integer says whether tokens may be of a type.
func integer(t driver.DType) bool {
	switch t {
	case driver.Uint8, driver.Int8, driver.Uint16, driver.Int16, driver.Uint32, driver.Int32, driver.Uint64, driver.Int64:
		return true
	}
	return false
}

// source is what the formats have in common: files of elements, cut into records.
type source struct {
	list *filelist.List
	info driver.Info
	unit int64 // bytes of an element
	// base is where the elements of a file begin, first the number of its first
	// record, with the number of all behind them.
	base, first []int64
	// ends says where documents end, in elements from the beginning of their file;
	// nil for windows, which have window elements each.
	ends   []int64
	window int64
}

// span is where record id lies: which file, from which element to which.
func (s *source) span(id int64) (file int, from, to int64) {
	file = filelist.Find(s.first, id)
	for file+1 < len(s.first) && s.first[file+1] == id {
		file++ // a file without records has the same number
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

// describe fills in what follows from the records.
func (s *source) describe(dtype driver.DType) error {
	s.info.Len = s.first[len(s.first)-1]
	s.info.Objects = int64(s.list.Len())
	if s.info.Len == 0 {
		if s.window > 0 {
			return fmt.Errorf("%s has less than one window of %d tokens", s.info.URL, s.window)
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

// files are the files of st that are meant: those that are named, the one that it is,
// or those of the folder that keep accepts.
func files(ctx context.Context, st store.Store, names []string, keep func(name string) bool) (*filelist.List, error) {
	if names != nil {
		return filelist.Named(ctx, st, names)
	}
	return filelist.Scan(ctx, st, func(name string) bool { return name == "" || keep(name) }, 0)
}
