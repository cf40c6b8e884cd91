package pack

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// verifyBudget is the memory for reading and decoding records. A worker that takes memory for decoding has already read
// its record and takes no more afterwards. Waiting workers therefore cannot block each other, and unlike in a
// memoryBudget, no order is needed.
type verifyBudget struct {
	plan    *budget.Verifying
	request budget.VerifyRequest
	read    *arena.Pool
	large   *arena.Pool
}

func newVerifyBudget(opt *VerifyOptions) (*verifyBudget, error) {
	r := budget.VerifyRequest{Memory: opt.Memory, Threads: opt.Threads}
	if r.Memory == 0 {
		free, err := proc.Live.FreeMemory()
		if err != nil {
			return nil, fmt.Errorf("finding out how much memory is free: %w; set memory", err)
		}
		r.Free, r.Memory = free, max(free/4, budget.ForVerifying(r, 0, 0))
	}
	p, err := budget.MakeVerifying(&r)
	if err != nil {
		return nil, err
	}
	return &verifyBudget{plan: p, request: r, read: arena.NewPool(p.Read), large: arena.NewPool(p.Large)}, nil
}

// tooLarge is the error of a record that needs more memory than the limit. Its numbers are in MiB.
type tooLarge struct {
	what               string
	takes, has, enough int64
}

func (e *tooLarge) Error() string {
	return fmt.Sprintf("%s takes %d MiB of memory, more than the %d MiB that there are for it; verify it with memory of %d MiB or more", e.what, e.takes, e.has, e.enough)
}

// toRead waits for the memory of a record of size bytes. The caller must call give to release it.
func (m *verifyBudget) toRead(ctx context.Context, size int64) (give func(), err error) {
	if size > m.plan.OneRead {
		return nil, &tooLarge{"reading it to decode it", units.MiB(size), m.plan.OneRead >> 20, units.MiB(budget.ForVerifying(m.request, size, 0))}
	}
	return m.take(ctx, m.read, size, true)
}

// toDecode waits for the memory for decoding a value. Without a budget, the caller must have the memory.
func (m *verifyBudget) toDecode(ctx context.Context, need int64, heap bool) (give func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	if need > m.plan.One {
		return nil, &tooLarge{"decoding it", units.MiB(need), m.plan.One >> 20, units.MiB(budget.ForVerifying(m.request, 0, need))}
	}
	return m.take(ctx, m.large, need, heap)
}

// take takes n bytes of a pool, at most all of it. It does not wait for the small amount that workers keep anyway.
func (m *verifyBudget) take(ctx context.Context, pool *arena.Pool, n int64, heap bool) (give func(), err error) {
	if n <= m.plan.Kept {
		return func() {}, nil
	}
	n = min(n, pool.Total())
	if err := pool.Take(ctx, n); err != nil {
		return nil, err
	}
	return func() { pool.Give(n, heap) }, nil
}

// size returns the memory of the values of a row when they are read, without the paths and metadata in the tail.
func (v *view) size(row int64) int64 {
	n := int64(0)
	for i := range v.r.sch.leaves {
		if l := &v.r.sch.leaves[i]; l.role == roleValue && !l.inTail() && !v.r.sch.number(i) {
			_, size := v.value(i, row)
			n += size
		}
	}
	return n
}

// decoding returns the memory for decoding a stored picture, by its header, and whether that is on the Go heap. If
// the header is invalid, decoding fails before it allocates.
func (v *Value) decoding() (need int64, heap bool) {
	mask := v.Field.Kind == driver.KindMask
	pixels := int64(v.Width) * int64(v.Height)
	if pixels < 1 {
		return 0, false
	}
	switch v.Codec {
	case driver.CodecRaw, driver.CodecRuns:
		if mask {
			return int64(v.Field.DType.Size()) * pixels, true
		}
		return 0, false // nothing is decoded
	}
	n, err := decode.Memory(v.Value)
	if err != nil {
		return 0, false
	}
	if v.Codec != driver.CodecDCT {
		// The index may differ from the file, which is then refused. The memory that libraries take depends on the
		// file.
		if info, err := imagefile.Probe(v.Bytes); err == nil {
			pixels = max(pixels, int64(info.Width)*int64(info.Height))
		}
	}
	heap = mask || v.Codec != driver.CodecJPEG && v.Codec != driver.CodecDCT
	if mask {
		return n + (2+int64(v.Field.DType.Size()))*pixels, heap
	}
	return n + 3*pixels, heap
}
