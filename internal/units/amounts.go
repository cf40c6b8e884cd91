package units

import (
	"fmt"
	"math"
	"strings"
)

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
			return 0, fmt.Errorf("%s floating-point operations? the unit seems to be missing: %s", typed(v), hint)
		}
		return flopRange(s, v)
	}
	for _, name := range names {
		prefix, ok := strings.CutSuffix(unit, name)
		if factor, known := flopPrefixes[strings.TrimSpace(prefix)]; ok && known {
			return flopRange(s, v*factor)
		}
	}
	return 0, fmt.Errorf("%s is not understood: %s", quoted(s), hint)
}

func flopRange(s string, v float64) (float64, error) {
	if v < 1 || v > 1e21 {
		return 0, fmt.Errorf("%s is not an amount that could be meant", quoted(s))
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
		return 0, fmt.Errorf("%s is not a rate of examples: write 1457 or 1457/s", quoted(s))
	}
	if v > 1e12 || v < 1e-6 {
		return 0, fmt.Errorf("%s is not a rate that could be meant", quoted(s))
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
		return 0, fmt.Errorf("%s is not a count: %s does not belong there", quoted(s), quoted(unit))
	case v != math.Trunc(v):
		return 0, fmt.Errorf("%s is not a whole number", quoted(s))
	case v > float64(limit):
		return 0, fmt.Errorf("%s is more than %s", quoted(s), Count(float64(limit)))
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
		return 0, 0, fmt.Errorf("%s goes from the larger to the smaller number", quoted(s))
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
		return 0, fmt.Errorf("%s is not a share: write 99%% or 0.99", quoted(s))
	case v == 1:
		return 0, fmt.Errorf("%s may be 1%% or 100%%: write which", quoted(s))
	case v > 1:
		v /= 100
	}
	if v > 1 {
		return 0, fmt.Errorf("%s is more than 100%%", quoted(s))
	}
	if v < 1e-9 {
		return 0, fmt.Errorf("%s is not a share that could be meant", quoted(s))
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
			return bandwidthRange(s, v*factor/8)
		}
	}
	name, ok := strings.CutSuffix(unit, "/s")
	factor, known := byteUnits[name]
	if !ok || !known {
		return 0, fmt.Errorf("%s is not a bandwidth: %s", quoted(s), hint)
	}
	return bandwidthRange(s, v*factor)
}

func bandwidthRange(s string, v float64) (float64, error) {
	if v < 1 || v > 1e18 {
		return 0, fmt.Errorf("%s is not a bandwidth that could be meant", quoted(s))
	}
	return v, nil
}
