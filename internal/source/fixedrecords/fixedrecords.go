// Package fixedrecords is the shared part of sources with consecutive records of one fixed size, in files or, if a
// file is compressed, in memory. Most classic data sets have this format.
package fixedrecords

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options configure Open.
type Options = format.Options

// Part is a run of consecutive records.
type Part struct {
	// File is the number of the file in the list.
	File int
	// Offset is the offset of the first record in the decompressed file.
	Offset int64
	Count  int64
	// Held are the records in memory, nil if they are read from the file.
	Held []byte
}

// Base reads records of one size. Sources embed it, set its fields and call Init.
type Base struct {
	List  *filelist.List
	Parts []Part
	// Size is the size of a record in bytes. What is the word for a record in messages.
	Size int64
	What string
	// Field is the field whose value is the bytes of a record, or -1 if Value sets all values.
	Field int32
	// Alone is true if the bytes of a record are only for field 0. They are not read if the field is not wanted,
	// and Value gets none.
	Alone bool
	// Value sets the values of record k of a group from its bytes. Errors of the record go to its Err, prefixed
	// with Name.
	Value func(g *driver.Group, k int, b []byte) error
	// Memory is freed by Close.
	Memory Memory

	info  driver.Info
	first []int64 // number of the first record of each part
}

// Init completes s and its info. also is added to the fingerprint.
func (s *Base) Init(info driver.Info, also ...string) error {
	s.info = info
	held := true
	for _, p := range s.Parts {
		s.first = append(s.first, s.info.Len)
		s.info.Len += p.Count
		held = held && p.Held != nil
	}
	if s.info.Len == 0 {
		return fmt.Errorf("%s has no records", s.info.URL)
	}
	if !held {
		s.info.Objects = int64(s.List.Len())
	}
	s.info.Fingerprint = s.List.Fingerprint(append([]string{info.Format}, also...)...)
	return nil
}

// Info implements driver.Source.
func (s *Base) Info() *driver.Info { return &s.info }

// Object implements driver.Source.
func (s *Base) Object(n int64) driver.Object { return s.List.Object(n, true) }

// place returns the part of record id, and its number in it.
func (s *Base) place(id int64) (*Part, int64) {
	n := filelist.Find(s.first, id)
	return &s.Parts[n], id - s.first[n]
}

// Name implements driver.Source.
func (s *Base) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	p, i := s.place(id)
	of := ""
	if p.Held != nil {
		of = " decompressed"
	}
	return fmt.Sprintf("%s, %s %d (byte %d%s)", s.List.Path(p.File), s.What, i, p.Offset+i*s.Size, of)
}

// Locate implements driver.Source.
func (s *Base) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(_ int, id int64) {
		if s.Alone && !g.Wants(0) {
			return
		}
		if p, i := s.place(id); p.Held == nil {
			g.Extents = append(g.Extents, driver.Extent{Object: int64(p.File), Offset: p.Offset + i*s.Size, Size: s.Size, Field: s.Field})
		}
	})
}

// Parse implements driver.Source.
func (s *Base) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		if id < 0 || id >= s.info.Len || g.Records[k].Err != nil {
			continue
		}
		p, i := s.place(id)
		var b []byte
		if s.Alone && !g.Wants(0) {
			// Value sets the other fields.
		} else if p.Held != nil {
			b = p.Held[i*s.Size : (i+1)*s.Size : (i+1)*s.Size]
		} else {
			b = g.Bytes[g.First[k]]
		}
		if err := s.Value(g, k, b); err != nil {
			return err
		}
	}
	return nil
}

// Held implements driver.Holder.
func (s *Base) Held() int64 { return s.Memory.total }

// Close implements driver.Source.
func (s *Base) Close() error {
	s.Memory.Free()
	return nil
}

// Image returns the value of an 8-bit image from b, which has one plane per channel, by rows or (if columns is set)
// by columns. Its memory belongs to the group.
func Image(g *driver.Group, b []byte, f *driver.Field, columns bool) (driver.Value, error) {
	v := driver.Value{Codec: driver.CodecRaw, Width: f.Width, Height: f.Height, Channels: f.Channels, Bytes: b}
	if f.Channels == 1 && !columns {
		return v, nil
	}
	out, err := g.Alloc(len(b))
	if err != nil {
		return v, fmt.Errorf("no memory for the %d bytes of an image: %w", len(b), err)
	}
	interleave(out, b, int(f.Width), int(f.Height), int(f.Channels), columns)
	v.Bytes = out
	return v, nil
}

// ImageField returns a field of images of one size.
func ImageField(width, height, channels int) driver.Field {
	return driver.Field{
		Name: "image", Kind: driver.KindImage, MaxBytes: int64(width) * int64(height) * int64(channels),
		Width: int32(width), Height: int32(height), Channels: int32(channels), MaxWidth: int32(width), MaxHeight: int32(height),
	}
}

// interleave converts planes of an image to rows of pixels of channels.
func interleave(dst, src []byte, width, height, channels int, columns bool) {
	n := width * height
	stepX, stepY := 1, width
	if columns {
		stepX, stepY = height, 1
	}
	if channels == 3 {
		r, g, b := src[:n], src[n:2*n], src[2*n:3*n]
		for y := range height {
			row, at := dst[3*y*width:3*(y+1)*width], y*stepY
			for len(row) >= 3 {
				row[0], row[1], row[2] = r[at], g[at], b[at]
				row, at = row[3:], at+stepX
			}
		}
		return
	}
	for c := range channels {
		plane := src[c*n : (c+1)*n]
		for y := range height {
			for x := range width {
				dst[(y*width+x)*channels+c] = plane[y*stepY+x*stepX]
			}
		}
	}
}

// Reader reads a range of an object in order and remembers its read error, because decompressors do not always
// return it.
type Reader struct {
	*io.SectionReader
	Err error
}

// NewReader returns a Reader of n bytes of an object.
func NewReader(ctx context.Context, o store.Object, off, n int64) *Reader {
	return &Reader{SectionReader: io.NewSectionReader(store.ReaderAt(ctx, o), off, n)}
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.SectionReader.Read(p)
	if err != nil && err != io.EOF && r.Err == nil {
		r.Err = err
	}
	return n, err
}

// Cause returns the read error if there was one, otherwise err.
func (r *Reader) Cause(err error) error {
	if r.Err != nil {
		return r.Err
	}
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file is cut off")
	}
	return err
}

// Named prefixes an error about an object's content with its path.
func Named(path string, err error) error {
	var se *store.Error
	if errors.As(err, &se) {
		return err // names it already
	}
	return fmt.Errorf("%s: %w", path, err)
}

// maxFiles is the maximum number of files of one data set.
const maxFiles = 1000

// Files lists the objects directly in a store that keep accepts.
func Files(ctx context.Context, st store.Store, keep func(name string) bool) ([]store.Entry, error) {
	var out []store.Entry
	err := st.List(ctx, "", &store.ListOptions{Shallow: true, Keep: keep}, func(e store.Entry) error {
		if e.Dir || !keep(e.Name) {
			return nil
		}
		if out = append(out, e); len(out) > maxFiles {
			return fmt.Errorf("%s has more than %d files that could belong to the data set", st, maxFiles)
		}
		return nil
	})
	return out, err
}

// Find returns the entry with this name.
func Find(files []store.Entry, name string) (store.Entry, bool) {
	i := sort.Search(len(files), func(i int) bool { return files[i].Name >= name })
	if i == len(files) || files[i].Name != name {
		return store.Entry{}, false
	}
	return files[i], true
}

// Lines reads a short text file with one name per line.
func Lines(ctx context.Context, st store.Store, e store.Entry) ([]string, error) {
	b, err := store.ReadEntry(ctx, st, e, 1<<20)
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, driver.ValidName(line))
		}
	}
	return out, nil
}

// Labels are class numbers, the values of a field.
type Labels []int32

// Field returns their field. classes are only used if every label has a name.
func (l Labels) Field(name string, classes []string) driver.Field {
	f := driver.Field{Name: name, Kind: driver.KindLabel, Classes: classes}
	for _, v := range l {
		if v < 0 || int(v) >= len(classes) {
			f.Classes = nil
			break
		}
	}
	return f
}
