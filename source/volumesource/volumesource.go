// Package volumesource reads volumes: NIfTI files, .npy files of three axes or more,
// TIFF files whose pages are the slices, and DICOM series, whose files are. Each volume
// is a record with its voxels, the slowest axis first (z, y, x), and, where the format
// says it, its affine. With a patch, each volume is cut into patches of that size, and
// each of them is a record. Of what is not compressed no more is read than the rows of
// a patch, or of the part that Group.Box asks for; of compressed strips and tiles only
// those that have some of it.
package volumesource

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/internal/filelist"
	"github.com/stokerdata/stoker/source/internal/unpacked"
	"github.com/stokerdata/stoker/source/pairsource"
	"github.com/stokerdata/stoker/store"
)

// Options change how volumes are read. Nil means whole ones.
type Options struct {
	// Format is what the source says that it is, "volumes" by default; "nifti" and
	// "dicom" take files of that kind alone.
	Format string
	// Fields are those of records that are several volumes each, such as an image and
	// its label. Without any, each volume is a record.
	Fields []pairsource.Field
	// Names are the files that are wanted, nil for all in the folder.
	Names []string
	// Patch is the size of patches: z, y, x. Zero means whole volumes.
	Patch [3]int
	// Stride is how far patches are apart, Patch by default. The last one of each
	// axis ends with the volume.
	Stride [3]int
	// Threads bounds the files whose headers are read at once.
	Threads int
}

// ParseSize reads 64x64x64, or 64 for all three.
func ParseSize(text string) (size [3]int, err error) {
	parts := strings.Split(text, "x")
	if len(parts) == 1 {
		parts = []string{text, text, text}
	}
	for i, p := range parts {
		if i == 3 {
			break
		}
		if size[i], err = strconv.Atoi(p); err != nil || size[i] < 1 || size[i] > maxSide {
			return size, fmt.Errorf("%q is no size: write z, y and x, such as 64x96x96, or one number for all", text)
		}
	}
	if len(parts) != 3 {
		return size, fmt.Errorf("%q is no size: write z, y and x, such as 64x96x96, or one number for all", text)
	}
	return size, nil
}

const maxSide = 1 << 15

// column is a field of volumes.
type column struct {
	list *filelist.List
	// first is the number of its first object among those of the source.
	first int64
	// volumes are those of the records, names their paths.
	volumes []volume
	names   []string
	field   int
}

type source struct {
	info    driver.Info
	columns []column
	// affine and origin are the places of those fields, -1 for none; the affine is that
	// of the first column that has one.
	affine, origin int
	patch          [3]int
	stride         [3]int
	first          []int64 // number of the first record of each volume, of patches
	cache          *unpacked.Cache
	useful         int64
	gz             bool
	skipped        []driver.Skipped
}

// Open lists the volumes in st, or the one that it is, in the order of their names,
// and reads their headers.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	if o.Format == "" {
		o.Format = "volumes"
	}
	s := &source{patch: o.Patch, cache: unpacked.New(), affine: -1, origin: -1, info: driver.Info{URL: url, Format: o.Format}}
	if len(o.Fields) > 0 {
		if err := s.pairs(ctx, st, &o); err != nil {
			return nil, err
		}
	} else {
		c := column{}
		var err error
		if o.Names != nil {
			c.list, err = filelist.Named(ctx, st, o.Names)
		} else {
			c.list, err = filelist.Scan(ctx, st, keep(o.Format), 0)
		}
		if err != nil {
			return nil, err
		}
		if c.list.Len() == 0 {
			return nil, fmt.Errorf("no %s in %s or its subfolders", wanted(o.Format), st)
		}
		if err := s.read(ctx, &c, &o); err != nil {
			return nil, err
		}
		s.columns = []column{c}
	}
	if len(s.columns[0].volumes) == 0 {
		return nil, fmt.Errorf("no %s in %s or its subfolders", wanted(o.Format), st)
	}
	print := []string{o.Format, fmt.Sprint(o.Patch, o.Stride)}
	for i := range s.columns {
		c := &s.columns[i]
		c.first = s.info.Objects
		s.info.Objects += int64(c.list.Len())
		if i > 0 {
			print = append(print, c.list.Fingerprint())
		}
	}
	if err := s.fields(&o); err != nil {
		return nil, err
	}
	for i := range s.columns {
		print = append(print, s.info.Fields[i].Name)
	}
	s.info.Fingerprint = s.columns[0].list.Fingerprint(print...)
	return s, s.records(&o)
}

// keep says which files of a folder may be some.
func keep(format string) func(name string) bool {
	return func(name string) bool {
		switch is, mayBe := IsDICOMName(name); {
		case name == "":
			return true
		case format == "nifti":
			return IsName(name)
		case format == "dicom":
			return is || mayBe
		}
		return isName(name)
	}
}

func wanted(format string) string {
	switch format {
	case "nifti":
		return ".nii or .nii.gz file"
	case "dicom":
		return "DICOM file"
	}
	return "volume (.nii, .nii.gz, .npy, .tif or DICOM files)"
}

// read reads the headers of the files of a column, and puts the slices of series
// together.
func (s *source) read(ctx context.Context, c *column, o *Options) error {
	all := make([]parsed, c.list.Len())
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(o.Threads, 16))
	for i := range all {
		g.Go(func() error {
			f, err := c.list.Open(gctx, i)
			if err != nil {
				return err
			}
			defer f.Close()
			p, err := parse(&reader{ctx: gctx, o: f})
			is, mayBe := IsDICOMName(c.list.Name(i))
			switch name := c.list.Name(i); {
			case err == nil:
				all[i] = p
			case strings.EqualFold(path.Base(name), "dicomdir"), errors.Is(err, errNone) && mayBe && !is && name != "":
				mu.Lock() // a file beside them
				defer mu.Unlock()
				s.skipped = append(s.skipped, driver.Skipped{Path: name, Reason: err.Error()})
			default:
				return filelist.ErrPlace(c.list, int64(i), "", err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	slices.SortFunc(s.skipped, func(a, b driver.Skipped) int { return strings.Compare(a.Path, b.Path) })
	return c.gather(all)
}

// gather makes volumes of what was found in files. A series has the place of its first
// file.
func (c *column) gather(all []parsed) error {
	type key struct{ dir, series string }
	series := map[key][]*slice{}
	of := func(i int) key { return key{path.Dir(c.list.Name(i)), all[i].slice.series} }
	for i := range all {
		if sl := all[i].slice; sl != nil {
			sl.file = int32(i)
			series[of(i)] = append(series[of(i)], sl)
		}
	}
	for i := range all {
		switch {
		case all[i].volume != nil:
			v := *all[i].volume
			for k := range v.blocks {
				v.blocks[k].file = int32(i)
			}
			c.volumes, c.names = append(c.volumes, v), append(c.names, c.list.Path(i))
		case all[i].slice != nil:
			k := of(i)
			some := series[k]
			if some == nil {
				continue
			}
			delete(series, k)
			v, err := stack(some, func(file int32) string { return c.list.Path(int(file)) })
			if err != nil {
				return err
			}
			name := c.list.Path(i)
			if len(some) > 1 {
				name = c.list.Store.Path(strings.TrimPrefix(k.dir, "."))
			}
			c.volumes, c.names = append(c.volumes, *v), append(c.names, name)
		}
	}
	return nil
}

// fields works out which fields there are.
func (s *source) fields(o *Options) error {
	for i := range s.columns {
		c := &s.columns[i]
		c.field = i
		one := &c.volumes[0]
		f := driver.Field{Name: "volume", Kind: driver.KindVolume}
		if len(o.Fields) > 0 {
			f.Name, f.Mask = o.Fields[i].Name, isMask(&o.Fields[i])
		}
		same, alike := true, true
		least, most := slices.Clone(one.shape), slices.Clone(one.shape)
		for k := range c.volumes {
			v := &c.volumes[k]
			same = same && v.dtype == one.dtype && !v.scaled
			alike = alike && slices.Equal(v.shape, one.shape)
			s.gz = s.gz || v.gz
			s.useful += v.bytes()
			n := len(one.shape) - 3
			if len(v.shape) != len(one.shape) || !slices.Equal(v.shape[:n], one.shape[:n]) {
				return fmt.Errorf("%s has %s voxels and %s %s: what comes before the last three axes has to be the same", c.names[k], sides(v.shape), c.names[0], sides(one.shape))
			}
			for a := range least {
				least[a], most[a] = min(least[a], v.shape[a]), max(most[a], v.shape[a])
			}
		}
		f.DType = one.dtype
		if !same {
			f.DType = driver.Float32 // which holds what scanners and models give
		}
		switch {
		case o.Patch != [3]int{}:
			f.Shape = slices.Concat(one.shape[:len(one.shape)-3], o.Patch[:])
		case alike:
			f.Shape = one.shape
		default:
			f.Least, f.Most = least, most
		}
		for _, shape := range [][]int{f.Shape, f.Most} {
			if len(shape) > 0 {
				if f.MaxBytes = shapeBytes(f.DType, shape); f.MaxBytes > driver.MaxArrayBytes && o.Patch != [3]int{} {
					return fmt.Errorf("patch=%s: %d bytes are more than the limit of %d", sides(o.Patch[:]), f.MaxBytes, driver.MaxArrayBytes)
				}
			}
		}
		s.info.Fields = append(s.info.Fields, f)
	}
	for n := range s.columns[0].volumes {
		if s.affineOf(n) != nil {
			s.affine = s.add("affine", driver.Float32, 4, 4)
			break
		}
	}
	if o.Patch != [3]int{} {
		s.origin = s.add("origin", driver.Int64, 3)
	}
	return nil
}

// isMask says whether the voxels of a field are numbers of classes.
func isMask(f *pairsource.Field) bool {
	if f.Kind != "" {
		return f.Kind == driver.KindMask
	}
	for _, part := range []string{"mask", "segm", "label"} {
		if strings.Contains(strings.ToLower(f.Name), part) {
			return true
		}
	}
	return false
}

func (s *source) add(name string, t driver.DType, shape ...int) int {
	s.info.Fields = append(s.info.Fields, driver.Field{Name: name, Kind: driver.KindArray, DType: t, Shape: shape})
	return len(s.info.Fields) - 1
}

// affineOf is the affine of a record's volume: that of the first column that has one.
func (s *source) affineOf(n int) []byte {
	for i := range s.columns {
		if a := s.columns[i].volumes[n].affine; a != nil {
			return a
		}
	}
	return nil
}

// noAffine is that of volumes whose files say nothing, beside others that do.
var noAffine = affineBytes(&[16]float64{0: 1, 5: 1, 10: 1, 15: 1})

func shapeBytes(t driver.DType, shape []int) int64 {
	n := int64(t.Size())
	for _, side := range shape {
		n *= int64(side)
	}
	return n
}

// records works out which records there are.
func (s *source) records(o *Options) error {
	n := len(s.columns[0].volumes)
	for i := range n {
		for k := 1; k < len(s.columns); k++ {
			a, b := &s.columns[0], &s.columns[k]
			if x, y := a.volumes[i].spatial(), b.volumes[i].spatial(); x != y {
				return fmt.Errorf("%s has %s voxels and %s %s: volumes of a record have the same sides", a.names[i], sides(x[:]), b.names[i], sides(y[:]))
			}
		}
	}
	if o.Patch == [3]int{} {
		s.info.Len = int64(n)
		return nil
	}
	for i, n := range o.Stride {
		if n == 0 {
			o.Stride[i] = o.Patch[i]
		}
	}
	s.stride = o.Stride
	for i := range n {
		s.first = append(s.first, s.info.Len)
		n := int64(1)
		shape := s.columns[0].volumes[i].spatial()
		for a, side := range shape {
			if side < o.Patch[a] {
				return fmt.Errorf("%s has %s voxels, less than a patch of %s", s.columns[0].names[i], sides(shape[:]), sides(o.Patch[:]))
			}
			if n *= s.along(side, a); n > maxPatches {
				break
			}
		}
		if s.info.Len += n; s.info.Len > maxPatches {
			return fmt.Errorf("patch=%s cuts more than %d patches", sides(o.Patch[:]), int64(maxPatches))
		}
	}
	return nil
}

// maxPatches is the most records that there may be.
const maxPatches = 1 << 40

// along is how many patches there are along an axis of a volume.
func (s *source) along(side, axis int) int64 {
	return int64((side-s.patch[axis]+s.stride[axis]-1)/s.stride[axis]) + 1
}

func sides(shape []int) string {
	var parts []string
	for _, n := range shape {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, " x ")
}

// place is the volume of a record, and the part of it that the record is.
func (s *source) place(id int64) (n int, box driver.Box) {
	if s.first == nil {
		return int(id), driver.Box{Size: s.columns[0].volumes[id].spatial()}
	}
	box.Size = s.patch
	n = filelist.Find(s.first, id)
	at := id - s.first[n]
	shape := s.columns[0].volumes[n].spatial()
	for a := 2; a >= 0; a-- {
		count := s.along(shape[a], a)
		// The last one ends with the volume.
		box.At[a] = min(int(at%count)*s.stride[a], shape[a]-s.patch[a])
		at /= count
	}
	return n, box
}

// part is place, or what the group wants of it in the place of all.
func (s *source) part(g *driver.Group, k, field int) (n int, box driver.Box, err error) {
	n, box = s.place(g.IDs[k])
	if g.Box == nil {
		return n, box, nil
	}
	b, ok := g.Box(k, field)
	if !ok {
		return n, box, nil
	}
	for a := range 3 {
		if b.At[a] < 0 || b.Size[a] < 1 || b.At[a] > box.Size[a]-b.Size[a] {
			return n, box, fmt.Errorf("internal error: the part %v of a volume of %s voxels", b, sides(box.Size[:]))
		}
		b.At[a] += box.At[a]
	}
	return n, b, nil
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object {
	for i := len(s.columns) - 1; ; i-- {
		if c := &s.columns[i]; n >= c.first {
			return c.list.Object(n-c.first, true)
		}
	}
}

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	n, box := s.place(id)
	if s.first == nil {
		return s.columns[0].names[n]
	}
	return fmt.Sprintf("%s, patch at z, y, x = %d, %d, %d", s.columns[0].names[n], box.At[0], box.At[1], box.At[2])
}

// Skipped implements driver.Skipper.
func (s *source) Skipped() []driver.Skipped { return s.skipped }

// Cuts implements driver.Cutter.
func (s *source) Cuts(field int) bool { return field < len(s.columns) }

// Sides implements driver.Cutter.
func (s *source) Sides(id int64, _ int) [3]int {
	_, box := s.place(id)
	return box.Size
}

// Held, Useful and Keep: volumes in .gz files are kept while parts are cut out of them.
func (s *source) Held() int64 {
	if !s.gz {
		return 0
	}
	return s.cache.Limit()
}

func (s *source) Useful() int64 {
	if !s.gz {
		return 0
	}
	return s.useful
}

func (s *source) Keep(n int64) { s.cache.Keep(n) }

func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(k int, id int64) {
		begin := len(g.Extents)
		for i := range s.columns {
			c := &s.columns[i]
			if !g.Wants(c.field) {
				continue
			}
			n, box, err := s.part(g, k, c.field)
			v := &c.volumes[n]
			if err == nil {
				err = s.small(c, v, &box)
			}
			if err != nil {
				g.Records[k].Err = fmt.Errorf("%s: %w", c.names[n], err)
				g.Extents = g.Extents[:begin]
				return
			}
			if v.gz {
				g.Extents = append(g.Extents, driver.Extent{Object: c.first + int64(v.blocks[0].file), Size: c.list.Size(int(v.blocks[0].file)), Field: -1})
				continue
			}
			at := len(g.Extents)
			if g.Extents = v.locate(g.Extents, &box, c.first); len(g.Extents) == at+1 && s.plain(c, v) {
				g.Extents[at].Field = s.stored(c, v, &box)
			}
		}
	})
}

// small says that a part of a volume is not too large to be read at once.
func (s *source) small(c *column, v *volume, box *driver.Box) error {
	n := int64(s.info.Fields[c.field].DType.Size()) * int64(v.lead())
	for _, side := range box.Size {
		n *= int64(side)
	}
	if v.gz {
		n = max(n, v.bytes())
	}
	if n > driver.MaxArrayBytes {
		return fmt.Errorf("%d bytes of voxels are more than the limit of %d for what is read at once: read parts of it, with RandSpatialCrop first in the list, or as patches, ?patch=64", n, driver.MaxArrayBytes)
	}
	return nil
}

// stored is the field of a part whose bytes lie in one piece that has nothing else, -1
// for others.
func (s *source) stored(c *column, v *volume, box *driver.Box) int32 {
	if shape := v.spatial(); v.lead() > 1 && box.Size != shape || box.Size[1] != shape[1] && box.Size[0] > 1 || box.Size[2] != shape[2] {
		return -1
	}
	return int32(c.field)
}

// plain says that voxels are read as they are.
func (s *source) plain(c *column, v *volume) bool {
	return !(v.big && v.dtype.Size() > 1) && !v.scaled && v.codec == nil && v.bits == 0 && !v.gz && v.dtype == s.info.Fields[c.field].DType
}

func (s *source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil || id < 0 || id >= s.info.Len {
			continue
		}
		n, at := s.place(id)
		if s.affine >= 0 {
			if rec.Values[s.affine].Bytes = s.affineOf(n); rec.Values[s.affine].Bytes == nil {
				rec.Values[s.affine].Bytes = noAffine
			}
		}
		if s.origin >= 0 {
			rec.Values[s.origin].Bytes = ints(at.At)
		}
		extents, parts := g.Of(k)
		for i := range s.columns {
			c := &s.columns[i]
			if !g.Wants(c.field) {
				continue
			}
			end := c.first + int64(c.list.Len())
			own := 0
			for own < len(extents) && extents[own].Object < end {
				own++
			}
			_, box, err := s.part(g, k, c.field)
			if err == nil {
				err = s.value(g, k, c, n, &box, extents[:own], parts[:own])
			}
			if no := new(memoryError); errors.As(err, &no) {
				return fmt.Errorf("no memory for %s: %w", c.names[n], no.err)
			}
			if err != nil {
				rec.Err = fmt.Errorf("%s: %w", c.names[n], err)
				break
			}
			extents, parts = extents[own:], parts[own:]
		}
	}
	return nil
}

// value makes the value of a column.
func (s *source) value(g *driver.Group, k int, c *column, n int, box *driver.Box, extents []driver.Extent, parts [][]byte) error {
	v, val, f := &c.volumes[n], &g.Records[k].Values[c.field], &s.info.Fields[c.field]
	val.Depth, val.Height, val.Width = int32(box.Size[0]), int32(box.Size[1]), int32(box.Size[2])
	if len(extents) == 1 && extents[0].Field >= 0 {
		val.Bytes = parts[0]
		return nil
	}
	shape := v.shape
	out, err := g.Take(k, c.field, shapeBytes(f.DType, slices.Concat(shape[:len(shape)-3], box.Size[:])))
	if err != nil {
		return &memoryError{err}
	}
	val.Bytes = out
	if v.gz {
		return s.unpacked(g, c, n, box, parts[0], out, f.DType)
	}
	var block []byte
	return v.read(out, box, f.DType, parts, func(n int) ([]byte, error) {
		if cap(block) < n {
			if block, err = g.Alloc(n); err != nil {
				return nil, err
			}
		}
		return block[:n], nil
	})
}

// unpacked cuts a part out of a compressed file.
func (s *source) unpacked(g *driver.Group, c *column, n int, box *driver.Box, file, out []byte, to driver.DType) error {
	v := &c.volumes[n]
	if all := v.spatial(); s.first == nil && g.Box == nil && box.Size == all {
		raw := out
		if v.big && v.dtype.Size() > 1 || v.scaled || v.dtype != to {
			var err error
			if raw, err = g.Alloc(int(v.bytes())); err != nil {
				return &memoryError{err}
			}
		}
		if err := v.unpack(raw, file); err != nil || &raw[0] == &out[0] {
			return err
		}
		v.convert(out, raw, to, v.slope, v.inter)
		return nil
	}
	e, err := s.cache.Get(unpacked.Key{Column: int32(c.field), N: int32(n)}, func(e *unpacked.Entry) error {
		raw, err := e.Alloc(int(v.bytes()))
		if err != nil {
			return &memoryError{err}
		}
		e.What = raw
		return v.unpack(raw, file)
	})
	if err != nil {
		return err
	}
	defer s.cache.Put(e)
	raw := e.What.([]byte)
	v.each(box, func(p *piece) {
		from := p.offset - v.blocks[0].offset
		v.rows(out, raw[from:from+p.size], box, p, to)
	})
	return nil
}

// memoryError says that there is none.
type memoryError struct{ err error }

func (e *memoryError) Error() string { return e.err.Error() }

// unpack puts the voxels of a compressed file into out.
func (v *volume) unpack(out, file []byte) error {
	r, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return fmt.Errorf("it is no gzip file: %w", err)
	}
	if _, err := io.CopyN(io.Discard, r, v.blocks[0].offset); err == nil {
		_, err = io.ReadFull(r, out)
		if err == nil {
			// What is behind the voxels is read for the checksum, as far as it is little.
			_, err = io.CopyN(io.Discard, r, 1<<20)
			if errors.Is(err, io.EOF) {
				return nil
			}
		}
		if err != nil {
			return unpackError(err, v)
		}
		return nil
	}
	return unpackError(io.ErrUnexpectedEOF, v)
}

func unpackError(err error, v *volume) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("its header says %d bytes of voxels, unpacked it has less: the file is cut off", v.bytes())
	}
	return fmt.Errorf("it cannot be unpacked: %w", err)
}

func ints(v [3]int) []byte {
	b := make([]byte, 0, 24)
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

func (s *source) Close() error {
	s.cache.Close()
	return nil
}
