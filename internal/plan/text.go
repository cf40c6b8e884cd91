package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes writes a size with three digits and a decimal unit: 110 kB, 16.0 GB.
func Bytes(v float64) string { return scaled(v, "B", "B") }

// Bandwidth writes bytes per second: 377 MB/s.
func Bandwidth(v float64) string { return Bytes(v) + "/s" }

func scaled(v float64, unit, base string) string {
	prefixes := []string{"", "k", "M", "G", "T", "P", "E"}
	p := 0
	for v >= 999.5 && p < len(prefixes)-1 {
		v, p = v/1000, p+1
	}
	if p == 0 && v == math.Trunc(v) {
		return fmt.Sprintf("%.0f %s", v, base)
	}
	return digits(v) + " " + prefixes[p] + unit
}

// digits writes three significant digits, without an exponent.
func digits(v float64) string {
	switch {
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return Count(v)
}

// Count writes a number rounded to a whole one, with commas: 5,885. Below 10 it
// keeps one decimal where there is one.
func Count(v float64) string {
	if v < 9.95 && math.Abs(v-math.Round(v)) > 0.05 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	if math.IsInf(v, 0) || math.IsNaN(v) || math.Abs(v) > 1e15 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	s := strconv.FormatInt(int64(math.Round(v)), 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Seconds writes a time as people say it: 87.9 ms, 2.00 s, 12 min, 3 h 20 min.
func Seconds(v float64) string {
	switch {
	case v < 1e-6:
		return digits(v*1e9) + " ns"
	case v < 0.9995e-3:
		return digits(v*1e6) + " us"
	case v < 0.9995:
		return digits(v*1e3) + " ms"
	case v < 119.5:
		return digits(v) + " s"
	case v < 7170:
		return Count(v/60) + " min"
	case v < 48*3600:
		return fmt.Sprintf("%d h %02d min", int(v/3600), int(v/60)%60)
	}
	return Count(v/86400) + " days"
}

// Percent writes a share: 99%, 99.9%, 0.5%.
func Percent(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(100*v, 'f', 1, 64), ".0") + "%"
}

// Times writes a factor: 2.3x, 16x.
func Times(v float64) string {
	switch {
	case math.IsInf(v, 1) || v > 9999:
		return "over 9,999x"
	case v < 0.1:
		return strconv.FormatFloat(v, 'g', 1, 64) + "x"
	case v < 0.995:
		return strconv.FormatFloat(v, 'f', 2, 64) + "x"
	case v < 9.95:
		return strconv.FormatFloat(v, 'f', 1, 64) + "x"
	}
	return Count(v) + "x"
}

// plural writes "1 disk", "59 disks".
func plural(n float64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if s, ok := strings.CutSuffix(noun, "y"); ok && !strings.HasSuffix(noun, "ay") {
		noun = s + "ie"
	}
	if strings.HasSuffix(noun, "ss") || strings.HasSuffix(noun, "x") {
		noun += "e"
	}
	return Count(n) + " " + noun + "s"
}

// list joins names: a, b and c.
func list(names []string, last string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " " + last + " " + names[len(names)-1]
}

// decimals writes a number with one decimal where it has one and is below 100.
func decimals(v float64) string {
	if v < 99.95 && v != math.Trunc(v) {
		return strconv.FormatFloat(math.Max(v, 0.1), 'f', 1, 64)
	}
	return Count(v)
}
