package budget

import "math"

// guessedScratch is the large scratch where the sizes of images are not known.
const guessedScratch = 32 << 20

// Enough is the memory with which an engine has what it wants, in whole MiB: all
// of its slots, full buffers of records of recordBytes, as much to read ahead as
// two batches take on the storage, and scratch for the largest image.
func Enough(r *Request, recordBytes int64) int64 {
	stride := SlotStride(r.SlotBytes)
	slots := Slots(r.Prefetch, stride)
	recordBytes = clamp(recordBytes, 1, maxLookahead)
	var p Plan
	p.reading(r)
	ahead := r.Lookahead
	if ahead == 0 {
		ahead = min(2*int64(r.BatchSize)*recordBytes, maxLookahead)
	}
	large := largeImage(r.Images)
	for _, im := range r.Images {
		if pixels(max(im.Width, im.MaxWidth), max(im.Height, im.MaxHeight)) == 0 {
			large = guessedScratch
		}
	}
	scratch := int64(r.Threads)*workerScratch(r.Images) + max(large, minLargeScratch)
	return MiB(int64(slots)*stride+p.Read+ahead+scratch) << 20
}

// ThreadsFor is the number of decode workers of each of some engines that share
// the cores of a machine.
func ThreadsFor(cores float64, engines int64) int {
	return int(clamp(int64(math.Ceil(cores))/max(engines, 1), 1, MaxThreads))
}
