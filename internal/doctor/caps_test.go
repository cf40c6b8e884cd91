package doctor

import "testing"

func TestDeviceUse(t *testing.T) {
	second := func(queue, mb float64) bin {
		b := bin{dt: 1, training: 10}
		b.v[mDiskTime], b.v[mDiskRead], b.v[mReadBytes], b.v[mDiskReads], b.v[mDiskBusy] = queue, mb*1e6, mb*1e6, mb*10, 0.5
		return b
	}
	for _, c := range []struct {
		name         string
		bins         []bin
		bytes, reads float64
		want         bool
	}{
		{"gives each what it gives one", []bin{second(1, 10), second(2, 20), second(4, 40), second(2, 21), second(3, 29), second(1, 11)}, 0, 0, false},
		{"gives no more to more", []bin{second(2, 30), second(4, 30), second(8, 31), second(3, 29), second(6, 30)}, 0, 0, true},
		{"always as many at once", []bin{second(2, 30), second(2, 30), second(2, 31), second(2, 29), second(2, 30)}, 0, 0, false},
		{"mostly idle", []bin{second(0.1, 30), second(0.2, 30), second(0.4, 31), second(0.3, 29), second(0.6, 30)}, 0, 0, false},
		{"few seconds", []bin{second(2, 30), second(8, 30)}, 0, 0, false},
		{"a limit of the control group", []bin{second(2, 30), second(2, 30)}, 31e6, 0, true},
		{"a limit far away", []bin{second(2, 30), second(2, 30)}, 300e6, 10000, false},
		{"a limit of reads", []bin{second(2, 30), second(2, 30)}, 0, 310, true},
	} {
		col := &collector{}
		col.tree = &tree{}
		col.sys.readBytes, col.sys.readCount, col.sys.cores = c.bytes, c.reads, 2
		l := timeline{bins: c.bins}
		s, _ := col.measure(&l)
		if s.capped() != c.want {
			t.Errorf("%s: uses %.2f of the device", c.name, s.device)
		}
		s.lanes, s.busy, s.wait, s.step = 2, 1, 0.9, 0.1
		s.use[causeStorage] = 1
		if gain := 1 / s.timeWithWorkers(8); c.want && gain > 1.15 {
			t.Errorf("%s: more workers gain %.2f", c.name, gain)
		} else if !c.want && (gain < 1.9 || gain > 2*s.peak+0.01) {
			t.Errorf("%s: more workers gain %.2f, and the best second was %.2f times the mean", c.name, gain, s.peak)
		}
	}
}
