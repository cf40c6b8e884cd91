package ndarray

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/source/driver"
)

// Options select the arrays that become fields.
type Options struct {
	// Columns name the arrays. Nil means all arrays with the same first axis.
	Columns []column.Want
	// Split is the group to read from a file with several groups, "" for all.
	Split string
	// Threads limits how many files are read at the same time while opening. 0 means the default.
	Threads int
}

// Source reads the rows of arrays. A format embeds it and adds its own state.
type Source struct {
	// List has the objects of the source.
	List *filelist.List

	info   driver.Info
	fields []*field
	files  []file
	first  []int64 // number of the first record of each file
	left   []driver.Skipped
	mem    fixedrecords.Memory
	held   int64
	// scratch is the memory for decoding chunks.
	scratch chan *scratch
	// named are the paths of the files, for messages.
	named []string
}

// file has the arrays of one file.
type file struct {
	arrays []*Array // by field
}

// refs are the locations of the values of any length of an array.
type refs struct {
	object []int32 // nil if all are in the object one
	offset []int64
	size   []uint32
	one    int64
}

func (r *refs) add(object, offset, size int64) {
	if len(r.offset) == 0 {
		r.one = object
	}
	if r.object == nil && object != r.one && size > 0 {
		r.object = make([]int32, len(r.offset), cap(r.offset))
		for i := range r.object {
			r.object[i] = int32(r.one)
		}
	}
	if r.object != nil {
		r.object = append(r.object, int32(object))
	}
	r.offset, r.size = append(r.offset, offset), append(r.size, uint32(size))
}

func (r *refs) at(row int64) (object, offset, size int64) {
	object = r.one
	if r.object != nil {
		object = int64(r.object[row])
	}
	return object, r.offset[row], int64(r.size[row])
}

// Open makes a source of the arrays in files, whose objects read reads. It adds the fields and the
// number of records to info.
func Open(ctx context.Context, info driver.Info, list *filelist.List, files []*File, read Reader, opt *Options) (*Source, error) {
	s := &Source{List: list, info: info}
	if err := s.open(ctx, files, read, opt); err != nil {
		s.mem.Free()
		return nil, err
	}
	return s, nil
}

func (s *Source) open(ctx context.Context, files []*File, read Reader, opt *Options) error {
	if len(files) == 0 {
		return fmt.Errorf("%s has no files", s.info.URL)
	}
	pairs, err := findPairs(ctx, files[0], opt.Split, opt.Columns, read)
	if err != nil {
		return err
	}
	wants, left, err := choose(files[0], opt.Split, opt.Columns, pairs)
	if err != nil {
		return err
	}
	s.left = left
	threads := opt.Threads
	if threads <= 0 {
		threads = 2 * runtime.GOMAXPROCS(0)
	}
	s.files = make([]file, len(files))
	chosen := make([][]*Set, len(files))
	for i, f := range files {
		s.named = append(s.named, f.Path)
		if chosen[i], err = match(files[0], f, wants, chosen[0]); err != nil {
			return err
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(threads)
	for i, f := range files {
		s.files[i].arrays = make([]*Array, len(wants))
		g.Go(func() error {
			for k, set := range chosen[i] {
				a, err := load(gctx, set, read)
				if err != nil {
					return fmt.Errorf("%s: %q: %w", f.Path, set.Path, err)
				}
				s.files[i].arrays[k] = a
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	also := []string{s.info.Format, opt.Split}
	for i := range files {
		s.first = append(s.first, s.info.Len)
		s.info.Len += s.files[i].arrays[0].records()
	}
	if s.info.Len == 0 {
		return fmt.Errorf("%s has no rows", files[0].Path)
	}
	if s.info.Len > 1<<40 {
		return fmt.Errorf("%s has %d rows, the limit is %d", s.info.URL, s.info.Len, int64(1)<<40)
	}
	for k, w := range wants {
		if err := s.field(ctx, k, w, chosen[0][k], read); err != nil {
			return fmt.Errorf("%s: %w", files[0].Path, err)
		}
		f := &s.info.Fields[k]
		also = append(also, f.Name, string(f.Kind), w.path)
		if w.offsets != "" {
			also = append(also, w.offsets)
		}
	}
	if err := s.keep(ctx, read); err != nil {
		return err
	}
	if err := s.makeScratch(); err != nil {
		return err
	}
	s.info.Objects = int64(s.List.Len())
	s.info.Fingerprint = s.List.Fingerprint(also...)
	return nil
}

// match returns the sets of f that are the fields. They must have the same types and shapes as
// like, the sets of the first file.
func match(one, f *File, wants []wanted, like []*Set) ([]*Set, error) {
	var out []*Set
	byPath := map[string]*Set{}
	for _, s := range f.Sets {
		byPath[s.Path] = s
	}
	for i, w := range wants {
		s := byPath[w.path]
		for _, path := range []string{w.path, w.offsets} {
			if byPath[path] == nil && path != "" {
				return nil, fmt.Errorf("%s has no array %q, which %s has", f.Path, path, one.Path)
			}
		}
		if w.offsets != "" {
			var err error
			if s, err = pair(s, byPath[w.offsets], w.lengths); err != nil {
				return nil, fmt.Errorf("%s: %w", f.Path, err)
			}
		}
		switch {
		case s.Why != "":
			return nil, fmt.Errorf("%s: %q %s", f.Path, w.path, s.Why)
		case len(s.Dims) == 0:
			return nil, fmt.Errorf("%s: %q is a single value and has no rows", f.Path, w.path)
		case i > 0 && s.Dims[0] != out[0].Dims[0]:
			return nil, fmt.Errorf("%s: %q has %d rows and %q has %d: fields of the same records have equally many", f.Path, out[0].Path, out[0].Dims[0], s.Path, s.Dims[0])
		}
		if like != nil {
			o := like[i]
			a, b := s.Type, o.Type
			if a.String() != b.String() || a.Size != b.Size || a.At != b.At || a.Big != b.Big || !slices.Equal(a.Dims, b.Dims) || !slices.Equal(a.Names, b.Names) ||
				!slices.Equal(s.Dims[1:], o.Dims[1:]) {
				return nil, fmt.Errorf("%s: the rows of %q are %s of shape %v, in %s they are %s of shape %v", f.Path, w.path, &a, s.Dims[1:], one.Path, &b, o.Dims[1:])
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// load finds the positions of the elements of a set, and of the values that they refer to.
func load(ctx context.Context, set *Set, read Reader) (*Array, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a, err := set.Load(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.init(); err != nil {
		return nil, err
	}
	if set.offsets != nil {
		return a, set.spanned(ctx, a, read)
	}
	if !set.Type.ends() {
		return a, nil
	}
	if a.row != a.Elem {
		return nil, fmt.Errorf("its rows have the shape %v: of values of any length only one in a row can be read", set.Dims[1:])
	}
	r := &refs{}
	err = a.each(ctx, read, 0, a.Dims[0], func(row int64, b []byte) error {
		object, offset, size, err := set.Ref(b[set.Type.At : set.Type.At+set.Type.Size])
		if err == nil && size > driver.MaxArrayBytes {
			err = fmt.Errorf("%d bytes are more than the limit of %d", size, int64(driver.MaxArrayBytes))
		}
		if err != nil {
			return fmt.Errorf("row %d: %w", row, err)
		}
		r.add(object, offset, size)
		return nil
	})
	values := *a
	values.values = r
	return &values, err
}

// field makes field k.
func (s *Source) field(ctx context.Context, k int, w wanted, set *Set, read Reader) error {
	a := s.files[0].arrays[k]
	f := &field{name: w.column.Name, typ: set.Type}
	if err := f.shaped(a.Dims[1:], a.Elem); err != nil {
		return fmt.Errorf("column %q: %w", w.path, err)
	}
	want := w.column
	want.From = w.path
	u := f.seen(want)
	if set.Type.ends() {
		row := int64(max(f.dtype.Size(), 1))
		for _, side := range f.shape {
			row *= int64(side)
		}
		for i := range s.files {
			a := s.files[i].arrays[k]
			for r := range a.records() {
				n := a.valueBytes(r, &set.Type)
				if u.Form == column.List {
					u.Rows(u.Form, n/row, n)
				} else {
					u.Size.Add(n)
				}
			}
		}
		if err := s.look(ctx, k, u, &set.Type, read); err != nil {
			return err
		}
	}
	info, err := f.describe(want, u, s.info.Len)
	if err != nil {
		return err
	}
	s.fields = append(s.fields, f)
	s.info.Fields = append(s.info.Fields, info)
	return nil
}

// look probes the content of the first values of a field of bytes.
func (s *Source) look(ctx context.Context, k int, u *column.Seen, t *Type, read Reader) error {
	if t.Class == VarText || t.Class == VarList && t.DType != driver.Uint8 || t.Rows && t.Size > 1 {
		return nil
	}
	left := column.LookAt
	for i := range s.files {
		a := s.files[i].arrays[k]
		for row := int64(0); row < a.records() && left > 0; row++ {
			size := a.valueBytes(row, t)
			if size == 0 {
				continue
			}
			left--
			head, err := a.head(ctx, read, row, min(size, column.MaskBytes))
			if err != nil {
				return err
			}
			u.Look(head, size)
		}
	}
	return nil
}

// keepBytes limits the size of a field that is decoded entirely on opening.
const keepBytes = 16 << 20

// keep decodes small fields entirely, and makes caches for the chunks of the others.
func (s *Source) keep(ctx context.Context, read Reader) error {
	var total int64
	bytes := make([]int64, len(s.fields))
	for k, f := range s.fields {
		if f.typ.refers() {
			continue
		}
		decoded := false
		for _, file := range s.files {
			a := file.arrays[k]
			decoded = decoded || a.decoded()
			bytes[k] += a.bytes()
		}
		if !decoded || bytes[k] > keepBytes {
			if decoded {
				total += bytes[k]
			} else {
				bytes[k] = 0
			}
			continue
		}
		for i, file := range s.files {
			a := *file.arrays[k]
			if a.Held != nil {
				continue
			}
			room, err := s.mem.Take(a.bytes())
			if err != nil {
				return err
			}
			err = a.each(ctx, read, 0, a.Dims[0], func(row int64, b []byte) error {
				copy(room[row*a.row:], b)
				return nil
			})
			if err != nil {
				return fmt.Errorf("%s: %w", s.named[i], err)
			}
			a.Held = room
			file.arrays[k] = &a
			s.held += a.bytes()
		}
		bytes[k] = 0
	}
	for k := range s.fields {
		if bytes[k] == 0 {
			continue
		}
		// Files share caches by chunk size, because most files of a dataset have the same chunk
		// size.
		caches := map[int64]*cache{}
		share := int64(float64(cacheBytes) * (float64(bytes[k]) / float64(total)))
		count := map[int64]int64{}
		for _, file := range s.files {
			if a := file.arrays[k]; a.decoded() && a.Chunk[0] > 1 {
				count[a.chunk] += a.grid[0] * a.parts
			}
		}
		for i, file := range s.files {
			a := *file.arrays[k]
			if count[a.chunk] == 0 || !a.decoded() || a.Chunk[0] == 1 {
				continue
			}
			c := caches[a.chunk]
			if c == nil {
				c = newCache(&s.mem, a.chunk, count[a.chunk], share/int64(len(count)))
				caches[a.chunk] = c
				s.held += c.held()
			}
			a.cache = c
			s.files[i].arrays[k] = &a
		}
	}
	if s.held > fixedrecords.MaxHeld {
		return fmt.Errorf("%s: its chunks are so large that %d bytes would be kept in memory, the limit is %d: write it with smaller chunks, or fewer fields", s.info.URL, s.held, int64(fixedrecords.MaxHeld))
	}
	return nil
}

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return &s.info }

// Object implements driver.Source.
func (s *Source) Object(n int64) driver.Object { return s.List.Object(n, s.keeps()) }

// keeps reports whether objects have several records.
func (s *Source) keeps() bool { return int64(s.List.Len()) < s.info.Len }

// Left returns the arrays that are not fields, with the reasons.
func (s *Source) Left() []driver.Skipped { return s.left }

// Held implements driver.Holder.
func (s *Source) Held() int64 { return s.held }

// Close implements driver.Source.
func (s *Source) Close() error {
	s.mem.Free()
	return nil
}

// place returns the file of a record, and the record's number in that file.
func (s *Source) place(id int64) (int, int64) {
	i := filelist.Find(s.first, id)
	return i, id - s.first[i]
}

// Name implements driver.Source.
func (s *Source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, row %d", s.info.URL, id)
	}
	i, r := s.place(id)
	return fmt.Sprintf("%s, row %d", s.named[i], r)
}

// Sizes implements driver.Sizer.
func (s *Source) Sizes(k int, ids, sizes []int64) bool {
	f := s.fields[k]
	if !f.typ.ends() {
		return false
	}
	from, to := int64(1), int64(1)
	if f.kind == driver.KindMultiLabel || f.kind == driver.KindTokens {
		from, to = int64(f.dtype.Size()), int64(f.made().Size())
	}
	for n, id := range ids {
		i, r := s.place(id)
		sizes[n] = s.files[i].arrays[k].valueBytes(r, &f.typ) / from * to
	}
	return true
}
