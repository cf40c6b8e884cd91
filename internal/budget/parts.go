package budget

// SlotStride returns the distance between slots of slotBytes: a multiple of HugePage, so that huge pages can back
// them, or of a page when that would be mostly gaps.
func SlotStride(slotBytes int64) int64 {
	to := int64(HugePage)
	if slotBytes <= HugePage/2 {
		to = page
	}
	return (slotBytes + to - 1) / to * to
}

// Slots returns the number of slots of an engine with sufficient memory. It counts the batches built ahead, the one
// that the trainer uses, and the previous one that it still holds.
func Slots(prefetch int, stride int64) int {
	switch {
	case prefetch > 0:
		return max(prefetch+2, minSlots)
	case stride <= smallBatch:
		return int(clamp(smallRing/stride, smallSlots, maxSlots))
	}
	return DefaultSlots
}

// leastRead returns the memory for reading the largest record.
func leastRead(r *Request) int64 { return max(minRead, largestRecord(r)) }

// largestRecord returns the size of the largest stored record.
func largestRecord(r *Request) int64 {
	n := r.UnplacedBytes
	for _, im := range r.Images {
		n = max(n, im.storedBytes())
	}
	return n + n/8 + minParse
}

// groupParse returns the memory for the values that a source makes from the bytes of a group.
func (p *Plan) groupParse(r *Request) int64 {
	n, most := r.valueBytes(), int64(maxParse)
	if r.Together > 0 {
		most = max(most, r.togetherBytes())
	}
	return min(int64(p.GroupRows), most/n)*n + minParse
}

// valueBytes returns the total size of the largest values of a record.
func (r *Request) valueBytes() int64 {
	n := r.UnplacedBytes
	for _, im := range r.Images {
		n += im.storedBytes()
	}
	return max(n, 1)
}

// togetherBytes returns the maximum size of the values of records that are built together. It is a worker's share of
// the memory for them, without its fixed memory per group.
func (r *Request) togetherBytes() int64 {
	return min(maxTogether, max(r.Memory/16/int64(max(r.Threads, 1))-minParse, 0))
}

// storedBytes returns the size of the largest stored image.
func (im *Image) storedBytes() int64 {
	return max(im.MaxBytes, pixels(im.Width, im.Height)*im.pixelBytes())
}

func workerScratch(images []Image) int64 {
	n := int64(fewScratch)
	for _, im := range images {
		if im.Kept {
			n = max(n, keptScratch)
		}
		if im.Frames {
			n = max(n, keptScratch+im.pixelBytes()*pixels(im.MaxWidth, im.MaxHeight))
		}
	}
	return n
}

// decoderBytes returns the memory that the video decoders of a worker hold.
func decoderBytes(images []Image) int64 {
	n := int64(0)
	for _, im := range images {
		if im.Frames {
			n = max(n, heldFrames*3/2*pixels(im.MaxWidth, im.MaxHeight))
		}
	}
	return n
}

// keptImages returns the memory of the largest image that is kept between steps: one decoded copy and three
// intermediate ones, each with space to grow. An image that finds no memory waits for Large and is decoded again.
func keptImages(images []Image) int64 {
	need := int64(0)
	for _, im := range images {
		if !im.Kept {
			continue
		}
		n := max(pixels(max(im.Width, im.MaxWidth), max(im.Height, im.MaxHeight)), pixels(im.RowWidth, im.RowHeight)) * im.pixelBytes()
		need = max(need, min(keptScratch+4*(n+n/8), maxWorked))
	}
	return need
}

// largeImage returns the memory of the largest image: three copies of it between steps, and decoding it in any
// format, as far as its size is known.
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

// groupRows chooses the number of records in a group.
func groupRows(r *Request, slots int) int {
	rows := GroupRows
	if n := pixelBytes(r.Images); n > 0 {
		rows = int(clamp(groupBytes/n, GroupRows, maxSmallGroupRows))
	}
	if r.ValueBytes > 0 {
		rows = min(rows, int(clamp(groupBytes/r.ValueBytes, 1, maxSmallGroupRows)))
	}
	if r.Together > 0 {
		rows = max(rows, min(r.Together, int(r.togetherBytes()/r.valueBytes())))
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
