package pipeline

import (
	"math"
	"os"
	"runtime"

	"github.com/stokerdata/stoker/internal/proc"
)

// cores is the number of threads that the process may run concurrently, as it was at the start.
var cores = coresOf(runtime.GOMAXPROCS(0), os.Getenv("GOMAXPROCS"), proc.Live.UsableCores())

// coresOf returns the number of cores, from the runtime's number and the usable ones. The runtime counts two cores if
// the quota of a control group is less. A GOMAXPROCS in the environment has precedence.
func coresOf(procs int, set string, usable float64) int {
	if set != "" || usable <= 0 {
		return procs
	}
	return min(procs, max(1, int(math.Ceil(usable))))
}

// spareProcs is the number of the runtime's processors in addition to one per core.
const spareProcs = 2

// SpareProcs gives the Go runtime more processors than there are cores. Workers spend nearly all of their time in C and
// keep their processors there. If none is idle, the runtime's monitor wakes every 20 us to take processors away from
// calls into C. That costs 6% of all CPU time on two cores. With spare processors it sleeps for up to 10 ms. Commands
// that run a Pipeline call it once at their start. A GOMAXPROCS in the environment counts as the number of cores.
func SpareProcs() { runtime.GOMAXPROCS(cores + spareProcs) }
