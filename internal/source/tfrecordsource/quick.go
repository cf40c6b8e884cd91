package tfrecordsource

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/source/driver"
)

// The fast path for Examples as TensorFlow writes them: one map of features, each with its name and one list in one
// piece, usually in the order of the previous record. It is several times as fast as view and value, which handle
// all encodings and report errors. They are used for everything unusual.

// before is a feature of the previous record, and its fields.
type before struct {
	name   []byte
	fields []int
}

// maxBefore is the limit of features to remember.
const maxBefore = 1024

// length reads a length at i. next is the offset after it, or -1 if it is invalid.
func length(b []byte, i int) (n, next int) {
	if i < len(b) && b[i] < 0x80 {
		return int(b[i]), i + 1
	}
	return longLength(b, i)
}

func longLength(b []byte, i int) (n, next int) {
	x, m := binary.Uvarint(b[min(i, len(b)):])
	if m <= 0 || x > uint64(len(b)) {
		return 0, -1
	}
	return int(x), i + m
}

// bytesField is the tag of a length-delimited field.
func bytesField(number byte) byte { return number<<3 | 2 }

// outline finds the features of a record. It returns false if the encoding is not TensorFlow's. w.found may then be
// partly set.
func (w *scratch) outline(s *dynvalue.Schema, b []byte) bool {
	if len(b) == 0 || b[0] != bytesField(1) {
		return false
	}
	n, i := length(b, 1)
	if i < 0 || n != len(b)-i {
		return false
	}
	for k := 0; i < len(b); k++ {
		if b[i] != bytesField(1) {
			return false
		}
		n, at := length(b, i+1)
		if at < 0 || n > len(b)-at {
			return false
		}
		i = at + n
		entry := b[:i]
		if at >= i || b[at] != bytesField(1) {
			return false
		}
		if n, at = length(entry, at+1); at < 0 || n > i-at || n > maxName {
			return false
		}
		name := b[at : at+n]
		if at += n; at >= i || b[at] != bytesField(2) {
			return false
		}
		if n, at = length(entry, at+1); at < 0 || n != i-at {
			return false
		}
		fields, ok := w.fields(s, k, name)
		if !ok {
			return false
		}
		for _, f := range fields {
			w.found[f] = feature{span: span{at, i}, here: true}
		}
	}
	return true
}

// fields returns the fields of feature k of a record.
func (w *scratch) fields(s *dynvalue.Schema, k int, name []byte) ([]int, bool) {
	if k < len(w.before) && string(w.before[k].name) == string(name) {
		return w.before[k].fields, true
	}
	if !utf8.Valid(name) {
		return nil, false
	}
	fields := s.Of(name)
	switch {
	case k < len(w.before):
		w.before[k].name, w.before[k].fields = append(w.before[k].name[:0], name...), fields
	case k == len(w.before) && k < maxBefore:
		w.before = append(w.before, before{append([]byte(nil), name...), fields})
	}
	return fields, true
}

// only returns the offset of the value of the message at off, if its only field has this tag and fills the message.
func only(b []byte, off int, tag byte) (at int, ok bool) {
	if off >= len(b) || b[off] != tag {
		return 0, false
	}
	n, at := length(b, off+1)
	return at, at >= 0 && n == len(b)-at
}

// quick sets the value of a field from a feature. It returns false, without an effect, if the encoding is unusual.
func (w *scratch) quick(s *dynvalue.Schema, to *dynvalue.Sink, i int, b []byte, f feature) (bool, error) {
	b = b[:f.end]
	if f.off >= f.end {
		return false, nil
	}
	at, ok := only(b, f.off, b[f.off])
	if !ok {
		return false, nil
	}
	tag := b[f.off]
	if at, ok = only(b, at, bytesField(1)); !ok {
		return false, nil
	}
	b = b[at:]
	kind, out := s.Fields[i].Kind, &to.Rec.Values[i]
	var v dynvalue.Value
	switch tag {
	case bytesField(bytesList):
		w.at = at
		v = dynvalue.Value{Form: column.Bytes, Bytes: b[:len(b):len(b)], Size: int64(len(b))}
	case bytesField(floatList):
		if kind == driver.KindFloat && len(b) == 4 {
			out.Float = float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
			return true, nil
		}
		if len(b)%4 != 0 {
			return false, nil
		}
		w.at = at
		v = w.array(floatList, len(b)/4)
		v.Form, v.Shape, v.Bytes = column.Flat, v.Shape[:1], b[:len(b):len(b)]
	case bytesField(int64List):
		if kind == driver.KindInt || kind == driver.KindLabel {
			x, n := binary.Uvarint(b)
			if n != len(b) || kind == driver.KindLabel && int64(x) < 0 {
				return false, nil
			}
			out.Int = int64(x)
			return true, nil
		}
		n, ok := w.integers(b)
		if !ok {
			return false, nil
		}
		v = w.array(int64List, n)
		v.Form, v.Shape, v.Bytes, v.Temp = column.Flat, v.Shape[:1], w.elems, true
	default:
		return false, nil
	}
	return true, s.Put(to, i, &v)
}

// integers decodes packed varints to w.elems.
func (w *scratch) integers(b []byte) (n int, ok bool) {
	if len(b) > driver.MaxArrayBytes/8 {
		return 0, false
	}
	if cap(w.elems) < 8*len(b) {
		w.elems = make([]byte, 8*len(b))
	}
	out := w.elems[:8*len(b)] // each number takes at least one byte
	for i := 0; i < len(b); n++ {
		x := uint64(b[i])
		if i+4 <= len(b) && x >= 0x80 {
			// Decode numbers of up to four bytes with one load: the last byte of a number has its high bit clear.
			word := binary.LittleEndian.Uint32(b[i:])
			switch {
			case word&0x8000 == 0:
				x, i = uint64(word&0x7f|word>>1&0x3f80), i+2
			case word&0x800000 == 0:
				x, i = uint64(word&0x7f|word>>1&0x3f80|word>>2&0x1fc000), i+3
			case word&0x80000000 == 0:
				x, i = uint64(word&0x7f|word>>1&0x3f80|word>>2&0x1fc000|word>>3&0xfe00000), i+4
			default:
				y, m := binary.Uvarint(b[i:])
				if m <= 0 {
					return 0, false
				}
				x, i = y, i+m
			}
		} else if x < 0x80 {
			i++
		} else {
			y, m := binary.Uvarint(b[i:])
			if m <= 0 {
				return 0, false
			}
			x, i = y, i+m
		}
		binary.LittleEndian.PutUint64(out[8*n:], x)
	}
	w.elems = out[:8*n]
	return n, true
}
