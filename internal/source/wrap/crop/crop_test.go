package crop

import (
	"testing"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func TestWrapped(t *testing.T) {
	drivertest.Wrapped(t, drivertest.Wrapping{
		Open: func(testing.TB) driver.Source { return sourcetest.Mixed(30).Copied() },
		Wrap: func(_ testing.TB, base driver.Source) driver.Source {
			return Open(base, map[int]Field{5: {
				Sides: func(_, _ [3]int) (lo, hi [3]int) { return [3]int{2, 2, 2}, [3]int{2, 2, 2} },
				Part:  func(_, _ int64, _ [3]int) (at, size [3]int) { return at, [3]int{2, 2, 2} },
			}})
		},
		Lacks: map[string]string{
			"Cutter":  "the volumes are cut already",
			"Chunker": "a crop reads less than a chunk",
			"Varied":  "the number of the epoch takes the place of the variant",
		},
	})
}
