package units

import (
	"fmt"
	"math"
	"strings"
)

var byteUnits = map[string]float64{
	"B":  1,
	"KB": 1e3, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50,
}

// ParseBytes reads a size: "64KB", "64 KiB", "16GB", "110000". Decimal and binary units have their standard meaning. A
// bare number below 1024 is refused, because its unit was probably omitted.
func ParseBytes(s string) (float64, error) {
	v, unit, err := split(s)
	if err != nil {
		return 0, err
	}
	if unit == "" {
		if v < 1024 {
			n := typed(v)
			return 0, fmt.Errorf("%s bytes? the unit seems to be missing: write %sB if so, or %sKB, %sMB, %sGB", n, n, n, n, n)
		}
		return wholeBytes(s, v)
	}
	factor, ok := byteUnits[unit]
	if !ok {
		return 0, fmt.Errorf("%s is not a size: %s", quoted(s), byteUnitHint(v, unit))
	}
	return wholeBytes(s, v*factor)
}

func wholeBytes(s string, v float64) (float64, error) {
	if v < 1 || v > 1e18 {
		return 0, fmt.Errorf("%s is not a size that could be meant (1 B to 1,000 PB)", quoted(s))
	}
	return v, nil
}

// byteUnitHint suggests the unit that may be meant.
func byteUnitHint(v float64, unit string) string {
	for name := range byteUnits {
		if strings.EqualFold(name, unit) && name != "kB" {
			return fmt.Sprintf("write %s%s", typed(v), name)
		}
	}
	if len(unit) == 1 && strings.Contains("KMGTPkmgtp", unit) {
		u := strings.ToUpper(unit)
		return fmt.Sprintf("write %s%sB (decimal) or %s%siB (binary)", typed(v), u, typed(v), u)
	}
	switch strings.ToLower(unit) {
	case "kbit", "mbit", "gbit", "kb/s", "mb/s", "gb/s", "gbit/s":
		return "that is a rate; sizes are in B, KB, MB, GB, TB or KiB, MiB, GiB, TiB"
	}
	return "units are B, KB, MB, GB, TB, PB (decimal) and KiB, MiB, GiB, TiB, PiB (binary)"
}

// Bytes writes a size with three digits and a decimal unit: 110 kB, 16.0 GB.
func Bytes[N number](n N) string {
	v, prefix := scaled(float64(n))
	if prefix == "" && v == math.Trunc(v) {
		return fmt.Sprintf("%.0f B", v)
	}
	return Digits(v) + " " + prefix + "B"
}

// Bandwidth writes bytes per second: 377 MB/s.
func Bandwidth[N number](n N) string { return Bytes(n) + "/s" }

// FLOPs writes an amount of computation: 4.09 GFLOP.
func FLOPs(v float64) string {
	v, prefix := scaled(v)
	return Digits(v) + " " + prefix + "FLOP"
}

// scaled brings a number below 1,000 with the prefix that it takes.
func scaled(v float64) (float64, string) {
	prefixes := []string{"", "k", "M", "G", "T", "P", "E"}
	p := 0
	for v >= 999.5 && p < len(prefixes)-1 {
		v, p = v/1000, p+1
	}
	return v, prefixes[p]
}

// Binary writes the size of a block in the usual form: 4 KiB. Sizes that are not a whole number of KiB are written like
// Bytes.
func Binary(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return Int(n>>20) + " MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return Int(n>>10) + " KiB"
	}
	return Bytes(n)
}

// MiB is a number of bytes in MiB, rounded up: what must be given for n bytes to
// have room.
func MiB(n int64) int64 { return (n + 1<<20 - 1) >> 20 }
