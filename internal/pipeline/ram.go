package pipeline

import (
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/keep"
)

const (
	// keepBytes is how large the pieces are that are kept in memory, of sources without
	// chunks.
	keepBytes = 8 << 20
	// maxKeepObjects is the most objects of which something is kept.
	maxKeepObjects = 1 << 22
)

// ramWanted is how much of the data is to be kept in memory, 0 where it lies in files of
// this machine: the system's cache holds those, and would hold them twice.
func (p *Pipeline) ramWanted(info *driver.Info) int64 {
	want := p.cfg.CacheMemory
	if want == 0 {
		return 0
	}
	if info.Objects == 0 || local(p.src.Object(0).Store) != "" {
		p.ramNote = fmt.Sprintf("cache_memory is for data in other places; %s is kept in memory by the system", info.URL)
		return 0
	}
	total := int64(0)
	for _, c := range p.keepable(info) {
		if total += c.Size; total >= want {
			return want
		}
	}
	return total
}

// keepable are the pieces of which some are kept: the chunks of the source, or parts of
// its objects.
func (p *Pipeline) keepable(info *driver.Info) (pieces []keep.Piece) {
	if starts := driver.ChunksOf(p.src); starts != nil {
		of := p.src.(driver.Chunker)
		for c := range len(starts) - 1 {
			e := of.Chunk(c)
			ob := p.src.Object(e.Object)
			pieces = append(pieces, keep.Piece{Path: ob.Store.Path(ob.Entry.Name), Off: e.Offset, Size: e.Size})
		}
		return pieces
	}
	for n := range min(info.Objects, maxKeepObjects) {
		ob := p.src.Object(n)
		path := ob.Store.Path(ob.Entry.Name)
		for off := int64(0); off < ob.Entry.Size; off += keepBytes {
			pieces = append(pieces, keep.Piece{Path: path, Off: off, Size: min(keepBytes, ob.Entry.Size-off)})
		}
	}
	return pieces
}

// keepInMemory puts what is kept in front of the stores that records are read from.
func (p *Pipeline) keepInMemory(info *driver.Info, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	var err error
	if p.ram, err = keep.New(bytes, p.keepable(info)); err != nil {
		return fmt.Errorf("cache_memory: %w", err)
	}
	below := p.cfg.Decorate
	p.objects.Decorate = func(s store.Store) store.Store {
		if below != nil {
			s = below(s)
		}
		return p.ram.Store(s)
	}
	return nil
}
