package transform

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/units"
)

// Spec describes an operation: its name, its parameters and its results. The engine checks the
// arguments of operations by it. The Python classes and the reference are generated from it.
type Spec struct {
	// Name is the value of "op", and the name that users write: RandomCrop, audio.CenterCrop. The names of
	// operations on images have no module.
	Name string `json:"name"`
	// Doc is one sentence, and More the rest of the description.
	Doc  string `json:"doc"`
	More string `json:"more,omitempty"`
	// Params are the parameters besides "op", in the order of the arguments in Python.
	Params []Param `json:"params"`
	// Keyword is set if the arguments in Python must be named.
	Keyword bool `json:"keyword,omitempty"`
	// Kinds are the kinds of fields that the operation works on. "batch" stands for whole batches.
	Kinds []string `json:"kinds"`
	// Returns is the rule for shape and dtype.
	Returns string `json:"returns"`
	// Example is an expression in Python.
	Example string `json:"example"`

	// takes returns which pixels it works on instead, "" for pixels that it works on; nil: all pixels.
	takes pixelRule
	// These make the operation, one for each kind of data that it works on. Errors of a.fail need not be
	// returned: the caller reports the first one.
	image, clip, sound, volume func(a *Args) (Op, error)
	// batch also returns the arrays that the operation adds to the batch, such as soft labels.
	batch func(a *Args, in BatchInfo) (op BatchOp, add []item.Array, err error)
}

// Module is a module of Python with operations.
type Module struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
}

// Modules are the modules of Python with operations.
var Modules = []Module{
	{"transforms", "Transforms of images, with the names and parameters of torchvision.transforms.v2. Boxes, key points and masks follow the transforms of their image."},
	{"audio", "Transforms of recordings, with the names, parameters and results of torchaudio. A list of them decodes the recordings."},
	{"video", "Transforms of video clips: they choose frames, and come first in a list. The transforms of images after them work on each frame."},
	{"volume", "Transforms of volumes, with the names, parameters and formulas of MONAI. The axes 0, 1 and 2 are z, y and x."},
}

// Module returns the Python module of the operation.
func (s *Spec) Module() string {
	if module, _, ok := strings.Cut(s.Name, "."); ok {
		return module
	}
	return "transforms"
}

// param returns a parameter, nil if there is none of that name.
func (s *Spec) param(name string) *Param {
	if i := slices.IndexFunc(s.Params, func(p Param) bool { return p.Name == name }); i >= 0 {
		return &s.Params[i]
	}
	return nil
}

// All returns the operations, in the order of the reference.
func All() []*Spec {
	return []*Spec{
		&resizeSpec,
		&centerCropSpec,
		&randomCropSpec,
		&randomResizedCropSpec,
		&horizontalFlipSpec,
		&verticalFlipSpec,
		&padSpec,
		&letterBoxSpec,
		&iouCropSpec,
		&toDtypeSpec,
		&normalizeSpec,
		&colorJitterSpec,
		&grayscaleSpec,
		&posterizeSpec,
		&solarizeSpec,
		&sharpnessSpec,
		&gaussianBlurSpec,
		&randomGrayscaleSpec,
		&invertSpec,
		&autocontrastSpec,
		&equalizeSpec,
		&randomHSVSpec,
		&rotationSpec,
		&affineSpec,
		&perspectiveSpec,
		&elasticSpec,
		&erasingSpec,
		&randAugmentSpec,
		&trivialAugmentSpec,
		&autoAugmentSpec,
		&composeSpec,
		&randomApplySpec,
		&randomChoiceSpec,
		&randomOrderSpec,
		&clampBoxesSpec,
		&clampPointsSpec,
		&convertBoxesSpec,
		&sanitizeBoxesSpec,
		&mixUpSpec,
		&cutMixSpec,
		&mosaicSpec,
		&randomClipSpec,
		&centerClipSpec,
		&decodeSpec,
		&resampleSpec,
		&monoSpec,
		&soundRandomCropSpec,
		&soundCenterCropSpec,
		&padOrTrimSpec,
		&soundPadSpec,
		&volSpec,
		&randomGainSpec,
		&soundNormalizeSpec,
		&spectrogramSpec,
		&melSpectrogramSpec,
		&toDBSpec,
		&logSpec,
		&frequencyMaskingSpec,
		&timeMaskingSpec,
		&specAugmentSpec,
		&randSpatialCropSpec,
		&centerSpatialCropSpec,
		&spatialPadSpec,
		&resizeWithPadOrCropSpec,
		&randFlipSpec,
		&randRotate90Spec,
		&randScaleIntensitySpec,
		&randShiftIntensitySpec,
		&scaleRangeSpec,
		&scaleIntensitySpec,
		&normalizeIntensitySpec,
	}
}

// registry has all operations. init fills it, because composite operations look for others.
var registry map[string]*Spec

func init() {
	registry = map[string]*Spec{}
	for _, s := range All() {
		if registry[s.Name] != nil {
			panic("two operations have the name " + s.Name)
		}
		registry[s.Name] = s
	}
}

// names returns the sorted names of the operations for which of is true.
func names(of func(*Spec) bool) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(registry)) {
		if of(registry[name]) {
			all = append(all, name)
		}
	}
	return all
}

func onImages(s *Spec) bool  { return s.image != nil }
func onClips(s *Spec) bool   { return s.clip != nil }
func onSound(s *Spec) bool   { return s.sound != nil }
func onVolumes(s *Spec) bool { return s.volume != nil }
func onBatches(s *Spec) bool { return s.batch != nil }

// is reports whether the operation with this name exists and of is true for it.
func is(of func(*Spec) bool, name string) bool { return registry[name] != nil && of(registry[name]) }

// Type is the type of a parameter.
type Type string

// The types of parameters.
const (
	Bool Type = "bool"
	// Int and Float are numbers. With Param.Counts they are lists of numbers.
	Int   Type = "int"
	Float Type = "float"
	// Choice is one of Param.Choices.
	Choice Type = "choice"
	Text   Type = "text"
	// Names is a list of names, or one name.
	Names Type = "names"
	// Ops is a list of operations.
	Ops Type = "transforms"
	// Table is an object. The recogniser of torchvision's transforms passes such parameters. They are in no class of Python.
	Table Type = "table"
	// Bytes is a size in bytes: a number, or text with a unit. Path is a file or folder of this machine, and URL a path or
	// a URL. Share is a count or a fraction. Options of a loader have these types.
	Bytes Type = "bytes"
	Path  Type = "path"
	URL   Type = "url"
	Share Type = "share"
)

// Param describes a parameter of an operation.
type Param struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
	// Help describes the parameter. It begins in lower case and ends without a full stop.
	Help string `json:"help"`
	Unit string `json:"unit,omitempty"`
	// Default is nil if the parameter is Required, or if it is None.
	Default  any  `json:"default"`
	Required bool `json:"required,omitempty"`
	// Optional is set if the parameter can be None.
	Optional bool `json:"optional,omitempty"`
	// Choices are the values of a Choice, and words that may replace a number or True and False.
	Choices []string `json:"choices,omitempty"`
	// Enum is an enumeration of torchvision, or a type of a library, whose values are accepted as well.
	Enum string `json:"enum,omitempty"`
	// Counts are the allowed lengths of a list of numbers, nil for one number. Form describes the list, or the text. Most is
	// the largest length of a list of any length.
	Counts []int  `json:"counts,omitempty"`
	Most   int    `json:"most,omitempty"`
	Form   string `json:"form,omitempty"`
	// Single is set if one number can replace a list. Alone has its limits, if they differ from Range.
	Single bool   `json:"single,omitempty"`
	Alone  *Range `json:"alone,omitempty"`
	// Range are the limits of each number. Ordered lists have the smaller number first.
	Range   *Range `json:"range,omitempty"`
	Ordered bool   `json:"ordered,omitempty"`
	Odd     bool   `json:"odd,omitempty"`
	NonZero bool   `json:"nonzero,omitempty"`
	// Key is the key of an option of a loader in its configuration, "" if the client itself uses the option.
	Key string `json:"key,omitempty"`
	// Hidden parameters are in no class of Python.
	Hidden bool `json:"-"`
}

// Range are the limits of a number. Over and Under exclude the limits themselves.
type Range struct {
	Min   *float64 `json:"min,omitempty"`
	Max   *float64 `json:"max,omitempty"`
	Over  bool     `json:"over,omitempty"`
	Under bool     `json:"under,omitempty"`
}

func between(min, max float64) *Range   { return &Range{Min: &min, Max: &max} }
func atLeast(min float64) *Range        { return &Range{Min: &min} }
func atMost(max float64) *Range         { return &Range{Max: &max} }
func above(min float64) *Range          { return &Range{Min: &min, Over: true} }
func aboveUpTo(min, max float64) *Range { return &Range{Min: &min, Max: &max, Over: true} }
func belowFrom(min, max float64) *Range { return &Range{Min: &min, Max: &max, Under: true} }
func within(min, max float64) *Range    { return &Range{Min: &min, Max: &max, Over: true, Under: true} }

// unlimited is a limit that messages omit.
const unlimited = 1e30

// Has reports whether a number is within the limits.
func (r *Range) Has(x float64) bool {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return false
	case r == nil:
		return true
	case r.Min != nil && (x < *r.Min || r.Over && x == *r.Min):
		return false
	}
	return r.Max == nil || x < *r.Max || !r.Under && x == *r.Max
}

// String is the text for messages: " from 0 to 1".
func (r *Range) String() string {
	if r == nil || r.Max != nil && *r.Max >= unlimited {
		return ""
	}
	low, high := "", ""
	if r.Min != nil {
		low = number(*r.Min)
	}
	if r.Max != nil {
		high = number(*r.Max)
	}
	switch {
	case low != "" && high != "" && !r.Over && !r.Under:
		return " from " + low + " to " + high
	case low == "":
		return " up to " + high
	}
	text := " of at least " + low
	if r.Over {
		text = " above " + low
	}
	switch {
	case high == "":
	case r.Under:
		text += " and below " + high
	default:
		text += " and up to " + high
	}
	return text
}

func number(x float64) string {
	if a := math.Abs(x); a != 0 && (a < 1e-4 || a >= 1e15) {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

// lists reports whether the parameter may be a list of numbers.
func (p *Param) lists() bool { return p.Counts != nil || p.Most > 0 }

// Expects describes the allowed values, for messages.
func (p *Param) Expects() string {
	text := p.expects()
	if p.Optional {
		text += ", or None"
	}
	return text
}

func (p *Param) expects() string {
	var words []string
	for _, c := range p.Choices {
		words = append(words, strconv.Quote(c))
	}
	switch p.Type {
	case Bool:
		return units.List(append([]string{"True", "False"}, words...), "or")
	case Choice:
		return units.List(words, "or")
	case Text, Names:
		if p.Form != "" {
			return p.Form
		}
		return map[Type]string{Text: "a name", Names: "a name, or a list of names"}[p.Type]
	case Ops:
		return "a list of one or more transforms"
	case Table:
		return "an object"
	case Bytes:
		return "a number of bytes" + p.Range.String() + `, or text such as "2GB"`
	case Path:
		return "a path"
	case URL:
		return "a path or a URL"
	case Share:
		return `a number of records, a share such as 0.05, or text such as "5%"`
	}
	noun, plural := "a number", "numbers"
	switch {
	case p.Odd:
		noun, plural = "an odd number", "odd numbers"
	case p.Type == Int:
		noun, plural = "a whole number", "whole numbers"
	}
	var parts []string
	if !p.lists() || p.Single {
		r := p.Range
		if p.Alone != nil {
			r = p.Alone
		}
		parts = append(parts, noun+r.String())
	}
	if p.lists() {
		text := p.Form
		switch {
		case text == "" && len(p.Counts) == 1:
			text = count(p.Counts[0]) + " " + plural
		case text == "" && p.Most > 0:
			text = fmt.Sprintf("a list of 1 to %d %s", p.Most, plural)
		case text == "":
			text = "a list of " + plural
		}
		if !p.Single || p.Alone != nil {
			text += p.Range.String()
		}
		if p.Ordered {
			text += ", the smaller one first"
		}
		parts = append(parts, text)
	}
	text := strings.Join(append(parts, words...), ", or ")
	if p.NonZero {
		text += ", and not 0"
	}
	return text
}

func count(n int) string {
	if words := []string{"no", "one", "two", "three", "four"}; n < len(words) {
		return words[n]
	}
	return strconv.Itoa(n)
}

// Text is the description of the parameter in help.
func (p *Param) Text() string {
	text := p.Help
	if p.Unit != "" {
		text += " (" + p.Unit + ")"
	}
	if p.Type != Bool || len(p.Choices) > 0 {
		text += ": " + p.Expects()
	}
	text += "."
	if !p.Required {
		text += " Default: " + python(p.Default) + "."
	}
	return text
}

// python returns a default as Python writes it, in four digits.
func python(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case string:
		return strconv.Quote(v)
	case []float64:
		var all []string
		for _, x := range v {
			all = append(all, fmt.Sprintf("%.4g", x))
		}
		return "(" + strings.Join(all, ", ") + ")"
	}
	return fmt.Sprint(v)
}

// MarshalJSON adds the text for messages.
func (p Param) MarshalJSON() ([]byte, error) {
	type plain Param // without this method
	return json.Marshal(struct {
		plain
		Expects string `json:"expects"`
		Text    string `json:"text"`
	}{plain(p), p.Expects(), p.Text()})
}

// MarshalJSON adds the module, and omits hidden parameters.
func (s Spec) MarshalJSON() ([]byte, error) {
	type plain Spec
	shown := plain(s)
	shown.Params = []Param{}
	for _, p := range s.Params {
		if !p.Hidden {
			shown.Params = append(shown.Params, p)
		}
	}
	return json.Marshal(struct {
		Module string `json:"module"`
		plain
	}{s.Module(), shown})
}

// value is a checked argument.
type value struct {
	numbers []float64
	list    bool // and not one number alone
	word    string
	flag    bool
	names   []string
}

// read returns the value of an argument. It reports whether the argument matches p.
func (p *Param) read(raw json.RawMessage) (v value, ok bool) {
	switch p.Type {
	case Ops, Table:
		return v, true // the operation reads them
	case Text:
		return v, json.Unmarshal(raw, &v.word) == nil && v.word != ""
	case Names:
		if json.Unmarshal(raw, &v.word) == nil {
			v.names = []string{v.word}
			return v, true
		}
		return v, json.Unmarshal(raw, &v.names) == nil && len(v.names) > 0
	case Bool:
		if json.Unmarshal(raw, &v.flag) == nil {
			return v, true
		}
	}
	if json.Unmarshal(raw, &v.word) == nil {
		return v, slices.Contains(p.Choices, v.word)
	}
	if p.Type != Int && p.Type != Float {
		return v, false
	}
	var x float64
	if json.Unmarshal(raw, &x) == nil {
		v.numbers = []float64{x}
		r := p.Range
		if p.Alone != nil {
			r = p.Alone
		}
		return v, (!p.lists() || p.Single) && p.number(x, r)
	}
	v.list = true
	if json.Unmarshal(raw, &v.numbers) != nil || !slices.Contains(p.Counts, len(v.numbers)) && (len(v.numbers) == 0 || len(v.numbers) > p.Most) {
		return v, false
	}
	for i, x := range v.numbers {
		if !p.number(x, p.Range) || p.Ordered && i > 0 && x < v.numbers[i-1] {
			return v, false
		}
	}
	return v, true
}

func (p *Param) number(x float64, r *Range) bool {
	return r.Has(x) && (p.Type != Int || x == math.Trunc(x)) && (!p.Odd || math.Mod(x, 2) != 0) && (!p.NonZero || x != 0)
}

// standard is the value of a parameter that is not given.
func (p *Param) standard() (v value) {
	switch d := p.Default.(type) {
	case bool:
		v.flag = d
	case string:
		v.word = d
	case int:
		v.numbers = []float64{float64(d)}
	case float64:
		v.numbers = []float64{d}
	case []float64:
		v.numbers, v.list = d, true
	}
	return v
}

// check reads all arguments. The first wrong one is an error.
func (s *Spec) check(vals map[string]json.RawMessage) (map[string]value, error) {
	var known []string
	for _, p := range s.Params {
		known = append(known, p.Name)
	}
	if err := checkKeys(vals, s.Name, known); err != nil {
		return nil, err
	}
	got := make(map[string]value, len(s.Params))
	for i := range s.Params {
		p := &s.Params[i]
		raw, there := vals[p.Name]
		switch null := string(raw) == "null"; {
		case !there && p.Required:
			return nil, fmt.Errorf("%s: %s is missing: it must be %s", s.Name, p.Name, p.Expects())
		case !there:
			got[p.Name] = p.standard()
		case null && p.Optional:
			got[p.Name] = value{}
		default:
			v, ok := p.read(raw)
			if !ok || null {
				return nil, fmt.Errorf("%s: %s must be %s, not %s", s.Name, p.Name, p.Expects(), clip(string(raw)))
			}
			got[p.Name] = v
		}
	}
	return got, nil
}

// Operations returns the operations on single records and their parameters.
func Operations() map[string][]string {
	return parameters(func(s *Spec) bool { return onImages(s) || onClips(s) || onSound(s) || onVolumes(s) })
}

// BatchOperations returns the operations on batches and their parameters.
func BatchOperations() map[string][]string { return parameters(onBatches) }

func parameters(of func(*Spec) bool) map[string][]string {
	all := map[string][]string{}
	for _, name := range names(of) {
		all[name] = []string{} // and not null
		for _, p := range registry[name].Params {
			all[name] = append(all[name], p.Name)
		}
		slices.Sort(all[name])
	}
	return all
}

// Parameters that several operations have.

// probability is p.
func probability(def float64) Param {
	return Param{Name: "p", Type: Float, Default: def, Range: between(0, 1), Help: "probability"}
}

// side is a size in pixels.
func side(help string) Param {
	return Param{Name: "size", Type: Int, Required: true, Unit: "pixels", Single: true, Counts: []int{1, 2}, Form: "(height, width)", Range: between(1, maxSide), Help: help}
}

// colour is a value for each channel. Its allowed values also depend on the pixels.
func colour(name, help string, def any) Param {
	return Param{Name: name, Type: Float, Default: def, Single: true, Counts: []int{1, 2, 3, 4}, Form: "one for each channel", Help: help}
}

func fill(def any, optional bool) Param {
	p := colour("fill", "colour outside of the image, in units of the pixels", def)
	p.Optional = optional
	return p
}

func interpolation(def string, choices ...string) Param {
	return Param{Name: "interpolation", Type: Choice, Default: def, Choices: choices, Enum: "InterpolationMode", Help: "how values between pixels are computed"}
}

// filter is the parameter for the interpolation of operations that resize.
func filter() Param { return interpolation("bilinear", "bilinear", "bicubic", "nearest") }

var (
	antialias = Param{Name: "antialias", Type: Bool, Default: true, Help: "always True: resizing antialiases, as Pillow does"}
	inplace   = Param{Name: "inplace", Type: Bool, Default: false, Help: "has no effect; accepted because torchvision has it"}
	center    = Param{Name: "center", Type: Float, Optional: true, Counts: []int{2}, Form: "(x, y)", Range: between(-1e6, 1e6), Unit: "pixels", Help: "fixed point, from the upper left corner; None is the centre"}
	inner     = Param{Name: "transforms", Type: Ops, Required: true, Help: "the transforms"}
	border    = Param{Name: "padding", Type: Int, Unit: "pixels", Single: true, Counts: []int{1, 2, 4}, Form: "(left and right, top and bottom), or (left, top, right, bottom)",
		Range: between(0, maxSide), Help: "width of the border to add"}
)

// The kinds that operations work on, and rules for their results.
var (
	moved   = []string{"image", "mask", "frames", "boxes", "keypoints"}
	painted = []string{"image", "frames"}
	sounds  = []string{"audio"}
	solids  = []string{"volume"}
)

const (
	sameShape = "Same shape and dtype."
	sized     = "Height and width are `size`; same dtype."
)

func optional(p Param) Param {
	p.Optional, p.Required = true, false
	return p
}

func required(p Param) Param {
	p.Required = true
	return p
}
