// Package budget computes the memory use of an engine: its constants, and the division of its memory budget among the
// ring of batches, reading and scratch. It has no I/O, clock or goroutines, so the planner and the probe compute with
// the same figures as the pipeline.
//
// Read Make (how the budget is shared out) and constants.go.
package budget

import "math"

// Request is the task of an engine, as far as memory depends on it.
type Request struct {
	// Memory is the budget in bytes. Automatic is true if AutomaticMemory chose it, for one of Engines. Errors then
	// mention that. Buffers of a disk cache may then raise it, up to Most.
	Memory    int64
	Most      int64
	Automatic bool
	Engines   int
	// BatchSize is the number of records of a batch, SlotBytes the size of a batch in its slot.
	BatchSize int
	SlotBytes int64
	// Threads is the number of decode workers.
	Threads int
	// Prefetch is the number of batches built ahead, and Lookahead the number of bytes read ahead; 0 means a default
	// that fits. An explicit value is used or refused.
	Prefetch  int
	Lookahead int64
	// Window is the memory of the chunks that a shuffle buffer of chunks uses at a time.
	Window int64
	// Cache is the memory for data that is cached for the next epochs.
	Cache int64
	// Substitutes is true if other records replace bad ones.
	Substitutes bool

	// Images are the image fields that arrays of the batch are made from, one for
	// each array.
	Images []Image
	// ValueBytes is the approximate size of the other values of a record. UnplacedBytes is the size of the largest of
	// them that may have to be read into memory outside of the batch.
	ValueBytes, UnplacedBytes int64
	// Together is the preferred minimum number of records to build together, 0 for no preference.
	Together int
	// InOrder is the memory for reading a source that can only be read in order, in addition to its records.
	InOrder int64
	// Held is the memory of the records that the source holds.
	Held int64
}

// Image describes the images of a field. A zero means that it is not known.
type Image struct {
	// MaxBytes is the size of the largest stored image.
	MaxBytes int64
	// Width and Height are set when all images are stored as pixels of that size,
	// MaxWidth and MaxHeight are the largest sides.
	Width, Height       int64
	MaxWidth, MaxHeight int64
	// PixelBytes is the number of bytes of a pixel during processing; 0 means the 3 of RGB.
	PixelBytes int64
	// Kept is true if decoded pixels are usually kept between two steps.
	Kept bool
	// Frames is true for frames of videos. A whole frame is kept, and the decoder holds more frames.
	Frames bool
	// RowWidth and RowHeight are the size of their results.
	RowWidth, RowHeight int64
}

// Shares is the division of the budget, in bytes.
type Shares struct {
	Budget int64 `json:"budget"`
	Ring   int64 `json:"ring"`
	// Lookahead is the memory for data that is read ahead and waits for its turn.
	Lookahead int64 `json:"lookahead"`
	// Window is for the chunks that an order by windows uses at a time.
	Window int64 `json:"window,omitempty"`
	// Cache is for data that is cached for the next epochs.
	Cache int64 `json:"cache,omitempty"`
	// Read is for the records that are being read and decoded, including those that replace bad ones.
	Read int64 `json:"read"`
	// Scratch is the most that workers take to decode images and hold of them
	// between two steps.
	Scratch int64 `json:"scratch"`
	// Held is the memory of the records that the source holds because its files are compressed.
	Held int64 `json:"held,omitempty"`
}

// Plan is the configuration of an engine.
type Plan struct {
	Shares
	// Slots is the number of batches in the ring, SlotStride their distance.
	Slots      int
	SlotStride int64
	// GroupRows is the number of records that are read and decoded together.
	GroupRows int
	// The parts of Read: Fetch is for the next records, and Urgent for unplanned records that are needed before them.
	// WorkerParse, for each worker, is for the values that sources make from the bytes of a group. Alone is for the
	// values of a single record that does not fit there. Substitute is for records that replace bad ones, and InOrder
	// for sources that can only be read in order.
	Fetch, Urgent, WorkerParse, Alone, Substitute, InOrder int64
	// WorkerScratch is the part of Scratch that each worker has for images between two steps. WorkerDecode is the
	// memory for decoding an image there. Each worker has twice as much, because the memory of the previous image is
	// not completely released yet. Large is the part for images that need more.
	WorkerScratch, WorkerDecode, Large int64
}

// Make divides the budget. First come the minimum slots, reads and scratch. A quarter of the rest is for reading
// ahead, then come more of each and more slots. The remainder is for large images and more readahead.
func Make(r *Request) (*Plan, error) {
	p := least(r)
	spare := r.Memory - p.sum(r)
	if spare < 0 {
		return nil, tooLittle(r, p)
	}
	// take is as much of n as there is, in whole pieces.
	take := func(n, piece int64) int64 {
		n = clamp(n, 0, spare) / piece * piece
		spare -= n
		return n
	}
	if r.Lookahead == 0 {
		p.Lookahead += take(min(spare/4, maxLookahead), 1)
	}
	if each := 2 * int64(r.Threads); p.WorkerDecode > 0 {
		p.WorkerDecode += take(min(r.Memory/16, each*maxDecode)-each*p.WorkerDecode, each) / each
	}
	workers := int64(r.Threads)
	p.WorkerScratch += take(min(r.Memory/16, workers*keptImages(r.Images))-workers*p.WorkerScratch, workers) / workers
	p.Large += take(min(largeImage(r.Images), r.Memory/8)-p.Large, 1)
	p.WorkerParse += take(min(r.Memory/16, workers*p.groupParse(r))-workers*p.WorkerParse, workers) / workers
	slots := take(int64(Slots(r.Prefetch, p.SlotStride))*p.SlotStride-p.Ring, p.SlotStride)
	p.Ring += slots
	p.Slots += int(slots / p.SlotStride)
	if p.WorkerDecode > 0 {
		p.Large += take(r.Memory/4-p.Large, 1)
	}
	if r.Lookahead == 0 {
		p.Lookahead += take(min(r.Memory/4, maxLookahead)-p.Lookahead, 1)
	}
	p.Scratch, p.Read = p.scratch(r), p.read(r)
	return p, nil
}

// least returns the plan with the minimum of everything that was not requested.
func least(r *Request) *Plan {
	p := &Plan{
		Shares:     Shares{Budget: r.Memory, Lookahead: r.Lookahead, Window: r.Window, Cache: r.Cache, Held: r.Held},
		SlotStride: SlotStride(r.SlotBytes), Slots: minSlots,
		WorkerScratch: workerScratch(r.Images), Large: minLarge,
	}
	want := Slots(r.Prefetch, p.SlotStride)
	if r.Prefetch > 0 {
		p.Slots = want
	}
	p.Ring = int64(p.Slots) * p.SlotStride
	p.GroupRows = groupRows(r, want)
	p.reading(r)
	if len(r.Images) > 0 {
		p.WorkerDecode = minDecode
	}
	return p
}

// reading sets the parts of Read to their minimum, which does not depend on the available memory.
func (p *Plan) reading(r *Request) {
	p.Fetch = leastRead(r)
	p.Urgent = p.Fetch
	p.WorkerParse, p.Alone = minParse, largestRecord(r)
	if r.Substitutes {
		p.Substitute = p.Fetch
	}
	p.InOrder = r.InOrder
	if r.Substitutes {
		p.InOrder *= 2
	}
}

// read returns the total of Read.
func (p *Plan) read(r *Request) int64 {
	return p.Fetch + p.Urgent + int64(r.Threads)*p.WorkerParse + p.Alone + p.Substitute + p.InOrder
}

// sum returns the total memory of a plan.
func (p *Plan) sum(r *Request) int64 {
	return p.Ring + p.Window + p.Cache + p.Lookahead + p.read(r) + p.scratch(r) + p.Held
}

func (p *Plan) scratch(r *Request) int64 {
	return int64(r.Threads)*(p.WorkerScratch+2*p.WorkerDecode+decoderBytes(r.Images)) + p.Large
}

// ForImage returns the minimum memory, in whole MiB, for decoding an image that needs n bytes.
func ForImage(r Request, n int64) int64 {
	return leastMemory(func(memory int64) bool {
		r.Memory = memory
		p, err := Make(&r)
		return err == nil && max(p.Large, p.WorkerDecode) >= n
	})
}

// valueShares are the shares of the budget that the largest value may have if not all values fit.
var valueShares = []int64{8, 16}

// Bounded returns r if its values fit. If only the largest ones do not, it returns a request with memory for values
// of up to limit bytes. It returns nil if that does not fit either.
func Bounded(r *Request) (bounded *Request, limit int64) {
	if _, err := Make(r); err == nil {
		return r, math.MaxInt64
	}
	for _, share := range valueShares {
		limit = r.Memory / share
		if b := r.bounded(limit); b != nil {
			if _, err := Make(b); err == nil {
				return b, limit
			}
		}
	}
	return nil, 0
}

// bounded returns r with space for values of up to n bytes, nil if it has no larger ones. Values of one fixed size do
// not change.
func (r *Request) bounded(n int64) *Request {
	b, larger := *r, false
	b.Images = append([]Image(nil), r.Images...)
	for i := range b.Images {
		if im := &b.Images[i]; im.MaxBytes > n {
			im.MaxBytes, larger = n, true
		}
	}
	if b.UnplacedBytes > n && n >= r.ValueBytes {
		b.UnplacedBytes, larger = n, true
	}
	if !larger {
		return nil
	}
	return &b
}

// ForValue returns the minimum memory, in whole MiB, for a value of n bytes.
func ForValue(r Request, n int64) int64 {
	r.UnplacedBytes = max(r.UnplacedBytes, n)
	return leastMemory(func(memory int64) bool {
		r.Memory = memory
		_, limit := Bounded(&r)
		return limit >= n
	})
}

// leastMemory returns the minimum sufficient memory, in whole MiB.
func leastMemory(enough func(memory int64) bool) int64 {
	lo, hi := int64(0), int64(1)
	for !enough(hi<<20) && hi < 1<<30 {
		lo, hi = hi, 2*hi
	}
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; enough(mid << 20) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi << 20
}

func clamp(v, lo, hi int64) int64 { return max(lo, min(v, hi)) }
