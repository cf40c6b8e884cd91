package plan

import (
	"math"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
)

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
	return units.Count(v)
}
