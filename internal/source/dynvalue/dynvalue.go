// Package dynvalue is what sources share whose records are values with types of
// their own, which nobody describes as Stoker's fields: features of a tf.train.Example,
// columns of MDS, values of LMDB. Such a source gives each of its values as a Value.
// When it is opened a Column looks at them and says which field they make; later a
// Schema makes values of fields of them.
package dynvalue

import (
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// Form is what a Value is.
type Form uint8

// The forms.
const (
	// None is no value.
	None Form = iota
	// Bytes is a string of bytes, whose content says what it is.
	Bytes
	// Text is UTF-8, JSON is JSON.
	Text
	JSON
	// Texts are several strings of bytes: Value.Bytes is a list of them as JSON.
	Texts
	// Number is one number, an element in Value.Bytes.
	Number
	// List is a list of numbers, of which some sources cannot say that it is always
	// one number.
	List
	// Array is an array.
	Array
	// Pixels is an image without encoding.
	Pixels
	// Other is a value that no field can have; Value.Why says what it is.
	Other
)

// Value is a value as a source has it.
type Value struct {
	Form Form
	// Bytes are the bytes, the elements (little-endian, in C order) or the pixels.
	Bytes []byte
	// Size is the length of Bytes. While a source is opened Bytes may be only the
	// beginning of a string of bytes, HeadBytes or more, and nothing of elements
	// that are not looked at.
	Size int64
	// Temp says that Bytes is memory that is used again for the next value.
	Temp bool
	// DType is the type of the elements, Shape those of an Array or List.
	DType driver.DType
	Shape []int
	// Steps says that an Array with one number in each row has one axis.
	Steps bool
	// Min and Max are the smallest and the largest whole number of a List.
	Min, Max int64
	// Width, Height and Channels are those of Pixels.
	Width, Height, Channels int32
	// Why is what an Other is: "is a list of images".
	Why string
}

// HeadBytes of a string of bytes say what it is.
const HeadBytes = 4 << 10

// Strings is a Value of the form Bytes, Text or JSON.
func Strings(f Form, b []byte) Value { return Value{Form: f, Bytes: b, Size: int64(len(b))} }

// content is what a string of bytes looks like.
type content uint8

const (
	isEmpty content = iota
	isBinary
	isText
	isImage
	isSound
)

// look says what the bytes are that begin with head.
func look(head []byte, size int64) content {
	switch {
	case size == 0:
		return isEmpty
	case imagefile.IsPicture(head, len(head) < HeadBytes):
		return isImage
	case hasSound(head):
		return isSound
	case IsText(head, size):
		return isText
	}
	return isBinary
}

// hasSound says whether a file begins as WAV, FLAC, Ogg or MP3 with a tag.
func hasSound(b []byte) bool {
	has := func(at int, s string) bool { return len(b) >= at+len(s) && string(b[at:at+len(s)]) == s }
	return has(0, "RIFF") && has(8, "WAVE") || has(0, "fLaC") || has(0, "OggS\x00") || has(0, "ID3\x03") || has(0, "ID3\x04")
}

// IsText says whether size bytes that begin with b are UTF-8 without what only other
// data has.
func IsText(b []byte, size int64) bool {
	if int64(len(b)) < size { // it may end within a rune
		for n := 0; n < utf8.UTFMax && len(b) > 0; n++ {
			if r, _ := utf8.DecodeLastRune(b); r != utf8.RuneError {
				break
			}
			b = b[:len(b)-1]
		}
	}
	if !utf8.Valid(b) {
		return false
	}
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' && c != '\f' && c != 0x1B {
			return false
		}
	}
	return true
}

// rows is the length of the first axis, -1 without one.
func (v *Value) rows() int {
	if len(v.Shape) == 0 {
		return -1
	}
	return v.Shape[0]
}

// whole says whether elements are whole numbers.
func whole(t driver.DType) bool { return t != "" && t != driver.Bool && !t.Type().Floating() }

// number is the element at the beginning of b.
func number(t driver.DType, b []byte) (int64, float64) {
	d := t.Type()
	if t == driver.Bool {
		d = dtype.U8
	}
	if d.Floating() {
		return 0, d.Float(b)
	}
	n := d.Int(b)
	return n, float64(n)
}
