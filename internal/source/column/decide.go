package column

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stokerdata/stoker/source/driver"
)

// exact is the largest number up to which a float64 has all whole numbers.
const exact = 1 << 53

// form returns the form of all values that are not missing. why is the reason for which
// the column cannot be a field.
func (s *Seen) form() (f Form, why string) {
	if s.Form != Missing {
		return s.Form, ""
	}
	all, strs, lists := s.values(), s.strings(), s.lists()
	switch {
	case s.Count[Other] > 0:
		return Other, s.Why
	case all == 0 && s.Written == driver.KindJSON:
		return JSON, ""
	case all == 0:
		return Text, ""
	case s.Written == driver.KindText && s.Count[Text] > 0:
		return Text, ""
	case s.Written != "" && lists+s.Count[JSON] == all && (s.Count[JSON] > 0 || s.Uneven):
		return JSON, ""
	case s.Count[Number] == all && !s.Mixed:
		return Number, ""
	case s.Written != "" && s.Count[Text] < all && (lists < all || s.Mixed || s.Uneven):
		if s.Written == driver.KindText {
			return Text, ""
		}
		return JSON, ""
	case s.Count[Pixels] == all:
		return Pixels, ""
	case strs < all && strs+s.Count[Pixels] > 0:
		return Other, "has numbers in some records and bytes in others"
	case strs < all && s.Mixed:
		return Other, "has elements of different types"
	case s.Count[Number] > 0:
		return Other, "has a number in some records and arrays in others"
	case s.Uneven:
		return Other, "has arrays that differ in more than the length of their first axis"
	case s.Count[List] > 0:
		return List, ""
	case lists > 0 && s.Most == 1 && len(s.Inner) == 0:
		return Number, ""
	case lists > 0:
		return Flat, ""
	case s.Count[Texts] > 0 && s.Contents[isText]+s.Contents[isEmpty] < s.Count[Bytes]:
		return Other, "has several strings of bytes in a record"
	case s.Count[Texts] > 0:
		return Texts, ""
	case s.Count[JSON] == all:
		return JSON, ""
	case s.Count[Text] > 0:
		return Text, ""
	}
	return Bytes, ""
}

// Decide returns the kind of a field of this name and this many records if the user states
// none. See "Which kind a column gets" in docs/reference/concepts.md.
func (s *Seen) Decide(name string, records int64) driver.Kind {
	form, _ := s.form()
	missing := s.missing(records) > 0 || s.Count[Flat] > 0 && s.Least == 0
	switch form {
	case Number:
		switch {
		case s.DType == driver.Bool || !Whole(s.DType):
			return Scalar(s.DType)
		case s.Class && s.Low >= 0:
			return driver.KindLabel
		case missing && s.High <= exact && s.Low >= -exact:
			return driver.KindFloat
		}
		return driver.KindInt
	case Flat, List:
		switch {
		case s.Class && len(s.Inner) == 0 && len(s.Classes) > 0:
			return driver.KindMultiLabel
		case s.fixed(records) && s.Most > 0:
			return driver.KindArray
		}
		return driver.KindRagged
	case Pixels:
		return driver.KindImage
	case Text:
		return driver.KindText
	case JSON, Texts:
		return driver.KindJSON
	}
	c := &s.Contents
	most := func(n int64) bool { return 2*n > c[isBinary]+c[isText]+c[isImage]+c[isSound] }
	switch {
	case most(c[isImage]) && isMask(name):
		return driver.KindMask
	case most(c[isImage]):
		return driver.KindImage
	case most(c[isSound]):
		return driver.KindAudio
	case s.Untyped && c[isText] > 0 && c[isBinary]+c[isImage]+c[isSound] == 0:
		return driver.KindText
	case s.Files != "":
		return s.Files
	}
	return driver.KindBytes
}

// Scalar returns the kind of one number of a type that no container calls a class.
func Scalar(t driver.DType) driver.Kind {
	switch {
	case t == driver.Bool:
		return driver.KindArray
	case Whole(t):
		return driver.KindInt
	}
	return driver.KindFloat
}

// fixed reports whether all records have a list of the same length.
func (s *Seen) fixed(records int64) bool {
	return s.Fixed || s.missing(records) == 0 && s.Least == s.Most
}

// Field makes a field of the column: of the kind that the user states, or of the kind that
// Decide returns. If text becomes a label and Names is not set, the field is text: package
// source then finds the classes.
func (s *Seen) Field(want Want, records int64) (driver.Field, error) {
	f := driver.Field{Name: want.Name, Kind: want.Kind}
	form, why := s.form()
	if form == Other {
		return f, fmt.Errorf("column %q %s, which is not read", s.Name, why)
	}
	if f.Kind == "" {
		f.Kind = s.Decide(want.Name, records)
	}
	switch f.Kind {
	case driver.KindInt, driver.KindFloat, driver.KindLabel:
		why = s.number(&f, form, records)
	case driver.KindArray, driver.KindRagged:
		why = s.array(&f, form, records)
	case driver.KindTokens, driver.KindMultiLabel:
		why = s.list(&f, form, records)
	default:
		why = s.string(&f, form, records)
	}
	if why == "" {
		return f, nil
	}
	if want.Kind == "" {
		return f, fmt.Errorf("column %q: %s", s.Name, why)
	}
	return f, s.Refuse(want, why, records)
}

// Refuse returns the error for a kind that the column cannot have.
func (s *Seen) Refuse(want Want, why string, records int64) error {
	is := ""
	if s.Type != "" {
		is = " (" + s.Type + ")"
	}
	return fmt.Errorf("column %q%s cannot be %s: %s; without :%s it is read as %s", s.Name, is, want.Kind, why, want.Kind, s.Decide(want.Name, records))
}

// Reasons of refusals.
const (
	hasNumbers = "it has numbers"
	hasPixels  = "it has pixels"
	noNumbers  = "it has no numbers"
	noNumber   = "it has no single numbers"
	fractions  = "its numbers have fractions"
	noLists    = "it has no lists"
	noWholes   = "it has no lists of whole numbers"
)

// none reports whether no record has a value, so that nothing speaks against a kind.
func (s *Seen) none() bool { return s.Form == Missing && s.values() == 0 }

// number makes a field of single numbers.
func (s *Seen) number(f *driver.Field, form Form, records int64) (why string) {
	label := f.Kind == driver.KindLabel
	switch {
	case s.none():
	case label && (form == Text || form == Bytes || s.Count[Text] > 0):
		return s.named(f, records)
	case s.Written != "" && (s.Wholes > 0 || s.Count[Number] > 0 && f.Kind == driver.KindFloat): // a text that is not a number is an error of its record
	case form != Number && !(form == List && s.Least == 1 && s.Most == 1 && !slices.ContainsFunc(s.Inner, func(n int) bool { return n > 1 })):
		return noNumber
	case f.Kind != driver.KindFloat && s.DType.Type().Floating():
		return fractions
	}
	if label && s.Classes != nil {
		f.Classes = s.Classes
	} else if label && s.DType == driver.Bool {
		f.Classes = Truths
	}
	return ""
}

// named makes a field of the names of classes.
func (s *Seen) named(f *driver.Field, records int64) (why string) {
	switch {
	case s.Contents[isImage]+s.Contents[isBinary]+s.Contents[isSound] > 0:
		return "it has neither class numbers nor names"
	case !s.Names:
		f.Kind = driver.KindText
		return s.string(f, Text, records)
	case s.manyNames():
		return fmt.Sprintf("classes can have at most %d different values, and it has more", maxClasses)
	case len(s.Values) == 0:
		return "it has no classes"
	}
	for _, name := range slices.Sorted(maps.Keys(s.Values)) {
		if !utf8.ValidString(name) {
			return fmt.Sprintf("its value %q is not UTF-8: write the data as UTF-8, for example with iconv", name)
		}
		f.Classes = append(f.Classes, strings.Clone(name))
	}
	return ""
}

// array makes a field of arrays, whose lengths differ if it is ragged.
func (s *Seen) array(f *driver.Field, form Form, records int64) (why string) {
	f.DType = s.DType
	if s.none() {
		f.DType = driver.Float32
	}
	for _, n := range s.Inner {
		f.Shape = append(f.Shape, max(n, 1))
	}
	lists := form == List || s.lists() > 0
	ragged := f.Kind == driver.KindRagged
	switch {
	case s.none() && ragged:
	case !lists && form != Number:
		return noNumbers
	case !lists && ragged:
		return noLists
	case s.Uneven:
		return "its lists differ in shape"
	case !lists:
		f.Shape = nil
	case ragged:
	case s.Least != s.Most && !s.Fixed:
		return fmt.Sprintf("its lists have %d to %d elements", s.Least, s.Most)
	case s.Most == 0:
		return "its lists are empty"
	default:
		f.Shape = append([]int{int(s.Most)}, f.Shape...)
	}
	if _, err := driver.ArrayBytes(f.DType, f.Shape); err != nil {
		return err.Error()
	}
	if ragged {
		s.elements(f, records)
	}
	return ""
}

// list makes a field of lists of tokens or class numbers.
func (s *Seen) list(f *driver.Field, form Form, records int64) (why string) {
	multi := f.Kind == driver.KindMultiLabel
	switch {
	case s.none():
	case multi && s.Numbered.Count > 0 && s.Written != "" && s.Count[JSON] > 0:
		if why = s.named(f, records); why == "" {
			f.Stats = s.Numbered.Stats(records)
			f.MaxBytes = f.Stats.MaxBytes
		}
		return why
	case s.lists() == 0 && form != List || len(s.Inner) > 0 || s.Uneven || !Whole(s.DType):
		return noWholes
	case !multi && (s.Low < 0 || s.High > 1<<32-1):
		return "it has numbers that are not tokens: tokens are from 0 to 4294967295"
	case multi:
		f.Classes = s.Classes
	}
	if !multi {
		if f.DType = driver.Uint32; s.DType == driver.Uint8 || s.DType == driver.Uint16 || s.Tokens && s.High < 1<<16 {
			f.DType = driver.Uint16
		}
	}
	s.elements(f, records)
	return ""
}

// elements sets the sizes of the values of a field of lists.
func (s *Seen) elements(f *driver.Field, records int64) {
	if s.Fixed && s.Elements.Count == 0 {
		size, _ := driver.ArrayBytes(s.DType, append([]int{int(s.Most)}, s.Inner...))
		s.Elements.AddN(size, records)
	}
	f.Stats = s.Elements.Stats(records)
	f.MaxBytes = f.Stats.MaxBytes
	have, size := int64(max(s.DType.Size(), 1)), int64(max(f.DType.Size(), 1))
	if f.Kind == driver.KindMultiLabel {
		size = 8
	}
	if have != size {
		f.MaxBytes, f.Stats = f.MaxBytes/have*size, nil
	}
	f.MaxBytes = max(f.MaxBytes, size) // a batch always has memory for a value
}

// string makes a field of text, of bytes, or of what a decoder reads.
func (s *Seen) string(f *driver.Field, form Form, records int64) (why string) {
	numbers := form == Number || form == List || form == Flat
	switch {
	case numbers && (s.Written == "" || IsFile(f.Kind)):
		return hasNumbers
	case form == Pixels && f.Kind != driver.KindImage:
		return hasPixels
	case form == Texts && f.Kind != driver.KindJSON:
		return "it has several strings in a record"
	case form == Pixels:
		f.MaxWidth, f.MaxHeight = s.Sides[1][0], s.Sides[1][1]
		if s.Sides[0] == s.Sides[1] {
			f.Width, f.Height, f.Channels = s.Sides[0][0], s.Sides[0][1], s.Sides[0][2]
		}
	}
	sizes := &s.Size
	if f.Kind == driver.KindJSON {
		if s.Written != "" || form == Texts {
			sizes = &s.AsJSON
		}
		sizes.AddN(int64(len(Null)), records-sizes.Count)
	}
	f.Stats = sizes.Stats(max(records, sizes.Count))
	f.MaxBytes = f.Stats.MaxBytes
	switch f.Kind {
	case driver.KindMask:
		if f.DType = driver.Uint8; s.Wide {
			f.DType = driver.Uint16
		}
		f.Stats = nil
	case driver.KindImage:
		f.Stats = nil
	}
	return ""
}

// Null is the value of a missing JSON.
var Null = []byte("null")

// Truths are the classes of truth values.
var Truths = []string{"false", "true"}
