package probe

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/stats"
)

const (
	// copyRecord is the size of one copy: a raw 256 x 256 RGB image.
	copyRecord = 256 * 256 * 3
	// copyBuffers is the size of the source and target buffers, which must not fit a cache. It is smaller if little
	// memory is free.
	copyBuffers = 512 << 20
)

// memory measures copies of records from random to consecutive positions, like collating raw records, with one core
// and with all.
func (p *probe) memory(ctx context.Context, d time.Duration) {
	size := int64(copyBuffers)
	if p.m.MemoryFree > 0 {
		size = min(size, p.m.MemoryFree/10)
	}
	size = size / 2 / copyRecord * copyRecord
	if size < 16*copyRecord {
		p.note("memory bandwidth: not measured, only %d MiB of memory are free", p.m.MemoryFree>>20)
		return
	}
	src, err := anonymous(size)
	if err != nil {
		p.note("memory bandwidth: %v", err)
		return
	}
	defer unix.Munmap(src)
	dst, err := anonymous(size)
	if err != nil {
		p.note("memory bandwidth: %v", err)
		return
	}
	defer unix.Munmap(dst)
	for i := 0; i < len(src); i += 4096 {
		src[i], dst[i] = byte(i>>12), 1 // pages of zeros would all be the same one
	}
	past := func(dst []byte, src [][]byte) { cdec.Gather(dst, src, copyRecord) }
	through := func(dst []byte, src [][]byte) {
		for i, s := range src {
			copy(dst[i*copyRecord:], s)
		}
	}
	each := d / 4
	p.m.MemoryBandwidthCore = copyRate(ctx, each, 1, dst, src, past)
	p.m.MemoryCopyCore = copyRate(ctx, each, 1, dst, src, through)
	p.m.MemoryBandwidth = copyRate(ctx, each, cores(), dst, src, past)
	p.m.MemoryCopy = copyRate(ctx, each, cores(), dst, src, through)
}

// anonymous returns size bytes outside of the Go heap, on separate pages.
func anonymous(size int64) ([]byte, error) {
	return unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// copyRate returns the bytes per second that threads goroutines copy in groups of 16 records, each into its own part
// of dst. It is the median of several windows.
func copyRate(ctx context.Context, d time.Duration, threads int, dst, src []byte, run func(dst []byte, src [][]byte)) float64 {
	const group, windows = 16, 5
	records := len(src) / copyRecord
	share := len(dst) / copyRecord / threads
	if share < 1 {
		return 0
	}
	n := min(group, share)
	var rates []float64
	for range windows {
		if ctx.Err() != nil {
			break
		}
		var wg sync.WaitGroup
		total := make([]int64, threads)
		start := time.Now()
		for t := range threads {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(t)))
				mine := dst[t*share*copyRecord : (t+1)*share*copyRecord]
				from := make([][]byte, n)
				for at := 0; time.Since(start) < d/windows; at += n {
					if at+n > share {
						at = 0
					}
					for i := range from {
						k := rng.IntN(records) * copyRecord
						from[i] = src[k : k+copyRecord]
					}
					run(mine[at*copyRecord:(at+n)*copyRecord], from)
					total[t] += int64(n) * copyRecord
				}
			})
		}
		wg.Wait()
		var sum int64
		for _, b := range total {
			sum += b
		}
		rates = append(rates, float64(sum)/time.Since(start).Seconds())
	}
	return stats.Median(rates)
}
