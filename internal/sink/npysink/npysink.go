// Package npysink writes NumPy arrays: one .npy file per field, with one row per record, or all
// arrays in one .npz file.
package npysink

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/sink/files"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// NPY returns the format of .npy files.
func NPY() *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: "npy", About: "NumPy's .npy files: an array for each field, a row for each record", Ext: []string{".npy"},
		File: true, Folder: true, Pixels: true,
		Open: func(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) { return open(out, "npy") },
	}
}

// NPZ returns the format of .npz files.
func NPZ() *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: "npz", About: "the same in one .npz file; lists as their values and offsets", Ext: []string{".npz"}, File: true, Pixels: true,
		Open: func(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) { return open(out, "npz") },
	}
}

type sink struct {
	out    *sinkdriver.Out
	zip    bool
	cols   []*column
	rows   int64
	finish *files.File
}

// column is the array of a field.
type column struct {
	field *sinkdriver.Field
	name  string
	t     driver.DType
	shape []int64 // of all rows
	file  *files.File
	head  int // bytes of its header
	sum   uint32
	buf   []byte

	// For values that differ in length: the bytes of a row, the number of rows, and the column that
	// gets the end offset of each record.
	row     int64
	count   int64
	offsets *column
	// place is the index of the field in records, -1 for offsets.
	place int
}

// offsetsName returns the name of the array with the start offset of each record's values.
func offsetsName(field string) string { return field + "_offsets" }

func open(out *sinkdriver.Out, format string) (sinkdriver.Sink, error) {
	s := &sink{out: out, zip: format == "npz"}
	if !s.zip && out.File != "" && len(out.Fields) > 1 {
		var names []string
		for i := range out.Fields {
			names = append(names, out.Fields[i].Name)
		}
		return nil, fmt.Errorf("a .npy file holds one array, there are %s: choose one with --field, or write a folder (npy:out/) or out.npz", strings.Join(names, ", "))
	}
	for i := range out.Fields {
		f := &out.Fields[i]
		c := &column{field: f, name: f.Name + ".npy", place: i}
		if strings.ContainsAny(f.Name, "/\x00") || strings.HasPrefix(f.Name, ".") {
			return nil, sinkdriver.Cannot(format, f, "its name is part of the name of a file")
		}
		t, shape, ragged, ok := f.Elements()
		switch {
		case f.Kind == driver.KindFloat:
			t = driver.Float64
		case f.Number():
			t = driver.Int64
		case ragged && s.zip:
			size, err := driver.ArrayBytes(t, shape)
			if err != nil {
				return nil, sinkdriver.Cannot(format, f, "%v", err)
			}
			c.row = size
			c.offsets = &column{field: f, name: offsetsName(f.Name) + ".npy", place: -1, t: driver.Int64, shape: []int64{out.Len + 1}}
		case ragged:
			return nil, sinkdriver.Cannot(format, f, "its values differ in length, and all rows of an array have one shape; write .npz, which stores offsets")
		case f.Kind == driver.KindImage:
			if !ok {
				return nil, sinkdriver.Cannot(format, f, "its images are not raw pixels of one size; make a pack with --images raw --resize WxH first")
			}
		case !ok:
			return nil, sinkdriver.Cannot(format, f, "its values have no shape in common")
		}
		c.t, c.shape = t, []int64{out.Len}
		for _, n := range shape {
			c.shape = append(c.shape, int64(n))
		}
		s.cols = append(s.cols, c)
		if c.offsets != nil {
			s.cols = append(s.cols, c.offsets)
		}
	}
	for i, c := range s.cols {
		if j := slices.IndexFunc(s.cols, func(o *column) bool { return o.name == c.name }); j < i {
			return nil, sinkdriver.Cannot(format, c.field, "two arrays would be called %s: rename one of the fields", c.name)
		}
	}
	for _, c := range s.cols {
		name := c.name
		if out.File != "" && !s.zip {
			name = out.File
		}
		var err error
		if c.file, err = files.Create(filepath.Join(out.Dir, name)); err != nil {
			s.Abort()
			return nil, err
		}
		head := npy.AppendHeader(nil, c.t, c.shape)
		c.head = len(head)
		if !s.zip { // Finish corrects its number of rows
			_, _ = c.file.Write(head)
		}
		if c.place < 0 {
			if err := s.put(c, make([]byte, 8)); err != nil {
				s.Abort()
				return nil, err
			}
		}
	}
	return s, nil
}

// Write implements sinkdriver.Sink.
func (s *sink) Write(_ context.Context, recs []sinkdriver.Record) error {
	s.rows += int64(len(recs))
	for _, c := range s.cols {
		if c.place < 0 {
			continue // written together with the values
		}
		if c.field.Number() {
			c.buf = c.buf[:0]
			for k := range recs {
				v := &recs[k].Values[c.place]
				n := uint64(v.Int)
				if c.field.Kind == driver.KindFloat {
					n = math.Float64bits(v.Float)
				}
				c.buf = binary.LittleEndian.AppendUint64(c.buf, n)
			}
			if err := s.put(c, c.buf); err != nil {
				return err
			}
			continue
		}
		for k := range recs {
			b := recs[k].Values[c.place].Bytes
			if err := s.put(c, b); err != nil {
				return err
			}
			if c.offsets != nil {
				c.count += int64(len(b)) / c.row
				if err := s.put(c.offsets, binary.LittleEndian.AppendUint64(nil, uint64(c.count))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *sink) put(c *column, b []byte) error {
	if s.zip {
		c.sum = crc32.Update(c.sum, crc32.IEEETable, b)
	}
	_, err := c.file.Write(b)
	return err
}

// header returns the header of an array with its current number of rows, padded to the length of
// the header for all records.
func (s *sink) header(c *column) []byte {
	switch c.shape[0] = s.rows; {
	case c.offsets != nil:
		c.shape[0] = c.count
	case c.place < 0:
		c.shape[0]++
	}
	h := npy.AppendHeader(nil, c.t, c.shape)
	if n := c.head - len(h); n > 0 {
		h = append(h[:len(h)-1], append(bytes.Repeat([]byte(" "), n), '\n')...)
		binary.LittleEndian.PutUint16(h[8:], uint16(len(h)-10))
	}
	return h
}

// Finish implements sinkdriver.Sink.
func (s *sink) Finish(context.Context) error {
	if s.zip {
		return s.finishZip()
	}
	for _, c := range s.cols {
		if _, err := c.file.WriteAt(s.header(c), 0); err != nil {
			return err
		}
		if err := c.file.Close(); err != nil {
			return err
		}
		c.file = nil
	}
	return nil
}

// finishZip joins the arrays to a zip file. They are stored uncompressed, with 64-bit sizes as
// NumPy writes them. The elements of each array start at a multiple of 64 bytes.
func (s *sink) finishZip() error {
	z, err := files.Create(filepath.Join(s.out.Dir, s.out.File))
	if err != nil {
		return err
	}
	s.finish = z
	var central []byte
	le := binary.LittleEndian
	for _, c := range s.cols {
		at := z.Size()
		head := s.header(c)
		sum := combine(crc32.ChecksumIEEE(head), c.sum, c.file.Size())
		size := uint64(len(head)) + uint64(c.file.Size())
		local := func(b []byte) []byte {
			b = le.AppendUint16(le.AppendUint16(b, 45), 0x800) // version, names are UTF-8
			b = le.AppendUint16(b, 0)                          // stored
			b = le.AppendUint32(b, (1<<5|1)<<16)               // 1980-01-01
			b = le.AppendUint32(b, sum)
			b = le.AppendUint32(le.AppendUint32(b, math.MaxUint32), math.MaxUint32)
			return le.AppendUint16(b, uint16(len(c.name)))
		}
		b := local([]byte("PK\x03\x04"))
		pad := (64 - (at+int64(len(b))+2+int64(len(c.name))+20)%64) % 64
		if pad > 0 && pad < 4 {
			pad += 64
		}
		b = append(le.AppendUint16(b, uint16(20+pad)), c.name...)
		b = le.AppendUint64(le.AppendUint64(append(b, 1, 0, 16, 0), size), size)
		if pad > 0 {
			b = append(le.AppendUint16(append(b, 'S', 'K'), uint16(pad-4)), make([]byte, pad-4)...)
		}
		_, _ = z.Write(b)
		_, _ = z.Write(head)
		if err := z.Append(c.file); err != nil {
			return err
		}
		if err := c.file.Remove(); err != nil {
			return err
		}
		c.file = nil
		central = local(append(central, 'P', 'K', 1, 2, 45, 3))
		central = le.AppendUint16(central, 28)                                            // extra
		central = append(central, 0, 0, 0, 0, 0, 0)                                       // comment, disk, attributes
		central = le.AppendUint32(le.AppendUint32(central, 0o100644<<16), math.MaxUint32) // mode, where it begins
		central = append(append(central, c.name...), 1, 0, 24, 0)                         // extra: the sizes
		central = le.AppendUint64(le.AppendUint64(le.AppendUint64(central, size), size), uint64(at))
	}
	at, n := uint64(z.Size()), uint64(len(s.cols))
	_, _ = z.Write(central)
	end := le.AppendUint64([]byte("PK\x06\x06"), 44)
	end = le.AppendUint64(append(end, 45, 3, 45, 0), 0) // versions, disks
	end = le.AppendUint64(le.AppendUint64(end, n), n)
	end = le.AppendUint64(le.AppendUint64(end, uint64(len(central))), at)
	end = le.AppendUint64(append(end, "PK\x06\x07\x00\x00\x00\x00"...), at+uint64(len(central)))
	end = append(le.AppendUint32(end, 1), "PK\x05\x06\x00\x00\x00\x00"...)
	few := uint16(min(n, math.MaxUint16))
	end = le.AppendUint16(le.AppendUint16(end, few), few)
	end = append(le.AppendUint32(le.AppendUint32(end, math.MaxUint32), math.MaxUint32), 0, 0)
	if _, err := z.Write(end); err != nil {
		return err
	}
	s.finish = nil
	return z.Close()
}

// Abort implements sinkdriver.Sink.
func (s *sink) Abort() {
	for _, c := range s.cols {
		c.file.Abort()
	}
	s.finish.Abort()
}
