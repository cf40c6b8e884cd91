// Package budget is what an engine holds, as arithmetic: its constants, and how
// the memory that it may take is shared out among the ring of batches, reading
// and scratch. It has no I/O, clock or goroutines, so that the planner and the
// probe compute with the very figures that the pipeline runs with.
//
// Read Make (how the budget is shared out) and constants.go.
package budget

// Request is what an engine is asked to do, as far as memory depends on it.
type Request struct {
	// Memory is the budget in bytes; Automatic says that nobody chose it but
	// AutomaticMemory, for one of Engines, which errors then say.
	Memory    int64
	Automatic bool
	Engines   int
	// BatchSize is the number of records of a batch, SlotBytes what a batch takes
	// of its slot.
	BatchSize int
	SlotBytes int64
	// Threads is the number of decode workers.
	Threads int
	// Prefetch is the number of batches made ahead, and Lookahead the bytes read
	// ahead; 0 means a default that fits. What is asked for is given or refused.
	Prefetch  int
	Lookahead int64
	// Substitutes says that other records are read in the place of bad ones.
	Substitutes bool

	// Images are the image fields that arrays of the batch are made from, one for
	// each array.
	Images []Image
	// ValueBytes is about how many bytes the other values of a record have, and
	// UnplacedBytes the largest of them that may have to be read into memory
	// beside the batch.
	ValueBytes, UnplacedBytes int64
}

// Image describes the images of a field. A zero means that it is not known.
type Image struct {
	// MaxBytes is the largest as it is stored.
	MaxBytes int64
	// Width and Height are set when all images are stored as pixels of that size,
	// MaxWidth and MaxHeight are the largest sides.
	Width, Height       int64
	MaxWidth, MaxHeight int64
	// PixelBytes are those of a pixel while it is worked on; 0 stands for the 3 of
	// RGB.
	PixelBytes int64
	// Kept says that decoded pixels are kept between two steps as a rule.
	Kept bool
}

// Shares say how the budget is shared out, in bytes.
type Shares struct {
	Budget int64 `json:"budget"`
	Ring   int64 `json:"ring"`
	// Lookahead is what may be read and wait for its turn.
	Lookahead int64 `json:"lookahead"`
	// Read is for the records that are being read and decoded, those that take
	// the place of bad ones among them.
	Read int64 `json:"read"`
	// Scratch is the most that workers may hold for images between two steps.
	Scratch int64 `json:"scratch"`
}

// Plan is how an engine runs.
type Plan struct {
	Shares
	// Slots is the number of batches that the ring has room for, SlotStride their
	// distance.
	Slots      int
	SlotStride int64
	// GroupRows is the number of records that are read and decoded together.
	GroupRows int
	// Of Read: Fetch is for the records that are wanted next, Urgent for those that
	// are wanted before them and were not planned, Parse for what sources make of
	// bytes, Substitute for records that take the place of bad ones.
	Fetch, Urgent, Parse, Substitute int64
	// WorkerScratch is the part of Scratch that each worker has, LargeScratch the
	// part for images that need more, one at a time.
	WorkerScratch, LargeScratch int64
}

// Make shares the budget out: first what the least number of slots, reads and
// scratch need; of the rest a quarter to read ahead, then more of each, then more
// slots, and what is left to read ahead again.
func Make(r *Request) (*Plan, error) {
	p := &Plan{
		Shares: Shares{Budget: r.Memory}, SlotStride: SlotStride(r.SlotBytes),
		WorkerScratch: workerScratch(r.Images),
	}
	want := Slots(r.Prefetch, p.SlotStride)
	p.GroupRows = groupRows(r, want)

	slots := minSlots
	if r.Prefetch > 0 {
		slots = want
	}
	p.Ring = int64(slots) * p.SlotStride
	p.reading(r)
	p.LargeScratch = minLargeScratch
	p.Lookahead = r.Lookahead
	spare := r.Memory - p.Ring - p.Read - p.Lookahead - p.scratch(r.Threads)
	if spare < 0 {
		return nil, tooLittle(r, p)
	}
	take := func(n int64) int64 {
		n = clamp(n, 0, spare)
		spare -= n
		return n
	}
	if r.Lookahead == 0 {
		p.Lookahead = take(min(spare/4, maxLookahead))
	}
	p.LargeScratch += take(min(largeImage(r.Images), r.Memory/8) - p.LargeScratch)
	p.Slots = slots + int(take(int64(want-slots)*p.SlotStride)/p.SlotStride)
	p.Ring = int64(p.Slots) * p.SlotStride
	if r.Lookahead == 0 {
		spare = r.Memory - p.Ring - p.Read - p.Lookahead - p.scratch(r.Threads)
		p.Lookahead += take(min(r.Memory/4, maxLookahead) - p.Lookahead)
	}
	p.Scratch = p.scratch(r.Threads)
	return p, nil
}

// reading sets Read and its parts, which do not depend on how much memory there is.
func (p *Plan) reading(r *Request) {
	p.Fetch = leastRead(r)
	p.Urgent, p.Parse = p.Fetch, r.UnplacedBytes+minParse
	if r.Substitutes {
		p.Substitute = p.Fetch
	}
	p.Read = p.Fetch + p.Urgent + p.Parse + p.Substitute
}

func (p *Plan) scratch(threads int) int64 { return int64(threads)*p.WorkerScratch + p.LargeScratch }

func clamp(v, lo, hi int64) int64 { return max(lo, min(v, hi)) }
