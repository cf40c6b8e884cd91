package transform

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/units"
)

// maxOps bounds the length of a list and the number of nested operations.
const maxOps = 256

// Args has the checked arguments of one operation. Rules that a description cannot express, such as limits that depend
// on another argument, are checked where the operation is made. The first a.fail makes the whole operation fail.
type Args struct {
	spec *Spec
	got  map[string]value
	vals map[string]json.RawMessage
	err  error
	opContext
}

// opContext is the context of an operation in its list.
type opContext struct {
	// depth is the nesting of composite operations.
	depth int
	// mask is true for an output that holds masks: geometric operations must
	// then use nearest interpolation.
	mask bool
	// pixels is the type of the pixels that the operation gets.
	pixels item.PixelType
	// asIs reports whether the type of the pixels stays.
	asIs bool
	// pillow reports whether the operation computes as Pillow does.
	pillow bool
}

// pixelRule returns, for pixels that an operation does not support, the types that it takes instead, and "" for
// supported ones.
type pixelRule func(t item.PixelType) string

// grayOrRGB is the rule of operations on colours.
func grayOrRGB(t item.PixelType) string {
	if t.Channels == 1 || t.Channels == 3 {
		return ""
	}
	return "1 or 3 channels"
}

// ParseOp reads one operation. Composite operations use it for their parts.
func (a *Args) ParseOp(raw json.RawMessage) (Op, error) {
	if a.depth >= 8 {
		return nil, fmt.Errorf("%s: operations are nested too deeply", a.spec.Name)
	}
	inner := a.opContext
	inner.depth++
	return parseOp(raw, inner)
}

// splitOp takes the name of an operation from its other parameters.
func splitOp(raw json.RawMessage) (name string, vals map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(raw, &vals); err != nil || vals == nil {
		return "", nil, fmt.Errorf("an operation must be an object such as {\"op\": \"Resize\", \"size\": 256}")
	}
	if err := json.Unmarshal(vals["op"], &name); err != nil || name == "" {
		return "", nil, fmt.Errorf("an operation lacks its name (\"op\")")
	}
	delete(vals, "op")
	return name, vals, nil
}

func parseOp(raw json.RawMessage, ctx opContext) (Op, error) {
	name, vals, err := splitOp(raw)
	if err != nil {
		return nil, err
	}
	op, err := buildOp(func(s *Spec) builder { return s.image }, name, vals, ctx)
	switch {
	case op != nil || err != nil:
		return op, err
	case is(onBatches, name):
		return nil, fmt.Errorf("%s works on whole batches, not on single images: it comes last in the list of a loader", name)
	case is(onClips, name):
		return nil, fmt.Errorf("%s is for clips of video, and comes first in their list", name)
	case is(onVolumes, name):
		return nil, fmt.Errorf("%s is for volumes, and not for images", name)
	case is(onSound, name):
		return nil, fmt.Errorf("%s is for audio, and not for images", name)
	}
	return nil, fmt.Errorf("there is no operation %q%s", name, DidYouMean(name, names(onImages)))
}

type builder func(a *Args) (Op, error)

// buildOp makes an operation. It returns nil if there is none of that name for a kind of data, which of selects.
func buildOp(of func(*Spec) builder, name string, vals map[string]json.RawMessage, ctx opContext) (Op, error) {
	s := registry[name]
	if s == nil || of(s) == nil {
		return nil, nil
	}
	got, err := s.check(vals)
	if err != nil {
		return nil, err
	}
	if s.takes != nil && !ctx.mask {
		if what := s.takes(ctx.pixels); what != "" {
			return nil, fmt.Errorf("%s takes images of %s, not %s", name, what, ctx.pixels)
		}
	}
	a := &Args{spec: s, got: got, vals: vals, opContext: ctx}
	op, err := of(s)(a)
	if a.err != nil {
		return nil, a.err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return op, nil
}

// buildHalf builds ToDtype for operations that work with float32.
func buildHalf(a *Args, of string) item.DType {
	t, _ := dtype.ParseAny(a.Word("dtype"))
	if !slices.Contains([]item.DType{item.F32, item.F16, item.BF16}, t) {
		a.fail("dtype", "must be float32, float16 or bfloat16 for %s, not %q", of, a.Word("dtype"))
	}
	return t
}

// CheckKeys refuses a JSON object with a key that is not known, naming the
// nearest one that is.
func CheckKeys(data []byte, what string, known []string) error {
	var vals map[string]json.RawMessage
	if err := json.Unmarshal(data, &vals); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return checkKeys(vals, what, known)
}

// CheckKeysOf is CheckKeys with the keys of the struct T in JSON.
func CheckKeysOf[T any](data []byte, what string) error { return CheckKeys(data, what, KeysOf[T]()) }

// KeysOf returns the keys of the struct T in JSON, in the order of its fields.
func KeysOf[T any]() []string {
	var keys []string
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "-" {
			keys = append(keys, cmp.Or(name, f.Name))
		}
	}
	return keys
}

func checkKeys(vals map[string]json.RawMessage, what string, known []string) error {
	var unknown []string
next:
	for k := range vals {
		for _, want := range known {
			if k == want {
				continue next
			}
		}
		unknown = append(unknown, k)
	}
	if len(unknown) == 0 {
		return nil
	}
	sort.Strings(unknown)
	return fmt.Errorf("%s has no parameter %q%s", what, clip(unknown[0]), DidYouMean(unknown[0], known))
}

func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}

// DidYouMean returns a hint with the nearest of the known names, or all of
// them when none is near.
func DidYouMean(name string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	near := units.Nearest(name, known)
	for _, k := range known {
		if strings.HasSuffix(k, "."+name) { // the name without its module
			near = k
		}
	}
	if near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	list := append([]string(nil), known...)
	sort.Strings(list)
	return fmt.Sprintf("; there are: %s", strings.Join(list, ", "))
}

// fail refuses an argument for a reason that its description cannot express.
func (a *Args) fail(key, format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("%s: %s %s", a.spec.Name, key, fmt.Sprintf(format, args...))
	}
}

// Has reports whether an argument is given and is not None.
func (a *Args) Has(key string) bool {
	raw, ok := a.vals[key]
	return ok && string(raw) != "null"
}

// None reports whether an argument is None, given or by default.
func (a *Args) None(key string) bool {
	_, given := a.vals[key]
	return given && !a.Has(key) || !given && a.spec.param(key).Default == nil
}

// Raw returns the JSON of an argument, nil if it is absent.
func (a *Args) Raw(key string) json.RawMessage {
	if !a.Has(key) {
		return nil
	}
	return a.vals[key]
}

// value returns an argument. It panics for one that is not in the description.
func (a *Args) value(key string) value {
	v, ok := a.got[key]
	if !ok {
		panic(a.spec.Name + " is not described with " + key)
	}
	return v
}

// Float returns a number, 0 for None.
func (a *Args) Float(key string) float64 {
	if n := a.value(key).numbers; len(n) > 0 {
		return n[0]
	}
	return 0
}

// Int returns a whole number, 0 for None.
func (a *Args) Int(key string) int { return int(a.Float(key)) }

// Bool returns true or false.
func (a *Args) Bool(key string) bool { return a.value(key).flag }

// Word returns a choice, a text, or a word in place of a number; "" for none.
func (a *Args) Word(key string) string { return a.value(key).word }

// Floats returns a list of numbers. One number alone is a list of one. None is nil.
func (a *Args) Floats(key string) []float64 { return a.value(key).numbers }

// Pair returns two numbers. One number alone stands for both.
func (a *Args) Pair(key string) (lo, hi float64) {
	v := a.Floats(key)
	return v[0], v[len(v)-1]
}

// Spread returns a range: a number x alone stands for center-x to center+x.
func (a *Args) Spread(key string, center float64) []float64 {
	v := a.value(key)
	if !v.list {
		return []float64{center - v.numbers[0], center + v.numbers[0]}
	}
	return v.numbers
}

// maxSide is the largest width or height of an image.
const maxSide = 65500

// Size returns (h, w). A single number gives (n, 0).
func (a *Args) Size(key string) (h, w int) {
	switch v := a.Floats(key); len(v) {
	case 1:
		return int(v[0]), 0
	case 2:
		return int(v[0]), int(v[1])
	}
	return 0, 0
}

// Square is Size, where a single number n means (n, n).
func (a *Args) Square(key string) (h, w int) {
	h, w = a.Size(key)
	if w == 0 {
		w = h
	}
	return h, w
}

// Filter returns an interpolation; masks always use nearest.
func (a *Args) Filter(key string) item.Filter {
	switch {
	case a.mask:
		return item.Nearest
	case a.Word(key) == "bicubic":
		return item.Bicubic
	case a.Word(key) == "nearest":
		return item.Nearest
	}
	return item.Bilinear
}

// Fill returns a colour: one number for all channels, masks included, or one
// for each.
func (a *Args) Fill(key string) Fill { return a.color(key, a.Floats(key)) }

// color checks the numbers of a colour.
func (a *Args) color(key string, v []float64) (c Fill) {
	n := int(a.pixels.Channels)
	if a.mask && len(v) > 1 && len(v) <= item.MaxChannels {
		return c // a colour is no class
	}
	if len(v) != 1 && len(v) != n {
		a.fail(key, "must be %s", a.perChannel())
		return c
	}
	for i := range n {
		x := v[i%len(v)]
		if limit := maxValue(a.pixels.DType); a.pixels.DType != item.F32 && !(x >= 0 && x <= limit) {
			a.fail(key, "must be between 0 and %v, not %v", limit, x)
			return c
		} else if !(math.Abs(x) <= math.MaxFloat32) {
			a.fail(key, "must be finite, it is %v", x)
			return c
		}
		c[i] = float32(x)
	}
	return c
}

// perChannel describes the allowed count of numbers.
func (a *Args) perChannel() string {
	if a.pixels.Channels == 1 {
		return "one number, as there is one channel"
	}
	return fmt.Sprintf("one number or %d, one for each channel", a.pixels.Channels)
}
