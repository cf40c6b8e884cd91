package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/pread"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/store"
)

// The measured reads. Their sizes range from small ones, limited by the time per request, to large ones, limited by
// the bandwidth. Their depths range from one reader to more than a disk can use.
var (
	randomBlocks    = []int64{4 << 10, 128 << 10, 1 << 20}
	randomDepths    = []int{1, 4, 16, 64}
	sequentialBlock = int64(1 << 20)
	sequentialDepth = []int{1, 4}
)

const (
	// alignment suits direct reads of all common devices.
	alignment = 4096
	// leastLarge is the minimum size of the user's own data for a measurement with it.
	leastLarge = 128 << 20
	// maxScratch and scratchShare bound the scratch file.
	maxScratch   = 1 << 30
	scratchShare = 10
	leastScratch = 1 << 20
	// maxBuffers limits the size of all read buffers together.
	maxBuffers = 64 << 20
	// slowRead is the read time above which deeper queues are not measured, because they would only make the probe
	// longer.
	slowRead = 300 * time.Millisecond
	// maxProcs limits the processors of the Go runtime during reads.
	maxProcs = 64
	// hungRead is the time after the deadline for which a read may be pending.
	hungRead = 10 * time.Second

	// loaderBlock is about a JPEG of ImageNet, loaderLarge a few records of raw pixels.
	loaderBlock = 112 << 10
	loaderLarge = 448 << 10
)

// target is a set of open files that reads go to.
type target struct {
	files  []dataFile
	reads  []readFunc // of the files
	closes []func() error
	fd     int // of our scratch file
	total  int64
	own    bool // our scratch file
	direct bool // past the page cache
	cached bool // the file system has nothing but the page cache
}

// readFunc reads bytes of an open file and returns their number.
type readFunc func(b []byte, off int64) (int, error)

func (t *target) close() {
	for _, f := range t.closes {
		_ = f()
	}
}

// pick chooses a file, by size, and an aligned offset for a read of n bytes.
func (t *target) pick(rng *rand.Rand, n int64) (read readFunc, off int64) {
	at := rng.Int64N(t.total)
	for i := range t.files {
		if at < t.files[i].size || i == len(t.files)-1 {
			room := (t.files[i].size - n) / alignment
			if room <= 0 {
				return t.reads[i], 0
			}
			return t.reads[i], rng.Int64N(room+1) * alignment
		}
		at -= t.files[i].size
	}
	return t.reads[0], 0
}

// storage measures reads of several sizes and depths.
func (p *probe) storage(ctx context.Context, d time.Duration) {
	m, err := mountOf(p.path)
	if err != nil {
		p.note("storage: %v", err)
		return
	}
	s := &plan.Store{Path: p.path, Filesystem: m.kind, Device: m.device}
	s.LimitBandwidth, s.LimitIOPS = proc.Live.ReadLimits(proc.Live.Group(proc.Self), unix.Major(m.dev), unix.Minor(m.dev))
	p.m.Store = s
	if networkClass(m.kind) != "" {
		p.m.Network = proc.Live.LineRate()
	}
	started := time.Now()
	t, err := p.openTarget(ctx, m, d/4)
	if err != nil {
		p.note("storage: %v", err)
		s.Class = m.class(s)
		return
	}
	defer t.close()
	// The remaining time, a quarter of it for reads through the cache.
	left := max(d-time.Since(started), d/2)
	each := left * 3 / 4 / time.Duration(len(randomBlocks)*len(randomDepths)+len(sequentialDepth))
	for _, block := range randomBlocks {
		for _, depth := range randomDepths {
			r, err := t.measure(ctx, each, block, depth, false)
			if err != nil {
				p.note("storage: %v", err)
				s.Class = m.class(s)
				return
			}
			if r.Latency.Samples > 0 {
				s.Random = append(s.Random, r)
			}
			if r.Latency.P50 > slowRead.Seconds() || int64(depth)*4*block > maxBuffers {
				break
			}
		}
	}
	for _, depth := range sequentialDepth {
		r, err := t.measure(ctx, each, sequentialBlock, depth, true)
		if err != nil {
			p.note("storage: %v", err)
			break
		}
		if r.Latency.Samples > 0 {
			s.Sequential = append(s.Sequential, r)
		}
	}
	s.Class = m.class(s)
	if !t.cached {
		p.buffered(ctx, s, t, left/4)
	}
}

// openTarget opens the target of the measured reads: large files of the user, past the page cache, or a scratch file.
func (p *probe) openTarget(ctx context.Context, m mount, d time.Duration) (*target, error) {
	if memoryKinds[m.kind] {
		p.note("storage: %s lies in memory: reads are those of the page cache", m.kind)
	}
	if t := p.openLarge(ctx, m); t != nil {
		return t, nil
	}
	t, err := p.openScratch(ctx, m, maxScratch, d)
	if err != nil {
		return nil, err
	}
	if !t.cached && p.data.pack == nil {
		p.note("storage: measured on a scratch file, for there are no large files to read; a cache in the disk or the host may still hold what was just written")
	}
	return t, nil
}

// openLarge opens the user's large files for direct reads; nil when there are
// too few or when the file system has no direct reads.
func (p *probe) openLarge(ctx context.Context, m mount) *target {
	t := &target{own: false, direct: true, cached: memoryKinds[m.kind]}
	// A pending read is not cancelled when the time is up.
	ctx = context.WithoutCancel(ctx)
	for _, f := range p.data.large {
		o, err := localstore.New(f.path).Open(ctx, "")
		if err != nil {
			continue
		}
		t.closes = append(t.closes, o.Close)
		d, ok := store.As[store.DirectReader](o)
		if !ok || o.Size() < f.size {
			continue
		}
		t.files = append(t.files, f)
		t.reads = append(t.reads, func(b []byte, off int64) (int, error) {
			n := min(int64(len(b)), o.Size()-off)
			return int(n), d.ReadDirect(ctx, b[:n], off)
		})
		t.total += f.size
	}
	if t.total < leastLarge || !readsDirect(t.reads[0]) {
		t.close()
		return nil
	}
	return t
}

// readsDirect tries a direct read: not every file system has them.
func readsDirect(read readFunc) bool {
	buf, err := anonymous(alignment)
	if err != nil {
		return false
	}
	defer unix.Munmap(buf)
	n, err := read(buf, 0)
	return err == nil && n == len(buf)
}

// openScratch writes a scratch file of at most size bytes within d. Its contents cannot be compressed.
func (p *probe) openScratch(ctx context.Context, m mount, size int64, d time.Duration) (*target, error) {
	free := freeSpace(p.path)
	size = min(size, free/scratchShare) &^ (1<<20 - 1)
	if size < leastScratch {
		return nil, fmt.Errorf("not measured: %s has only %d MiB free, not enough for a scratch file, and no large files to read", p.path, free>>20)
	}
	t := &target{own: true, direct: true, cached: memoryKinds[m.kind]}
	f, err := scratch(p.path, unix.O_DIRECT)
	if errors.Is(err, unix.EINVAL) {
		t.direct = false
		f, err = scratch(p.path, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("not measured: cannot write a scratch file in %s: %w, and it has no large files to read", p.path, err)
	}
	written, err := fill(ctx, f, size, d)
	if err != nil && written < leastScratch {
		f.Close()
		return nil, fmt.Errorf("not measured: cannot write a scratch file in %s: %w", p.path, store.Cause(err))
	}
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		f.Close()
		return nil, fmt.Errorf("not measured: cannot write a scratch file in %s: %w", p.path, err)
	}
	fd, err := unix.Dup(int(f.Fd()))
	f.Close()
	if err != nil {
		return nil, err
	}
	t.files, t.fd, t.total = []dataFile{{p.path, written}}, fd, written
	t.reads = []readFunc{func(b []byte, off int64) (int, error) { return pread.Once(fd, b, off) }}
	t.closes = []func() error{func() error { return unix.Close(fd) }}
	if !t.direct && !t.cached && !t.drops() {
		t.cached = true
		p.note("storage: %s keeps what was written in memory and has no direct reads: this is the speed of the page cache", m.kind)
	}
	return t, nil
}

// fill writes random bytes from the beginning until the size or the time is
// reached.
func fill(ctx context.Context, f *os.File, size int64, d time.Duration) (int64, error) {
	const block = 1 << 20
	buf, err := anonymous(block)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(buf)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(buf)
	start := time.Now()
	at := int64(0)
	for at < size && (at < leastScratch || time.Since(start) < d) && ctx.Err() == nil {
		// Other bytes in each block, lest a file system stores them once.
		_, _ = rng.Read(buf[:64])
		_, _ = rng.Read(buf[block/2 : block/2+64])
		n, err := f.WriteAt(buf, at)
		at += int64(n)
		if err != nil {
			return at &^ (block - 1), err
		}
	}
	return at, ctx.Err()
}

// drops asks the kernel to drop our scratch file from the cache and reports whether it did.
func (t *target) drops() bool {
	buf := make([]byte, alignment)
	_ = unix.Fadvise(t.fd, 0, 0, unix.FADV_DONTNEED)
	for k := range int64(8) {
		n, err := unix.Preadv2(t.fd, [][]byte{buf}, t.total/8*k&^(alignment-1), unix.RWF_NOWAIT)
		if n > 0 {
			return false
		}
		if err != nil && err != unix.EAGAIN {
			return true // unknown; the reads will show it
		}
	}
	return true
}

// measure reads blocks at random offsets, or consecutive blocks, with depth reads in flight, for d.
func (t *target) measure(ctx context.Context, d time.Duration, block int64, depth int, sequential bool) (plan.ReadRate, error) {
	if t.total >= alignment {
		block = min(block, t.total&^(alignment-1))
	} else {
		block = min(block, t.total)
	}
	r := plan.ReadRate{Block: block, Depth: depth, Cached: t.cached}
	mem, err := anonymous(block * int64(depth))
	if err != nil {
		return r, err
	}
	if t.own && !t.direct && !t.cached {
		_ = unix.Fadvise(t.fd, 0, 0, unix.FADV_RANDOM)
		_ = unix.Fadvise(t.fd, 0, 0, unix.FADV_DONTNEED)
	}
	var next atomic.Int64
	next.Store(rand.Int64N(max(t.files[0].size/block, 1)) * block)
	reads := func(worker int) func() (int, error) {
		buf := mem[int64(worker)*block : int64(worker+1)*block]
		rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(worker)))
		return func() (int, error) {
			read, off := t.reads[0], int64(0)
			if sequential {
				off = (next.Add(block) - block) % max(t.files[0].size-block+1, 1) &^ (alignment - 1)
			} else {
				read, off = t.pick(rng, block)
			}
			if t.own && !t.direct && !t.cached {
				// The scratch file is ours, so no other program needs these pages.
				_ = unix.Fadvise(t.fd, off, block, unix.FADV_DONTNEED)
			}
			return read(buf, off)
		}
	}
	res, hung, err := inFlight(ctx, d, depth, reads)
	if hung {
		return r, fmt.Errorf("a read of %d bytes has been out for %v; the storage hangs", block, hungRead)
	}
	_ = unix.Munmap(mem) // nobody reads into it any more
	if err != nil {
		return r, fmt.Errorf("reading: %w", err)
	}
	res.into(&r)
	return r, nil
}

// flow is the result of inFlight.
type flow struct {
	seconds float64
	bytes   int64
	cpu     time.Duration // of the whole process
	lat     latencies
}

func (f *flow) into(r *plan.ReadRate) {
	r.Latency = f.lat.summary()
	if f.seconds > 0 {
		r.IOPS = float64(r.Latency.Samples) / f.seconds
		r.Bandwidth = float64(f.bytes) / f.seconds
	}
	if r.Latency.Samples > 0 {
		r.CPUSeconds = f.cpu.Seconds() / float64(r.Latency.Samples)
	}
}

// inFlight keeps depth reads in flight for d. Each worker gets its read function from reads. A read that does not
// return long after the end counts as hung. Its goroutine cannot be stopped and is leaked, with its memory.
func inFlight(ctx context.Context, d time.Duration, depth int, reads func(worker int) func() (int, error)) (res flow, hung bool, err error) {
	type result struct {
		bytes int64
		lat   latencies
		err   error
	}
	results := make([]result, depth)
	// Goroutines that return from a read wait for a processor of the Go runtime, and depend on the goroutines that
	// use it. With a processor for each, the kernel schedules them, and latencies are those of the storage.
	if procs := runtime.GOMAXPROCS(0); depth > procs {
		runtime.GOMAXPROCS(min(depth, maxProcs))
		defer runtime.GOMAXPROCS(procs)
	}
	var wg sync.WaitGroup
	cpu, start := proc.OwnCPU(), time.Now()
	for w := range depth {
		wg.Go(func() {
			read, r := reads(w), &results[w]
			for now := start; now.Sub(start) < d && ctx.Err() == nil; {
				n, err := read()
				done := time.Now()
				if err != nil {
					r.err = err
					return
				}
				r.bytes += int64(n)
				r.lat.add(done.Sub(now))
				now = done
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	timeout := time.NewTimer(d + hungRead)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
		return res, true, nil
	}
	res.seconds, res.cpu = time.Since(start).Seconds(), proc.OwnCPU()-cpu
	for i := range results {
		if results[i].err != nil {
			return res, false, results[i].err
		}
		res.bytes += results[i].bytes
		res.lat.merge(&results[i].lat)
	}
	return res, false, nil
}

// buffered measures reads through the page cache: cold ones with the loader's code, and warm ones. It uses a scratch
// file, whose pages it may drop.
func (p *probe) buffered(ctx context.Context, s *plan.Store, t *target, d time.Duration) {
	if !t.own {
		var err error
		if t, err = p.openScratch(ctx, mount{kind: s.Filesystem}, 256<<20, d/3); err != nil {
			p.note("reads through the page cache: %v", err)
			return
		}
		defer t.close()
		d -= d / 3
	}
	fd, err := t.throughCache()
	if err != nil {
		p.note("reads through the page cache: %v", err)
		return
	}
	defer unix.Close(fd)
	for _, block := range []int64{loaderBlock, loaderLarge} {
		_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
		r, err := p.asLoader(ctx, d*2/5, newBlocks(t.total, block).ofFile(fd))
		if err != nil {
			p.note("reads through the page cache: not measured (%v)", err)
			return
		}
		if r.IOPS > 0 {
			s.Buffered = append(s.Buffered, r)
		}
	}
	if r, err := cachedReads(ctx, d/5, fd, t.total); err != nil {
		p.note("reads through the page cache: not measured (%v)", err)
	} else if r.IOPS > 0 {
		s.Buffered = append(s.Buffered, r)
	}
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
}

// throughCache opens our scratch file again, for reads through the page cache.
func (t *target) throughCache() (int, error) {
	fd, err := unix.Open(proc.FDPath(t.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)
	}
	return fd, err
}

// cachedReads measures one reader of a part of a file that is in memory.
func cachedReads(ctx context.Context, d time.Duration, fd int, total int64) (plan.ReadRate, error) {
	r := plan.ReadRate{Block: loaderBlock, Depth: 1, Cached: true}
	order := rand.Perm(int(min(total/loaderBlock, 256)))
	if len(order) == 0 {
		return r, nil
	}
	buf := make([]byte, loaderBlock)
	for _, at := range order {
		_, _ = pread.Once(fd, buf, int64(at)*loaderBlock)
	}
	at := 0
	res, hung, err := inFlight(ctx, d, 1, func(int) func() (int, error) {
		return func() (int, error) {
			at = (at + 1) % len(order)
			return pread.Once(fd, buf, int64(order[at])*loaderBlock)
		}
	})
	if hung {
		err = fmt.Errorf("a read of %d bytes has been out for %v; the storage hangs", loaderBlock, hungRead)
	}
	res.into(&r)
	return r, err
}
