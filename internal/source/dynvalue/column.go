package dynvalue

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
)

// Column is what was seen of the values of one name. Those of several goroutines
// are put together.
type Column struct {
	Name string
	// Want is the kind that somebody asked for, "" to find out.
	Want driver.Kind

	forms    [Other + 1]int64
	contents [isSound + 1]int64
	sizes    Sizes
	json     Sizes // of Texts, and of Bytes as a list of one text

	dtype      driver.DType
	types      bool // they differ
	rest       []int
	seen       bool // rest is known
	uneven     bool // they differ
	least      int  // rows
	most       int
	min, max   int64
	sides      [2][3]int32 // least and most of Pixels
	wide       bool        // masks of more than 8 bits
	classes    map[string]struct{}
	classBytes int
	why        string
}

// Limits of classes.
const (
	maxClasses    = 64 << 10
	maxClassBytes = 16 << 20
)

// isMask says whether a name is that of masks.
func isMask(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "mask") || strings.Contains(name, "segm")
}

// isLabel says whether a name is that of class numbers: label, image/class/label.
func isLabel(name string) bool {
	return strings.ToLower(path.Base(strings.ReplaceAll(name, ".", "/"))) == "label"
}

// Add looks at a value.
func (c *Column) Add(v *Value) {
	if c.forms[v.Form]++; v.Form == None {
		return
	}
	switch v.Form {
	case Bytes:
		k := look(v.Bytes, v.Size)
		c.contents[k]++
		c.sizes.Add(v.Size)
		if k == isText || k == isEmpty {
			c.json.Add(textsSize(v.Bytes) + max(v.Size-int64(len(v.Bytes)), 0)*6)
		}
		if c.Want == driver.KindLabel {
			c.class(v.Bytes)
		}
		if k == isImage && (c.Want == driver.KindMask || c.Want == "" && isMask(c.Name)) {
			if info, err := imagefile.Probe(v.Bytes); err == nil && info.Precision > 8 {
				c.wide = true
			}
		}
	case Texts:
		c.json.Add(v.Size)
	case Text, JSON:
		c.sizes.Add(v.Size)
		if v.Form == Text && c.Want == driver.KindLabel {
			c.class(v.Bytes)
		}
	case Number:
		c.element(v)
		n, _ := number(v.DType, v.Bytes)
		c.bounds(n, n)
	case List, Array:
		c.element(v)
		c.sizes.Add(v.Size)
		if v.Form == List {
			c.bounds(v.Min, v.Max)
		} else if c.Want == driver.KindTokens && whole(v.DType) {
			for b := v.Bytes; len(b) >= v.DType.Size(); b = b[v.DType.Size():] {
				n, _ := number(v.DType, b)
				c.bounds(n, n)
			}
		}
		c.shape(v)
	case Pixels:
		sides := [3]int32{v.Width, v.Height, v.Channels}
		for i, n := range sides {
			if c.forms[Pixels] == 1 || n < c.sides[0][i] {
				c.sides[0][i] = n
			}
			c.sides[1][i] = max(c.sides[1][i], n)
		}
		c.sizes.Add(v.Size)
	case Other:
		c.why = v.Why
	}
}

func (c *Column) element(v *Value) {
	if c.dtype == "" {
		c.dtype = v.DType
	}
	c.types = c.types || c.dtype != v.DType
}

// bounds notes the smallest and the largest of some whole numbers.
func (c *Column) bounds(lo, hi int64) {
	c.min, c.max = min(c.min, lo), max(c.max, hi)
}

// shape compares the shape of a value with that of the others.
func (c *Column) shape(v *Value) {
	rows := v.rows()
	if c.forms[List]+c.forms[Array] == 1 {
		c.least, c.most = rows, rows
	}
	c.least, c.most = min(c.least, rows), max(c.most, rows)
	if len(v.Shape) == 0 || rows == 0 && v.Steps {
		return // its elements could have any shape
	}
	rest := v.Shape[1:]
	if v.Steps && len(rest) == 1 && rest[0] == 1 {
		rest = nil
	}
	if !c.seen {
		c.rest, c.seen = slices.Clone(rest), true
	}
	c.uneven = c.uneven || !slices.Equal(c.rest, rest)
}

// class notes a class.
func (c *Column) class(b []byte) {
	if _, ok := c.classes[string(b)]; ok || len(c.classes) > maxClasses || c.classBytes > maxClassBytes {
		return
	}
	if c.classes == nil {
		c.classes = map[string]struct{}{}
	}
	c.classes[string(b)] = struct{}{}
	c.classBytes += len(b)
}

// Merge adds what another goroutine has seen.
func (c *Column) Merge(o *Column) {
	if o.forms[Pixels] > 0 {
		for i := range c.sides[0] {
			if c.forms[Pixels] == 0 || o.sides[0][i] < c.sides[0][i] {
				c.sides[0][i] = o.sides[0][i]
			}
			c.sides[1][i] = max(c.sides[1][i], o.sides[1][i])
		}
	}
	if o.forms[List]+o.forms[Array] > 0 {
		if c.forms[List]+c.forms[Array] == 0 {
			c.least, c.most = o.least, o.most
		}
		c.least, c.most = min(c.least, o.least), max(c.most, o.most)
		if !c.seen {
			c.rest, c.seen = o.rest, o.seen
		}
		c.uneven = c.uneven || o.uneven || o.seen && !slices.Equal(c.rest, o.rest)
	}
	for i, n := range o.forms {
		c.forms[i] += n
	}
	for i, n := range o.contents {
		c.contents[i] += n
	}
	c.sizes.Merge(&o.sizes)
	c.json.Merge(&o.json)
	if c.dtype == "" {
		c.dtype = o.dtype
	}
	c.types = c.types || o.types || o.dtype != "" && o.dtype != c.dtype
	c.bounds(o.min, o.max)
	c.wide = c.wide || o.wide
	for name := range o.classes {
		c.class([]byte(name))
	}
	if c.why == "" {
		c.why = o.why
	}
}

// strings, arrays and lists are how many values can be taken for one.
func (c *Column) strings() int64 {
	return c.forms[Bytes] + c.forms[Text] + c.forms[JSON] + c.forms[Texts]
}

func (c *Column) numbers() int64 { return c.forms[Number] + c.forms[List] + c.forms[Array] }

// single says whether all lists have one number, or none.
func (c *Column) single() bool {
	return c.forms[Array] == 0 && (c.forms[List] == 0 || c.most == 1 && len(c.rest) == 0)
}

// fixed says whether all of the records have an array of one shape.
func (c *Column) fixed(records int64) bool {
	return !c.uneven && c.forms[List]+c.forms[Array] == records && c.least == c.most && c.most != 0
}

// Unread says why a column cannot be a field, "" when it can.
func (c *Column) Unread() string {
	n, s, p := c.numbers(), c.strings(), c.forms[Pixels]
	switch {
	case c.forms[Other] > 0:
		return c.why
	case n > 0 && s+p > 0 || s > 0 && p > 0:
		return "has numbers in some records and bytes in others"
	case c.types:
		return "has elements of different types"
	case c.forms[Number] > 0 && c.forms[List]+c.forms[Array] > 0:
		return "has a number in some records and arrays in others"
	case c.uneven:
		return "has arrays that differ in more than the length of their first axis"
	case c.forms[Array] > 0 && c.least < 0 && c.most >= 0:
		return "has arrays of different numbers of axes"
	case c.forms[Texts] > 0 && c.contents[isText]+c.contents[isEmpty]+c.forms[Text] < c.forms[Bytes]+c.forms[Text]:
		return "has several strings of bytes in a record"
	}
	return ""
}

// inferred is the kind of a column when nobody says it, and the type of a field of
// this many records.
func (c *Column) inferred(records int64) driver.Kind {
	lacking := c.numbers() < records || c.forms[List] > 0 && c.least == 0
	all := func(n int64) bool { return n > 0 && n == c.forms[Bytes] }
	switch {
	case c.forms[Pixels] > 0, all(c.contents[isImage]) && !isMask(c.Name):
		return driver.KindImage
	case all(c.contents[isImage]):
		return driver.KindMask
	case all(c.contents[isSound]):
		return driver.KindAudio
	case c.forms[Texts] > 0, c.forms[JSON] > 0 && c.forms[JSON] == c.strings():
		return driver.KindJSON
	case c.forms[Text] > 0, all(c.contents[isText]+c.contents[isEmpty]) && c.contents[isText] > 0:
		return driver.KindText
	case c.strings() > 0 || c.numbers() == 0:
		return driver.KindBytes
	case c.single() && (!whole(c.dtype) && c.dtype != driver.Bool || lacking && c.max <= exact && c.min >= -exact):
		return driver.KindFloat
	case c.single() && c.dtype == driver.Bool:
		return driver.KindArray
	case c.single() && c.min >= 0 && isLabel(c.Name):
		return driver.KindLabel
	case c.single():
		return driver.KindInt
	case c.fixed(records):
		return driver.KindArray
	}
	return driver.KindRagged
}

// exact is up to where a float64 has all whole numbers.
const exact = 1 << 53

// Field makes the field of a column: of the kind that is wanted, or that its values
// say.
func (c *Column) Field(want column.Want, records int64) (driver.Field, error) {
	f := driver.Field{Name: want.Name, Kind: want.Kind}
	if why := c.Unread(); why != "" {
		return f, fmt.Errorf("%q %s, which is not read", c.Name, why)
	}
	guess := c.inferred(records)
	if f.Kind == "" {
		f.Kind = guess
	}
	fail := func(what string) (driver.Field, error) {
		return f, fmt.Errorf("%q cannot be %s: %s; it is read as %s", c.Name, f.Kind, what, guess)
	}
	switch f.Kind {
	case driver.KindImage, driver.KindMask, driver.KindAudio, driver.KindBytes, driver.KindText, driver.KindJSON:
		if c.numbers() > 0 {
			return fail("it has numbers")
		}
		if c.forms[Pixels] > 0 && f.Kind != driver.KindImage {
			return fail("it has pixels")
		}
		if c.forms[Texts] > 0 && f.Kind != driver.KindJSON {
			return fail("it has several strings in a record")
		}
		if f.Kind == driver.KindMask {
			if f.DType = driver.Uint8; c.wide {
				f.DType = driver.Uint16
			}
		}
		if f.Kind == driver.KindImage && c.forms[Pixels] > 0 {
			f.MaxWidth, f.MaxHeight = c.sides[1][0], c.sides[1][1]
			if c.sides[0] == c.sides[1] {
				f.Width, f.Height, f.Channels = c.sides[0][0], c.sides[0][1], c.sides[0][2]
			}
		}
		sizes := &c.sizes
		if c.forms[Texts] > 0 {
			sizes = &c.json
		}
		f.Stats = sizes.Stats(records)
		if f.MaxBytes = f.Stats.MaxBytes; f.Kind == driver.KindJSON {
			f.MaxBytes = max(f.MaxBytes, int64(len(wordNull)))
			f.Stats.MaxBytes = f.MaxBytes
		}
		if f.Kind == driver.KindImage || f.Kind == driver.KindMask {
			f.Stats = nil
		}
		return f, nil
	case driver.KindLabel:
		if c.strings() > 0 {
			return c.named(f, fail)
		}
		fallthrough
	case driver.KindInt, driver.KindFloat:
		switch {
		case c.strings()+c.forms[Pixels] > 0 || !c.single():
			return fail("it has no single numbers")
		case f.Kind != driver.KindFloat && !whole(c.dtype) && c.dtype != "":
			return fail("its numbers have fractions")
		}
		return f, nil
	case driver.KindArray, driver.KindRagged:
		if c.strings()+c.forms[Pixels] > 0 {
			return fail("it has no numbers")
		}
		f.DType = c.dtype
		if f.DType == "" {
			f.DType = driver.Float32 // there are none
		}
		f.Shape = slices.Clone(c.rest)
		if f.Kind == driver.KindArray {
			switch {
			case c.forms[Number] == records:
				f.Shape = nil
			case c.fixed(records) && c.most > 0:
				f.Shape = append([]int{c.most}, c.rest...)
			case c.fixed(records):
			default:
				return fail("its values have different lengths, or there is none in some records")
			}
		} else if c.forms[Number] > 0 || c.least < 0 {
			return fail("it has no lists")
		}
		if _, err := driver.ArrayBytes(f.DType, f.Shape); err != nil {
			return f, fmt.Errorf("%q: %w", c.Name, err)
		}
		if f.Kind == driver.KindArray {
			return f, nil
		}
	case driver.KindTokens, driver.KindMultiLabel:
		if c.strings()+c.forms[Pixels]+c.forms[Number] > 0 || c.least < 0 || len(c.rest) > 0 || !whole(c.dtype) && c.dtype != "" {
			return fail("it has no lists of whole numbers")
		}
		if f.Kind == driver.KindTokens {
			if c.min < 0 || c.max > 1<<32-1 {
				return fail("it has numbers that are no tokens")
			}
			if f.DType = driver.Uint16; c.max > 1<<16-1 {
				f.DType = driver.Uint32
			}
		}
	}
	return f, c.ragged(&f, records)
}

// ragged says how large the lists of a field are.
func (c *Column) ragged(f *driver.Field, records int64) error {
	f.Stats = c.sizes.Stats(records)
	f.MaxBytes = f.Stats.MaxBytes
	size := int64(8)
	switch f.Kind {
	case driver.KindTokens:
		size = int64(f.DType.Size())
	case driver.KindRagged:
		size = int64(c.dtype.Size())
	}
	if have := int64(max(c.dtype.Size(), 1)); have != size && size > 0 {
		f.MaxBytes, f.Stats = f.MaxBytes/have*size, nil
	}
	if f.Stats == nil {
		f.MaxBytes = max(f.MaxBytes, size) // room is never nothing
	}
	return nil
}

// named makes a field of class numbers from the names of classes.
func (c *Column) named(f driver.Field, fail func(string) (driver.Field, error)) (driver.Field, error) {
	switch {
	case c.forms[Bytes]+c.forms[Text] == 0 || c.forms[Texts]+c.forms[JSON] > 0 || c.contents[isImage]+c.contents[isBinary]+c.contents[isSound] > 0:
		return fail("it has neither class numbers nor names")
	case len(c.classes) > maxClasses || c.classBytes > maxClassBytes:
		return fail(fmt.Sprintf("it has more than %d different values, which are no classes", maxClasses))
	}
	for name := range c.classes {
		f.Classes = append(f.Classes, strings.Clone(name))
	}
	slices.Sort(f.Classes)
	return f, nil
}

// wordNull is missing JSON.
var wordNull = []byte("null")
