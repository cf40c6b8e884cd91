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
	// Held is what the source holds of its records in memory.
	Held int64
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

// amount is a budget as it was given, in MiB or, below one, in bytes.
func amount(n int64) string {
	if n < 1<<20 {
		return units.Plural(n, "byte")
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// MakePacking shares the memory out, or says how much is needed.
func MakePacking(r *PackRequest) (*Packing, error) {
	p := &Packing{Budget: r.Memory, Chunk: chunkTimes * r.ChunkBytes}
	rest := r.Memory - p.Chunk - r.Held
	if least := int64(16 * minPackPart); rest < least {
		held := ""
		if r.Held > 0 {
			held = fmt.Sprintf("%d MiB of records that are held because their files are compressed, ", units.MiB(r.Held))
		}
		return nil, fmt.Errorf("the memory budget is %s, which is not enough: %schunks of %d MiB and the images need %d MiB; set memory to that or more",
			amount(r.Memory), held, units.MiB(r.ChunkBytes), units.MiB(p.Chunk+least+r.Held))
	}
	part := clamp(rest/16, minPackPart, int64(r.Threads)*packPart)
	p.Ahead, p.Quick = part, part
	p.Large = rest - packParts*part
	p.One = max(p.Large, r.Free/2-(r.Memory-p.Large))
	p.JobKept = part / 2 / (int64(r.Threads) * (PackJobs + 1))
	p.WorkerKept = part / 2 / (int64(r.Threads) * workerBuffers)
	return p, nil
}

// VerifyRequest is what decoding the records of a pack to check them is asked to do,
// as far as memory depends on it; its fields are those of a PackRequest.
type VerifyRequest struct {
	Memory, Free int64
	Threads      int
}

// Verifying is how the memory of checking is shared out, in bytes.
type Verifying struct {
	Budget int64
	// Read is for records that are read and Large for what decoding takes, where it
	// is more than the Kept that each worker may have of both without asking. A single
	// record may take OneRead, decoding a single value One.
	Read, OneRead, Large, One, Kept int64
}

const (
	// verifyWorker is what a worker has in any case, to read a chunk with.
	verifyWorker = 1 << 20
	// minVerify is the least beside; maxKept is more than ordinary photographs take.
	minVerify = 16 << 20
	maxKept   = 8 << 20
)

// MakeVerifying shares the memory out, or says how much is needed. A quarter is for
// what workers keep: each a record, pixels, and twice what decoding took, which may
// be garbage that is not collected.
func MakeVerifying(r *VerifyRequest) (*Verifying, error) {
	threads := int64(r.Threads)
	rest := r.Memory - threads*verifyWorker
	if rest < minVerify {
		return nil, fmt.Errorf("the memory budget is %s, which is not enough: decoding in %d threads needs %d MiB; set memory to that or more, or use fewer threads",
			amount(r.Memory), r.Threads, units.MiB(threads*verifyWorker+minVerify))
	}
	p := &Verifying{Budget: r.Memory, Read: rest / 4, Large: rest / 2, Kept: min(rest/16/threads, maxKept)}
	p.OneRead, p.One = max(p.Read, r.Free/4), max(p.Large, r.Free/2)
	return p, nil
}

// ForVerifying is the least memory, in whole MiB, with which a record of read bytes
// whose decoding takes n is checked.
func ForVerifying(r VerifyRequest, read, n int64) int64 {
	r.Free = 0
	return leastMemory(func(memory int64) bool {
		r.Memory = memory
		p, err := MakeVerifying(&r)
		return err == nil && p.OneRead >= read && p.One >= n
	})
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
