package column

import (
	"slices"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// Form is the form of a value.
type Form uint8

// The forms.
const (
	// Missing is the form of a missing value.
	Missing Form = iota
	// Bytes is a string of bytes.
	Bytes
	// Text is UTF-8.
	Text
	// JSON is a JSON object, or a JSON list of something other than numbers.
	JSON
	// Texts are several strings of bytes, as a JSON list.
	Texts
	// Number is one number.
	Number
	// Flat is a list of numbers from a container that also writes a single number as a list.
	Flat
	// List are numbers with one axis or more.
	List
	// Pixels is an image without encoding.
	Pixels
	// Other is a value that no field can have.
	Other
	forms
)

// Seen describes the observed values of a column. Goroutines and files have their own Seen, and
// Merge combines them. The fields are exported for package indexcache.
type Seen struct {
	// Name is the name of the column. Type is its type as the container writes it, ""
	// if only the values have types.
	Name, Type string

	// Declared by the container:

	// Form is the form of all values, Missing if it can differ per value.
	Form Form
	// Fixed is set if all values have Most rows, even if some are missing.
	Fixed bool
	// Class is set if whole numbers are class numbers. Classes are their names.
	Class   bool
	Classes []string
	// Files is the kind of Bytes whose content is not recognised, such as KindImage.
	Files driver.Kind
	// Untyped is set if the container does not distinguish text from bytes.
	Untyped bool
	// Written is set if values are written as text: it is the kind of a column whose
	// values have nothing else in common, KindText or KindJSON.
	Written driver.Kind

	// Information that the wanted fields need: class names, the bit depth of masks, the bounds of
	// tokens.
	Names, Masks, Tokens bool

	Count    [forms]int64
	Contents [contents]int64 // of Bytes
	Wholes   int64           // of Number, those without a fraction
	// DType is the type of numbers and elements. Mixed is set if they have several types.
	DType driver.DType
	Mixed bool
	// Lists have from Least to Most rows of the shape Inner. An unknown side of Inner is -1. Shaped
	// is set if Inner is known. Uneven is set if the shapes differ in Inner.
	Least, Most    int64
	Inner          []int
	Shaped, Uneven bool
	// Low and High are the smallest and the largest whole number; 0 is between them.
	Low, High int64
	// Sides are the smallest and the largest width, height and channels of Pixels.
	Sides [2][3]int32
	Wide  bool // masks with more than 8 bits
	// Size counts the bytes of strings and pixels, and Elements the bytes of lists. AsJSON counts
	// values as JSON. Numbered counts lists of names as class numbers.
	Size, Elements, AsJSON, Numbered Sizes
	// Values are the different texts, if Names is set.
	Values     map[string]bool
	ValueBytes int
	Why        string // of Other
}

// Limits of class names.
const (
	maxClasses    = 64 << 10
	maxClassBytes = 16 << 20
)

// New returns an empty Seen for a column from which wants are made.
func New(name string, wants []Want) *Seen {
	s := &Seen{Name: name}
	some := false
	for _, w := range wants {
		if w.From == name && w.Name != Rest {
			s.Want(w)
			some = true
		}
	}
	if !some {
		s.Want(Want{Name: name, From: name})
	}
	return s
}

// Want adds a field that is made from the column.
func (s *Seen) Want(w Want) {
	s.Names = s.Names || w.Kind == driver.KindLabel || w.Kind == driver.KindMultiLabel
	s.Masks = s.Masks || w.Kind == driver.KindMask || isMask(w.Name)
	s.Tokens = s.Tokens || w.Kind == driver.KindTokens
}

// Number adds a number, of which n is the value if it is whole.
func (s *Seen) Number(t driver.DType, n int64) {
	s.Count[Number]++
	s.element(t)
	if Whole(t) {
		s.Wholes++
		s.Bounds(n, n)
	}
}

// element adds a type of elements. Text has one type for all numbers.
func (s *Seen) element(t driver.DType) {
	switch {
	case s.DType == t || t == "":
	case s.DType == "":
		s.DType = t
	case s.Written != "" && t != driver.Bool && s.DType != driver.Bool:
		s.DType = driver.Float64
	default:
		s.Mixed = true
	}
}

// Bounds adds the smallest and the largest of some whole numbers.
func (s *Seen) Bounds(low, high int64) {
	s.Low, s.High = min(s.Low, low), max(s.High, high)
}

// List adds a list of the form Flat or List, with size bytes of elements. Its first axis has the
// length rows. Its other axes have the lengths shape, which is ignored if known is false.
func (s *Seen) List(f Form, t driver.DType, rows int, shape []int, known bool, size int64) {
	s.element(t)
	s.Rows(f, int64(rows), size)
	if known {
		s.shape(shape)
	}
}

// Rows adds a list whose inner shape is not known yet.
func (s *Seen) Rows(f Form, rows, size int64) {
	if s.lists() == 0 {
		s.Least, s.Most = rows, rows
	}
	s.Count[f]++
	s.Least, s.Most = min(s.Least, rows), max(s.Most, rows)
	s.Elements.Add(size)
}

func (s *Seen) shape(inner []int) {
	if !s.Shaped {
		s.Inner, s.Shaped = slices.Clone(inner), true
		return
	}
	if s.Uneven = s.Uneven || len(s.Inner) != len(inner); !s.Uneven {
		for i, n := range inner {
			s.Side(i, int64(n))
		}
	}
}

// Side adds the length n of lists on axis i of Inner. n is -1 if there are no such lists.
func (s *Seen) Side(i int, n int64) {
	switch {
	case n < 0:
	case s.Inner[i] < 0:
		s.Inner[i] = int(n)
	case s.Inner[i] != int(n):
		s.Uneven = true
	}
}

// String adds a string of size bytes of the form Bytes, Text or JSON. b is the string, or
// HeadBytes or more of its beginning. It reports whether a string of the form Bytes looks
// like text.
func (s *Seen) String(f Form, b []byte, size int64) (text bool) {
	s.Count[f]++
	s.Size.Add(size)
	if f == Bytes {
		text = s.Look(b, size)
	}
	if s.Names && f != JSON {
		s.ClassName(b)
	}
	return text
}

// Look adds the content of a value of size bytes that begins with head. It reports whether
// the value looks like text.
func (s *Seen) Look(head []byte, size int64) (text bool) {
	c := look(head, size)
	s.Contents[c]++
	if c == isImage && s.Masks && !s.Wide {
		info, err := imagefile.Probe(head)
		s.Wide = err == nil && info.Precision > 8
	}
	return c == isText || c == isEmpty
}

// Image adds an image without encoding of size bytes.
func (s *Seen) Image(width, height, channels int32, size int64) {
	for i, n := range [3]int32{width, height, channels} {
		if s.Count[Pixels] == 0 || n < s.Sides[0][i] {
			s.Sides[0][i] = n
		}
		s.Sides[1][i] = max(s.Sides[1][i], n)
	}
	s.Count[Pixels]++
	s.Size.Add(size)
}

// ClassName adds the name of a class.
func (s *Seen) ClassName(b []byte) {
	if len(b) == 0 || s.Values[string(b)] || s.manyNames() {
		return
	}
	if s.Values == nil {
		s.Values = map[string]bool{}
	}
	s.Values[string(b)] = true
	s.ValueBytes += len(b)
}

func (s *Seen) manyNames() bool { return len(s.Values) > maxClasses || s.ValueBytes > maxClassBytes }

// Merge adds what o has seen of the same column.
func (s *Seen) Merge(o *Seen) {
	if o.Count[Pixels] > 0 {
		for i := range s.Sides[0] {
			if s.Count[Pixels] == 0 || o.Sides[0][i] < s.Sides[0][i] {
				s.Sides[0][i] = o.Sides[0][i]
			}
			s.Sides[1][i] = max(s.Sides[1][i], o.Sides[1][i])
		}
	}
	if o.lists() > 0 {
		if s.lists() == 0 {
			s.Least, s.Most = o.Least, o.Most
		}
		s.Least, s.Most = min(s.Least, o.Least), max(s.Most, o.Most)
	}
	if o.Shaped {
		s.shape(o.Inner)
	}
	for i, n := range o.Count {
		s.Count[i] += n
	}
	for i, n := range o.Contents {
		s.Contents[i] += n
	}
	s.Class = s.Class || o.Class
	s.Wholes += o.Wholes
	s.element(o.DType)
	s.Mixed, s.Uneven, s.Wide = s.Mixed || o.Mixed, s.Uneven || o.Uneven, s.Wide || o.Wide
	s.Bounds(o.Low, o.High)
	s.Size.Merge(&o.Size)
	s.Elements.Merge(&o.Elements)
	s.AsJSON.Merge(&o.AsJSON)
	s.Numbered.Merge(&o.Numbered)
	for name := range o.Values {
		s.ClassName([]byte(name))
	}
	if s.Why == "" {
		s.Why = o.Why
	}
}

// lists, strings and values return the number of values.
func (s *Seen) lists() int64 { return s.Count[Flat] + s.Count[List] }

func (s *Seen) strings() int64 {
	return s.Count[Bytes] + s.Count[Text] + s.Count[JSON] + s.Count[Texts]
}

func (s *Seen) values() int64 {
	return s.strings() + s.Count[Number] + s.lists() + s.Count[Pixels] + s.Count[Other]
}

// missing returns the number of records without a value.
func (s *Seen) missing(records int64) int64 {
	if s.Form != Missing {
		return s.Count[Missing]
	}
	return records - s.values()
}

// Whole reports whether numbers of a type have no fractions.
func Whole(t driver.DType) bool {
	switch t {
	case "", driver.Bool, driver.Float16, driver.Float32, driver.Float64:
		return false
	}
	return true
}
