package view

import "github.com/stokerdata/stoker/source/driver"

// Chunks implements driver.Chunker. A chunk of the view is the rest of a chunk of its source. If
// less than half of the records remain there are no chunks, since most of the bytes would be read
// in vain.
func (v *view) Chunks() []int64 {
	v.chunksOnce.Do(func() {
		theirs, own := driver.ChunksOf(v.Base)
		v.chunker = own
		switch {
		case len(theirs) == 0 || v.info.Len < v.in.Len/2:
		case v.keep == nil:
			v.chunks = theirs
		default:
			for c := range len(theirs) - 1 {
				if at := v.keep.rank(theirs[c]); at < v.keep.rank(theirs[c+1]) {
					v.chunks, v.chunkOf = append(v.chunks, at), append(v.chunkOf, c)
				}
			}
			v.chunks = append(v.chunks, v.info.Len)
		}
	})
	return v.chunks
}

// Chunk implements driver.Chunker.
func (v *view) Chunk(n int) driver.Extent {
	v.Chunks()
	if v.chunkOf != nil {
		n = v.chunkOf[n]
	}
	return v.chunker.Chunk(n)
}
