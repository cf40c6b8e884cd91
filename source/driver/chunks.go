package driver

// Chunker is implemented by sources whose records lie in chunks: runs of neighbours
// that one read can get, such as those of packs.
type Chunker interface {
	// Chunks are the first record of each chunk, and behind them the number of records.
	// It is nil where there are none. It is the same as long as the fingerprint is.
	Chunks() []int64
	// Chunk says where all of chunk n lies. Of a source that is an Indexer, these bytes
	// are for Learn too.
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
