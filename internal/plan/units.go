package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/dtype"
)

// The parsers below take what people write on a command line. They are strict:
// a figure without its unit is refused where the unit could be guessed wrong,
// and the error says in one line what to write instead. All of them return
// finite numbers above zero.

// maxText is more than any of these figures needs.
const maxText = 64

// split cuts "64 KB" into 64 and "KB". The number may be "64", "1.5", "4e9" or
// "1,457"; it must be finite and above zero.
func split(s string) (v float64, unit string, err error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, "", fmt.Errorf("it is empty")
	}
	if len(s) > maxText {
		return 0, "", fmt.Errorf("%q... is too long to be a figure", s[:16])
	}
	end := 0
	for end < len(s) {
		c := s[end]
		isExponent := (c == 'e' || c == 'E') && end > 0 && end+1 < len(s) && exponentFollows(s[end+1:])
		isSign := (c == '+' || c == '-') && (end == 0 || s[end-1] == 'e' || s[end-1] == 'E')
		if !isExponent && !isSign && (c < '0' || c > '9') && c != '.' && c != ',' {
			break
		}
		end++
	}
	number, unit := s[:end], strings.TrimSpace(s[end:])
	if number == "" {
		return 0, "", fmt.Errorf("%q does not begin with a number", s)
	}
	plain, err := withoutCommas(number)
	if err != nil {
		return 0, "", err
	}
	v, err = strconv.ParseFloat(plain, 64)
	switch {
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		return 0, "", fmt.Errorf("%q is not a number", number)
	case v < 0:
		return 0, "", fmt.Errorf("%q is below zero", s)
	case v == 0:
		return 0, "", fmt.Errorf("%q is zero", s)
	}
	return v, unit, nil
}

// exponentFollows reports whether s begins with what follows the e of 4e9, so
// that "4 EB" and "4e9" are told apart.
func exponentFollows(s string) bool {
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	return s != "" && s[0] >= '0' && s[0] <= '9'
}

// withoutCommas takes the commas out of 1,457,000 and refuses 1,5.
func withoutCommas(s string) (string, error) {
	groups := strings.Split(s, ",")
	for i, g := range groups[1:] {
		digits := g
		if i == len(groups)-2 {
			digits, _, _ = strings.Cut(g, ".")
		}
		if len(digits) != 3 || strings.Trim(digits, "0123456789") != "" {
			return "", fmt.Errorf("%q: a comma separates thousands, a point the fraction", s)
		}
	}
	return strings.Join(groups, ""), nil
}

var byteUnits = map[string]float64{
	"B":  1,
	"KB": 1e3, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50,
}

// ParseBytes reads a size: "64KB", "64 KiB", "16GB", "110000". Decimal and
// binary units are what their names say. A bare number below 1024 is refused:
// it is more likely that its unit was left out.
func ParseBytes(s string) (float64, error) {
	v, unit, err := split(s)
	if err != nil {
		return 0, err
	}
	if unit == "" {
		if v < 1024 {
			n := number(v)
			return 0, fmt.Errorf("%s bytes? the unit seems to be missing: write %sB if so, or %sKB, %sMB, %sGB", n, n, n, n, n)
		}
		return wholeBytes(s, v)
	}
	factor, ok := byteUnits[unit]
	if !ok {
		return 0, fmt.Errorf("%q is not a size: %s", s, byteUnitHint(v, unit))
	}
	return wholeBytes(s, v*factor)
}

func wholeBytes(s string, v float64) (float64, error) {
	if v < 1 || v > 1e18 {
		return 0, fmt.Errorf("%q is not a size that could be meant (1 B to 1,000 PB)", s)
	}
	return v, nil
}

// byteUnitHint says which unit may be meant.
func byteUnitHint(v float64, unit string) string {
	for name := range byteUnits {
		if strings.EqualFold(name, unit) && name != "kB" {
			return fmt.Sprintf("write %s%s", number(v), name)
		}
	}
	if len(unit) == 1 && strings.Contains("KMGTPkmgtp", unit) {
		u := strings.ToUpper(unit)
		return fmt.Sprintf("write %s%sB (decimal) or %s%siB (binary)", number(v), u, number(v), u)
	}
	switch strings.ToLower(unit) {
	case "kbit", "mbit", "gbit", "kb/s", "mb/s", "gb/s", "gbit/s":
		return "that is a rate; sizes are in B, KB, MB, GB, TB or KiB, MiB, GiB, TiB"
	}
	return "units are B, KB, MB, GB, TB, PB (decimal) and KiB, MiB, GiB, TiB, PiB (binary)"
}

var timeUnits = map[string]float64{"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}

// ParseSeconds reads a time: "87ms", "0.087", "2 s", "1.5min". A bare number is
// in seconds; one above 10 is refused, because a time in milliseconds that lost
// its unit looks like that.
func ParseSeconds(s string) (float64, error) {
	v, unit, err := split(s)
	if err != nil {
		return 0, err
	}
	if unit == "" {
		if v > 10 {
			n := number(v)
			return 0, fmt.Errorf("%s seconds? the unit seems to be missing: write %ss if so, or %sms", n, n, n)
		}
		unit = "s"
	}
	factor, ok := timeUnits[unit]
	if !ok {
		return 0, fmt.Errorf("%q is not a time: write 87ms, 0.087s or 2s (units: ns, us, ms, s, min, h)", s)
	}
	if v *= factor; v < 1e-9 || v > 1e6 {
		return 0, fmt.Errorf("%q is not a time that could be meant (1ns to 1,000,000s)", s)
	}
	return v, nil
}

var flopPrefixes = map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}

// ParseFLOPs reads an amount of computation: "4GFLOP", "4 GFLOPs", "4e9".
func ParseFLOPs(s string) (float64, error) {
	return parseFLOP(s, []string{"FLOPs", "FLOP", "FLOPS", "flops", "flop"}, "write 4GFLOP (units: MFLOP, GFLOP, TFLOP)")
}

// ParseFLOPRate reads what a device computes per second: "7TFLOP/s", "7 TFLOPS", "7e12".
func ParseFLOPRate(s string) (float64, error) {
	return parseFLOP(s, []string{"FLOP/s", "FLOPs/s", "FLOPS", "FLOPs", "flops", "flop/s", "FLOP"}, "write 7TFLOP/s (units: GFLOP/s, TFLOP/s, PFLOP/s)")
}

func parseFLOP(s string, names []string, hint string) (float64, error) {
	v, unit, err := split(s)
	if err != nil {
		return 0, err
	}
	if unit == "" {
		if v < 1e6 {
			return 0, fmt.Errorf("%s floating-point operations? the unit seems to be missing: %s", number(v), hint)
		}
		return flopRange(s, v)
	}
	for _, name := range names {
		prefix, ok := strings.CutSuffix(unit, name)
		if factor, known := flopPrefixes[strings.TrimSpace(prefix)]; ok && known {
			return flopRange(s, v*factor)
		}
	}
	return 0, fmt.Errorf("%q is not understood: %s", s, hint)
}

func flopRange(s string, v float64) (float64, error) {
	if v < 1 || v > 1e21 {
		return 0, fmt.Errorf("%q is not an amount that could be meant", s)
	}
	return v, nil
}

// ParseRate reads examples per second: "1457", "1457/s", "1457 img/s".
func ParseRate(s string) (float64, error) {
	v, unit, err := split(s)
	if err != nil {
		return 0, err
	}
	switch unit {
	case "", "/s", "img/s", "images/s", "examples/s", "ex/s", "samples/s":
	default:
		return 0, fmt.Errorf("%q is not a rate of examples: write 1457 or 1457/s", s)
	}
	if v > 1e12 || v < 1e-6 {
		return 0, fmt.Errorf("%q is not a rate that could be meant", s)
	}
	return v, nil
}

// ParseCount reads a whole number from 1 to limit: "128", "1,281,167", "1.2e6".
func ParseCount(s string, limit int64) (int64, error) {
	v, unit, err := split(s)
	switch {
	case err != nil:
		return 0, err
	case unit != "":
		return 0, fmt.Errorf("%q is not a count: %q does not belong there", s, unit)
	case v != math.Trunc(v):
		return 0, fmt.Errorf("%q is not a whole number", s)
	case v > float64(limit):
		return 0, fmt.Errorf("%q is more than %s", s, Count(float64(limit)))
	}
	return int64(v), nil
}

// ParseRange reads "5" or "5-10".
func ParseRange(s string, limit int64) (low, high int64, err error) {
	from, to, isRange := strings.Cut(s, "-")
	if low, err = ParseCount(from, limit); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return low, low, nil
	}
	if high, err = ParseCount(to, limit); err != nil {
		return 0, 0, err
	}
	if high < low {
		return 0, 0, fmt.Errorf("%q goes from the larger to the smaller number", s)
	}
	return low, high, nil
}

// ParseShare reads a share as 0 to 1: "99%", "99", "0.99". A bare 1 is refused:
// it may mean all or one percent.
func ParseShare(s string) (float64, error) {
	v, unit, err := split(s)
	if err != nil {
		return 0, err
	}
	switch {
	case unit == "%" || unit == "percent":
		v /= 100
	case unit != "":
		return 0, fmt.Errorf("%q is not a share: write 99%% or 0.99", s)
	case v == 1:
		return 0, fmt.Errorf("%q may be 1%% or 100%%: write which", s)
	case v > 1:
		v /= 100
	}
	if v > 1 {
		return 0, fmt.Errorf("%q is more than 100%%", s)
	}
	return v, nil
}

// ParseBandwidth reads bytes per second: "500MB/s", "2 GB/s", "10Gbit/s".
func ParseBandwidth(s string) (float64, error) {
	v, unit, err := split(s)
	if err != nil {
		return 0, err
	}
	const hint = "write 500MB/s, 2GB/s or 10Gbit/s"
	if bits, ok := strings.CutSuffix(unit, "bit/s"); ok {
		if factor, known := flopPrefixes[bits]; known {
			return v * factor / 8, nil
		}
	}
	name, ok := strings.CutSuffix(unit, "/s")
	factor, known := byteUnits[name]
	if !ok || !known {
		return 0, fmt.Errorf("%q is not a bandwidth: %s", s, hint)
	}
	return v * factor, nil
}

// Array is one array of an example as it lies in a batch.
type Array struct {
	Name  string  `json:"name"`
	Shape []int64 `json:"shape"`
	DType string  `json:"dtype"`
}

// maxArray is the largest array of one example that can be meant, in bytes.
const maxArray = 1 << 44

// elementSize is the size of an element in bytes, 0 for what is no type.
func elementSize(name string) int {
	t, _ := dtype.ParseAny(name)
	return t.Size()
}

// Bytes is the size of the array of one example: the product of its shape and
// the size of an element.
func (a Array) Bytes() float64 {
	v := float64(elementSize(a.DType))
	for _, d := range a.Shape {
		v *= float64(d)
	}
	return v
}

// String returns the array as ParseArray takes it.
func (a Array) String() string {
	dims := make([]string, len(a.Shape))
	for i, d := range a.Shape {
		dims[i] = strconv.FormatInt(d, 10)
	}
	return a.Name + ":" + strings.Join(dims, "x") + ":" + a.DType
}

// ParseArray reads "image:512x512x3:u8": the name, the shape of one example and
// the type of its elements.
func ParseArray(s string) (Array, error) {
	const hint = "write image:512x512x3:u8 (name, shape of one example, type)"
	parts := strings.Split(strings.TrimSpace(s), ":")
	if len(parts) != 3 || parts[0] == "" || len(s) > 4*maxText {
		return Array{}, fmt.Errorf("%q is not an array: %s", s[:min(len(s), maxText)], hint)
	}
	a := Array{Name: parts[0], DType: parts[2]}
	if elementSize(a.DType) == 0 {
		return Array{}, fmt.Errorf("%q has a type that is not known: u8, i8, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64", s)
	}
	for dim := range strings.SplitSeq(parts[1], "x") {
		n, err := strconv.ParseInt(dim, 10, 40)
		if err != nil || n < 1 {
			return Array{}, fmt.Errorf("%q has the side %q: %s", s, dim, hint)
		}
		a.Shape = append(a.Shape, n)
		if len(a.Shape) > 8 || a.Bytes() > maxArray {
			return Array{}, fmt.Errorf("%q is larger than an example can be", s)
		}
	}
	return a, nil
}

// number writes a parsed number as the user would.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
