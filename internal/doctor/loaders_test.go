package doctor

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLoadersAreRead checks that a trainer's notes are found, that its parent's file is not treated as its own, and
// that the loader with most batches counts.
func TestLoadersAreRead(t *testing.T) {
	fd, err := unix.MemfdCreate(loadersName, unix.MFD_CLOEXEC)
	if err != nil {
		t.Skip(err)
	}
	f := os.NewFile(uintptr(fd), loadersName)
	defer f.Close()
	write := func(text string) {
		if err := f.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	c := &collector{}
	c.tree = &tree{members: map[int]*process{os.Getpid(): {pid: os.Getpid(), role: roleTrainer, since: now}}}
	look := func() *loaderNote {
		now = now.Add(time.Hour)
		c.notes.read(c, now)
		return c.notes.main
	}
	defer c.notes.close()
	write(`{"pid": 1, "loaders": [{"num_workers": 7, "epochs": 1}]}`)
	if got := look(); got != nil {
		t.Errorf("another process's file was read: %+v", got)
	}
	for _, text := range []string{"", "{", `{"pid": "x"}`, `[]`} {
		write(text)
		if got := look(); got != nil {
			t.Errorf("%q was read: %+v", text, got)
		}
	}
	write(fmt.Sprintf(`{"pid": %d, "loaders": [
		{"dataset": "Val", "num_workers": 1, "batches": 10, "epochs": 2, "engine": false, "why": "x"},
		{"dataset": "Train", "num_workers": 4, "batches": 100, "epochs": 2, "engine": true, "rest": ["transform"]}]}`, os.Getpid()))
	got := look()
	if got == nil || got.Dataset != "Train" || got.Workers != 4 || got.Engine == nil || !*got.Engine || len(got.Rest) != 1 {
		t.Fatalf("%+v", got)
	}
	// A half-written note does not replace the last one.
	write(`{"pid"`)
	if again := look(); again == nil || again.Dataset != "Train" {
		t.Errorf("%+v", again)
	}
}

// TestWorkerCount checks that the number of workers is that of the loader's note, otherwise the most frequent one, and
// not a mean that includes the time between epochs.
func TestWorkerCount(t *testing.T) {
	for _, c := range []struct {
		note   *loaderNote
		atOnce map[int]int
		lanes  float64
		ranks  int
		want   int
	}{
		{nil, map[int]int{1: 10, 2: 30}, 1.2, 1, 2},
		{&loaderNote{Workers: 2}, map[int]int{1: 30, 2: 10}, 0.8, 1, 2},
		{&loaderNote{Workers: 3}, map[int]int{6: 30}, 5.5, 2, 6},
		{&loaderNote{}, map[int]int{4: 30}, 3.6, 1, 4}, // processes of the dataset's own
	} {
		l := &collector{}
		l.workersEver, l.atOnce, l.notes.main = 8, c.atOnce, c.note
		if got := l.workers(&shares{lanes: c.lanes}, &Loader{Kind: "torch", Trainers: c.ranks}); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
