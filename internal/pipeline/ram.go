package pipeline

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/localcache"
	"github.com/stokerdata/stoker/internal/store/keep"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// ramWanted returns how much of the data to cache in memory. It is 0 for files on this machine, because the system's
// cache already holds those.
func (p *Pipeline) ramWanted(info *driver.Info) int64 {
	want := p.cfg.CacheMemory
	if want == 0 {
		return 0
	}
	if info.Objects == 0 || localcache.Local(p.data()) != "" {
		p.ramNote = fmt.Sprintf("a cache in memory is for remote data; the system keeps %s in memory", info.URL)
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
	case p.disk.staged != nil:
		return false
	case p.disk.Cache != nil:
		return !p.disk.Whole
	case p.ram != nil:
		kept := p.ram.Stats().Limit
		for _, c := range localcache.Pieces(p.src) {
			kept -= c.Size
		}
		return kept < 0
	}
	return false
}

// caches adds the caches between the reads and the stores: first the memory cache, then the disk cache.
func (p *Pipeline) caches(ctx context.Context, bytes int64) error {
	below := p.cfg.Decorate
	if bytes > 0 {
		var err error
		if p.ram, err = keep.New(bytes, localcache.Pieces(p.src)); err != nil {
			return fmt.Errorf("cache in memory: %w", err)
		}
	}
	if err := p.disk.open(ctx, p); err != nil {
		return err
	}
	if p.ram == nil && p.disk.Cache == nil && p.disk.staged == nil {
		return nil
	}
	p.objects.Decorate = func(s store.Store) store.Store {
		if below != nil {
			s = below(s)
		}
		switch {
		case p.disk.staged != nil:
			s = p.disk.staged.Store(s)
		case p.disk.Cache != nil:
			s = p.disk.Store(s)
		}
		if p.ram != nil {
			s = p.ram.Store(s)
		}
		return s
	}
	return nil
}
