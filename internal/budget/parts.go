package budget

// SlotStride is the distance between slots of slotBytes: a multiple of HugePage,
// so that huge pages can back them, or of a page when that would be mostly gaps.
func SlotStride(slotBytes int64) int64 {
	to := int64(HugePage)
	if slotBytes <= HugePage/2 {
		to = page
	}
	return (slotBytes + to - 1) / to * to
}

// Slots is the number of slots of an engine with all the memory that it
// wants: the batches made ahead, the one that the trainer works on and the one
// that it still holds.
func Slots(prefetch int, stride int64) int {
	switch {
	case prefetch > 0:
		return max(prefetch+2, minSlots)
	case stride <= smallBatch:
		return int(clamp(smallRing/stride, smallSlots, maxSlots))
	}
	return DefaultSlots
}

// leastRead is room for the largest record.
func leastRead(r *Request) int64 {
	n := max(int64(minRead), r.UnplacedBytes+1<<20)
	for _, im := range r.Images {
		n = max(n, im.MaxBytes+im.MaxBytes/8+1<<20)
	}
	return n
}

func workerScratch(images []Image) int64 {
	for _, im := range images {
		if im.Kept {
			return keptScratch
		}
	}
	return fewScratch
}

// largeImage is what the largest image takes: three copies of it between steps,
// and what decoding it takes in any format, as far as its size is known.
func largeImage(images []Image) int64 {
	need := int64(0)
	for _, im := range images {
		n := pixels(max(im.Width, im.MaxWidth), max(im.Height, im.MaxHeight))
		if n == 0 {
			return maxLarge
		}
		need = max(need, (3*im.pixelBytes()+20)*n+1<<20)
	}
	return min(need, maxLarge)
}

// groupRows chooses how many records make a group.
func groupRows(r *Request, slots int) int {
	rows := GroupRows
	if n := pixelBytes(r.Images); n > 0 {
		rows = int(clamp(groupBytes/n, GroupRows, maxSmallGroupRows))
	}
	if r.ValueBytes > 0 {
		rows = min(rows, int(clamp(groupBytes/r.ValueBytes, 1, maxSmallGroupRows)))
	}
	// Two groups for each worker among the batches under way.
	rows = min(rows, max(r.BatchSize*slots/(2*r.Threads), 1))
	return min(rows, r.BatchSize)
}

// pixelBytes returns the bytes of a record when all of its images are raw and of
// one size, else 0.
func pixelBytes(images []Image) int64 {
	total := int64(64)
	for _, im := range images {
		n := pixels(im.Width, im.Height)
		if n == 0 {
			return 0
		}
		total += n * im.pixelBytes()
	}
	return total
}

func (im *Image) pixelBytes() int64 {
	if im.PixelBytes == 0 {
		return 3
	}
	return clamp(im.PixelBytes, 1, 16)
}

// pixels of an image. Sides that no image has do not overflow it.
func pixels(w, h int64) int64 {
	const side = 1 << 24
	return clamp(w, 0, side) * clamp(h, 0, side)
}
