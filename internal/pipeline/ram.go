package pipeline

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/localcache"
	"github.com/stokerdata/stoker/internal/store/keep"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// caches are the caches of the data.
type caches struct {
	kept    keeping    // of records
	ram     *keep.Kept // of bytes in memory, nil for none
	ramNote string
	disk    onDisk // of bytes on a disk
}

// ramWanted returns how much of the data to cache in memory. It is 0 for files on this machine, because the system's
// cache already holds those.
func (p *Pipeline) ramWanted(info *driver.Info) int64 {
	want := p.cfg.CacheMemory
	if want == 0 {
		return 0
	}
	if info.Objects == 0 || localcache.Local(p.data()) != "" {
		p.caches.ramNote = fmt.Sprintf("a cache in memory is for remote data; the system keeps %s in memory", info.URL)
		return 0
	}
	total := int64(0)
	for _, c := range localcache.Pieces(p.src) {
		if total += c.Size; total >= want {
			return want
		}
	}
	return total
}

// keepsPart reports whether only a part of the data is cached. Bytes of the rest that are read ahead would be read
// again and again.
func (p *Pipeline) keepsPart() bool {
	switch {
	case p.caches.disk.staged != nil:
		return false
	case p.caches.disk.Cache != nil:
		return !p.caches.disk.Whole
	case p.caches.ram != nil:
		kept := p.caches.ram.Stats().Limit
		for _, c := range localcache.Pieces(p.src) {
			kept -= c.Size
		}
		return kept < 0
	}
	return false
}

// openCaches adds the caches between the reads and the stores: first the memory cache, then the disk cache.
func (p *Pipeline) openCaches(ctx context.Context, bytes int64) error {
	below := p.cfg.Decorate
	if bytes > 0 {
		var err error
		if p.caches.ram, err = keep.New(bytes, localcache.Pieces(p.src)); err != nil {
			return fmt.Errorf("cache in memory: %w", err)
		}
	}
	if err := p.caches.disk.open(ctx, p); err != nil {
		return err
	}
	if p.caches.ram == nil && p.caches.disk.Cache == nil && p.caches.disk.staged == nil {
		return nil
	}
	p.objects.Decorate = func(s store.Store) store.Store {
		if below != nil {
			s = below(s)
		}
		switch {
		case p.caches.disk.staged != nil:
			s = p.caches.disk.staged.Store(s)
		case p.caches.disk.Cache != nil:
			s = p.caches.disk.Store(s)
		}
		if p.caches.ram != nil {
			s = p.caches.ram.Store(s)
		}
		return s
	}
	return nil
}
