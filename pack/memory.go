package pack

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// memoryBudget is the memory of a run. Its inputs take memory from it from reading until they are written.
//
// Inputs are written in their order, so a finished input holds its memory until all earlier inputs are written. If
// inputs took memory as they came, the last ones could take all of it while the first one waits for theirs. An input
// that cannot have memory immediately therefore waits for its turn: until all earlier inputs have theirs. Then it
// waits only for inputs that need no more memory.
type memoryBudget struct {
	plan    *budget.Packing
	request budget.PackRequest

	ahead *semaphore.Weighted
	quick *arena.Pool
	large *arena.Pool

	mu sync.Mutex
	// turn is the first input that has not received its memory. passed are later inputs that have, and waiting are
	// those that wait for their turn.
	turn    int64
	passed  map[int64]bool
	waiting map[int64]chan struct{}
}

// newMemoryBudget returns the memory for the inputs from first on.
func newMemoryBudget(opt *Options, first int64) (*memoryBudget, error) {
	r, err := opt.memoryRequest()
	if err != nil {
		return nil, err
	}
	p, err := budget.MakePacking(&r)
	if err != nil {
		return nil, err
	}
	return &memoryBudget{
		plan: p, request: r, ahead: semaphore.NewWeighted(p.Ahead), quick: arena.NewPool(p.Quick), large: arena.NewPool(p.Large),
		turn: first, passed: map[int64]bool{}, waiting: map[int64]chan struct{}{},
	}, nil
}

// memoryRequest returns the memory to plan with: that of the options, or a quarter of the free memory.
func (o *Options) memoryRequest() (budget.PackRequest, error) {
	r := budget.PackRequest{Memory: o.Memory, Threads: o.Threads, ChunkBytes: o.ChunkBytes, Held: o.held}
	if r.Memory > 0 {
		return r, nil
	}
	free, err := proc.Live.FreeMemory()
	if err != nil {
		return r, fmt.Errorf("finding out how much memory is free: %w; set memory", err)
	}
	// The memory held by the source is not part of the free memory.
	r.Free = free + r.Held
	r.Memory = max(free/4+r.Held, budget.ForInput(r, 0))
	return r, nil
}

// heapReserve is the number of bytes that the Go heap may have in addition to the counted memory and twice its live
// size at the start.
const heapReserve = 32 << 20

// ownProcess configures the process for a run that does nothing else. Memory returns to the system after each image,
// and the collector does not let garbage grow to the size of the live heap. A GOMEMLIMIT in the environment has
// priority.
func (r *memoryBudget) ownProcess() {
	limitHeap(max(r.plan.Budget-r.request.Held, r.plan.One))
}

func limitHeap(memory int64) {
	cdec.ReturnMemory()
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(live)
	debug.SetMemoryLimit(memory + heapReserve + 2*int64(live[0].Value.Uint64()))
}

// holding is the share of a memoryBudget that an input has.
type holding struct {
	r *memoryBudget
	i int64
	// The memory taken from ahead, quick and large. read is the part of large for the data read.
	ahead, quick, large, read int64
	// heap is true if the memory taken from large is on the Go heap.
	heap bool
}

// admit waits until input i, of size bytes, may be read. It is called in the order
// of the inputs.
func (r *memoryBudget) admit(ctx context.Context, i, size int64) (*holding, error) {
	s := &holding{r: r, i: i, ahead: min(size, r.plan.Ahead)}
	if err := r.ahead.Acquire(ctx, s.ahead); err != nil {
		return nil, context.Cause(ctx)
	}
	return s, nil
}

// toRead takes the memory for reading size bytes that exceeds the admitted memory of the input.
func (s *holding) toRead(ctx context.Context, size int64) error {
	more := size - s.ahead
	if more <= 0 {
		return nil
	}
	s.heap = true
	if err := s.inTurn(ctx, more); err != nil {
		return err
	}
	s.read = s.large
	return nil
}

// toMake takes the memory for making the stored form of the input.
func (s *holding) toMake(ctx context.Context, n *needs) error {
	defer s.pass()
	if s.large == 0 && s.r.quick.TryTake(n.sum()) {
		s.quick = n.sum()
		return nil
	}
	s.heap = s.heap || n.heap
	return s.inTurn(ctx, n.sum())
}

// fits fails if n more bytes exceed the maximum of an input.
func (s *holding) fits(n int64) error {
	if need := s.large + n; need > s.r.plan.One {
		return &BadInput{Reason: fmt.Sprintf("packing it takes %d MiB of memory, more than the %d MiB that there are for it; pack again with memory of %d MiB or more",
			units.MiB(need), s.r.plan.One>>20, units.MiB(budget.ForInput(s.r.request, need)))}
	}
	return nil
}

// inTurn waits for the turn of the input and takes n bytes of large. It fails if n exceeds the maximum.
func (s *holding) inTurn(ctx context.Context, n int64) error {
	if err := s.fits(n); err != nil {
		return err
	}
	if err := s.r.wait(ctx, s.i); err != nil {
		return err
	}
	// One that is larger than large has it alone.
	n = min(n, s.r.plan.Large-s.large)
	if err := s.r.large.Take(ctx, n); err != nil {
		return err
	}
	s.large += n
	return nil
}

// made releases the memory that was only needed to make out bytes.
func (s *holding) made(out int64) {
	if n := s.quick - min(out, s.quick); n > 0 {
		s.r.quick.Give(n, false)
		s.quick -= n
	}
	if n := s.large - min(s.read+out, s.large); n > 0 {
		s.r.large.Give(n, s.heap)
		s.large -= n
	}
}

// done releases everything after the input is written.
func (s *holding) done() {
	s.pass()
	s.r.ahead.Release(s.ahead)
	s.r.quick.Give(s.quick, false)
	s.r.large.Give(s.large, true)
	*s = holding{r: s.r, i: s.i}
}

// pass declares that the input takes no more memory.
func (s *holding) pass() { s.r.pass(s.i) }

func (r *memoryBudget) pass(i int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < r.turn {
		return
	}
	r.passed[i] = true
	for r.passed[r.turn] {
		delete(r.passed, r.turn)
		r.turn++
	}
	if c := r.waiting[r.turn]; c != nil {
		close(c)
		delete(r.waiting, r.turn)
	}
}

// wait waits for the turn of input i.
func (r *memoryBudget) wait(ctx context.Context, i int64) error {
	r.mu.Lock()
	if r.turn >= i {
		r.mu.Unlock()
		return nil
	}
	c := make(chan struct{})
	r.waiting[i] = c
	r.mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// needs is the maximum memory for making the stored form of a record.
type needs struct {
	// work is the largest working memory of any value, out the total size of all results.
	work, out int64
	// heap is true if some of the working memory is on the Go heap.
	heap bool
}

func (n *needs) sum() int64 { return n.work + n.out }

// add counts a value.
func (n *needs) add(work, out int64, heap bool) {
	n.work = max(n.work, work)
	n.out += out
	n.heap = n.heap || heap
}

// needs adds the memory for storing a value. It reads only headers. If they are invalid, nothing is decoded.
func (e *encoder) needs(src *driver.Value, f *Field, p *picture, n *needs) {
	size := int64(len(src.Bytes))
	switch f.Kind {
	case driver.KindImage:
		e.imageNeeds(src, p, n)
	case driver.KindMask:
		e.maskNeeds(src, f, p, n)
	case driver.KindFrames:
		e.clipNeeds(src, f, p, n)
	case driver.KindAudio:
		if e.opt.Check == CheckDecode {
			n.add(soundMemory(src.Bytes), 0, true)
		}
	case driver.KindText, driver.KindJSON:
		n.add(0, 3*size, true) // with invalid UTF-8 replaced
	}
}

func (e *encoder) imageNeeds(src *driver.Value, p *picture, n *needs) {
	how := p.how
	size, v := int64(len(src.Bytes)), *src
	switch {
	case src.Codec == driver.CodecRaw:
	case src.Codec == driver.CodecDCT:
		if how == ImagesKeep && !p.recodes() {
			// The coefficients, and the JPEG in memory that grows by half.
			jpeg := 2*size + 1<<20
			n.add(decode.CoefficientMemory(&imagefile.Info{Width: v.Width, Height: v.Height, Channels: v.Channels})+5*jpeg/2, jpeg, false)
			return
		}
		if how != ImagesRaw && !p.recodes() {
			n.add(0, size, true)
			return
		}
	default:
		v = driver.Value{Bytes: src.Bytes, Codec: imagefile.Detect(src.Bytes)}
	}
	decoding, err := decode.Memory(v)
	if err != nil {
		return
	}
	var info imagefile.Info
	if v.Width == 0 {
		if info, err = imagefile.Probe(src.Bytes); err != nil {
			return
		}
		v.Width, v.Height = info.Width, info.Height
	}
	jpeg := v.Codec == driver.CodecJPEG
	heap := !jpeg && v.Codec != driver.CodecRaw && v.Codec != driver.CodecDCT
	if how == ImagesRaw || src.Codec == driver.CodecRaw || p.recodes() { // raw stays raw
		g, err := p.geometry(v.Width, v.Height)
		if err != nil {
			return
		}
		pixels := 3 * int64(g.OutW()) * int64(g.OutH())
		if p.recodes() {
			// The pixels, a JPEG that is hardly larger, its coefficients, and copies.
			n.add(decoding+6*pixels, 2*pixels+1<<16, true)
			return
		}
		n.add(decoding, pixels, heap)
		return
	}
	work, out := int64(0), size
	if jpeg && how != ImagesKeep {
		// Blocks of 128 bytes become 11 bytes plus their values, in memory that grows by half.
		coefficients := decode.CoefficientMemory(&info)
		out = 11*coefficients/128 + 2*size
		work = coefficients + 5*out/2
	}
	open := jpeg && !bytes.HasSuffix(src.Bytes, []byte("\xff\xd9"))
	if e.opt.Check == CheckDecode || open || info.Rare || jpeg && how != ImagesKeep {
		work = max(work, decoding+tried(&v)+size)
	}
	n.add(work, out, heap)
}

// tried returns the memory for the pixels of an image that is decoded only as a check.
func tried(v *driver.Value) int64 { return decode.TryBytes(v) }

func (e *encoder) maskNeeds(src *driver.Value, f *Field, p *picture, n *needs) {
	w, h := int64(src.Width), int64(src.Height)
	work := int64(0)
	if src.Codec != driver.CodecRaw && src.Codec != driver.CodecRuns {
		info, err := imagefile.Probe(src.Bytes)
		if err != nil {
			return
		}
		if work, err = decode.Memory(driver.Value{Bytes: src.Bytes}); err != nil {
			return
		}
		w, h = int64(info.Width), int64(info.Height)
	}
	// Unchanged numbers, resized numbers, and runs in memory that grows.
	stored := int64(f.DType.Size()) * w * h
	if g, err := p.geometry(int32(w), int32(h)); err == nil {
		stored = max(stored, int64(f.DType.Size())*int64(g.OutW())*int64(g.OutH()))
	}
	n.add(work+4*w*h+stored, max(stored, int64(len(src.Bytes))), true)
}

// allow limits the encoder to the computed memory; 0 means no limit.
func (e *encoder) allow(n int64) {
	e.allowed = n
	e.dec.SetMemory(n)
}

// trim frees buffers of more than n bytes, except those of the next input.
func (e *encoder) trim(n int64) {
	e.allow(max(n, 1))
	for _, b := range []*[]byte{&e.pixels, &e.jpeg} {
		if int64(cap(*b)) > n {
			*b = nil
		}
	}
}
