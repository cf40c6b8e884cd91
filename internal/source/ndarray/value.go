package ndarray

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
)

// Class is the class of the elements of an array.
type Class uint8

// Classes of elements.
const (
	Number   Class = iota
	Text           // Size bytes
	UCS4           // text of Size/4 characters of 4 bytes
	Opaque         // Size bytes
	VarText        // text of any length, located by Ref
	VarBytes       // bytes of any length, located by Ref
	VarList        // lists of numbers of any length, located by Ref or Rows
)

// Type describes the value in a stored element, and how to read it.
type Type struct {
	Class Class
	// At is the offset of the value in a stored element. Size is the size of the value in bytes,
	// with all elements of an array type.
	At, Size int64
	// DType and Big describe numbers and the numbers in lists.
	DType driver.DType
	Big   bool
	// Dims is the shape of an array type.
	Dims []int64
	// Blanks is set if text is padded with blanks instead of zeros. Zero is set if text ends at the
	// first zero.
	Blanks, Zero bool
	// Names are the names of the numbers from 0, nil if the numbers have no names.
	Names []string
	// Rows is set if a list is a range of rows of the array. Another array has the ranges
	// (pairs.go).
	Rows bool
}

// String names a type for messages.
func (t *Type) String() string {
	switch t.Class {
	case Number:
		return string(t.DType)
	case Text, UCS4, VarText:
		return "text"
	case VarList:
		return "lists of " + string(t.DType)
	}
	return "bytes"
}

// number reports whether values are numbers or lists of numbers.
func (t *Type) number() bool { return t.Class == Number || t.Class == VarList }

// ends reports whether values have any length.
func (t *Type) ends() bool { return t.Class >= VarText }

// refers reports whether elements refer to values at other positions.
func (t *Type) refers() bool { return t.ends() && !t.Rows }

// field is a field of the records.
type field struct {
	name  string
	typ   Type
	kind  driver.Kind
	elem  int64 // bytes in a stored element
	count int64 // stored elements in a row
	shape []int // shape of a value
	dtype dtype.Type
	n     int64 // elements in a value
	out   int64 // bytes in a value, if all values have the same size
	// direct is set if the stored bytes are the value.
	direct bool
	planes bool // image stored as [C, H, W]
}

// shaped computes the shape of a value from the axes of a row and the size of a stored element in
// bytes.
func (f *field) shaped(dims []int64, elem int64) error {
	t := &f.typ
	f.elem, f.count = elem, 1
	for _, side := range dims {
		f.count *= side
	}
	f.n = f.count
	if t.refers() && f.count == 1 {
		dims = nil // the axes of one list
	}
	for _, side := range append(append([]int64{}, dims...), t.Dims...) {
		if side < 1 || side > math.MaxInt32 {
			return fmt.Errorf("its rows have the shape %v, which is out of range", dims)
		}
		f.shape = append(f.shape, int(side))
	}
	for _, side := range t.Dims {
		f.n *= side
	}
	switch {
	case t.number():
		f.dtype = t.DType.Type()
	case f.n != 1:
		return fmt.Errorf("it has %d values of %s in a row: only one can be read", f.n, t)
	}
	if t.refers() && f.count != 1 {
		return fmt.Errorf("it has %d values of any length in a row: only one can be read", f.count)
	}
	if !t.ends() {
		if f.count > driver.MaxArrayBytes/t.Size {
			return fmt.Errorf("its rows have more than %d bytes", int64(driver.MaxArrayBytes))
		}
		f.out = f.count * t.Size
	}
	return nil
}

// seen returns what the type declares about the values, before any value is read.
func (f *field) seen(want column.Want) *column.Seen {
	t := &f.typ
	u := &column.Seen{Name: want.From, Type: t.String(), Shaped: true, DType: t.DType, Class: len(t.Names) > 0, Classes: t.Names}
	u.Want(want)
	u.Names, u.Tokens = false, false // opening does not read values
	switch {
	case t.Class == VarList:
		u.Form, u.Inner = column.List, f.shape
	case t.Class == Opaque || t.Class == VarBytes:
		u.Form = column.Bytes
	case t.Class != Number:
		u.Form = column.Text
	case len(f.shape) == 0 || u.Class && f.n == 1:
		u.Form = column.Number
	default:
		u.Form, u.Fixed, u.Least, u.Most, u.Inner = column.List, true, int64(f.shape[0]), int64(f.shape[0]), f.shape[1:]
		u.Type += fmt.Sprintf(" of shape %v", f.shape)
	}
	return u
}

// describe makes the field from u, which describes the values of all records.
func (f *field) describe(want column.Want, u *column.Seen, records int64) (driver.Field, error) {
	t := &f.typ
	// Lists of uint8 of any length can be files, for example images or sounds.
	blob := t.Class == VarList && f.dtype == dtype.U8 && len(f.shape) == 0
	asBytes := func() *column.Seen {
		b := *u
		b.Form, b.Size = column.Bytes, u.Elements
		return &b
	}
	if want.Kind == "" && blob {
		if kind := asBytes().Decide(want.Name, records); column.IsDecoded(kind) {
			want.Kind = kind
		}
	}
	file := column.IsFile(want.Kind)
	refuse := func(why string) (driver.Field, error) { return driver.Field{}, u.Refuse(want, why, records) }
	switch picture := want.Kind == driver.KindImage || want.Kind == driver.KindMask; {
	case picture && t.Class == Number && len(f.shape) > 1:
		out := driver.Field{Name: want.Name, Kind: want.Kind, MaxBytes: f.out}
		f.kind = out.Kind
		if err := f.picture(&out); err != nil {
			return refuse(err.Error())
		}
		return f.finish(out), nil
	case picture && (t.Class == UCS4 || t.number() && !blob && (f.dtype != dtype.U8 || f.n == 1)):
		return refuse("it has no bytes of image files, and no rows of pixels")
	case file && t.Class == UCS4:
		return refuse("it has no bytes")
	case blob && (file || want.Kind == driver.KindText || want.Kind == driver.KindJSON), file && t.Class == Number && f.dtype == dtype.U8 && f.n > 1:
		u = asBytes()
	}
	out, err := u.Field(want, records)
	if err != nil {
		return out, err
	}
	if f.kind = out.Kind; !t.ends() && u.Form != column.List && u.Form != column.Number {
		out.MaxBytes, out.Stats = f.out, nil
	}
	return f.finish(out), nil
}

// finish sets how values are made.
func (f *field) finish(out driver.Field) driver.Field {
	t := &f.typ
	if out.Kind != driver.KindArray && out.Kind != driver.KindInt && out.Kind != driver.KindFloat && out.Kind != driver.KindLabel {
		out.MaxBytes = max(out.MaxBytes, 1) // a batch always has memory for a value
	}
	order := !t.Big || !t.number() || f.dtype.Size() == 1
	f.direct = order && (!t.number() || f.made() == f.dtype) && !f.planes && t.Class != UCS4 && t.Class != Text && (t.refers() || t.At == 0 && t.Size == f.elem)
	return out
}

// made returns the type of the elements of values.
func (f *field) made() dtype.Type {
	switch f.kind {
	case driver.KindMultiLabel:
		return dtype.I64
	case driver.KindTokens:
		if f.dtype == dtype.U8 || f.dtype == dtype.U16 {
			return dtype.U16
		}
		return dtype.U32
	}
	return f.dtype
}

// picture makes a field of images whose rows are pixels: [H, W], [H, W, C], or [C, H, W] with one
// or three channels.
func (f *field) picture(out *driver.Field) error {
	isMask := f.kind == driver.KindMask
	if f.dtype != dtype.U8 && (!isMask || f.dtype != dtype.U16) {
		return fmt.Errorf("pixels are uint8, of masks also uint16")
	}
	channels := func(n int) bool { return n == 1 || n == 3 && !isMask }
	s := f.shape
	h, w, c := 0, 0, 1
	switch {
	case len(s) == 2:
		h, w = s[0], s[1]
	case len(s) == 3 && channels(s[2]):
		h, w, c = s[0], s[1], s[2]
	case len(s) == 3 && channels(s[0]):
		c, h, w = s[0], s[1], s[2]
		f.planes = c > 1
	default:
		return errors.New("pixels have the shape [H, W], [H, W, C] or [C, H, W] with one or three channels")
	}
	if h > 1<<16 || w > 1<<16 {
		return fmt.Errorf("%d x %d pixels", w, h)
	}
	out.Width, out.Height, out.Channels = int32(w), int32(h), int32(c)
	out.MaxWidth, out.MaxHeight = out.Width, out.Height
	if isMask {
		out.DType, out.Channels = f.typ.DType, 1
	}
	return nil
}

// value makes the value of field i of record k from raw. raw is the bytes of the row, or the value
// that the row refers to. fresh is set if raw is memory of the group, which may be changed.
func (s *Source) value(g *driver.Group, k, i int, raw []byte, fresh bool) error {
	f, v := s.fields[i], &g.Records[k].Values[i]
	t := &f.typ
	if (t.Rows || !t.ends() && int64(len(raw)) != f.out) && f.elem != t.Size {
		// The value is only a part of each element.
		count := f.count
		if t.Rows {
			count = int64(len(raw)) / f.elem
		}
		b, err := s.take(g, k, i, count*t.Size, f.plain())
		if err != nil {
			return err
		}
		for n := range count {
			copy(b[n*t.Size:(n+1)*t.Size], raw[n*f.elem+t.At:])
		}
		raw, fresh = b, true
	}
	if t.number() && t.Big && f.dtype.Size() > 1 {
		if !fresh {
			b, err := s.take(g, k, i, int64(len(raw)), f.plain())
			if err != nil {
				return err
			}
			copy(b, raw)
			raw = b
		}
		swap(raw, f.dtype.Size())
	}
	switch f.kind {
	case driver.KindInt, driver.KindLabel, driver.KindFloat:
		return column.Put(&s.info.Fields[i], v, f.dtype, raw)
	case driver.KindText, driver.KindJSON:
		if t.Class == UCS4 {
			b, err := s.take(g, k, i, int64(len(raw)), false)
			if err != nil {
				return err
			}
			if raw, err = utf8Of(b, raw, t.Big); err != nil {
				return err
			}
		} else {
			raw = t.trim(raw)
		}
		if f.kind == driver.KindJSON && !json.Valid(raw) {
			return fmt.Errorf("%.40q is not JSON", raw)
		}
		v.Bytes = raw
		return nil
	case driver.KindBytes, driver.KindAudio:
		if t.Class == Text || t.Class == VarText {
			raw = t.trim(raw)
		}
		v.Bytes = raw
		if len(raw) == 0 && f.kind == driver.KindAudio {
			return errors.New("it has no bytes")
		}
		return nil
	case driver.KindImage, driver.KindMask:
		return s.pixels(g, k, i, raw)
	case driver.KindMultiLabel, driver.KindTokens:
		return s.converted(g, k, i, raw)
	}
	v.Bytes = raw
	return nil
}

// plain reports whether bytes taken from a row are the final value. Such values can go directly
// into the batch.
func (f *field) plain() bool {
	switch f.kind {
	case driver.KindArray, driver.KindRagged:
		return true
	case driver.KindBytes:
		return f.typ.Class == Opaque || f.typ.Class == VarBytes
	case driver.KindTokens, driver.KindMultiLabel:
		return f.made() == f.dtype
	}
	return false
}

// take allocates n bytes. If place is set, they are the place of the value in the batch.
func (s *Source) take(g *driver.Group, k, i int, n int64, place bool) ([]byte, error) {
	var b []byte
	var err error
	if place {
		b, err = g.Take(k, i, n)
	} else {
		b, err = g.Alloc(int(n))
	}
	if err != nil {
		return nil, &driver.MemoryError{Err: fmt.Errorf("no memory for the %d bytes of %q of %s: %w", n, s.fields[i].name, s.Name(g.IDs[k]), err)}
	}
	return b, nil
}

// trim removes the padding of text.
func (t *Type) trim(b []byte) []byte {
	if t.Class != Text {
		return b
	}
	if t.Zero {
		if n := bytes.IndexByte(b, 0); n >= 0 {
			b = b[:n]
		}
	}
	for len(b) > 0 && (b[len(b)-1] == 0 || t.Blanks && b[len(b)-1] == ' ') {
		b = b[:len(b)-1]
	}
	return b
}

// utf8Of writes characters of 4 bytes as UTF-8 to dst. UTF-8 is never longer.
func utf8Of(dst, src []byte, big bool) ([]byte, error) {
	dst = dst[:0]
	for end := len(src) / 4; end > 0; end-- {
		if binary.LittleEndian.Uint32(src[4*end-4:]) != 0 {
			src = src[:4*end]
			break
		}
		src = src[:4*end-4]
	}
	for ; len(src) >= 4; src = src[4:] {
		c := binary.LittleEndian.Uint32(src)
		if big {
			c = binary.BigEndian.Uint32(src)
		}
		if c > utf8.MaxRune {
			return nil, fmt.Errorf("character %#x is none of Unicode", c)
		}
		dst = utf8.AppendRune(dst, rune(c))
	}
	return dst, nil
}

// pixels makes an image or a mask from raw pixels or from the bytes of a file.
func (s *Source) pixels(g *driver.Group, k, i int, raw []byte) error {
	f, v, info := s.fields[i], &g.Records[k].Values[i], &s.info.Fields[i]
	if info.Width == 0 {
		if v.Bytes = raw; len(raw) == 0 {
			return errors.New("it has no bytes")
		}
		return nil
	}
	v.Codec, v.Width, v.Height, v.Channels = driver.CodecRaw, info.Width, info.Height, info.Channels
	if v.Bytes = raw; f.planes {
		b, err := s.take(g, k, i, int64(len(raw)), false)
		if err != nil {
			return err
		}
		n := len(raw) / 3
		for p := range n {
			b[3*p], b[3*p+1], b[3*p+2] = raw[p], raw[n+p], raw[2*n+p]
		}
		v.Bytes = b
	}
	return nil
}

// converted converts numbers to the type of the field's values.
func (s *Source) converted(g *driver.Group, k, i int, raw []byte) error {
	f, v := s.fields[i], &g.Records[k].Values[i]
	to := f.made()
	if to == f.dtype {
		v.Bytes = raw
		return nil
	}
	from := f.dtype.Size()
	n := len(raw) / from
	b, err := s.take(g, k, i, int64(n*to.Size()), true)
	if err != nil {
		return err
	}
	v.Bytes = b
	for j := range n {
		x := f.dtype.Int(raw[j*from:])
		switch to {
		case dtype.I64:
			binary.LittleEndian.PutUint64(b[8*j:], uint64(x))
		case dtype.U32:
			if x < 0 || x > math.MaxUint32 {
				return fmt.Errorf("element %d is %d, which is not a token", j, x)
			}
			binary.LittleEndian.PutUint32(b[4*j:], uint32(x))
		default:
			binary.LittleEndian.PutUint16(b[2*j:], uint16(x)) // from uint8
		}
	}
	return nil
}

// swap reverses the bytes of each element.
func swap(b []byte, size int) {
	switch size {
	case 2:
		for ; len(b) >= 2; b = b[2:] {
			b[0], b[1] = b[1], b[0]
		}
	case 4:
		for ; len(b) >= 4; b = b[4:] {
			binary.LittleEndian.PutUint32(b, binary.BigEndian.Uint32(b))
		}
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			binary.LittleEndian.PutUint64(b, binary.BigEndian.Uint64(b))
		}
	}
}
