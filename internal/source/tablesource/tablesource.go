// Package tablesource reads text tables: CSV, TSV and JSON Lines. Each row is a record, each column
// a field.
//
// Text tables have no index, so opening reads each table once. It keeps 8 bytes per row and infers
// the type of each column from all rows. Reading a record later is reading the bytes of its row and
// converting its cells. Compressed tables are held in memory.
//
// A column may name files, relative to the folder of the table: images, masks, sounds or bytes. A
// record then consists of its row and these files.
package tablesource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// The formats.
const (
	CSV   = "csv"
	TSV   = "tsv"
	JSONL = "jsonl"
)

// extensions are the file extensions of the formats.
var extensions = map[string][]string{CSV: {".csv"}, TSV: {".tsv", ".tab"}, JSONL: {".jsonl", ".ndjson"}}

// IsName reports whether a path has an extension of a format.
func IsName(format, name string) bool {
	name = strings.ToLower(name)
	for _, packed := range []string{".gz", ".zst", ".bz2", ".xz"} {
		name = strings.TrimSuffix(name, packed)
	}
	return slices.ContainsFunc(extensions[format], func(ext string) bool { return strings.HasSuffix(name, ext) })
}

// IsJSONL reports whether the first line of an object is a JSON object.
func IsJSONL(ctx context.Context, st store.Store, name string) bool {
	o, err := st.Open(ctx, name)
	if err != nil {
		return false
	}
	defer o.Close()
	b := make([]byte, min(o.Size(), 64<<10))
	if len(b) == 0 || o.ReadAt(ctx, b, 0) != nil || b[0] != '{' {
		return false
	}
	r := &jsonReader{}
	n := r.next(b, o.Size() == int64(len(b)))
	return n > 0 && r.cells(b[:n], nil, nil) == nil
}

// Options configure Open.
type Options = format.Options

type source struct {
	info   driver.Info
	format string
	opt    Options
	list   *filelist.List
	// at has the start offsets of the rows of each file, followed by the end offset of its last
	// row. Row id of file f is at[id+f] to at[id+f+1].
	at    []int64
	first []int64 // number of the first row of each file

	reader  reader
	headed  bool          // files start with a row of names
	names   []string      // of all columns
	columns []column.Want // by field
	from    []int         // by field, the index of its cell in a row
	width   int           // number of cells
	files   []*files      // by field, nil for fields stored in the row
	ordinal []int64       // by field, its position among fields with files
	inRow   []bool        // by field
	videos  []string      // fields with the paths of videos
	spare   sync.Pool

	held   [][]byte // by table, its decompressed bytes; nil if it is not compressed
	made   bool     // held are rows that another source has made (Rows)
	memory fixedrecords.Memory
}

// withFiles is a source whose records have files, and therefore paths.
type withFiles struct{ *source }

// Path implements driver.Pather. For a field without a file it returns the path of the first file.
func (s withFiles) Path(id int64, field int) string {
	f := s.files[field]
	for i := 0; f == nil; i++ {
		f = s.files[i]
	}
	return f.list.Name(int(id))
}

// Open opens the tables of a format in st, which may also be a single table.
func Open(ctx context.Context, url, format string, st store.Store, opt *Options) (driver.Source, error) {
	s := &source{format: format, info: driver.Info{URL: url, Format: format}}
	if opt != nil {
		s.opt = *opt
	}
	if s.opt.Files == nil {
		s.opt.Files = st
	}
	if s.opt.Threads <= 0 {
		s.opt.Threads = 4 * runtime.GOMAXPROCS(0)
	}
	s.memory.Use(ctx)
	var err error
	s.list, err = filelist.Scan(ctx, st, func(name string) bool { return name == "" || IsName(format, name) }, 0)
	if err != nil {
		return nil, err
	}
	if s.list.Len() == 0 {
		return nil, fmt.Errorf("%s has no file named %s", st, "*"+strings.Join(extensions[format], ", *"))
	}
	if err := s.read(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	of := []string{format}
	for i := range s.info.Fields {
		f := &s.info.Fields[i]
		of = append(of, f.Name, string(f.Kind), s.columns[i].From)
		if s.files[i] != nil {
			of = append(of, s.files[i].list.Fingerprint())
		}
	}
	s.info.Fingerprint = s.list.Fingerprint(of...)
	if slices.ContainsFunc(s.files, func(f *files) bool { return f != nil }) {
		return withFiles{s}, nil
	}
	return s, nil
}

// read scans the tables.
func (s *source) read(ctx context.Context) error {
	if err := s.unpack(ctx); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	seen, err := s.scan(ctx)
	if err != nil {
		return err
	}
	return s.schema(ctx, seen)
}

// begin detects the syntax of the tables, and reads the names of the columns if there is a row of
// names.
func (s *source) begin(ctx context.Context) error {
	if s.format == JSONL {
		s.reader = &jsonReader{}
		return nil
	}
	r := &csvReader{comma: ','}
	if s.format == TSV {
		r.comma = '\t'
	}
	s.reader = r
	for f := range s.list.Len() {
		row, at, err := s.firstRow(ctx, f)
		if err != nil {
			return err
		}
		if row == nil {
			continue // an empty file
		}
		names, record, err := r.header(row, s.format == TSV)
		if err != nil {
			return fmt.Errorf("%s, byte %d: %w", s.list.Path(f), at, err)
		}
		s.headed = !record
		s.names = column.Named(names)
		return nil
	}
	return s.empty()
}

func (s *source) empty() error {
	if s.list.Len() == 1 {
		return fmt.Errorf("%s has no rows", s.list.Path(0))
	}
	return fmt.Errorf("the tables in %s have no rows", s.list.Store)
}

// schema makes fields from the columns that inference has seen.
func (s *source) schema(ctx context.Context, in *inference) error {
	csv := s.format != JSONL
	if !csv {
		slices.SortFunc(in.columns, func(a, b *seen) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.nth, b.nth)) })
		var keys []string
		for _, c := range in.columns {
			keys = append(keys, c.Name)
		}
		s.names = column.Named(keys)
	}
	var places []int
	var err error
	if s.columns, places, err = column.Choose(s.names, s.opt.Columns); err != nil {
		return fmt.Errorf("%s: %w", s.list.Store, err)
	}
	s.from, s.width = slices.Clone(places), len(s.names)
	if !csv {
		// Only the columns in use have a cell.
		keys := map[string]int{}
		for i, p := range places {
			key := in.columns[p].Name
			if _, ok := keys[key]; !ok {
				keys[key] = len(keys)
			}
			s.from[i] = keys[key]
		}
		s.reader, s.width = &jsonReader{columns: keys}, len(keys)
	}
	s.files, s.ordinal = make([]*files, len(s.columns)), make([]int64, len(s.columns))
	s.inRow = make([]bool, len(s.columns))
	withFiles := int64(0)
	for i, want := range s.columns {
		c := in.columns[places[i]]
		var f driver.Field
		switch {
		case column.IsFile(want.Kind): // not in rows that are made
			f = driver.Field{Kind: want.Kind}
		default:
			if f, err = c.Field(want, in.good); err != nil {
				return fmt.Errorf("%s: %w", s.list.Store, err)
			}
			if f.Kind == driver.KindText && want.Kind == "" && !s.made {
				kind, err := s.lead(ctx, want.Name, c)
				if err != nil {
					return err
				}
				switch kind {
				case "":
				case driver.KindFrames: // it stays text here
					s.videos = append(s.videos, want.Name)
				default:
					f = driver.Field{Kind: kind}
				}
			}
		}
		f.Name = want.Name
		s.inRow[i] = !column.IsFile(f.Kind)
		if !s.inRow[i] {
			s.files[i], s.ordinal[i] = &files{}, withFiles
			withFiles++
		}
		s.info.Fields = append(s.info.Fields, f)
	}
	s.info.Objects = int64(s.list.Len()) + withFiles*s.info.Len
	if withFiles > 0 {
		return s.findFiles(ctx)
	}
	return nil
}

func (s *source) Info() *driver.Info { return &s.info }

// place returns the file and the byte range of row id.
func (s *source) place(id int64) (file int, from, to int64) {
	file = filelist.Find(s.first, id)
	// Files without rows have the same first row as the next file.
	i := id + int64(file)
	return file, s.at[i], s.at[i+1]
}

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, row %d", s.info.URL, id)
	}
	f, from, _ := s.place(id)
	if s.made {
		return fmt.Sprintf("%s, record %d", s.list.Path(f), id-s.first[f])
	}
	if s.held[f] != nil {
		return fmt.Sprintf("%s, row %d (byte %d, decompressed)", s.list.Path(f), id-s.first[f], from)
	}
	return fmt.Sprintf("%s, row %d (byte %d)", s.list.Path(f), id-s.first[f], from)
}

func (s *source) Object(n int64) driver.Object {
	tables := int64(s.list.Len())
	if n < tables {
		return s.list.Object(n, true)
	}
	n -= tables
	for i, f := range s.files {
		if f != nil && s.ordinal[i] == n/s.info.Len {
			return f.list.Object(n%s.info.Len, false)
		}
	}
	return driver.Object{}
}

// wantsRow reports whether the group needs a field that is stored in the row.
func (s *source) wantsRow(g *driver.Group) bool {
	for i, in := range s.inRow {
		if in && g.Wants(i) {
			return true
		}
	}
	return false
}

// Locate gives the row first, if a field in it is needed, and then the files in the order of their
// fields.
func (s *source) Locate(g *driver.Group) {
	row := s.wantsRow(g)
	filelist.Locate(g, &s.info, func(k int, id int64) {
		begin := len(g.Extents)
		if row {
			f, from, to := s.place(id)
			if s.held[f] == nil {
				g.Extents = append(g.Extents, driver.Extent{Object: int64(f), Offset: from, Size: to - from, Field: -1})
			}
		}
		for i, f := range s.files {
			if f == nil || !g.Wants(i) {
				continue
			}
			size := f.list.Size(int(id))
			err := f.absent[id]
			if err == nil && size > maxFileBytes {
				err = fmt.Errorf("%s: the file has %d bytes, more than the limit of %d", f.list.Path(int(id)), size, int64(maxFileBytes))
			}
			if err != nil {
				g.Records[k].Err = fmt.Errorf("%s: %w", s.Name(id), err)
				g.Extents = g.Extents[:begin]
				return
			}
			e := driver.Extent{Object: int64(s.list.Len()) + s.ordinal[i]*s.info.Len + id, Size: size, Field: int32(i)}
			if s.info.Fields[i].Kind != driver.KindBytes {
				e.Field, e.Tail = -1, true
			}
			g.Extents = append(g.Extents, e)
		}
	})
}

// scratch is the working memory of one call of Parse.
type scratch struct {
	cells   []cell
	numbers numbers
	buf     []byte
}

// Parse converts the cells of rows to values.
func (s *source) Parse(g *driver.Group) error {
	row := s.wantsRow(g)
	w, _ := s.spare.Get().(*scratch)
	if w == nil {
		w = &scratch{cells: make([]cell, s.width)}
	}
	defer func() {
		clear(w.cells) // keeps no references to the group
		clear(w.numbers.text)
		s.spare.Put(w)
	}()
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		next := int(g.First[k])
		if row {
			clear(w.cells)
			var b []byte
			if f, from, to := s.place(id); s.held[f] != nil {
				b = s.held[f][from:to]
			} else {
				b = g.Bytes[next]
				next++
			}
			if err := s.reader.cells(b, w.cells, nil); err != nil {
				rec.Err = fmt.Errorf("%s: %w", s.Name(id), err)
				continue
			}
		}
		for i := range s.info.Fields {
			if !g.Wants(i) {
				continue
			}
			if s.files[i] != nil {
				rec.Values[i].Bytes = g.Bytes[next]
				next++
				continue
			}
			if err := s.value(g, k, i, w); err != nil {
				var m *driver.MemoryError
				if errors.As(err, &m) {
					return fmt.Errorf("no memory for %s of %s: %w", s.info.Fields[i].Name, s.Name(id), m.Err)
				}
				rec.Err = fmt.Errorf("%s: column %q: %w", s.Name(id), s.columns[i].From, err)
				break
			}
		}
	}
	return nil
}

func (s *source) Close() error {
	s.memory.Free()
	return nil
}

// dir returns the folder of a table, relative to Options.Files.
func (s *source) dir(table int) string { return path.Dir(s.list.Name(table)) }
