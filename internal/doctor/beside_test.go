package doctor

import (
	"math"
	"testing"

	"github.com/stokerdata/stoker/internal/doctor/libprofile"
)

// The computation of XLA's threads is recognised by their names and their code.
func TestBeside(t *testing.T) {
	p := &process{pid: 100, trainer: &trainerState{}, frames: map[int]view{105: {known: true}}}
	c := &collector{}
	for _, x := range []struct {
		tid     int
		comm    string
		library string
		run     float64
	}{
		{100, "python", libprofile.Made, 0.9}, // the trainer itself
		{101, "tf_XLAEigen", "", 0.2},
		{102, "tf_XLAEigen", "", 0.3},
		{103, "python", "libjax_common", 0.1},
		{104, "python", libprofile.Made, 0.05},
		{105, "python", libprofile.Made, 0.4}, // runs Python
		{106, "python", "libopenblas", 0.5},
		{107, "python", "", 0.5}, // unknown
	} {
		th := &thread{tid: x.tid, comm: x.comm}
		for range fewNative {
			if x.library != "" {
				th.noteNative(x.library)
			}
		}
		c.noteBeside(p, th, x.run)
	}
	if b := p.beside; math.Abs(b.parts-0.3) > 1e-9 || math.Abs(b.inTurn-0.15) > 1e-9 || math.Abs(b.all-0.65) > 1e-9 {
		t.Errorf("%+v", b)
	}
	for cores, want := range map[float64]float64{1: 0.65, 2: 0.45, 16: 0.45} {
		if got := p.beside.least(cores); math.Abs(got-want) > 1e-9 {
			t.Errorf("on %.0f cores: %.2f, want %.2f", cores, got, want)
		}
	}
	none := &process{pid: 100, trainer: &trainerState{}}
	th := &thread{tid: 103, comm: "python", native: 9, xla: 9}
	if c.noteBeside(none, th, 0.5); none.beside.all != 0 {
		t.Error("a job without XLA has threads of it")
	}
	worker := &process{pid: 100}
	if c.noteBeside(worker, &thread{tid: 101, comm: "tf_XLAEigen"}, 0.5); worker.beside.all != 0 {
		t.Error("a process that does not train has steps")
	}
}
