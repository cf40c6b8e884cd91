package grid

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/internal/codec"
	"github.com/stokerdata/stoker/source/internal/filelist"
	"github.com/stokerdata/stoker/source/internal/fixed"
	"github.com/stokerdata/stoker/source/tablesource"
)

// Options say what becomes a field.
type Options struct {
	// Columns name the arrays, nil for all with the same first axis.
	Columns []tablesource.Column
	// Split is the group that is read of a file with several, "" for all of it.
	Split string
	// Threads bounds the files that are looked at at once, 0 for a choice.
	Threads int
}

// Source reads the rows of arrays. The format that embeds it adds what it keeps.
type Source struct {
	// List are the objects of the source.
	List *filelist.List

	info   driver.Info
	fields []*field
	files  []file
	first  []int64 // number of the first record of each file
	left   []driver.Skipped
	mem    fixed.Memory
	held   int64
	// scratch is memory for chunks while they are decoded.
	scratch chan *scratch
	// named are the files, for messages.
	named []string
}

// file is a part of the records.
type file struct {
	arrays []*Array // by field
}

// refs say where the values of any length of an array lie.
type refs struct {
	object []int32 // nil where all lie in one
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

// Open makes a source of the arrays in files, which read reads. info lacks what
// follows from them.
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
	wants, left, err := choose(files[0], opt.Split, opt.Columns)
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
		s.info.Len += s.files[i].arrays[0].Dims[0]
	}
	if s.info.Len == 0 {
		return fmt.Errorf("%s has no rows", files[0].Path)
	}
	if s.info.Len > 1<<40 {
		return fmt.Errorf("%s has %d rows, the limit is %d", s.info.URL, s.info.Len, int64(1)<<40)
	}
	for k, w := range wants {
		if err := s.field(ctx, k, w, chosen[0][k], read); err != nil {
			return fmt.Errorf("%s: %q: %w", files[0].Path, w.path, err)
		}
		f := &s.info.Fields[k]
		also = append(also, f.Name, string(f.Kind), w.path)
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

// match returns the sets of a file that are the fields, which must be what those of
// the first file are.
func match(one, f *File, wants []wanted, like []*Set) ([]*Set, error) {
	var out []*Set
	byPath := map[string]*Set{}
	for _, s := range f.Sets {
		byPath[s.Path] = s
	}
	for i, w := range wants {
		s := byPath[w.path]
		switch {
		case s == nil:
			return nil, fmt.Errorf("%s has no array %q, which %s has", f.Path, w.path, one.Path)
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

// load finds out where an array lies, and the values that it leads to.
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
	if !set.Type.ends() {
		return a, nil
	}
	if len(set.Dims) != 1 {
		return nil, fmt.Errorf("its rows have the shape %v: of values of any length only one in a row can be read", set.Dims[1:])
	}
	r := &refs{}
	err = a.each(ctx, read, func(row int64, b []byte) error {
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

// lookAt is how many values say what bytes of any length are.
const lookAt = 8

// field makes field k.
func (s *Source) field(ctx context.Context, k int, w wanted, set *Set, read Reader) error {
	f := &field{name: w.column.Name, typ: set.Type}
	kind := w.column.Kind
	longest := int64(0)
	mask := driver.Uint8
	var stats *driver.FieldStats
	if set.Type.ends() {
		stats = &driver.FieldStats{MinBytes: 1 << 62, Sizes: map[int64]int64{}}
		for i := range s.files {
			for _, n := range s.files[i].arrays[k].values.size {
				n := int64(n)
				longest = max(longest, n)
				stats.Count++
				stats.Bytes += n
				stats.MinBytes = min(stats.MinBytes, n)
				stats.Sizes[driver.SizeBound(n)]++
			}
		}
		stats.MaxBytes = longest
		guess, depth, err := s.look(ctx, k, f.name, &set.Type, read)
		if err != nil {
			return err
		}
		if mask = depth; kind == "" {
			kind = guess
		}
	}
	a := s.files[0].arrays[k]
	info, err := f.describe(kind, a.Dims[1:], a.Elem, longest)
	if err != nil {
		return err
	}
	if info.Kind == driver.KindMask && info.Width == 0 {
		info.DType = mask
	}
	if stats != nil && f.made() == f.dtype {
		info.Stats = stats
	}
	s.fields = append(s.fields, f)
	s.info.Fields = append(s.info.Fields, info)
	return nil
}

// look says what the first values of a field of bytes are, "" for what their type
// says; and, of masks, whether they need two bytes.
func (s *Source) look(ctx context.Context, k int, name string, t *Type, read Reader) (driver.Kind, driver.DType, error) {
	kind, mask := driver.Kind(""), driver.Uint8
	if t.Class == VarText || t.Class == VarList && t.DType != driver.Uint8 {
		return kind, mask, nil
	}
	left := lookAt
	for i := range s.files {
		r := s.files[i].arrays[k].values
		for row := int64(0); row < int64(len(r.size)) && left > 0; row++ {
			object, offset, size := r.at(row)
			if size == 0 {
				continue
			}
			left--
			head := make([]byte, min(size, 64<<10))
			if err := read(ctx, object, head, offset); err != nil {
				return "", "", err
			}
			if info, err := imagefile.Probe(head); err == nil && info.Precision > 8 {
				mask = driver.Uint16
			}
			if kind == "" && imagefile.IsPicture(head, size <= int64(len(head))) {
				kind = filelist.KindOf(name, "x.png") // a mask by the field's name
			}
		}
	}
	return kind, mask, nil
}

// keepBytes is the largest field that is decoded when it is opened, and kept.
const keepBytes = 16 << 20

// keep decodes small fields once, and makes caches for the chunks of the others.
func (s *Source) keep(ctx context.Context, read Reader) error {
	var total int64
	bytes := make([]int64, len(s.fields))
	for k, f := range s.fields {
		if f.typ.ends() {
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
			err = a.each(ctx, read, func(row int64, b []byte) error {
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
		// All files have a cache together: their chunks have one size as a rule.
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
	if s.held > fixed.MaxHeld {
		return fmt.Errorf("%s: its chunks are so large that %d bytes would be kept in memory, the limit is %d: write it with smaller chunks, or fewer fields", s.info.URL, s.held, int64(fixed.MaxHeld))
	}
	return nil
}

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return &s.info }

// Object implements driver.Source.
func (s *Source) Object(n int64) driver.Object { return s.List.Object(n, s.keeps()) }

// keeps says whether objects hold many records.
func (s *Source) keeps() bool { return int64(s.List.Len()) < s.info.Len }

// Left says what lies beside the fields, and why it is none.
func (s *Source) Left() []driver.Skipped { return s.left }

// Held implements driver.Holder.
func (s *Source) Held() int64 { return s.held }

// Close implements driver.Source.
func (s *Source) Close() error {
	s.mem.Free()
	return nil
}

// place returns the file that a record lies in, and its row there.
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
		_, _, size := s.files[i].arrays[k].values.at(r)
		sizes[n] = size / from * to
	}
	return true
}

// Locate implements driver.Source: for each field in their order its values, what it
// is assembled of, or the chunks that have it.
func (s *Source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(_ int, id int64) {
		i, r := s.place(id)
		for k, f := range s.fields {
			if !g.Wants(k) {
				continue
			}
			a := s.files[i].arrays[k]
			kind := s.info.Fields[k].Kind
			direct := int32(-1)
			if f.direct && kind != driver.KindInt && kind != driver.KindFloat && kind != driver.KindLabel {
				direct = int32(k)
			}
			from := len(g.Extents)
			if f.typ.ends() {
				if object, offset, size := a.values.at(r); size > 0 {
					g.Extents = append(g.Extents, driver.Extent{Object: object, Offset: offset, Size: size, Field: direct})
				}
			} else {
				a.locate(g, r, direct)
				if f.narrow(a) && len(g.Extents) > from {
					e := &g.Extents[from]
					e.Offset, e.Size = e.Offset+f.typ.At, f.typ.Size
				}
			}
			if kind == driver.KindImage || kind == driver.KindMask || kind == driver.KindAudio {
				for j := from; j < len(g.Extents); j++ {
					g.Extents[j].Tail, g.Extents[j].Field = true, -1
				}
			}
		}
	})
}

// narrow says whether only some bytes of a row are read: a member of its one element.
func (f *field) narrow(a *Array) bool {
	return f.count == 1 && f.typ.Size != f.elem && a.Held == nil && !a.decoded()
}

// Parse implements driver.Source.
func (s *Source) Parse(g *driver.Group) error {
	p := parser{s: s, g: g}
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil || id < 0 || id >= s.info.Len {
			continue
		}
		i, r := s.place(id)
		extents, parts := g.Of(k)
		for n := range s.fields {
			if !g.Wants(n) {
				continue
			}
			a := s.files[i].arrays[n]
			used, err := p.field(k, n, a, r, extents, parts)
			if err != nil {
				var me *memoryError
				var ce *codec.MemoryError
				if errors.As(err, &me) || errors.As(err, &ce) {
					return err
				}
				rec.Err = fmt.Errorf("%s, field %q: %w", s.Name(id), s.info.Fields[n].Name, err)
				break
			}
			extents, parts = extents[used:], parts[used:]
		}
	}
	return nil
}

// scratch is memory of the source for a chunk on its way to a row. Who has one never
// waits for another one, only for chunks that are being decoded by others who have
// one, too.
type scratch struct {
	mem  []byte
	used int
}

// take gives n bytes of it.
func (c *scratch) take(n int) ([]byte, error) {
	if n < 0 || n > len(c.mem)-c.used {
		return nil, &codec.MemoryError{Err: fmt.Errorf("a step takes %d bytes, there are %d", n, len(c.mem)-c.used)}
	}
	b := c.mem[c.used : c.used+n : c.used+n]
	c.used += (n + 63) &^ 63
	return b, nil
}

const (
	// scratchBytes is what all scratch together may have beside the first.
	scratchBytes = 128 << 20
	// largestScratch is what one may have.
	largestScratch = 1 << 30
)

// makeScratch takes the memory that putting rows together needs.
func (s *Source) makeScratch() error {
	need := int64(0)
	for k, f := range s.fields {
		if f.typ.ends() {
			continue
		}
		for _, file := range s.files {
			a := file.arrays[k]
			n := a.scratch()
			if f.typ.Size != f.elem {
				n += (a.row + 63) &^ 63
			}
			need = max(need, n)
		}
	}
	if need == 0 {
		return nil
	}
	if need > largestScratch {
		return fmt.Errorf("%s: decoding its chunks takes %d bytes, the limit is %d: write it with smaller chunks", s.info.URL, need, int64(largestScratch))
	}
	count := max(min(int64(runtime.GOMAXPROCS(0))+1, scratchBytes/need), 1)
	mem, err := s.mem.Take(count * need)
	if err != nil {
		return err
	}
	s.held += count * need
	s.scratch = make(chan *scratch, count)
	for i := range count {
		s.scratch <- &scratch{mem: mem[i*need : (i+1)*need]}
	}
	return nil
}

// parser makes the values of a group.
type parser struct {
	s *Source
	g *driver.Group
}

// field makes the value of a field. It returns how many extents it had.
func (p *parser) field(k, n int, a *Array, r int64, extents []driver.Extent, parts [][]byte) (int, error) {
	s, g, f := p.s, p.g, p.s.fields[n]
	switch {
	case f.typ.ends():
		if _, _, size := a.values.at(r); size == 0 {
			return 0, s.value(g, k, n, nil, false)
		}
		return 1, s.value(g, k, n, parts[0], false)
	case a.Held != nil: // which lives as long as the source
		return 0, s.value(g, k, n, a.Held[r*a.row:(r+1)*a.row], false)
	case a.Chunk == nil && a.Whole.Size > 0:
		return 1, s.value(g, k, n, parts[0], false)
	case a.Chunk != nil && !a.decoded() && a.parts == 1 && (a.slice == a.row || f.narrow(a)):
		if first, _ := a.chunks(r); len(parts) > 0 {
			if _, ok := a.Find(first); ok {
				return 1, s.value(g, k, n, parts[0], false)
			}
		}
	}
	// The row is put together.
	var c *scratch
	gather := f.typ.Size != f.elem
	if gather || a.decoded() {
		c = <-s.scratch
		c.used = 0
		defer func() { s.scratch <- c }()
	}
	var raw []byte
	var err error
	if gather {
		raw, err = c.take(int(a.row))
	} else {
		raw, err = s.take(g, k, n, a.row, f.plain())
	}
	if err != nil {
		return 0, err
	}
	used := 0
	if a.Chunk == nil {
		a.copy(raw, nil)
	} else if used, err = a.assembled(raw, r, parts, c); err != nil {
		return 0, err
	}
	return used, s.value(g, k, n, raw, true)
}

// assembled puts row r together of the chunks that it lies in, and says how many of
// them were written.
func (a *Array) assembled(dst []byte, r int64, parts [][]byte, c *scratch) (int, error) {
	first, at := a.chunks(r)
	used := 0
	for n := range a.parts {
		place, ok := a.Find(first + n)
		if !ok {
			a.assemble(dst, n, nil)
			continue
		}
		src := parts[used]
		used++
		if !a.decoded() {
			a.assemble(dst, n, src)
			continue
		}
		if err := a.part(dst, first+n, n, at, place, src, c); err != nil {
			return 0, err
		}
	}
	return used, nil
}

// part decodes chunk n, the part-th of a row, and copies what it has of the row.
func (a *Array) part(dst []byte, n, part, at int64, place Place, src []byte, c *scratch) error {
	before := c.used
	defer func() { c.used = before }()
	decode := func(to []byte) error {
		err := a.decode(to, src, place.Mask, c.take)
		var me *codec.MemoryError
		if err == nil || errors.As(err, &me) {
			return err
		}
		return a.wrong(n, place, err)
	}
	if a.cache == nil && a.parts == 1 && a.row == a.chunk {
		return decode(dst)
	}
	if a.cache != nil {
		slot, err := a.cache.get(a, n, decode)
		if err != nil {
			return err
		}
		if slot != nil {
			a.assemble(dst, part, slot.mem[at*a.slice:(at+1)*a.slice])
			a.cache.put(slot)
			return nil
		}
	}
	chunk, err := c.take(int(a.chunk))
	if err != nil {
		return err
	}
	if err := decode(chunk); err != nil {
		return err
	}
	a.assemble(dst, part, chunk[at*a.slice:(at+1)*a.slice])
	return nil
}
