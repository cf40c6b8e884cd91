// Package idxsource reads IDX files, the format of MNIST and its successors (Fashion-MNIST, KMNIST, EMNIST,
// QMNIST): an array with a short header, with or without gzip compression.
//
// Two matching files, such as train-images-idx3-ubyte and train-labels-idx1-ubyte, are images with labels. Any
// other file is an array, whose rows are the records.
//
// Uncompressed files are read in place. The images of a compressed file are decompressed into memory when it is
// opened, up to fixedrecords.MaxHeld bytes.
package idxsource

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"

	"fmt"
	"io"
	"slices"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/splits"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options select a file or a split. Nil means a folder with one split. A file has images, whose labels are next to
// it, or is any other IDX file. A split is a pair of files.
type Options = fixedrecords.Options

// maxLabelBytes is the size limit of a file of labels, which are held in memory.
const maxLabelBytes = 256 << 20

type source struct {
	fixedrecords.Base
	image  driver.Field // the field of images
	array  bool         // field 0 is an array
	number bool         // or an int
	dtype  driver.DType
	swap   int // size of an element
	labels fixedrecords.Labels
	// rows are all numbers of the labels, little-endian, if a label has several (QMNIST). They are a separate
	// field.
	rows     []byte
	rowBytes int64
}

// Open opens the files of st that the options select.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	files, err := fixedrecords.Files(ctx, st, func(name string) bool { return IsName(name) || name == o.File })
	if err != nil {
		return nil, err
	}
	s := &source{}
	s.List = &filelist.List{Store: st}
	s.Memory.Use(ctx)
	if err := s.open(ctx, url, st, files, &o); err != nil {
		s.Memory.Free()
		return nil, err
	}
	return s, nil
}

func (s *source) open(ctx context.Context, url string, st store.Store, files []store.Entry, o *Options) error {
	all := pairs(files)
	if o.File != "" {
		e, ok := fixedrecords.Find(files, o.File)
		if !ok {
			return fmt.Errorf("%s does not exist", st.Path(o.File))
		}
		// Either file may be compressed. The images are the named file.
		if split, what := word(e.Name); what == "images" {
			if i := slices.IndexFunc(all, func(p pair) bool { return p.split == split }); i >= 0 {
				all[i].images = e
				return s.openPair(ctx, url, st, all[i])
			}
		}
		return s.openOne(ctx, url, e)
	}
	var have []string
	for _, p := range all {
		have = append(have, p.split)
	}
	if len(all) == 0 {
		return fmt.Errorf("no images and labels in %s: expected files such as train-images-idx3-ubyte and train-labels-idx1-ubyte", st)
	}
	split, err := splits.Choose(url, have, splitName(have, o.Split))
	if err != nil {
		return err
	}
	return s.openPair(ctx, url, st, all[slices.Index(have, split)])
}

// openPair opens images with labels.
func (s *source) openPair(ctx context.Context, url string, st store.Store, p pair) error {
	info := driver.Info{URL: url, Format: "idx"}
	h, err := s.add(ctx, p.images)
	if err != nil {
		return err
	}
	path := st.Path(p.images.Name)
	shape, size, err := h.row()
	if err != nil {
		return fmt.Errorf("%s: its images: %w", path, err)
	}
	s.Size, s.What, s.Alone, s.Field = size, "image", true, -1
	switch channels := 1; {
	case h.DType == driver.Uint8 && (len(shape) == 2 || len(shape) == 3 && (shape[2] == 1 || shape[2] == 3)):
		if len(shape) == 3 {
			channels = shape[2]
		}
		s.image = fixedrecords.ImageField(shape[1], shape[0], channels)
		info.Fields = append(info.Fields, s.image)
	default:
		info.Fields = append(info.Fields, s.arrayField("image", h, shape))
	}
	if err := s.readLabels(ctx, st, p.labels); err != nil {
		return err
	}
	if n := int64(len(s.labels)); n != h.Shape[0] {
		return fmt.Errorf("%s has %d images and %s has %d labels", path, h.Shape[0], st.Path(p.labels.Name), n)
	}
	info.Fields = append(info.Fields, s.labels.Field("label", classes(st.Path(""), p.split)))
	if s.rows != nil {
		info.Fields = append(info.Fields, driver.Field{Name: "labels", Kind: driver.KindArray, DType: driver.Int32, Shape: []int{int(s.rowBytes / 4)}})
	}
	s.Value = s.value
	return s.Init(info)
}

// openOne opens a file as an array, or as integers if it has one axis of integers.
func (s *source) openOne(ctx context.Context, url string, e store.Entry) error {
	h, err := s.add(ctx, e)
	if err != nil {
		return err
	}
	shape, size, err := h.row()
	if err != nil {
		return fmt.Errorf("%s: its rows: %w", s.List.Path(0), err)
	}
	s.Size, s.What, s.Alone = size, "row", true
	f := s.arrayField("data", h, shape)
	if s.swap == 1 {
		s.Field = 0
	}
	if float := h.DType == driver.Float32 || h.DType == driver.Float64; len(shape) == 0 && !float {
		f, s.array, s.number, s.Field = driver.Field{Name: "data", Kind: driver.KindInt}, false, true, -1
	}
	s.Value = s.value
	return s.Init(driver.Info{URL: url, Format: "idx", Fields: []driver.Field{f}})
}

func (s *source) arrayField(name string, h *Header, shape []int) driver.Field {
	s.array, s.dtype, s.swap, s.Field = true, h.DType, h.DType.Size(), -1
	return driver.Field{Name: name, Kind: driver.KindArray, DType: h.DType, Shape: shape}
}

// file is an open IDX file.
type file struct {
	*Header
	o      store.Object
	gz     *gzip.Reader // the reader of a compressed file, after the header
	reader *fixedrecords.Reader
}

// openFile opens a file and reads its header.
func (s *source) openFile(ctx context.Context, e store.Entry) (*file, error) {
	o, err := store.OpenEntry(ctx, s.List.Store, e)
	if err != nil {
		return nil, err
	}
	f := &file{o: o}
	if err := f.open(ctx); err != nil {
		o.Close()
		return nil, fixedrecords.Named(s.List.Store.Path(e.Name), err)
	}
	return f, nil
}

func (f *file) open(ctx context.Context) error {
	size := f.o.Size()
	b := make([]byte, min(size, maxHeader))
	if err := f.o.ReadAt(ctx, b, 0); err != nil {
		return err
	}
	var err error
	if !isGzip(b) {
		if f.Header, err = ParseHeader(b); err != nil {
			return err
		}
		if size-f.Offset != f.Bytes {
			return fmt.Errorf("%w: a %s array of shape %v has %d bytes, but %d follow the header: the file is cut off or was changed",
				ErrFormat, f.DType, f.Shape, f.Bytes, size-f.Offset)
		}
		return nil
	}
	f.reader = fixedrecords.NewReader(ctx, f.o, 0, size)
	if f.gz, err = gzip.NewReader(bufio.NewReaderSize(f.reader, 256<<10)); err != nil {
		return fmt.Errorf("cannot decompress it: %w", f.reader.Cause(err))
	}
	if f.Header, err = unpackedHeader(f.gz); err != nil {
		return fmt.Errorf("decompressed: %w", f.reader.Cause(err))
	}
	// Deflate expands by at most 1032, so a larger size is invalid and must not be allocated.
	if f.Bytes > 1032*size {
		return fmt.Errorf("%w: a %s array of shape %v has %d bytes, more than a compressed file of %d bytes can contain", ErrFormat, f.DType, f.Shape, f.Bytes, size)
	}
	return nil
}

func isGzip(b []byte) bool { return len(b) > 2 && b[0] == 0x1F && b[1] == 0x8B && b[2] == 8 }

// unpackedHeader parses the header that r begins with, and reads no more.
func unpackedHeader(r io.Reader) (*Header, error) {
	b := make([]byte, 4, maxHeader)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	if n := int(b[3]); n >= 1 && n <= maxAxes {
		b = b[:4+4*n]
		if _, err := io.ReadFull(r, b[4:]); err != nil {
			return nil, err
		}
	}
	return ParseHeader(b)
}

// unpack decompresses the elements. Nothing may follow them.
func (f *file) unpack(b []byte) error {
	if n, err := io.ReadFull(f.gz, b); err != nil {
		return fmt.Errorf("decompressed, byte %d of %d: %w", f.Offset+int64(n), f.Offset+f.Bytes, f.reader.Cause(err))
	}
	var end [1]byte
	switch n, err := f.gz.Read(end[:]); {
	case n > 0:
		return fmt.Errorf("%w: it continues after byte %d (decompressed), the end of a %s array of shape %v", ErrFormat, f.Offset+f.Bytes, f.DType, f.Shape)
	case err != io.EOF:
		return f.reader.Cause(err) // includes the checksum
	}
	return nil
}

// add adds a file with the records.
func (s *source) add(ctx context.Context, e store.Entry) (*Header, error) {
	f, err := s.openFile(ctx, e)
	if err != nil {
		return nil, err
	}
	defer f.o.Close()
	path := s.List.Store.Path(e.Name)
	if f.Bytes == 0 {
		return nil, fmt.Errorf("%s is empty: its shape is %v", path, f.Shape)
	}
	p := fixedrecords.Part{File: s.List.Len(), Offset: f.Offset, Count: f.Shape[0]}
	s.List.Add(e)
	if f.gz != nil {
		if p.Held, err = s.Memory.Take(f.Bytes); err != nil {
			return nil, fmt.Errorf("%s: %w: unpack the file with gunzip", path, err)
		}
		if err := f.unpack(p.Held); err != nil {
			return nil, fixedrecords.Named(path, err)
		}
	}
	s.Parts = append(s.Parts, p)
	return f.Header, nil
}

// readLabels reads a file of labels: an array of integers. If it has two axes, the first number of each row is the
// label.
func (s *source) readLabels(ctx context.Context, st store.Store, e store.Entry) error {
	f, err := s.openFile(ctx, e)
	if err != nil {
		return err
	}
	defer f.o.Close()
	path := st.Path(e.Name)
	if f.DType == driver.Float32 || f.DType == driver.Float64 || len(f.Shape) > 2 || f.Bytes == 0 || f.Bytes > maxLabelBytes {
		return fmt.Errorf("expected labels in %s, got a %s array of shape %v", path, f.DType, f.Shape)
	}
	s.List.Add(e)
	b := make([]byte, f.Bytes)
	if f.gz == nil {
		err = f.o.ReadAt(ctx, b, f.Offset)
	} else {
		err = f.unpack(b)
	}
	if err != nil {
		return fixedrecords.Named(path, err)
	}
	size := f.DType.Size()
	columns := 1
	if len(f.Shape) == 2 {
		columns = int(f.Shape[1])
	}
	s.labels = make(fixedrecords.Labels, f.Shape[0])
	for i := range s.labels {
		s.labels[i] = int32(integer(b[i*columns*size:], f.DType))
	}
	if columns > 1 {
		s.rowBytes = 4 * int64(columns)
		s.rows = make([]byte, 0, 4*int64(columns)*f.Shape[0])
		for i := range f.Shape[0] * int64(columns) {
			v := uint32(int32(integer(b[i*int64(size):], f.DType)))
			s.rows = append(s.rows, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
		}
	}
	return nil
}

// integer returns the element at the start of b.
func integer(b []byte, t driver.DType) int64 {
	switch t {
	case driver.Uint8:
		return int64(b[0])
	case driver.Int8:
		return int64(int8(b[0]))
	case driver.Int16:
		return int64(int16(uint16(b[0])<<8 | uint16(b[1])))
	}
	return int64(int32(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])))
}

// value sets the values of a record.
func (s *source) value(g *driver.Group, k int, b []byte) error {
	rec := &g.Records[k]
	if b != nil { // field 0 is wanted
		switch {
		case s.number:
			rec.Values[0].Int = integer(b, s.dtype)
		case !s.array:
			v, err := fixedrecords.Image(g, b, &s.image, false)
			if err != nil {
				return err
			}
			rec.Values[0] = v
		case s.swap == 1:
			rec.Values[0].Bytes = b
		default:
			out, err := g.Take(k, 0, s.Size)
			if err != nil {
				return fmt.Errorf("no memory for the %d bytes of a row: %w", s.Size, err)
			}
			swap(out, b, s.swap)
			rec.Values[0].Bytes = out
		}
	}
	if s.labels != nil {
		rec.Values[1].Int = int64(s.labels[rec.ID])
		if s.rows != nil {
			rec.Values[2].Bytes = s.rows[rec.ID*s.rowBytes:][:s.rowBytes:s.rowBytes]
		}
	}
	return nil
}

// swap converts elements to little-endian.
func swap(dst, src []byte, size int) {
	for i := 0; i+size <= len(src); i += size {
		for j := range size {
			dst[i+j] = src[i+size-1-j]
		}
	}
}

// IsFile reports whether the single object of a store is an IDX file whose size matches its header.
func IsFile(ctx context.Context, st store.Store) bool {
	o, err := st.Open(ctx, "")
	if err != nil {
		return false
	}
	defer o.Close()
	b := make([]byte, min(o.Size(), 4<<10))
	if o.ReadAt(ctx, b, 0) != nil {
		return false
	}
	if isGzip(b) {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return false
		}
		_, err = unpackedHeader(z)
		return err == nil
	}
	h, err := ParseHeader(b)
	return err == nil && o.Size()-h.Offset == h.Bytes && h.Bytes > 0
}
