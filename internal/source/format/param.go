package format

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/units"
)

// Type is the type of a parameter's value.
type Type string

// The types of parameters.
const (
	// Int is a whole number from Param.Min to Param.Max.
	Int Type = "int"
	// Number is a positive number up to Param.Max.
	Number Type = "number"
	// Size is a size on three axes: 64x96x96, or 64 for all three.
	Size Type = "size"
	// Choice is one of Param.Choices.
	Choice Type = "choice"
	// Text is any text.
	Text Type = "text"
	// Columns are all parameters that have no Param of their own: column.Want.
	Columns Type = "columns"
	// Clips are columns with the paths of videos, which become clips of frames. It is
	// only for formats that also have Columns.
	Clips Type = "clips"
	// Files are all parameters that have no Param of their own, each a field and the
	// pattern of its files.
	Files Type = "files"
)

// Param is a parameter that a URL may have: train.npy?window=1024.
type Param struct {
	// Name is the name in the URL. For Columns, Clips and Files it only shows the syntax.
	Name string `json:"name"`
	Type Type   `json:"type"`
	// Choices are the values of a Choice.
	Choices []string `json:"choices,omitempty"`
	// Min and Max are the limits of a number. Max 0 means none.
	Min int64 `json:"min,omitempty"`
	Max int64 `json:"max,omitempty"`
	// Default is the value without the parameter, as help shows it.
	Default string `json:"default,omitempty"`
	// Help is one sentence.
	Help string `json:"help"`
}

// Parameters that several formats have.
var (
	SplitParam  = Param{Name: "split", Type: Text, Help: "The split to read, such as train."}
	ColumnParam = Param{Name: "NAME:KIND=COLUMN", Type: Columns, Help: "A field made of a column. You can give several; without any, all columns are fields."}
	ClipParam   = Param{Name: "NAME:frames=COLUMN", Type: Clips, Help: "A field of video clips, made of a column with the paths of videos."}
	FileParam   = Param{Name: "NAME:KIND=PATTERN", Type: Files, Help: "A field, and the files that it is made of: image=images/*.jpg."}
	WindowParam = Param{Name: "window", Type: Int, Min: 1, Help: "Cut the data into records of this many elements."}
	PatchParam  = Param{Name: "patch", Type: Size, Help: "Cut volumes into patches of this size (z, y, x), each a record."}
	StrideParam = Param{Name: "stride", Type: Size, Default: "the size of a patch", Help: "The distance between patches (z, y, x)."}
)

// Form returns the syntax of a parameter in a URL: window=N.
func (p *Param) Form() string {
	switch p.Type {
	case Int, Number:
		return p.Name + "=N"
	case Size:
		return p.Name + "=ZxYxX"
	case Choice:
		return p.Name + "=" + strings.Join(p.Choices, "|")
	case Text:
		return p.Name + "=" + strings.ToUpper(p.Name)
	}
	return p.Name
}

// parse reads a value.
func (p *Param) parse(text string) (any, error) {
	switch p.Type {
	case Int:
		n, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err == nil && n >= p.Min && (p.Max == 0 || n <= p.Max):
			return n, nil
		case p.Max > 0:
			return nil, fmt.Errorf("%s=%s: expected a whole number from %d to %d", p.Name, text, p.Min, p.Max)
		}
		return nil, fmt.Errorf("%s=%s: expected a whole number, %d or more", p.Name, text, p.Min)
	case Number:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v > 0 && v <= float64(p.Max)) {
			return nil, fmt.Errorf("%s=%s: expected a number above 0, at most %d", p.Name, text, p.Max)
		}
		return v, nil
	case Size:
		return p.size(text)
	case Choice:
		for _, c := range p.Choices {
			if c == text {
				return text, nil
			}
		}
		return nil, fmt.Errorf("%s=%s: expected %s", p.Name, text, units.List(p.Choices, "or"))
	}
	return text, nil
}

// maxSide is the largest size on an axis.
const maxSide = 1 << 15

func (p *Param) size(text string) (size [3]int, err error) {
	parts := strings.Split(text, "x")
	if len(parts) == 1 {
		parts = []string{text, text, text}
	}
	for i := 0; i < 3 && len(parts) == 3; i++ {
		if size[i], err = strconv.Atoi(parts[i]); err != nil || size[i] < 1 || size[i] > maxSide {
			parts = nil
		}
	}
	if len(parts) != 3 {
		return size, fmt.Errorf("%s=%s: expected a size in z, y and x, such as 64x96x96, or one number for all three", p.Name, text)
	}
	return size, nil
}

// Values are the parameters of a URL.
type Values struct {
	// Columns are the values of Columns and Clips.
	Columns []column.Want
	// Files are the values of Files: NAME:KIND=PATTERN.
	Files []string

	set map[string]any
}

// Has reports whether the URL has a parameter.
func (v *Values) Has(name string) bool { return v.set[name] != nil }

// Text returns a Text or a Choice, "" if the URL has none.
func (v *Values) Text(name string) string { return value[string](v, name) }

// Int returns an Int, 0 if the URL has none.
func (v *Values) Int(name string) int64 { return value[int64](v, name) }

// Number returns a Number, 0 if the URL has none.
func (v *Values) Number(name string) float64 { return value[float64](v, name) }

// Size returns a Size, zero if the URL has none.
func (v *Values) Size(name string) [3]int { return value[[3]int](v, name) }

// Patches returns the values of PatchParam and StrideParam.
func (v *Values) Patches() (patch, stride [3]int, err error) {
	if v.Has("stride") && !v.Has("patch") {
		err = errors.New("stride is the distance between patches: give their size too, such as patch=64x64x64")
	}
	return v.Size("patch"), v.Size("stride"), err
}

func value[T any](v *Values, name string) (zero T) {
	if v.set[name] == nil {
		return zero
	}
	return v.set[name].(T) // the type that Param.parse returns
}

// Set sets a parameter that the URL does not have. It reports whether the format has such
// a parameter.
func (f *Format) Set(v *Values, name, text string) (ok bool, err error) {
	p := f.Param(name)
	if p == nil || v.Has(name) {
		return p != nil, nil
	}
	x, err := p.parse(text)
	if err == nil {
		if v.set == nil {
			v.set = map[string]any{}
		}
		v.set[name] = x
	}
	return true, err
}

// Parse reads the query of a URL.
func (f *Format) Parse(query string) (v Values, err error) {
	if query == "" {
		return v, nil
	}
	var columns []string
	for part := range strings.SplitSeq(query, "&") {
		name, escaped, _ := strings.Cut(part, "=")
		p := f.Param(name)
		if p == nil && f.Has(Columns) {
			columns = append(columns, part)
			continue
		}
		text, err := url.PathUnescape(escaped)
		switch {
		case p == nil && f.Has(Files):
			if part, err = url.PathUnescape(part); err == nil {
				v.Files = append(v.Files, part)
				continue
			}
			return v, fmt.Errorf("field %q cannot be read: %w", name, err)
		case p == nil:
			return v, f.unknown(name)
		case err != nil || text == "":
			return v, fmt.Errorf("parameter %q has no value that can be read", name)
		case v.Has(name):
			return v, fmt.Errorf("parameter %q is given twice", name)
		}
		if _, err := f.Set(&v, name, text); err != nil {
			return v, err
		}
	}
	if len(columns) > 0 {
		v.Columns, err = column.ParseQuery(strings.Join(columns, "&"))
	}
	return v, err
}

// unknown returns the error for an unknown parameter. It omits the value, which may be a secret for
// a server.
func (f *Format) unknown(name string) error {
	const most = 40 // longer ones are not names
	what := "unknown parameter"
	if len(name) <= most {
		what += " " + strconv.Quote(name)
	}
	if instead := f.Instead[name]; instead != "" {
		return fmt.Errorf("%s: %s", what, instead)
	}
	var known []string
	for _, p := range f.Params {
		known = append(known, p.Name)
	}
	if len(known) == 0 {
		return fmt.Errorf("%s: the format %s has no parameters", what, f.Name)
	}
	hint := ""
	if near := units.Nearest(name, known); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return fmt.Errorf("%s: the parameters of %s are %s%s", what, f.Name, units.List(known, "and"), hint)
}
