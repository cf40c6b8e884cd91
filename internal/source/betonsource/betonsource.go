// Package betonsource reads FFCV's .beton files at random: images as JPEGs and as pixels, integers, floats, byte
// strings, JSON, arrays and tensors. Opening reads the metadata of each sample and, for images, the sizes of the
// files, and holds them in memory.
package betonsource

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Format is the name of the format.
const name = "beton"

// maxValueBytes is the size limit of a value. FFCV's own limit is the size of a page.
const maxValueBytes = 1 << 30

type source struct {
	list *filelist.List
	info driver.Info
	cols []column
	// row is the size of a sample's metadata, rows the metadata of all samples.
	row  int
	rows []byte
	// jpegs are the sizes of JPEG files for columns of images, 0 for pixels.
	jpegs [][]uint32
	size  int64
}

// Open reads the header and the tables of the file that st is.
func Open(ctx context.Context, url string, st store.Store) (driver.Source, error) {
	e, err := st.Stat(ctx, "")
	if err != nil {
		return nil, err
	}
	if e.Dir {
		return nil, fmt.Errorf("%s is a folder: name a .beton file in it", st.Path(""))
	}
	s := &source{list: &filelist.List{Store: st}, size: e.Size, info: driver.Info{URL: url, Format: name, Objects: 1}}
	s.list.Add(e)
	o, err := s.list.Open(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	if err := s.read(ctx, o); err != nil {
		return nil, filelist.ErrPlace(s.list, 0, "", err)
	}
	s.info.Fingerprint = s.list.Fingerprint(name)
	return s, nil
}

// read reads everything except the data.
func (s *source) read(ctx context.Context, o store.Object) error {
	b := make([]byte, min(s.size, headerBytes))
	if err := o.ReadAt(ctx, b, 0); err != nil {
		return err
	}
	h, err := parseHeader(b, s.size)
	if err != nil {
		return err
	}
	at := headerBytes + int64(h.fields)*descBytes
	if at > s.size {
		return fmt.Errorf("%d bytes are too few for the descriptions of %d fields: the file is cut off", s.size, h.fields)
	}
	desc := make([]byte, at-headerBytes)
	if err := o.ReadAt(ctx, desc, headerBytes); err != nil {
		return err
	}
	if s.cols, s.row, err = parseColumns(desc); err != nil {
		return err
	}
	if h.samples < 1 {
		return errors.New("it has no samples")
	}
	if h.samples > (s.size-at)/int64(s.row) {
		return fmt.Errorf("its header has %d samples of %d bytes each, which do not fit in the file: it is cut off", h.samples, s.row)
	}
	s.info.Len = h.samples
	s.rows = make([]byte, h.samples*int64(s.row))
	if err := o.ReadAt(ctx, s.rows, at); err != nil {
		return err
	}
	if err := s.sizes(ctx, o, h.table); err != nil {
		return err
	}
	for i := range s.cols {
		f, err := s.field(i)
		if err != nil {
			return fmt.Errorf("field %q: %w", s.cols[i].name, err)
		}
		s.info.Fields = append(s.info.Fields, f)
	}
	return nil
}

// place is an entry of the allocation table: size bytes at an offset.
type place struct {
	at   uint64
	size uint32
}

// sizes reads the sizes of images. Only the allocation table has them.
func (s *source) sizes(ctx context.Context, o store.Object, table int64) error {
	s.jpegs = make([][]uint32, len(s.cols))
	some := false
	for i := range s.cols {
		if s.cols[i].typ != imageType {
			continue
		}
		for id := range s.info.Len {
			some = some || s.numbers(id, i)[0] != modeRaw
		}
	}
	if !some {
		return nil
	}
	places, err := readTable(ctx, o, table)
	if err != nil {
		return err
	}
	for i := range s.cols {
		if s.cols[i].typ != imageType {
			continue
		}
		s.jpegs[i] = make([]uint32, s.info.Len)
		for id := range s.info.Len {
			b := s.numbers(id, i)
			if b[0] == modeRaw {
				continue
			}
			at := binary.LittleEndian.Uint64(b[5:])
			n, ok := slices.BinarySearchFunc(places, at, func(p place, at uint64) int { return cmp.Compare(p.at, at) })
			if !ok {
				return fmt.Errorf("the image of sample %d in field %q is at byte %d, which is not in the allocation table", id, s.cols[i].name, at)
			}
			s.jpegs[i][id] = places[n].size
		}
	}
	return nil
}

// readTable reads the allocation table, sorted by offset.
func readTable(ctx context.Context, o store.Object, from int64) ([]place, error) {
	n := (o.Size() - from) / tableBytes
	if (o.Size()-from)%tableBytes != 0 {
		return nil, fmt.Errorf("its allocation table has %d bytes, which is not a multiple of %d: the file is cut off", o.Size()-from, tableBytes)
	}
	places := make([]place, 0, n)
	const step = 1 << 16 // entries
	b := make([]byte, tableBytes*min(n, step))
	for at := from; n > 0; {
		part := b[:tableBytes*min(n, step)]
		if err := o.ReadAt(ctx, part, at); err != nil {
			return nil, err
		}
		at += int64(len(part))
		n -= int64(len(part)) / tableBytes
		for ; len(part) > 0; part = part[tableBytes:] {
			size := binary.LittleEndian.Uint64(part[16:])
			places = append(places, place{binary.LittleEndian.Uint64(part[8:]), uint32(min(size, math.MaxUint32))})
		}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	return places, nil
}

// numbers returns the metadata of a sample in a column.
func (s *source) numbers(id int64, col int) []byte {
	c := &s.cols[col]
	at := id*int64(s.row) + int64(c.at)
	return s.rows[at : at+int64(metadata[c.typ].size)]
}

// where returns the position of a sample's bytes in the file.
func (s *source) where(id int64, col int) (at, size int64, err error) {
	le, b, c := binary.LittleEndian, s.numbers(id, col), &s.cols[col]
	var place, n uint64
	switch c.typ {
	case imageType:
		place = le.Uint64(b[5:])
		if n = 3 * uint64(le.Uint16(b[1:])) * uint64(le.Uint16(b[3:])); b[0] != modeRaw {
			n = uint64(s.jpegs[col][id])
		}
	case bytesType, jsonType:
		place, n = le.Uint64(b), le.Uint64(b[8:])
	default:
		place, n = le.Uint64(b), uint64(c.bytes)
	}
	if n > maxValueBytes || place > uint64(s.size) || n > uint64(s.size)-place {
		return 0, 0, fmt.Errorf("field %q: %d bytes at byte %d of a file of %d: the file is damaged or cut off", c.name, n, place, s.size)
	}
	return int64(place), int64(n), nil
}

// field describes a column.
func (s *source) field(col int) (driver.Field, error) {
	c := &s.cols[col]
	f := driver.Field{Name: c.name}
	switch c.typ {
	case floatType:
		f.Kind = driver.KindFloat
		return f, nil
	case intType:
		f.Kind = driver.KindInt
		return f, nil
	case arrayType, tensorType:
		f.Kind, f.DType, f.Shape, f.MaxBytes = driver.KindArray, c.dtype, c.shape, c.bytes
		return f, nil
	case bytesType:
		f.Kind = driver.KindBytes
	case jsonType:
		f.Kind = driver.KindJSON
	default:
		f.Kind = driver.KindImage
		f.Channels = 3
	}
	for id := range s.info.Len {
		if _, size, err := s.where(id, col); err == nil { // an error is reported when the record is read
			f.MaxBytes = max(f.MaxBytes, size)
		}
		if c.typ != imageType {
			continue
		}
		b := s.numbers(id, col)
		w, h := int32(binary.LittleEndian.Uint16(b[1:])), int32(binary.LittleEndian.Uint16(b[3:]))
		if id == 0 {
			f.Width, f.Height = w, h
		} else if w != f.Width || h != f.Height {
			f.Width, f.Height, f.Channels = 0, 0, 0
		}
		if b[0] != modeRaw {
			f.Channels = 0
		}
		f.MaxWidth, f.MaxHeight = max(f.MaxWidth, w), max(f.MaxHeight, h)
	}
	return f, nil
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object { return s.list.Object(n, true) }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return fmt.Sprintf("%s, sample %d", s.list.Path(0), id)
}

// Shapes implements driver.Shaper. FFCV's JPEGs have no orientation.
func (s *source) Shapes(field int, ids []int64, shapes []driver.Shape) bool {
	if s.cols[field].typ != imageType {
		return false
	}
	for k, id := range ids {
		b := s.numbers(id, field)
		shapes[k] = driver.Shape{
			Width: int32(binary.LittleEndian.Uint16(b[1:])), Height: int32(binary.LittleEndian.Uint16(b[3:])), Channels: 3, Orientation: 1,
		}
	}
	return true
}

// Sizes implements driver.Sizer.
func (s *source) Sizes(field int, ids, sizes []int64) bool {
	if s.cols[field].typ != bytesType {
		return false
	}
	for k, id := range ids {
		_, n, err := s.where(id, field)
		if err != nil {
			return false
		}
		sizes[k] = n
	}
	return true
}

func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(k int, id int64) {
		begin := len(g.Extents)
		for i := range s.cols {
			if !s.cols[i].data() || !g.Wants(i) {
				continue
			}
			at, size, err := s.where(id, i)
			if err != nil {
				g.Records[k].Err = fmt.Errorf("%s: %w", s.Name(id), err)
				g.Extents = g.Extents[:begin]
				return
			}
			e := driver.Extent{Offset: at, Size: size, Field: int32(i)}
			switch s.cols[i].typ {
			case imageType:
				e.Field, e.Tail = -1, true
			case jsonType:
				e.Field = -1
			}
			g.Extents = append(g.Extents, e)
		}
	})
}

func (s *source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		next := int(g.First[k])
		for i := range s.cols {
			if !g.Wants(i) {
				continue
			}
			var b []byte
			if s.cols[i].data() {
				b = g.Bytes[next]
				next++
			}
			if err := s.value(&rec.Values[i], id, i, b); err != nil {
				rec.Err = fmt.Errorf("%s: field %q: %w", s.Name(id), s.cols[i].name, err)
				break
			}
		}
	}
	return nil
}

// value sets a value from the bytes of a sample.
func (s *source) value(v *driver.Value, id int64, col int, data []byte) error {
	b := s.numbers(id, col)
	switch s.cols[col].typ {
	case floatType:
		v.Float = math.Float64frombits(binary.LittleEndian.Uint64(b))
	case intType:
		v.Int = int64(binary.LittleEndian.Uint64(b))
	case jsonType: // ends with a zero
		text, _, ok := bytes.Cut(data, []byte{0})
		if !ok {
			return errors.New("the JSON does not end within its bytes")
		}
		v.Bytes = text
	case imageType:
		v.Bytes = data
		v.Width, v.Height = int32(binary.LittleEndian.Uint16(b[1:])), int32(binary.LittleEndian.Uint16(b[3:]))
		if v.Width < 1 || v.Height < 1 {
			return fmt.Errorf("an image of %d x %d pixels", v.Width, v.Height)
		}
		if v.Orientation = 1; b[0] != modeRaw {
			v.Codec = driver.CodecJPEG
			return nil
		}
		v.Codec, v.Channels = driver.CodecRaw, 3
	default:
		v.Bytes = data
	}
	return nil
}

func (s *source) Close() error { return nil }
