package budget

import (
	"math"

	"github.com/stokerdata/stoker/internal/units"
)

// guessedLarge is the memory for large images if their sizes are unknown.
const guessedLarge = 32 << 20

// Enough returns the memory with which an engine has everything it can use, in whole MiB: all of its slots and
// scratch for the largest image. The readahead is two batches as stored, with recordBytes per record.
func Enough(r *Request, recordBytes int64) int64 {
	p := least(r)
	p.Ring = int64(Slots(r.Prefetch, p.SlotStride)) * p.SlotStride
	if r.Lookahead == 0 {
		p.Lookahead = min(2*int64(r.BatchSize)*clamp(recordBytes, 1, maxLookahead), maxLookahead)
	}
	p.Large = max(largeImage(r.Images), p.Large)
	for _, im := range r.Images {
		if pixels(max(im.Width, im.MaxWidth), max(im.Height, im.MaxHeight)) == 0 {
			p.Large = guessedLarge
		}
	}
	return units.MiB(p.sum(r)) << 20
}

// ThreadsFor returns the number of decode workers of each of some engines that share the cores of a machine.
func ThreadsFor(cores float64, engines int64) int {
	return int(clamp(int64(math.Ceil(cores))/max(engines, 1), 1, MaxThreads))
}
