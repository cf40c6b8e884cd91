// Package archive is the shared part of the sources for tar and zip files: the meaning of member names (names.go),
// the grouping of members into records (layout.go), and a source with random access.
//
// Opening an archive scans it once for the names and offsets of its members.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/indexcache"
	"github.com/stokerdata/stoker/internal/source/inorder"
	"github.com/stokerdata/stoker/internal/source/stream"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Format is a kind of archive.
type Format struct {
	// Name is the name in driver.Info.
	Name string
	// Is reports whether a file with this name has the format.
	Is func(name string) bool
	// Scan calls add for each member that is a file, in archive order.
	Scan func(ctx context.Context, r io.ReaderAt, size int64, add func(m *Member) error) error
	// Compressed detects how the whole archive is compressed, from its first HeadBytes (or fewer if the archive is
	// shorter). Compressed archives can only be read in order: ScanStream is then called instead of Scan. Nil means
	// that archives of this format are never compressed.
	Compressed func(head []byte) stream.Format
	ScanStream func(ctx context.Context, r *inorder.Scanner, add func(m *Member) error) error
	// Unpack returns the content of a member from the bytes of its extent. It calls take if it needs memory. If
	// Unpack is nil, the extent is the content.
	Unpack func(m *Member, b []byte, take func(n int64) ([]byte, error)) ([]byte, error)
}

// HeadBytes is the number of bytes that Format.Compressed needs.
const HeadBytes = 512

// Damage is an error of Scan or ScanStream with its offset. For ScanStream the offset is in the decompressed data.
type Damage struct {
	At  int64
	Err error
}

func (d *Damage) Error() string { return fmt.Sprintf("byte %d: %v", d.At, d.Err) }

// Unwrap returns the cause.
func (d *Damage) Unwrap() error { return d.Err }

// Options configure Open.
type Options = format.Options

// Source reads records from the members of archives.
type Source struct {
	format *Format
	list   *filelist.List
	info   driver.Info
	layout
	npys    []npyField
	exclude []string // samples that are not records
	// streams describes archives that are read in order, heads reads the beginnings of their members. Both are
	// unused if all members can be read at random.
	streams []inorder.File
	heads   heads
}

// npyField is the dtype and shape of a field of .npy members.
type npyField struct {
	dtype driver.DType
	shape []int64
	first string // member that defines them
	// single is the type of single numbers, 0 for arrays.
	single dtype.Type
}

// Open lists the archives of st (or takes the single object that st is) and scans their members. The returned
// source is a driver.Sequential if an archive is compressed.
func Open(ctx context.Context, url string, st store.Store, format *Format, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	if o.Threads <= 0 {
		o.Threads = 4 * runtime.GOMAXPROCS(0)
	}
	var list *filelist.List
	var err error
	if o.Names != nil {
		list, err = filelist.Named(ctx, st, o.Names)
	} else {
		list, err = filelist.Scan(ctx, st, func(name string) bool { return name == "" || format.Is(name) }, 0)
	}
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no .%s file in %s", format.Name, st)
	}
	s := &Source{format: format, list: list}
	s.layout.path, s.layout.named = s.memberPath, o.Fields
	if len(o.Exclude) > 0 {
		s.layout.excluded = func(shard int, key string) bool { return o.Exclude[s.list.RelPath(shard)+"/"+key] }
		s.exclude = slices.Sorted(maps.Keys(o.Exclude))
	}
	if err := s.scan(ctx, o.Threads); err != nil {
		return nil, err
	}
	s.unpackNames()
	if g := s.group(); g != nil {
		err = s.samples(g)
	} else {
		err = s.files()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", st, err)
	}
	s.info = driver.Info{
		URL: url, Format: format.Name, Len: s.records(), Objects: int64(list.Len()), Sequential: s.streams != nil,
	}
	defer s.heads.close()
	if err := s.describe(ctx); err != nil {
		return nil, err
	}
	s.info.Fingerprint = s.fingerprint()
	if s.streams != nil {
		return newOrdered(s), nil
	}
	return s, nil
}

// scan lists the members of all archives.
func (s *Source) scan(ctx context.Context, threads int) error {
	s.tables = make([]*Table, s.list.Len())
	files, lim := make([]inorder.File, s.list.Len()), inorder.NewLimits()
	known := indexcache.New(s.list, s.format.Name)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(threads)
	for i := range s.tables {
		g.Go(func() error {
			o, err := s.list.Open(gctx, i)
			if err != nil {
				return err
			}
			defer o.Close()
			t := &Table{}
			s.tables[i] = t
			add := func(m *Member) error {
				if t.len()%1024 == 0 && gctx.Err() != nil {
					return context.Cause(gctx)
				}
				return t.add(m, s.format.Unpack != nil)
			}
			where := ", byte %d"
			if files[i].Format, err = s.compressed(gctx, o); err == nil && files[i].Format != stream.Plain {
				where += ", decompressed"
				if !recall(gctx, known, i, o.Size(), t, &files[i]) {
					if files[i], err = s.scanStream(gctx, o, lim, files[i].Format, t, add); err == nil && store.Check(gctx, o) == nil {
						remember(gctx, known, i, t, &files[i])
					}
				}
			} else if err == nil {
				err = s.format.Scan(gctx, store.ReaderAt(gctx, o), o.Size(), add)
			}
			if err == nil {
				err = store.Check(gctx, o)
			}
			var d *Damage
			if errors.As(err, &d) {
				return filelist.ErrPlace(s.list, int64(i), fmt.Sprintf(where, d.At), d.Err)
			}
			if err != nil && gctx.Err() == nil {
				return filelist.ErrPlace(s.list, int64(i), "", err)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if slices.ContainsFunc(files, func(f inorder.File) bool { return f.Format != stream.Plain }) {
		s.streams = files
	}
	return nil
}

// compressed detects how the whole archive is compressed.
func (s *Source) compressed(ctx context.Context, o store.Object) (stream.Format, error) {
	if s.format.Compressed == nil {
		return stream.Plain, nil
	}
	var head [HeadBytes]byte
	n := min(o.Size(), HeadBytes)
	err := o.ReadAt(ctx, head[:n], 0)
	return s.format.Compressed(head[:n]), err
}

// describe sets info.Fields from the layout and from the first values.
func (s *Source) describe(ctx context.Context) error {
	s.npys = make([]npyField, len(s.fields))
	for f := range s.fields {
		m := &s.fields[f]
		out := driver.Field{Name: m.name, Kind: m.kind}
		if f == s.stored {
			out.Classes = s.classes
			s.info.Fields = append(s.info.Fields, out)
			continue
		}
		least, most := int64(math.MaxInt64), int64(0)
		for r := range s.info.Len {
			shard, i := s.member(r, f)
			least, most = min(least, s.tables[shard].size[i]), max(most, s.tables[shard].size[i])
		}
		var err error
		switch {
		case m.npy:
			err = s.describeArray(ctx, f, &out, least == most)
		case m.kind == driver.KindMask:
			out.DType, err = s.maskType(ctx, f)
		case m.kind == driver.KindImage && m.maps:
			var b []byte
			if b, err = s.head(ctx, 0, f); err == nil {
				filelist.MapType(&out, b)
			}
		}
		if err != nil {
			return err
		}
		if k := out.Kind; k != driver.KindLabel && k != driver.KindInt && k != driver.KindFloat && k != driver.KindArray {
			out.MaxBytes = most
		}
		s.info.Fields = append(s.info.Fields, out)
	}
	return nil
}

// headBytes is larger than the header of any image or array.
const headBytes = 128 << 10

// head reads the beginning of a member.
func (s *Source) head(ctx context.Context, r int64, f int) ([]byte, error) {
	shard, i := s.member(r, f)
	at, n := s.tables[shard].extent(i)
	if s.tables[shard].size[i] > MaxFileBytes {
		return nil, s.fail(r, f, errLarge(s.tables[shard].size[i]))
	}
	if s.format.Unpack == nil {
		n = min(n, headBytes)
	}
	if s.streams != nil {
		b, err := s.heads.read(ctx, s, shard, at, n)
		if err != nil {
			err = s.fail(r, f, err)
		}
		return b, err
	}
	o, err := s.list.Open(ctx, shard)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	b := make([]byte, n)
	if n > 0 {
		if err := o.ReadAt(ctx, b, at); err != nil {
			return nil, err
		}
	}
	if s.format.Unpack == nil {
		return b, nil
	}
	m := s.tables[shard].member(i)
	b, err = s.format.Unpack(&m, b, func(n int64) ([]byte, error) { return make([]byte, n), nil })
	if err != nil {
		return nil, s.fail(r, f, err)
	}
	return b, nil
}

// describeArray sets the kind of a field of .npy members from the first one. If all members have the same size, the
// field is an array, otherwise the first axis varies. Arrays that cannot be parsed, for example of Python objects,
// stay bytes.
func (s *Source) describeArray(ctx context.Context, f int, out *driver.Field, same bool) error {
	b, err := s.head(ctx, 0, f)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(b), npy.Magic) {
		return s.fail(0, f, errors.New("not a .npy file: it does not begin with \\x93NUMPY"))
	}
	h, err := npy.ParseHeader(b)
	if err != nil || !same && len(h.Shape) == 0 {
		out.Kind, s.fields[f].npy, s.fields[f].kind = driver.KindBytes, false, driver.KindBytes
		return nil
	}
	out.DType = h.DType
	s.npys[f] = npyField{dtype: h.DType, shape: h.Shape, first: s.place(0, f)}
	shape := h.Shape
	if !same {
		out.Kind, shape = driver.KindRagged, shape[1:]
	}
	out.Shape = []int{}
	for _, n := range shape {
		out.Shape = append(out.Shape, int(min(n, math.MaxInt32)))
	}
	if _, err := driver.ArrayBytes(out.DType, out.Shape); err != nil {
		return s.fail(0, f, err)
	}
	s.npys[f].single = column.Single(out)
	return nil
}

// maskProbes is the number of masks probed when archives are opened.
const maskProbes = 8

// maskType returns the dtype of a field of masks. It probes a sample of them for class numbers that need two bytes.
func (s *Source) maskType(ctx context.Context, f int) (driver.DType, error) {
	n := min(s.info.Len, maskProbes)
	for i := range n {
		b, err := s.head(ctx, i*s.info.Len/n, f)
		if err != nil {
			return "", err
		}
		// A member that is not an image is reported when its record is read.
		if info, err := imagefile.Probe(b); err == nil && info.Precision > 8 {
			return driver.Uint16, nil
		}
	}
	return driver.Uint8, nil
}

func (s *Source) fingerprint() string {
	of := append([]string{s.format.Name}, s.exclude...)
	for i := range s.info.Fields {
		f := &s.info.Fields[i]
		of = append(of, f.Name, string(f.Kind), string(f.DType), fmt.Sprint(f.Shape))
	}
	return s.list.Fingerprint(of...)
}

// member returns the archive and the member that hold a field of a record.
func (s *Source) member(r int64, f int) (shard, i int) {
	return s.shard(r), int(s.members[r*int64(s.stored)+int64(f)])
}

// shard returns the archive of a record. An empty archive has the same first record as the next archive: Find
// returns the last of them, which is not empty.
func (s *Source) shard(r int64) int { return filelist.Find(s.first, r) }

// memberPath returns the path of a member. If there are several archives, the path of the archive comes first.
func (s *Source) memberPath(shard, i int) string {
	if s.list.Len() == 1 {
		return s.tables[shard].name(i)
	}
	return s.list.RelPath(shard) + "/" + s.tables[shard].name(i)
}

// place describes the position of a value, for messages.
func (s *Source) place(r int64, f int) string {
	shard, i := s.member(r, f)
	what := ""
	if s.streams != nil && s.streams[shard].Format != stream.Plain {
		what = ", decompressed"
	}
	return fmt.Sprintf("%s, %s (byte %d%s)", s.list.Path(shard), printed(s.tables[shard].name(i)), s.tables[shard].at[i], what)
}

// printed quotes a name that has control characters.
func printed(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7F }) {
		return strconv.Quote(name)
	}
	return name
}

// fail prefixes an error with the position of the value.
func (s *Source) fail(r int64, f int, err error) error {
	return fmt.Errorf("%s: %w", s.place(r, f), err)
}

func errLarge(size int64) error {
	return fmt.Errorf("it has %d bytes, the limit is %d", size, int64(MaxFileBytes))
}

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return &s.info }

// Object implements driver.Source.
func (s *Source) Object(n int64) driver.Object { return s.list.Object(n, true) }

// Name implements driver.Source.
func (s *Source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return s.place(id, 0)
}

// Path implements driver.Pather.
func (s *Source) Path(id int64, field int) string {
	shard, i := s.member(id, min(field, s.stored-1))
	return s.memberPath(shard, i)
}

// Skipped implements driver.Skipper.
func (s *Source) Skipped() []driver.Skipped { return s.skipped }

// Sizes implements driver.Sizer.
func (s *Source) Sizes(field int, ids, sizes []int64) bool {
	f := &s.info.Fields[field]
	switch f.Kind {
	case driver.KindLabel, driver.KindInt, driver.KindFloat, driver.KindRagged:
		return false
	case driver.KindArray:
		n, _ := driver.ArrayBytes(f.DType, f.Shape) // describe has checked it
		for k := range ids {
			sizes[k] = n
		}
		return true
	}
	for k, id := range ids {
		shard, i := s.member(id, field)
		sizes[k] = s.tables[shard].size[i]
	}
	return true
}

// maxNumber is the maximum number of bytes of a number written as text.
const maxNumber = 64

// sized returns an error if a value of a field cannot have this size.
func (s *Source) sized(f int, size int64) error {
	k := s.info.Fields[f].Kind
	switch number := !s.fields[f].npy && (k == driver.KindLabel || k == driver.KindInt); {
	case number && size > maxNumber:
		return fmt.Errorf("expected a number, got %d bytes", size)
	case size > MaxFileBytes:
		return errLarge(size)
	}
	return nil
}

// Locate implements driver.Source.
func (s *Source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(k int, id int64) {
		begin := len(g.Extents)
		for f := range s.stored {
			if !g.Wants(f) {
				continue
			}
			shard, i := s.member(id, f)
			t := s.tables[shard]
			e := driver.Extent{Object: int64(shard), Field: -1}
			e.Offset, e.Size = t.extent(i)
			switch s.info.Fields[f].Kind {
			case driver.KindImage, driver.KindMask, driver.KindAudio:
				e.Tail = true
			case driver.KindBytes, driver.KindText, driver.KindJSON:
				if s.format.Unpack == nil {
					e.Field = int32(f)
				}
			}
			if err := s.sized(f, t.size[i]); err != nil {
				g.Records[k].Err = s.fail(id, f, err)
				g.Extents = g.Extents[:begin]
				return
			}
			g.Extents = append(g.Extents, e)
		}
	})
}

// Parse implements driver.Source.
func (s *Source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		next := int(g.First[k])
		for f := range s.stored {
			if !g.Wants(f) {
				continue
			}
			b := g.Bytes[next]
			next++
			if s.format.Unpack != nil {
				var short error
				shard, i := s.member(id, f)
				m := s.tables[shard].member(i)
				var err error
				b, err = s.format.Unpack(&m, b, func(n int64) ([]byte, error) {
					p, err := s.take(g, k, f, n)
					short = err
					return p, err
				})
				if short != nil {
					return fmt.Errorf("no memory for the %d bytes of %s: %w", m.Size, s.place(id, f), short)
				}
				if err != nil {
					rec.Err = s.fail(id, f, err)
					break
				}
			}
			if err := s.value(f, b, &rec.Values[f]); err != nil {
				rec.Err = s.fail(id, f, err)
				break
			}
		}
		if s.labels != nil {
			rec.Values[s.stored].Int = int64(s.labels[id])
		}
	}
	return nil
}

// take allocates memory for a value. It is in the batch itself if the value is stored there unchanged.
func (s *Source) take(g *driver.Group, k, f int, n int64) ([]byte, error) {
	switch s.info.Fields[f].Kind {
	case driver.KindBytes, driver.KindText, driver.KindJSON, driver.KindAudio:
		return g.Take(k, f, n)
	}
	return g.Alloc(int(n))
}

// value parses the content of a member into v.
func (s *Source) value(f int, b []byte, v *driver.Value) error {
	switch kind := s.info.Fields[f].Kind; {
	case s.fields[f].npy:
		return s.array(f, b, v)
	case kind == driver.KindLabel || kind == driver.KindInt:
		text := strings.TrimSpace(string(b))
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("expected an integer, got %q", text)
		}
		v.Int = n
	default:
		v.Bytes = b
	}
	return nil
}

// array parses a .npy file into v.
func (s *Source) array(f int, b []byte, v *driver.Value) error {
	h, err := npy.ParseHeader(b)
	if err != nil {
		return err
	}
	if err := s.fits(f, h, int64(len(b))); err != nil {
		return err
	}
	return s.npys[f].put(&s.info.Fields[f], v, b[h.Offset:])
}

// put makes the elements of a .npy file the value of field f.
func (n *npyField) put(f *driver.Field, v *driver.Value, elements []byte) error {
	if n.single != 0 {
		return column.Put(f, v, n.single, elements)
	}
	v.Bytes = elements
	return nil
}

// fits returns an error if a .npy file of size bytes does not match the other values of its field.
func (s *Source) fits(f int, h *npy.Header, size int64) error {
	if h.Bytes != size-h.Offset {
		return fmt.Errorf("a %s array of shape %v needs %d bytes, the member has %d", h.DType, h.Shape, h.Bytes, size-h.Offset)
	}
	want, from := &s.npys[f], 0
	if s.info.Fields[f].Kind == driver.KindRagged {
		from = 1
	}
	if h.DType != want.dtype || len(h.Shape) != len(want.shape) || !slices.Equal(h.Shape[from:], want.shape[from:]) {
		return fmt.Errorf("it is %s of shape %v, but %s is %s of shape %v", h.DType, h.Shape, want.first, want.dtype, want.shape)
	}
	return nil
}

// Close implements driver.Source.
func (s *Source) Close() error { return nil }
