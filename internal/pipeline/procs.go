package pipeline

import "runtime"

// cores is how many threads the process may run at once, as the runtime saw it
// at the start.
var cores = runtime.GOMAXPROCS(0)

// spareProcs are the runtime's processors beside one for each core.
const spareProcs = 2

// SpareProcs gives the Go runtime more processors than there are cores. Workers
// spend nearly all of their time in C, where they keep their processors. When
// none is idle, the runtime's monitor wakes every 20 us to take processors away
// from calls into C, so that other goroutines can run: 6% of all CPU time on two
// cores. With spare ones it sleeps for up to 10 ms. Commands that run a Pipeline
// call it once at their start; a GOMAXPROCS in the environment counts as the
// number of cores.
func SpareProcs() { runtime.GOMAXPROCS(cores + spareProcs) }
