//go:build linux && (amd64 || arm64)

package main

/*
#include <sched.h>

// A process inherits how its parent is scheduled, and libraries make their process a real-time one behind its back
// (SVT-AV1's encoder does, in a root's Python). Go's runtime waits for locks by giving up its turn and needs turns that
// end; as SCHED_FIFO two engines stood still and held up the machine. This runs before there are other threads, which
// would each have to be set.
__attribute__((constructor)) static void take_turns(void) {
	int policy = sched_getscheduler(0);
	if (policy == SCHED_FIFO || policy == SCHED_RR) {
		struct sched_param none = {0};
		sched_setscheduler(0, SCHED_OTHER, &none);
	}
}
*/
import "C"
