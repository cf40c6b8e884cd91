package doctor

import (
	"strings"

	"github.com/stokerdata/stoker/internal/doctor/libprofile"
)

// JAX passes a step to threads of XLA and continues, so the trainer makes its next batch in the meantime. The step
// takes at least as long as those threads compute.

// besideTimes is the CPU time of such threads in the last second.
type besideTimes struct {
	parts  float64 // of the busiest of the pool that computes the parts of a step side by side
	inTurn float64 // of those that run one step after another
	all    float64
}

// least returns the minimum time of the steps within that CPU time.
func (b *besideTimes) least(cores float64) float64 {
	return max(b.parts+b.inTurn, b.all/max(1, cores))
}

// fewNative is the number of CPU time samples that identify the owner of a thread without a name. The limit smallShare
// is the share of a core below which the owner is not looked up.
const fewNative, smallShare = 3, 0.02

// noteBeside adds the CPU time of a thread of a trainer if XLA computes there.
func (c *collector) noteBeside(p *process, t *thread, run float64) {
	b := &p.beside
	switch {
	case p.trainer == nil || t.tid == p.pid || p.trainsIn(t):
		return
	case strings.Contains(t.comm, "XLAEigen"):
		p.xla, b.parts = true, max(b.parts, run)
	case strings.Contains(t.comm, "XLA"):
		p.xla = true
		b.inTurn += run
	default:
		// XLA names its pools only.
		if !p.xla || p.frames[t.tid].known {
			return
		}
		if t.share >= smallShare {
			c.drain(p.pid, t.tid, t.noteNative)
		}
		if t.xla < fewNative || 2*t.xla < t.native {
			return
		}
		b.inTurn += run
	}
	b.all += run
}

// noteNative counts a sample of the thread's CPU time.
func (t *thread) noteNative(library string) {
	t.native++
	if library == libprofile.Made || framework(library) || strings.HasPrefix(library, "libjax") {
		t.xla++
	}
}
