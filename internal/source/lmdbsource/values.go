package lmdbsource

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/source/driver"
)

// form is the format of a database's values.
type form uint8

const (
	plain form = iota // byte strings, whose content determines the kind
	array             // .npy files
	datum             // Caffe's Datum
)

// names are the columns of each form.
var names = map[form][]string{plain: {"key", "value"}, array: {"key", "value"}, datum: {"key", "image", "label"}}

// formOf returns the form of a value.
func formOf(b []byte) form {
	if bytes.HasPrefix(b, []byte("\x93NUMPY")) {
		return array
	}
	if d, err := parseDatum(b); err == nil && (d.encoded || d.channels > 0) && len(d.data) > 0 {
		return datum
	}
	return plain
}

// maxHead is the size limit of a .npy header.
const maxHead = 64 << 10

// arrayOf parses a .npy file.
func arrayOf(b []byte) (dynvalue.Value, error) {
	n, err := npy.HeaderSize(b)
	if err != nil {
		return dynvalue.Value{}, err
	}
	if n > len(b) || n > maxHead {
		return dynvalue.Value{}, errors.New("its header is cut off")
	}
	h, err := npy.ParseHeader(b[:n])
	if err != nil {
		return dynvalue.Value{}, err
	}
	if int64(len(b)) != h.Offset+h.Bytes {
		return dynvalue.Value{}, fmt.Errorf("%d bytes, but its header needs %d", len(b), h.Offset+h.Bytes)
	}
	v := dynvalue.Value{Form: column.List, DType: h.DType, Bytes: b[h.Offset:], Size: h.Bytes}
	for _, side := range h.Shape {
		v.Shape = append(v.Shape, int(side))
	}
	return v, nil
}

// datumValue is a parsed Datum of Caffe:
//
//	Datum { int32 channels = 1, height = 2, width = 3; bytes data = 4; int32 label = 5;
//	        repeated float float_data = 6; bool encoded = 7; }
type datumValue struct {
	channels, height, width int64
	data                    []byte
	floats                  []byte
	label                   int64
	encoded                 bool
}

var errDatum = errors.New("not a Datum of Caffe")

// parseDatum parses a Datum.
func parseDatum(b []byte) (d datumValue, err error) {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 || tag>>3 > 7 {
			return d, errDatum
		}
		b = b[n:]
		var x uint64
		var part []byte
		switch tag & 7 {
		case 0:
			if x, n = binary.Uvarint(b); n <= 0 {
				return d, errDatum
			}
			b = b[n:]
		case 2:
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return d, errDatum
			}
			part, b = b[n:n+int(size)], b[n+int(size):]
		case 5:
			if len(b) < 4 {
				return d, errDatum
			}
			part, b = b[:4], b[4:]
		default:
			return d, errDatum
		}
		switch key := tag>>3<<4 | tag&7; key {
		case 0x10:
			d.channels = int64(int32(x))
		case 0x20:
			d.height = int64(int32(x))
		case 0x30:
			d.width = int64(int32(x))
		case 0x42:
			d.data = part
		case 0x50:
			d.label = int64(int32(x))
		case 0x62, 0x65:
			if len(part)%4 != 0 {
				return d, errDatum
			}
			if d.floats == nil {
				d.floats = part
			} else {
				d.floats = append(bytes.Clone(d.floats), part...)
			}
		case 0x70:
			d.encoded = x != 0
		default:
			return d, errDatum
		}
	}
	return d, nil
}

// image returns the encoded image of a Datum, or its array of channels, rows and columns.
func (d *datumValue) image() (dynvalue.Value, error) {
	if d.encoded {
		return dynvalue.Strings(column.Bytes, d.data), nil
	}
	const maxSide = 1 << 24
	if d.channels < 1 || d.height < 1 || d.width < 1 || d.channels > maxSide || d.height > maxSide || d.width > maxSide {
		return dynvalue.Value{}, fmt.Errorf("a Datum of %d x %d x %d", d.channels, d.height, d.width)
	}
	v := dynvalue.Value{Form: column.List, DType: driver.Uint8, Bytes: d.data, Shape: []int{int(d.channels), int(d.height), int(d.width)}}
	n := int64(len(d.data))
	if len(d.data) == 0 {
		v.DType, v.Bytes, n = driver.Float32, d.floats, int64(len(d.floats)/4)
	}
	if v.Size = int64(len(v.Bytes)); d.channels*d.height > 1<<40/d.width || d.channels*d.height*d.width != n {
		return dynvalue.Value{}, fmt.Errorf("a Datum of %d x %d x %d with %d numbers", d.channels, d.height, d.width, n)
	}
	return v, nil
}

// split emits the key and the values of a record. label is memory for the label of a Datum. A plain value has size
// bytes, but b may only have its beginning.
func split(f form, key, b []byte, size int64, label *[8]byte, emit func(column int, v *dynvalue.Value) error) error {
	v := dynvalue.Strings(column.Bytes, key)
	if err := emit(0, &v); err != nil {
		return err
	}
	var err error
	switch f {
	case plain:
		v = dynvalue.Value{Form: column.Bytes, Bytes: b, Size: size}
	case array:
		if v, err = arrayOf(b); err != nil {
			return err
		}
	case datum:
		d, err := parseDatum(b)
		if err != nil {
			return err
		}
		if v, err = d.image(); err != nil {
			return err
		}
		if err := emit(1, &v); err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(label[:], uint64(d.label))
		n := dynvalue.Value{Form: column.Number, DType: driver.Int64, Bytes: label[:], Size: 8}
		return emit(2, &n)
	}
	return emit(1, &v)
}
