package budget

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/units"
)

// PackRequest is the task of a packing run, as far as memory depends on it.
type PackRequest struct {
	// Memory is the budget in bytes. Free is the free memory if the budget was chosen automatically, as a part of it.
	Memory, Free int64
	// Threads is the number of inputs that are processed at the same time.
	Threads int
	// ChunkBytes is the size of a chunk.
	ChunkBytes int64
	// Held is the memory of the records that the source holds.
	Held int64
}

// Packing is the division of the memory of packing, in bytes.
type Packing struct {
	Budget int64
	// Chunk is the chunk that is being put together.
	Chunk int64
	// Ahead is for inputs as read, until they are written in their order.
	Ahead int64
	// Quick is for small results. Large is for large results, and for small ones if Quick is full. A single input may
	// take One.
	Quick, Large, One int64
	// JobKept and WorkerKept are the sizes of buffers that each input under way and
	// each worker keep for the next one.
	JobKept, WorkerKept int64
}

const (
	// PackJobs is the number of inputs in progress for each worker, including those that wait to be written after a
	// slow one.
	PackJobs = 16
	// A part of the memory of packing is from minPackPart to packPart for each
	// worker: enough for the buffers of ordinary photographs.
	minPackPart = 1 << 20
	packPart    = 32 << 20
	// packParts is the number of parts that are not for large inputs. Ahead and Quick count twice, because their
	// garbage is not collected before the same amount is used again. The last part is for memory that is kept.
	packParts = 5
	// chunkTimes is 2 because a growing chunk has its old and its new memory at the same time.
	chunkTimes = 2
	// Buffers of a worker: pictures on their way, and a file that is mended.
	workerBuffers = 8
)

// amount formats a budget, in MiB or, below one, in bytes.
func amount(n int64) string {
	if n < 1<<20 {
		return units.Plural(n, "byte")
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// MakePacking divides the memory, or returns an error with the required amount.
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

// VerifyRequest is the task of a run that decodes the records of a pack to check them, as far as memory depends on
// it. Its fields are those of a PackRequest.
type VerifyRequest struct {
	Memory, Free int64
	Threads      int
}

// Verifying is the division of the memory for checking, in bytes.
type Verifying struct {
	Budget int64
	// Read is for the records that are read, and Large for decoding. Both are only for needs above Kept, which each
	// worker may use without asking. A single record may take OneRead, decoding a single value One.
	Read, OneRead, Large, One, Kept int64
}

const (
	// verifyWorker is the memory that a worker always has, for reading a chunk.
	verifyWorker = 1 << 20
	// minVerify is the minimum in addition to that. maxKept is more than ordinary photographs need.
	minVerify = 16 << 20
	maxKept   = 8 << 20
)

// MakeVerifying divides the memory, or returns an error with the required amount. A quarter is for the memory that
// workers keep: each a record, pixels, and twice the decoding memory, which may be uncollected garbage.
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

// ForVerifying returns the minimum memory, in whole MiB, for checking a record of read bytes whose decoding takes n.
func ForVerifying(r VerifyRequest, read, n int64) int64 {
	r.Free = 0
	return leastMemory(func(memory int64) bool {
		r.Memory = memory
		p, err := MakeVerifying(&r)
		return err == nil && p.OneRead >= read && p.One >= n
	})
}

// ForInput returns the minimum memory, in whole MiB, for packing an input that needs n bytes.
func ForInput(r PackRequest, n int64) int64 {
	r.Free = 0
	return leastMemory(func(memory int64) bool {
		r.Memory = memory
		p, err := MakePacking(&r)
		return err == nil && p.One >= n
	})
}
