package cli

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/stokerdata/stoker/internal/doctor/gpu"
	"github.com/stokerdata/stoker/internal/status"
)

// topNode has a slow rank, a fast one, and a loader that does nothing.
func topNode() node {
	loader := func(rank int, waited float64, limit string) status.Status {
		s := status.Status{
			Run: "train_with_a_long_name.py 4711", Rank: rank, WorldSize: 3, Engine: 100 + rank, Trainer: 10 + rank, Seconds: 5, Watched: true,
			WaitQuantiles: [3]float64{0.001, 0.02, 0.3}, Limit: limit, Memory: 1 << 30, Source: "s3://bucket/train\x1b[31m", Format: "pack", BatchSize: 256,
			Workers: map[string]int{"decode": 2},
		}
		s.Last = status.Totals{
			Waited: waited, Batches: 20, Records: 5120, Stages: map[string]float64{"decode": 9},
			CacheHits: map[string]float64{"disk": 9}, CacheMisses: map[string]float64{"disk": 1},
		}
		return s
	}
	return node{
		loaders:      []status.Status{loader(0, 0.1, status.Step), loader(1, 2.5, "decode"), loader(2, 4, status.Idle)},
		accelerators: []gpu.Reading{{Index: 0, Utilisation: 0.97, MemoryUsed: 60e9, MemoryTotal: 80e9}, {Index: 1}, {Index: 2}},
		silent:       1,
	}
}

func press(m *topModel, keys ...string) tea.Cmd {
	var cmd tea.Cmd
	for _, key := range keys {
		switch key {
		case "down":
			_, cmd = m.Update(tea.KeyPressMsg{Code: tea.KeyDown})
		case "up":
			_, cmd = m.Update(tea.KeyPressMsg{Code: tea.KeyUp})
		case "enter":
			_, cmd = m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
		case "esc":
			_, cmd = m.Update(tea.KeyPressMsg{Code: tea.KeyEscape})
		default:
			_, cmd = m.Update(tea.KeyPressMsg{Code: rune(key[0]), Text: key})
		}
	}
	return cmd
}

func TestTopPlain(t *testing.T) {
	m := topModel{node: topNode(), plain: true, width: 200}
	want := `stoker top  1 run, 3 engines, 3 loaders, 1 without an answer
accelerator 0 97%, 60.0 GB of 80.0 GB   accelerator 1 0%, 0 B of 0 B
accelerator 2 0%, 0 B of 0 B
run                             rank  waiting      p50      p95     p99  batches/s  records/s        limit  read/s  cache  requests/s   memory  engine
train_with_a_long_name.py 4711   1/3      50%  1.00 ms  20.0 ms  300 ms       4.00      1,024       decode     0 B    90%           0  1.07 GB     101
train_with_a_long_name.py 4711   0/3       2%  1.00 ms  20.0 ms  300 ms       4.00      1,024  accelerator     0 B    90%           0  1.07 GB     100
train_with_a_long_name.py 4711   2/3      80%  1.00 ms  20.0 ms  300 ms       4.00      1,024         idle     0 B    90%           0  1.07 GB     102
`
	if got := m.text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	empty := topModel{plain: true, width: 200}
	if got := empty.text(); !strings.Contains(got, "no engine of this user") {
		t.Errorf("%q", got)
	}
}

func TestTopKeys(t *testing.T) {
	m := &topModel{node: topNode(), width: 80, height: 24}
	ranks := func() (out string) {
		for _, s := range m.rows() {
			out += rankText(s)[:1]
		}
		return out
	}
	if ranks() != "102" {
		t.Errorf("the slowest first: %s", ranks())
	}
	for _, width := range []int{20, 80, 140} {
		m.Update(tea.WindowSizeMsg{Width: width, Height: 24})
		for _, line := range strings.Split(m.text(), "\n") {
			if lipgloss.Width(line) > width {
				t.Errorf("width %d: %q", width, line)
			}
		}
		if width >= 80 && (!strings.Contains(m.text(), "…4711") && width == 80 || !strings.Contains(m.text(), "memory")) {
			t.Errorf("width %d:\n%s", width, m.text())
		}
	}
	if !strings.Contains(m.text(), "p99") {
		t.Errorf("no quantiles at 140 columns:\n%s", m.text())
	}
	// Sorted by rank, and reversed.
	if press(m, "s"); ranks() != "210" {
		t.Errorf("by rank: %s", ranks())
	}
	if press(m, "r"); ranks() != "012" || !strings.Contains(m.text(), "rank↑") {
		t.Errorf("reversed: %s", ranks())
	}
	// The selection follows its loader.
	press(m, "down", "enter")
	for _, want := range []string{"rank 1 of 3", "stage decode       90% of 2 workers", "next: stoker doctor --pid 11", "cache hits disk"} {
		if !strings.Contains(m.text(), want) {
			t.Errorf("no %q in\n%s", want, m.text())
		}
	}
	if strings.Contains(m.text(), "train\x1b[31m") {
		t.Error("a control character got through")
	}
	if press(m, "r", "up", "up"); !strings.Contains(m.text(), "rank 2 of 3") {
		t.Errorf("the first row:\n%s", m.text())
	}
	if press(m, "esc") != nil || m.open {
		t.Error("esc does not close the details")
	}
	// More loaders than lines: the selected one is visible.
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 7})
	if press(m, "down", "down", "down"); !strings.Contains(m.text(), "0/3") {
		t.Errorf("the selected row is not visible:\n%s", m.text())
	}
	if cmd := press(m, "q"); cmd == nil {
		t.Error("q does not end")
	}
	// Without loaders no key fails.
	press(&topModel{width: 80, height: 24}, "down", "enter", "s", "r", "up", "esc")
}
