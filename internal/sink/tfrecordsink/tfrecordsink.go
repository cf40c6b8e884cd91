// Package tfrecordsink writes TFRecord files of tf.train.Example messages.
package tfrecordsink

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/sink/files"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// Format returns the TFRecord format.
func Format() *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: "tfrecord", About: "TFRecord files with tf.train.Example", Ext: []string{".tfrecord", ".tfrecords"},
		File: true, Folder: true, Sharded: true, ShardBytes: 128 << 20, Open: open,
	}
}

// Field numbers of the list types in tf.train.Feature.
const (
	bytesList = 1
	floatList = 2
	int64List = 3
)

type sink struct {
	files.Rows
	fields []field
}

type field struct {
	sinkdriver.Field
	list  int
	shape []byte // the feature NAME/shape of an array of several axes, else nil
	t     dtype.Type
}

func open(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) {
	s := &sink{Rows: files.NewRows(out, ".tfrecord")}
	for i := range out.Fields {
		f := field{Field: out.Fields[i], list: bytesList}
		switch f.Kind {
		case driver.KindLabel, driver.KindInt:
			f.list = int64List
		case driver.KindFloat:
			f.list = floatList
		}
		if t, shape, ragged, ok := f.Elements(); ok {
			f.t = t.Type()
			switch {
			case t == driver.Uint8:
			case f.t.Floating():
				f.list = floatList
			default:
				f.list = int64List
			}
			if len(shape) > 1 || ragged && len(shape) > 0 || t == driver.Uint8 && (ragged || len(shape) > 0) {
				// Lists have one axis: NAME/shape has the others.
				var sides []byte
				if ragged {
					sides = binary.AppendUvarint(sides, math.MaxUint64) // -1: any length
				}
				for _, n := range shape {
					sides = binary.AppendUvarint(sides, uint64(n))
				}
				f.shape = entry(nil, f.Name+"/shape", int64List, packed(sides))
			}
		}
		s.fields = append(s.fields, f)
	}
	return s, nil
}

// Encode implements sinkdriver.Encoder: the length of a record, its checksum, the record, its
// checksum.
func (s *sink) Encode(b []byte, rec *sinkdriver.Record) ([]byte, error) {
	at := len(b)
	b = append(b, make([]byte, 12)...)
	// Example has one member, Features: the size of that is the sum of all entries.
	size := 0
	for i := range s.fields {
		n, err := s.fields[i].size(&rec.Values[i])
		if err != nil {
			return nil, err
		}
		size += n
	}
	b = append(b, 1<<3|2)
	b = binary.AppendUvarint(b, uint64(size))
	for i := range s.fields {
		b = s.fields[i].append(b, &rec.Values[i])
	}
	data := b[at+12:]
	binary.LittleEndian.PutUint64(b[at:], uint64(len(data)))
	binary.LittleEndian.PutUint32(b[at+8:], masked(b[at:at+8]))
	return binary.LittleEndian.AppendUint32(b, masked(data)), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum of TFRecord: a CRC-32C, rotated, plus a constant.
func masked(p []byte) uint32 {
	crc := crc32.Checksum(p, castagnoli)
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// listSize returns the size of the values of a field in their list.
func (f *field) listSize(v *sinkdriver.Value) (int, error) {
	switch {
	case f.list == bytesList:
		return len(v.Bytes), nil
	case f.Kind == driver.KindFloat:
		return 4, nil
	case f.t == 0:
		return uvarint(uint64(v.Int)), nil
	case f.list == floatList:
		return len(v.Bytes) / f.t.Size() * 4, nil
	}
	n := 0
	if f.t == dtype.U16 { // a fast path, since there are many tokens
		for p := v.Bytes; len(p) >= 2; p = p[2:] {
			n++
			if p[1] != 0 || p[0] >= 0x80 {
				n++
			}
			if p[1] >= 0x40 {
				n++
			}
		}
		return n, nil
	}
	for at := 0; at < len(v.Bytes); at += f.t.Size() {
		if x := f.t.Bits(v.Bytes[at:]); f.t == dtype.U64 && x > math.MaxInt64 {
			return 0, fmt.Errorf("field %q has %d, which an Int64List cannot hold", f.Name, x)
		}
		n += uvarint(uint64(f.t.Int(v.Bytes[at:])))
	}
	return n, nil
}

// size returns the size of the entry of a field.
func (f *field) size(v *sinkdriver.Value) (int, error) {
	n, err := f.listSize(v)
	if err != nil {
		return 0, err
	}
	_, _, all := f.sizes(n)
	return all + uvarint(uint64(all)) + 1 + len(f.shape), nil
}

// sizes returns the sizes of a list, of the Feature around it, and of the entry of the map. Each
// size excludes its own prefix.
func (f *field) sizes(n int) (list, feature, all int) {
	list = 1 + uvarint(uint64(n)) + n
	if n == 0 && f.list != bytesList {
		list = 0
	}
	feature = 1 + uvarint(uint64(list)) + list
	all = 1 + uvarint(uint64(len(f.Name))) + len(f.Name) + 1 + uvarint(uint64(feature)) + feature
	return list, feature, all
}

func (f *field) append(b []byte, v *sinkdriver.Value) []byte {
	n, _ := f.listSize(v)
	list, feature, all := f.sizes(n)
	b = binary.AppendUvarint(append(b, 1<<3|2), uint64(all))
	b = binary.AppendUvarint(append(b, 1<<3|2), uint64(len(f.Name)))
	b = append(b, f.Name...)
	b = binary.AppendUvarint(append(b, 2<<3|2), uint64(feature))
	b = binary.AppendUvarint(append(b, byte(f.list)<<3|2), uint64(list))
	if list > 0 {
		b = binary.AppendUvarint(append(b, 1<<3|2), uint64(n))
		b = f.values(b, v)
	}
	return append(b, f.shape...)
}

func (f *field) values(b []byte, v *sinkdriver.Value) []byte {
	switch {
	case f.list == bytesList:
		return append(b, v.Bytes...)
	case f.Kind == driver.KindFloat:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v.Float)))
	case f.t == 0:
		return binary.AppendUvarint(b, uint64(v.Int))
	case f.t == dtype.F32:
		return append(b, v.Bytes...)
	case f.list == floatList:
		for at := 0; at < len(v.Bytes); at += f.t.Size() {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(f.t.Float(v.Bytes[at:]))))
		}
		return b
	case f.t == dtype.U16:
		for p := v.Bytes; len(p) >= 2; p = p[2:] {
			switch x := uint16(p[0]) | uint16(p[1])<<8; {
			case x < 1<<7:
				b = append(b, byte(x))
			case x < 1<<14:
				b = append(b, byte(x)|0x80, byte(x>>7))
			default:
				b = append(b, byte(x)|0x80, byte(x>>7)|0x80, byte(x>>14))
			}
		}
		return b
	}
	for at := 0; at < len(v.Bytes); at += f.t.Size() {
		b = binary.AppendUvarint(b, uint64(f.t.Int(v.Bytes[at:])))
	}
	return b
}

// packed returns a list of numbers in the packed encoding.
func packed(values []byte) []byte {
	return append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(values))), values...)
}

// entry appends an entry of the map of features.
func entry(b []byte, name string, list int, values []byte) []byte {
	feature := append(binary.AppendUvarint([]byte{byte(list)<<3 | 2}, uint64(len(values))), values...)
	var e []byte
	e = append(binary.AppendUvarint(append(e, 1<<3|2), uint64(len(name))), name...)
	e = append(binary.AppendUvarint(append(e, 2<<3|2), uint64(len(feature))), feature...)
	return append(binary.AppendUvarint(append(b, 1<<3|2), uint64(len(e))), e...)
}

// uvarint returns the size of a number as a varint.
func uvarint(x uint64) (n int) {
	for n = 1; x >= 0x80; n++ {
		x >>= 7
	}
	return n
}
