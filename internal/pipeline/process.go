package pipeline

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"github.com/stokerdata/stoker/internal/cdec"
)

// own is set in a process that is an engine and nothing else.
var own struct {
	sync.Mutex
	is bool
	// scratch is that of all pipelines.
	scratch int64
}

// OwnProcess says that this process is an engine and nothing else: Go's runtime
// and the C library are set up for that (SpareProcs, and memory that goes back to
// the system when images are done with it). Programs that use a Pipeline among
// other things leave it alone.
func OwnProcess() {
	SpareProcs()
	cdec.ReturnMemory()
	own.Lock()
	own.is = true
	own.Unlock()
}

// heapRoom is what the Go heap may have beside images and twice what lives on it.
const heapRoom = 32 << 20

// limitHeap lets the Go heap grow with the scratch of all pipelines, of which this
// one has change more bytes. Libraries decode images there, and what they leave
// behind is garbage that the collector would let grow to as much as lives at a
// time. A GOMEMLIMIT in the environment counts more.
func limitHeap(change int64) {
	own.Lock()
	defer own.Unlock()
	own.scratch += change
	if !own.is || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(live)
	debug.SetMemoryLimit(own.scratch + heapRoom + 2*int64(live[0].Value.Uint64()))
}
