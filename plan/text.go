package plan

import (
	"math"
	"strconv"

	"github.com/stokerdata/stoker/internal/units"
)

// decimals writes a number with one decimal if it is below 100 and not an integer.
func decimals(v float64) string {
	if v < 99.95 && v != math.Trunc(v) {
		return strconv.FormatFloat(math.Max(v, 0.1), 'f', 1, 64)
	}
	return units.Count(v)
}
