package budget

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/units"
)

// PackRequest is what packing is asked to do, as far as memory depends on it.
type PackRequest struct {
	// Memory is the budget in bytes. Free is what there was when nobody chose one:
	// Memory is then a part of it.
	Memory, Free int64
	// Threads is the number of inputs that are worked on at once.
	Threads int
	// ChunkBytes is the size of a chunk.
	ChunkBytes int64
}

// Packing is how the memory of packing is shared out, in bytes.
type Packing struct {
	Budget int64
	// Chunk is the chunk that is being put together.
	Chunk int64
	// Ahead is for inputs as they are read, until they are written in their order.
	Ahead int64
	// Quick is for what is made of them, where that is little, and Large where it
	// is much or where there is no room in Quick. A single input may take One.
	Quick, Large, One int64
	// JobKept and WorkerKept are the sizes of buffers that each input under way and
	// each worker keep for the next one.
	JobKept, WorkerKept int64
}

const (
	// PackJobs is how many inputs there are under way for each worker: those that
	// wait to be written behind one that takes long.
	PackJobs = 16
	// A part of the memory of packing is from minPackPart to packPart for each
	// worker: enough for the buffers of ordinary photographs.
	minPackPart = 1 << 20
	packPart    = 32 << 20
	// packParts are what is not for large inputs: twice Ahead and Quick, since what
	// is garbage of them is not collected before as much again is used, and what is
	// kept.
	packParts = 5
	// chunkTimes: while a chunk grows, its old memory is there beside the new.
	chunkTimes = 2
	// Buffers of a worker: pictures on their way, and a file that is mended.
	workerBuffers = 8
)

// MakePacking shares the memory out, or says how much is needed.
func MakePacking(r *PackRequest) (*Packing, error) {
	p := &Packing{Budget: r.Memory, Chunk: chunkTimes * r.ChunkBytes}
	rest := r.Memory - p.Chunk
	if least := int64(16 * minPackPart); rest < least {
		return nil, fmt.Errorf("the memory budget is %d MiB, too little: chunks of %d MiB and the images beside need %d MiB; set memory to that or more",
			r.Memory>>20, units.MiB(r.ChunkBytes), units.MiB(p.Chunk+least))
	}
	part := clamp(rest/16, minPackPart, int64(r.Threads)*packPart)
	p.Ahead, p.Quick = part, part
	p.Large = rest - packParts*part
	p.One = max(p.Large, r.Free/2-(r.Memory-p.Large))
	p.JobKept = part / 2 / (int64(r.Threads) * (PackJobs + 1))
	p.WorkerKept = part / 2 / (int64(r.Threads) * workerBuffers)
	return p, nil
}

// ForInput is the least memory, in whole MiB, with which packing an input finds n
// bytes.
func ForInput(r PackRequest, n int64) int64 {
	r.Free = 0
	return leastMemory(func(memory int64) bool {
		r.Memory = memory
		p, err := MakePacking(&r)
		return err == nil && p.One >= n
	})
}
