package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/store"
)

// This file measures the server of a URL: a bucket's, or a web server.

// The measured reads: small ones for the latency, one of about the size of a photograph, and one that gets the most
// from each request. The depths grow while the rate increases.
const (
	smallRange = 4 << 10
	largeRange = 8 << 20
)

var (
	endpointSmall = []int{1, 16, 256}
	endpointDepth = []int{1, 4, 16, 64, 128}
	largeDepths   = []int{1, 2, 4, 8, 16, 32}
)

const (
	// maxObjects is the maximum number of objects examined.
	maxObjects = 1000
	// endpointBuffers limits the size of all read buffers together.
	endpointBuffers = 256 << 20
	// grows is the minimum gain that justifies a deeper queue. enough is the share of the maximum rate that the
	// recommended depth must reach.
	grows  = 1.05
	enough = 0.95
)

// isRemote reports whether the path is the URL of a server.
func (p *probe) isRemote() bool { return stores.IsURL(p.path) }

// endpoint measures reads of a server.
func (p *probe) endpoint(ctx context.Context, d time.Duration) {
	scheme, _, _ := strings.Cut(p.path, "://")
	s := &plan.Store{Path: shown(p.path), Class: plan.ClassObject, Filesystem: scheme, Device: "a server"}
	p.m.Store = s
	st, err := stores.Open(ctx, p.path)
	if err != nil {
		p.note("storage: %v", err)
		return
	}
	defer st.Close()
	started := time.Now()
	objects, err := p.objects(ctx, st)
	if err != nil {
		p.note("storage: %v", err)
		return
	}
	largest := slices.MaxFunc(objects, func(a, b store.Entry) int { return int(a.Size - b.Size) })
	if x, ok := store.As[store.Examiner](st); ok {
		if m, err := x.Examine(ctx, objects[0]); err != nil {
			p.note("storage: %v", err)
			return
		} else {
			s.Endpoint = &plan.Endpoint{Ranges: m.Ranges, IfMatch: m.IfMatch, Checksum: m.Checksum}
		}
	}
	// A read that is out when the time is up is ended, and not counted.
	rctx, stop := context.WithCancel(ctx)
	defer stop()
	t, err := openObjects(rctx, st, objects)
	if err != nil {
		p.note("storage: %v", err)
		return
	}
	defer t.close()
	left := max(d-time.Since(started), d/2)
	each := left * 2 / 3 / time.Duration(len(endpointSmall)+len(endpointDepth)+len(largeDepths))
	for _, reads := range []struct {
		block  int64
		depths []int
	}{{smallRange, endpointSmall}, {loaderBlock, endpointDepth}, {largeRange, largeDepths}} {
		if reads.block > smallRange && reads.block/2 > largest.Size {
			p.note("storage: the largest of the objects that were looked at has %d bytes; reads of %d bytes were not measured", largest.Size, reads.block)
			break
		}
		if err := p.deeper(ctx, s, t, reads.block, reads.depths, each); err != nil {
			p.note("storage: %v", err)
			return
		}
	}
	if s.Endpoint != nil {
		s.Endpoint.Depth = recommended(s.Random)
	}
	if r, err := p.loaderOf(rctx, left/3, st, largest); err != nil {
		p.note("storage: as the loader reads: not measured (%v)", err)
	} else if r.IOPS > 0 {
		s.Buffered = append(s.Buffered, r)
	}
}

// shown returns a URL without credentials and other secrets.
func shown(url string) string {
	base, _ := stores.Cut(url)
	return stores.Public(base)
}

// deeper measures reads of a size, at depths that increase while the rate increases.
func (p *probe) deeper(ctx context.Context, s *plan.Store, t *target, block int64, depths []int, each time.Duration) error {
	best, poor := 0.0, 0
	for _, depth := range depths {
		if depth > 1 && int64(depth)*block > endpointBuffers || poor == 2 {
			return nil
		}
		r, err := t.measure(ctx, each, block, depth, false)
		if err != nil {
			return err
		}
		if r.Latency.Samples == 0 {
			continue
		}
		r.Block = block
		s.Random = append(s.Random, r)
		if poor++; r.Bandwidth > best*grows {
			poor = 0
		}
		best = max(best, r.Bandwidth)
	}
	return nil
}

// recommended returns the smallest depth that reaches nearly all of the bandwidth of the largest reads.
func recommended(rates []plan.ReadRate) int {
	block, best := int64(0), 0.0
	for i := range rates {
		block = max(block, rates[i].Block)
	}
	for i := range rates {
		if rates[i].Block == block {
			best = max(best, rates[i].Bandwidth)
		}
	}
	depth := 0
	for i := range rates {
		if r := &rates[i]; r.Block == block && r.Bandwidth >= enough*best && (depth == 0 || r.Depth < depth) {
			depth = r.Depth
		}
	}
	return depth
}

// objects returns the objects to read: the first ones of a listing.
func (p *probe) objects(ctx context.Context, st store.Store) ([]store.Entry, error) {
	e, err := st.Stat(ctx, "")
	if err != nil {
		return nil, err
	}
	if !e.Dir {
		if e.Size == 0 {
			return nil, fmt.Errorf("%s is empty", st)
		}
		return []store.Entry{e}, nil
	}
	var all []store.Entry
	if m := p.data.pack; m != nil { // which needs no list
		for i := range m.Shards {
			if len(all) == maxLarge {
				break
			}
			e, err := st.Stat(ctx, m.Shards[i].File)
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		}
	} else {
		full := errors.New("enough")
		err := st.List(ctx, "", &store.ListOptions{Threads: 1}, func(e store.Entry) error {
			if !e.Dir && e.Size > 0 {
				all = append(all, e)
			}
			if len(all) == maxObjects {
				return full
			}
			return nil
		})
		if err != nil && !errors.Is(err, full) {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is nothing in %s that could be read", st)
	}
	return all, nil
}

// openObjects makes a target of objects.
func openObjects(ctx context.Context, st store.Store, objects []store.Entry) (*target, error) {
	t := &target{direct: true}
	for _, e := range objects {
		o, err := store.OpenEntry(ctx, st, e)
		if err != nil {
			t.close()
			return nil, err
		}
		t.closes = append(t.closes, o.Close)
		t.files = append(t.files, dataFile{e.Name, e.Size})
		t.reads = append(t.reads, func(b []byte, off int64) (int, error) {
			n := min(int64(len(b)), o.Size()-off)
			return int(n), o.ReadAt(ctx, b[:n], off)
		})
		t.total += e.Size
	}
	return t, nil
}

// loaderOf measures how fast the loader reads records from an object.
func (p *probe) loaderOf(ctx context.Context, d time.Duration, st store.Store, e store.Entry) (plan.ReadRate, error) {
	o, err := store.OpenEntry(ctx, st, e)
	if err != nil {
		return plan.ReadRate{}, err
	}
	defer o.Close()
	b := newBlocks(e.Size, loaderBlock)
	b.read, b.remote = o.ReadAt, true
	b.forget = func(int64) {}
	return p.asLoader(ctx, d, b)
}
