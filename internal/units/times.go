package units

import (
	"fmt"
	"math"
	"time"
)

var timeUnits = map[string]float64{"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600}

// ParseSeconds reads a time: "87ms", "0.087", "2 s", "1.5min", "1m30s". A bare
// number is in seconds; one above 10 is refused, because a time in milliseconds
// that lost its unit looks like that.
func ParseSeconds(s string) (float64, error) {
	v, bare, err := parseTime(s)
	if err == nil && bare && v > 10 {
		n := typed(v)
		return 0, fmt.Errorf("%s seconds? the unit seems to be missing: write %ss if so, or %sms", n, n, n)
	}
	return v, err
}

// ParseSpan reads a time whose unit is said to be seconds, as flags called
// --seconds do: "15", "1.5", "2m".
func ParseSpan(s string) (time.Duration, error) {
	v, _, err := parseTime(s)
	return time.Duration(math.Round(v * 1e9)), err
}

// parseTime reads a time in seconds. bare reports whether it had no unit.
func parseTime(s string) (v float64, bare bool, err error) {
	if d, err := time.ParseDuration(s); err == nil && d > 0 { // several units in a row
		return checkTime(s, d.Seconds(), false)
	}
	v, unit, err := split(s)
	if err != nil {
		return 0, false, err
	}
	if unit == "" {
		return checkTime(s, v, true)
	}
	factor, ok := timeUnits[unit]
	if !ok {
		return 0, false, fmt.Errorf("%s is not a time: write 87ms, 0.087s or 2s (units: ns, us, ms, s, min, h)", quoted(s))
	}
	return checkTime(s, v*factor, false)
}

func checkTime(s string, v float64, bare bool) (float64, bool, error) {
	if v < 1e-9 || v > 1e9 {
		return 0, bare, fmt.Errorf("%s is not a time that could be meant (1ns to 1,000,000,000s)", quoted(s))
	}
	return v, bare, nil
}

// Seconds writes a time with three digits as people say it: 87.9 ms, 2.00 s, 12
// min, 3 h 20 min.
func Seconds(v float64) string {
	switch {
	case v == 0:
		return "0 s"
	case v < 0:
		return "-" + Seconds(-v)
	case v < 0.9995e-6:
		return Digits(v*1e9) + " ns"
	case v < 0.9995e-3:
		return Digits(v*1e6) + " us"
	case v < 0.9995:
		return Digits(v*1e3) + " ms"
	case v < 119.5:
		return Digits(v) + " s"
	case v < 7170:
		return Count(v/60) + " min"
	case v < 48*3600:
		minutes := int(math.Round(v / 60))
		return fmt.Sprintf("%d h %02d min", minutes/60, minutes%60)
	}
	return Count(v/86400) + " days"
}

// Elapsed writes how long something took or will take, to the second, as progress
// does: 850ms, 3.2s, 47s, 12m05s, 3h20m.
func Elapsed(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
