package pipeline

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"github.com/stokerdata/stoker/internal/cdec"
)

// own is set in a process that is only an engine.
var own struct {
	sync.Mutex
	is bool
	// scratch is that of all pipelines.
	scratch int64
}

// OwnProcess declares that this process is only an engine. It sets up Go's runtime and the C library for that
// (SpareProcs, and memory that returns to the system after decoding). Programs that also do other work with a Pipeline
// do not call it.
func OwnProcess() {
	SpareProcs()
	cdec.ReturnMemory()
	own.Lock()
	own.is = true
	own.Unlock()
}

// heapReserve is the size that the Go heap may have in addition to images and twice its live data.
const heapReserve = 32 << 20

// limitHeap lets the Go heap grow with the scratch of all pipelines; this pipeline's share changes by change bytes.
// Libraries decode images there. Their garbage could otherwise grow to the size of the live data. A GOMEMLIMIT in the
// environment takes precedence.
func limitHeap(change int64) {
	own.Lock()
	defer own.Unlock()
	own.scratch += change
	if !own.is || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(live)
	debug.SetMemoryLimit(own.scratch + heapReserve + 2*int64(live[0].Value.Uint64()))
}
