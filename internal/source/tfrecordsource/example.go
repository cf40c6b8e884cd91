package tfrecordsource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/source/driver"
)

// A tf.train.Example and a tf.train.SequenceExample are protocol buffers:
//
//	Example         { Features features = 1; }
//	SequenceExample { Features context = 1; FeatureLists feature_lists = 2; }
//	Features        { map<string, Feature> feature = 1; }
//	FeatureLists    { map<string, FeatureList> feature_list = 1; }
//	FeatureList     { repeated Feature feature = 1; }
//	Feature         { oneof { BytesList = 1; FloatList = 2; Int64List = 3; } }
//
// Each of the three lists has its values in field 1. An Example is a SequenceExample without lists, so one parser
// reads both. A message with any other field is not treated as an Example.

// span is a range of bytes of a record.
type span struct{ off, end int }

func (s span) size() int { return s.end - s.off }

// feature is the position of a feature in a record.
type feature struct {
	span
	// steps is true for a FeatureList.
	steps bool
	here  bool
}

// The fields of a Feature.
const (
	bytesList = 1
	floatList = 2
	int64List = 3
)

// view is a record with a parser for its fields.
type view struct{ dynvalue.View }

var (
	errMessage = errors.New("not a tf.train.Example")
	errCutOff  = fmt.Errorf("%w: it is cut off", errMessage)
)

// varint reads a number that ends before end.
func (v *view) varint(off, end int) (uint64, int, error) {
	b, err := v.Get(off, min(binary.MaxVarintLen64, end-off))
	if err != nil {
		return 0, 0, err
	}
	x, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, 0, errCutOff
	}
	return x, off + n, nil
}

// next reads the field at s.off of a message: its number, wire type and the span of its value. It moves s.off to
// the next field.
func (v *view) next(s *span) (field, wire int, value span, err error) {
	tag, off, err := v.varint(s.off, s.end)
	if err != nil {
		return 0, 0, span{}, err
	}
	if tag>>3 > 3 || tag>>3 == 0 {
		return 0, 0, span{}, errMessage
	}
	field, wire = int(tag>>3), int(tag&7)
	switch wire {
	case 0:
		_, end, err := v.varint(off, s.end)
		if err != nil {
			return 0, 0, span{}, err
		}
		value = span{off, end}
	case 5:
		value = span{off, off + 4}
	case 2:
		n, begin, err := v.varint(off, s.end)
		if err != nil {
			return 0, 0, span{}, err
		}
		if n > uint64(s.end-begin) {
			return 0, 0, span{}, errCutOff
		}
		value = span{begin, begin + int(n)}
	default:
		return 0, 0, span{}, errMessage
	}
	if value.end > s.end {
		return 0, 0, span{}, errCutOff
	}
	s.off = value.end
	return field, wire, value, nil
}

// features calls visit for each feature of the record. The name is valid until the next read.
func (v *view) features(visit func(name []byte, f feature) error) error {
	for record := (span{0, v.Size}); record.off < record.end; {
		field, wire, maps, err := v.next(&record)
		if err != nil {
			return err
		}
		if wire != 2 || field > 2 {
			return errMessage
		}
		steps := field == 2
		for maps.off < maps.end {
			field, wire, entry, err := v.next(&maps)
			if err != nil {
				return err
			}
			if wire != 2 || field != 1 {
				return errMessage
			}
			var name, value span
			for entry.off < entry.end {
				field, wire, at, err := v.next(&entry)
				switch {
				case err != nil:
					return err
				case wire != 2 || field > 2:
					return errMessage
				case field == 1:
					name = at
				default:
					value = at
				}
			}
			if name.size() > maxName {
				return fmt.Errorf("%w: a name of %d bytes", errMessage, name.size())
			}
			text, err := v.Get(name.off, name.size())
			if err != nil {
				return err
			}
			if !utf8.Valid(text) {
				return errMessage
			}
			if err := visit(text, feature{span: value, steps: steps, here: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxName is the length limit of a feature's name.
const maxName = 4096

// list finds the list in a Feature. kind is 0 if there is none.
func (v *view) list(f span) (kind int, list span, err error) {
	for f.off < f.end {
		field, wire, at, err := v.next(&f)
		switch {
		case err != nil:
			return 0, span{}, err
		case wire != 2:
			return 0, span{}, errMessage
		case kind != 0:
			return 0, span{}, fmt.Errorf("%w: a feature has two lists", errMessage)
		}
		kind, list = field, at
	}
	return kind, list, nil
}

// scratch is the reusable memory for parsing records.
type scratch struct {
	view  view
	shape [2]int
	elems []byte
	texts [][]byte
	text  []byte
	found []feature // by field
	// before are the features of the previous record (quick.go). plain disables the fast path.
	before []before
	plain  bool
	// at is the offset of the last value in the record, if the value is stored there.
	at int
	// to receives the values of the current record. copies has the copies for all records of the group, the current
	// record's start at begun (copies.go).
	to     dynvalue.Sink
	copies []copied
	begun  int
	schema *dynvalue.Schema
	hook   func(field int, b []byte) []byte // place
	// record holds a record of a stream.
	record []byte
}

// value parses a feature. The value is valid until the next one. With head, parts that Column.Add does not need are
// skipped.
func (w *scratch) value(f feature, head bool) (dynvalue.Value, error) {
	v := &w.view
	if f.steps {
		return w.steps(f.span, head)
	}
	kind, list, err := v.list(f.span)
	if err != nil {
		return dynvalue.Value{}, err
	}
	switch kind {
	case bytesList:
		return w.strings(list, head)
	case floatList, int64List:
		w.elems = w.elems[:0]
		n, b, lo, hi, err := w.numbers(kind, list, head)
		if err != nil {
			return dynvalue.Value{}, err
		}
		out := w.array(kind, n)
		out.Form, out.Shape = column.Flat, out.Shape[:1]
		out.Bytes, out.Min, out.Max = b, lo, hi
		out.Temp = kind == int64List || len(w.elems) > 0
		return out, nil
	}
	return dynvalue.Value{}, nil
}

// array returns an array of n numbers without its elements.
func (w *scratch) array(kind, n int) dynvalue.Value {
	w.shape = [2]int{n, 1}
	out := dynvalue.Value{Form: column.List, DType: driver.Float32, Size: 4 * int64(n), Shape: w.shape[:]}
	if kind == int64List {
		out.DType, out.Size = driver.Int64, 8*int64(n)
	}
	return out
}

// strings parses a BytesList.
func (w *scratch) strings(list span, head bool) (dynvalue.Value, error) {
	v := &w.view
	whole := list
	n, first := 0, span{}
	for list.off < list.end {
		field, wire, at, err := v.next(&list)
		switch {
		case err != nil:
			return dynvalue.Value{}, err
		case field != 1 || wire != 2:
			return dynvalue.Value{}, errMessage
		}
		if n++; n == 1 {
			first = at
		}
	}
	switch n {
	case 0:
		return dynvalue.Value{}, nil
	case 1:
		size := first.size()
		m := size
		if head {
			m = min(m, column.HeadBytes)
		}
		b, err := v.Get(first.off, m)
		w.at = first.off
		return dynvalue.Value{Form: column.Bytes, Bytes: b, Size: int64(size)}, err
	}
	// Several strings: the whole list is needed.
	if whole.size() > maxTexts {
		return dynvalue.Value{Form: column.Other, Why: "has several byte strings per record"}, nil
	}
	b, err := v.Get(whole.off, whole.size())
	if err != nil {
		return dynvalue.Value{}, err
	}
	w.texts = w.texts[:0]
	for list := whole; list.off < list.end; {
		_, _, at, err := v.next(&list)
		if err != nil {
			return dynvalue.Value{}, err
		}
		w.texts = append(w.texts, b[at.off-whole.off:at.end-whole.off])
	}
	return w.list(), nil
}

// maxTexts limits the size of a list of texts.
const maxTexts = 16 << 20

// list returns w.texts as a value.
func (w *scratch) list() dynvalue.Value {
	for _, t := range w.texts {
		if !column.IsText(t, int64(len(t))) {
			return dynvalue.Value{Form: column.Other, Why: "has several byte strings per record"}
		}
	}
	w.text = dynvalue.AppendTexts(w.text[:0], w.texts...)
	return dynvalue.Value{Form: column.Texts, Bytes: w.text, Size: int64(len(w.text)), Temp: true}
}

// numbers parses a FloatList or an Int64List: the number of elements, and the elements, which are in the record or
// at the end of w.elems. With head, the elements of floats are skipped.
func (w *scratch) numbers(kind int, list span, head bool) (n int, out []byte, lo, hi int64, err error) {
	v := &w.view
	begin := len(w.elems)
	for part := 0; list.off < list.end; part++ {
		field, wire, at, err := v.next(&list)
		if err != nil {
			return 0, nil, 0, 0, err
		}
		if field != 1 || wire != 2 && (kind == floatList) != (wire == 5) {
			return 0, nil, 0, 0, errMessage
		}
		if kind == floatList {
			if at.size()%4 != 0 {
				return 0, nil, 0, 0, errMessage
			}
			if n += at.size() / 4; head {
				continue
			}
			b, err := v.Get(at.off, at.size())
			if err != nil {
				return 0, nil, 0, 0, err
			}
			if part == 0 && list.off == list.end && begin == 0 {
				w.at = at.off
				return n, b, 0, 0, nil // the usual encoding
			}
			w.elems = append(w.elems, b...)
			continue
		}
		b, err := v.Get(at.off, at.size())
		if err != nil {
			return 0, nil, 0, 0, err
		}
		for len(b) > 0 {
			x, m := binary.Uvarint(b)
			if m <= 0 {
				return 0, nil, 0, 0, errCutOff
			}
			b = b[m:]
			if w.elems = binary.LittleEndian.AppendUint64(w.elems, x); len(w.elems) > driver.MaxArrayBytes {
				return 0, nil, 0, 0, fmt.Errorf("a list of more than %d bytes", driver.MaxArrayBytes)
			}
			if n++; n == 1 {
				lo, hi = int64(x), int64(x)
			}
			lo, hi = min(lo, int64(x)), max(hi, int64(x))
		}
	}
	return n, w.elems[begin:], lo, hi, nil
}

// steps parses a FeatureList: rows of numbers, or a list of texts.
func (w *scratch) steps(list span, head bool) (dynvalue.Value, error) {
	v := &w.view
	w.elems, w.texts, w.text = w.elems[:0], w.texts[:0], w.text[:0]
	rows, each, kind := 0, 0, 0
	other := func(why string) (dynvalue.Value, error) { return dynvalue.Value{Form: column.Other, Why: why}, nil }
	for whole := list; list.off < list.end; rows++ {
		field, wire, step, err := v.next(&list)
		if err != nil {
			return dynvalue.Value{}, err
		}
		if field != 1 || wire != 2 {
			return dynvalue.Value{}, errMessage
		}
		k, values, err := v.list(step)
		if err != nil {
			return dynvalue.Value{}, err
		}
		if rows == 0 {
			kind = k
		}
		if k != kind || k == 0 {
			return other("has steps of different kinds")
		}
		n := 0
		if k == bytesList {
			for values.off < values.end {
				field, wire, at, err := v.next(&values)
				if err != nil {
					return dynvalue.Value{}, err
				}
				if field != 1 || wire != 2 {
					return dynvalue.Value{}, errMessage
				}
				if n != 0 {
					return other("has several byte strings per step")
				}
				n = at.size()
				b, err := v.Get(at.off, at.size())
				if err != nil {
					return dynvalue.Value{}, err
				}
				w.elems = append(w.elems, b...)
			}
			w.text = binary.LittleEndian.AppendUint32(w.text, uint32(n))
			if whole.size() > driver.MaxArrayBytes {
				return other("has steps that are too large in total")
			}
		} else if n, _, _, _, err = w.numbersOf(k, values, head); err != nil {
			return dynvalue.Value{}, err
		}
		if rows == 0 {
			each = n
		}
		if n != each {
			each = -1
		}
	}
	if kind == bytesList {
		return w.stepStrings(rows, each)
	}
	if each < 0 {
		return other("has steps of different lengths")
	}
	out := w.array(kind, rows*each)
	out.Steps, out.Temp, out.Bytes = true, true, w.elems
	w.shape = [2]int{rows, each}
	return out, nil
}

// numbersOf is numbers for one of many steps. All elements go to w.elems.
func (w *scratch) numbersOf(kind int, list span, head bool) (int, []byte, int64, int64, error) {
	if len(w.elems) > 0 || kind == int64List || head {
		return w.numbers(kind, list, head)
	}
	n, b, lo, hi, err := w.numbers(kind, list, head)
	if err == nil && len(w.elems) == 0 {
		w.elems = append(w.elems, b...)
	}
	return n, b, lo, hi, err
}

// stepStrings builds a value from steps of one string each. Texts become a list, byte strings of equal length
// become rows of bytes. The strings are in w.elems, their lengths in w.text.
func (w *scratch) stepStrings(rows, each int) (dynvalue.Value, error) {
	text, at := true, 0
	lengths := append([]byte(nil), w.text[:4*rows]...)
	for i := range rows {
		n := int(binary.LittleEndian.Uint32(lengths[4*i:]))
		s := w.elems[at : at+n]
		at += n
		w.texts = append(w.texts, s)
		text = text && column.IsText(s, int64(n))
	}
	switch {
	case text:
		return w.list(), nil
	case each <= 0:
		return dynvalue.Value{Form: column.Other, Why: "has byte strings of different lengths in its steps, such as encoded images"}, nil
	}
	w.shape = [2]int{rows, each}
	return dynvalue.Value{
		Form: column.List, DType: driver.Uint8, Bytes: w.elems, Size: int64(len(w.elems)), Temp: true, Shape: w.shape[:], Steps: true,
	}, nil
}
