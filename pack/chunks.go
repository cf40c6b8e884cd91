package pack

import "github.com/stokerdata/stoker/source/driver"

// Chunks implements driver.Chunker. Chunks of which all rows are removed are none.
func (r *Reader) Chunks() []int64 {
	starts := make([]int64, 0, len(r.chunks)+1)
	for c := range r.chunks {
		id, _ := r.gone.record(r.find.first[c])
		if end, _ := r.gone.record(r.find.first[c+1]); id < end {
			starts = append(starts, id)
		}
	}
	return append(starts, r.man.Records)
}

// Chunk implements driver.Chunker.
func (r *Reader) Chunk(n int) driver.Extent {
	c := n
	if r.gone.rows() > 0 { // those without rows do not count
		for c = 0; ; c++ {
			id, _ := r.gone.record(r.find.first[c])
			if end, _ := r.gone.record(r.find.first[c+1]); id < end {
				if n == 0 {
					break
				}
				n--
			}
		}
	}
	ref := &r.chunks[c]
	return driver.Extent{Object: int64(ref.shard), Offset: ref.offset, Size: ref.bytes, Field: -1}
}
