package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/units"
)

// Spec describes an operation that may stand in a list.
type Spec struct {
	// Name is the value of "op".
	Name string
	// Keys are the parameters besides "op".
	Keys []string
	// Takes says which pixels it works on; nil: all.
	Takes pixelRule
	// Build makes the operation. Errors of a.X methods need not be looked at:
	// the first one is reported by the caller.
	Build func(a *Args) (Op, error)
}

// specs lists every operation there is.
func specs() []Spec {
	var all []Spec
	all = append(all, geometrySpecs()...)
	all = append(all, storeSpecs()...)
	all = append(all, augmentSpecs()...)
	all = append(all, boxSpecs()...)
	return all
}

// maxOps bounds the length of a list and the number of nested operations.
const maxOps = 256

// Args reads the parameters of one operation. Each getter returns the value of
// a key, or the default when the key is absent; the first wrong value makes
// the whole operation fail with a message that names it.
type Args struct {
	op   string
	vals map[string]json.RawMessage
	err  error
	opContext
}

// opContext is where an operation stands.
type opContext struct {
	// depth is the nesting of composite operations.
	depth int
	// mask is true for an output that holds masks: geometric operations must
	// then use nearest interpolation.
	mask bool
	// pixels is the type of the pixels that the operation gets.
	pixels item.PixelType
	// asIs says that the type of the pixels stays.
	asIs bool
	// pillow says that it computes as Pillow does.
	pillow bool
}

// pixelRule says of pixels that an operation does not work on what it takes
// instead, and "" of those that it works on.
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
		return nil, fmt.Errorf("%s: operations are nested too deeply", a.op)
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
	op, known, err := buildOp(specs(), name, vals, ctx)
	if op != nil || err != nil {
		return op, err
	}
	if isBatchOp(name) {
		return nil, fmt.Errorf("%s works on whole batches, not on single images; in Python it goes into batch_transforms=", name)
	}
	if isClipOp(name) {
		return nil, fmt.Errorf("%s is for clips of video, and comes first in their list", name)
	}
	if isVolumeOp(name) {
		return nil, fmt.Errorf("%s is for volumes, and not for images", name)
	}
	if isSoundOp(name) {
		return nil, fmt.Errorf("%s is for audio, and not for images", name)
	}
	return nil, fmt.Errorf("there is no operation %q%s", name, DidYouMean(name, known))
}

// buildOp makes an operation of a list of them. Where there is none of that name it
// returns nil, and the names of all.
func buildOp(specs []Spec, name string, vals map[string]json.RawMessage, ctx opContext) (op Op, known []string, err error) {
	for _, s := range specs {
		if s.Name != name {
			known = append(known, s.Name)
			continue
		}
		if err := checkKeys(vals, name, s.Keys); err != nil {
			return nil, nil, err
		}
		if s.Takes != nil && !ctx.mask {
			if what := s.Takes(ctx.pixels); what != "" {
				return nil, nil, fmt.Errorf("%s takes images of %s, not %s", name, what, ctx.pixels)
			}
		}
		a := &Args{op: name, vals: vals, opContext: ctx}
		op, err := s.Build(a)
		if a.err != nil {
			return nil, nil, a.err
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		return op, nil, nil
	}
	return nil, known, nil
}

// has says whether an operation of that name is in a list.
func has(specs []Spec, name string) bool {
	return slices.ContainsFunc(specs, func(s Spec) bool { return s.Name == name })
}

// buildHalf makes ToDtype of what works with float32.
func buildHalf(a *Args, of string) item.DType {
	a.Bool("scale", false)
	name := a.String("dtype", "float32")
	t, _ := dtype.ParseAny(name)
	if !slices.Contains([]item.DType{item.F32, item.F16, item.BF16}, t) {
		a.fail("dtype", "must be float32, float16 or bfloat16 for %s, not %q", of, clip(name))
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
	if near := units.Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	list := append([]string(nil), known...)
	sort.Strings(list)
	return fmt.Sprintf("; there are: %s", strings.Join(list, ", "))
}

func (a *Args) fail(key, format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("%s: %s %s", a.op, key, fmt.Sprintf(format, args...))
	}
}

// Has says whether the key is there and not null.
func (a *Args) Has(key string) bool {
	raw, ok := a.vals[key]
	return ok && !bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}

// Raw returns the JSON of a key, nil when it is absent.
func (a *Args) Raw(key string) json.RawMessage {
	if !a.Has(key) {
		return nil
	}
	return a.vals[key]
}

func decodeArg[T any](a *Args, key, want string, def T) T {
	if !a.Has(key) {
		return def
	}
	var v T
	if err := json.Unmarshal(a.vals[key], &v); err != nil {
		a.fail(key, "must be %s, not %s", want, clip(string(a.vals[key])))
		return def
	}
	return v
}

// Float returns a number.
func (a *Args) Float(key string, def float64) float64 {
	return decodeArg(a, key, "a number", def)
}

// Prob returns a probability.
func (a *Args) Prob(key string, def float64) float64 {
	p := a.Float(key, def)
	if !(p >= 0 && p <= 1) {
		a.fail(key, "must be between 0 and 1, not %v", p)
	}
	return p
}

// Int returns an integer.
func (a *Args) Int(key string, def int) int { return decodeArg(a, key, "an integer", def) }

// Bool returns true or false.
func (a *Args) Bool(key string, def bool) bool { return decodeArg(a, key, "true or false", def) }

// String returns a word.
func (a *Args) String(key, def string) string { return decodeArg(a, key, "a string", def) }

// Floats returns a list of numbers; a single number is a list of one.
func (a *Args) Floats(key string, def []float64) []float64 {
	if !a.Has(key) {
		return def
	}
	var one float64
	if json.Unmarshal(a.vals[key], &one) == nil {
		return []float64{one}
	}
	return decodeArg(a, key, "a list of numbers", def)
}

// Pair returns two numbers lo <= hi.
func (a *Args) Pair(key string, lo, hi float64) (float64, float64) {
	v := a.Floats(key, []float64{lo, hi})
	if len(v) != 2 || !(v[0] <= v[1]) || math.IsInf(v[0], 0) || math.IsInf(v[1], 0) {
		a.fail(key, "must be two numbers, the smaller one first, not %s", clip(string(a.vals[key])))
		return lo, hi
	}
	return v[0], v[1]
}

// maxSide is the largest width or height of an image.
const maxSide = 65500

// Size returns (h, w) of a key that is a number n, [n] or [h, w]. A single
// number gives (n, 0).
func (a *Args) Size(key string) (h, w int) {
	if !a.Has(key) {
		a.fail(key, "is missing; it is a number or [height, width]")
		return 1, 1
	}
	v := a.Floats(key, nil)
	for _, x := range v {
		if x != math.Trunc(x) || x < 1 || x > maxSide {
			a.fail(key, "must be whole numbers from 1 to %d, not %s", maxSide, clip(string(a.vals[key])))
			return 1, 1
		}
	}
	switch len(v) {
	case 1:
		return int(v[0]), 0
	case 2:
		return int(v[0]), int(v[1])
	}
	a.fail(key, "must be a number or [height, width], not %s", clip(string(a.vals[key])))
	return 1, 1
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
func (a *Args) Filter(key string, def item.Filter) item.Filter {
	name := a.String(key, "")
	f := def
	switch name {
	case "":
	case "bilinear":
		f = item.Bilinear
	case "bicubic":
		f = item.Bicubic
	case "nearest", "nearest-exact", "nearest_exact":
		f = item.Nearest
	default:
		a.fail(key, "must be bilinear, bicubic or nearest, not %q", clip(name))
	}
	if a.mask {
		return item.Nearest
	}
	return f
}

// Fill returns a colour: one number for all channels, masks included, or one
// for each.
func (a *Args) Fill(key string) Fill {
	return a.color(key, a.Floats(key, []float64{0}))
}

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

// perChannel says how many numbers there may be.
func (a *Args) perChannel() string {
	if a.pixels.Channels == 1 {
		return "one number, as there is one channel"
	}
	return fmt.Sprintf("one number or %d, one for each channel", a.pixels.Channels)
}

// Choice returns one of the given words.
func (a *Args) Choice(key, def string, words ...string) string {
	s := a.String(key, def)
	for _, w := range words {
		if s == w {
			return s
		}
	}
	a.fail(key, "must be one of %s, not %q%s", strings.Join(words, ", "), clip(s), "")
	return def
}
