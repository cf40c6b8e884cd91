package units

import (
	"math"
	"strconv"
	"strings"
)

// number is a type of figures.
type number interface {
	~int | ~int32 | ~int64 | ~uint64 | ~float64
}

// Int writes a whole number with commas: 1,281,167.
func Int[N ~int | ~int32 | ~int64](n N) string { return commas(strconv.FormatInt(int64(n), 10)) }

func commas(s string) string {
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Count writes a number rounded to a whole one, with commas: 5,885. Below 10 it keeps one decimal if it is not 0.
func Count(v float64) string {
	if v < 9.95 && math.Abs(v-math.Round(v)) > 0.05 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	if math.IsInf(v, 0) || math.IsNaN(v) || math.Abs(v) > 1e15 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return commas(strconv.FormatInt(int64(math.Round(v)), 10))
}

// Digits writes a number of zero or more with three significant digits, without
// an exponent; above 1,000 with commas.
func Digits(v float64) string {
	switch {
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return Count(v)
}

// Plural writes "1 disk", "59 disks".
func Plural[N number](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if s, ok := strings.CutSuffix(noun, "y"); ok && !strings.HasSuffix(noun, "ay") {
		noun = s + "ie"
	}
	for _, end := range []string{"ss", "x", "ch", "sh"} {
		if strings.HasSuffix(noun, end) {
			noun += "e"
			break
		}
	}
	return Count(float64(n)) + " " + noun + "s"
}

// Records writes "1 record", "1,544 records".
func Records[N ~int | ~int32 | ~int64](n N) string {
	if n == 1 {
		return "1 record"
	}
	return Int(n) + " records"
}

// Percent writes a share: 99%, 99.9%, 0.5%.
func Percent(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(100*v, 'f', 1, 64), ".0") + "%"
}

// Tenths writes a share always with one decimal, for columns: 99.0%.
func Tenths(v float64) string { return strconv.FormatFloat(100*v, 'f', 1, 64) + "%" }

// Whole writes a share without decimals: 99%.
func Whole(v float64) string { return strconv.FormatFloat(100*v, 'f', 0, 64) + "%" }

// Rough writes a share with two digits: 0.5%, 9.9%, 43%.
func Rough(v float64) string {
	if v > 0 && v < 0.0995 {
		return Tenths(v)
	}
	return Whole(v)
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
