package driver

// Chunker is implemented by sources with chunks, for example packs. A chunk is a run of consecutive
// records that a single read can get.
type Chunker interface {
	// Chunks returns the first record of each chunk, followed by the number of records. It returns
	// nil if there are no chunks. The result depends only on the fingerprint.
	Chunks() []int64
	// Chunk returns the extent of chunk n. If the source is an Indexer, the same bytes are also
	// valid for Learn.
	Chunk(n int) Extent
}

// ChunksOf returns the chunks of a source, and nil if it has none.
func ChunksOf(s Source) ([]int64, Chunker) {
	if c, ok := As[Chunker](s); ok {
		if starts := c.Chunks(); len(starts) > 0 {
			return starts, c
		}
	}
	return nil, nil
}
