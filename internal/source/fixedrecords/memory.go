package fixedrecords

import (
	"context"
	"fmt"
	"io"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/units"
)

// MaxHeld limits the memory of a source for the contents of compressed files.
const MaxHeld = 1 << 30

// Without a limit from the user, data that decompresses to more than maxRatio times its size is held up to usualHeld
// bytes, and all data up to a share of the free memory.
const (
	maxRatio  = 100
	usualHeld = 256 << 20
	freeShare = 4
)

type limitKey struct{}

// WithLimit returns a context for opening sources that hold at most n bytes of decompressed data, 0 for the default.
func WithLimit(ctx context.Context, n int64) context.Context {
	return context.WithValue(ctx, limitKey{}, n)
}

// Memory is what a source holds outside of Go's heap. The limit of Go's heap follows from the engine's memory
// budget, so large blocks must not be in it.
type Memory struct {
	blocks []*arena.Block
	total  int64
	limit  int64
	given  bool // the user has set the limit
}

// Use takes the limit of a context.
func (m *Memory) Use(ctx context.Context) {
	n, _ := ctx.Value(limitKey{}).(int64)
	m.given = n > 0
	if !m.given {
		n = MaxHeld
		if free, err := proc.Live.FreeMemory(); err == nil {
			n = min(n, free/freeShare)
		}
	}
	m.limit = min(n, MaxHeld)
}

// left returns how many bytes may follow.
func (m *Memory) left() int64 {
	if m.limit == 0 {
		return MaxHeld - m.total
	}
	return m.limit - m.total
}

// errLimit is the error for data that needs this much.
func (m *Memory) errLimit(need string, limit int64) error {
	hint := "decompress it on disk"
	if limit < MaxHeld {
		hint += ", or set a larger memory"
	}
	return fmt.Errorf("decompressed it needs %s: %s", need+units.Bytes(limit), hint)
}

// Fits returns an error if n more bytes would be beyond the limit.
func (m *Memory) Fits(n int64) error {
	if n < 0 || n > m.left() {
		return m.errLimit(units.Bytes(float64(m.total)+float64(n))+" of memory, and the limit is ", m.total+m.left())
	}
	return nil
}

// Take returns n zero bytes. The system allocates pages when they are written.
func (m *Memory) Take(n int64) ([]byte, error) {
	if err := m.Fits(n); err != nil {
		return nil, err
	}
	b := arena.NewBlock(arena.NewBudget(2*n+1<<20), arena.PurposeRead)
	out, err := b.Bytes(int(n))
	if err != nil {
		return nil, err
	}
	m.blocks, m.total = append(m.blocks, b), m.total+n
	return out, nil
}

// ReadAll reads r, which decompresses packed bytes, to its end. The result is never nil.
func (m *Memory) ReadAll(r io.Reader, packed int64) (out []byte, err error) {
	most := m.left()
	if !m.given {
		most = min(most, max(usualHeld, maxRatio*min(packed, MaxHeld)))
	}
	b := arena.NewBlock(arena.NewBudget(4*MaxHeld), arena.PurposeRead)
	defer func() {
		if err != nil {
			b.Free()
		}
	}()
	have := int64(0)
	for size := min(max(4*packed, 64<<10), most); ; size = min(2*size, most) {
		if out, err = b.Resize(int(size) + 1); err != nil {
			return nil, err
		}
		n, err := io.ReadFull(r, out[have:])
		switch have += int64(n); {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			m.blocks, m.total = append(m.blocks, b), m.total+have
			return b.Resize(int(have))
		case err != nil:
			return nil, err
		case have > most:
			return nil, m.errLimit("more memory than the limit of ", m.total+most)
		}
	}
}

// Total returns the size of the memory.
func (m *Memory) Total() int64 { return m.total }

// Free releases all memory.
func (m *Memory) Free() {
	for _, b := range m.blocks {
		b.Free()
	}
	m.blocks, m.total = nil, 0
}
