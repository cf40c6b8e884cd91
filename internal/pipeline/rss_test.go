package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/hugeimagetest"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/racetest"
)

// childConfig holds, for a child process of the test, the engine that it runs.
const childConfig = "STOKER_TEST_ENGINE"

// childReport is the report of the child.
type childReport struct {
	Peak    int64 // largest resident memory
	Rows    int
	Skipped []string
	Failed  string
}

// TestChildEngine is not a test but the child process of the tests below: an engine that loads the batches of an epoch.
func TestChildEngine(t *testing.T) {
	config := os.Getenv(childConfig)
	if config == "" {
		t.Skip("of a child process")
	}
	cfg, err := ParseConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	OwnProcess()
	var out childReport
	p := mustOpen(t, cfg)
	p.Start(item.Position{})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		ev, err := p.Next(ctx)
		if err != nil {
			out.Failed = err.Error()
			break
		}
		for _, bad := range ev.Bad {
			out.Skipped = append(out.Skipped, bad.Error())
		}
		if ev.Kind == EventEpochEnd {
			break
		}
		out.Rows += ev.Rows
		p.Release(ev.Slot)
	}
	status, err := proc.Live.Status(proc.Self)
	if err != nil {
		t.Fatal(err)
	}
	out.Peak = int64(status.Peak)
	line, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("report %s\n", line)
}

// runEngine loads an epoch of a folder's images in a separate process.
func runEngine(t *testing.T, dir string, memory int64, onError string) childReport {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"source": dir, "batch_size": 4, "threads": 4, "memory": memory, "on_error": onError,
		"outputs": []any{map[string]any{"name": "image", "field": "image", "ops": []any{map[string]any{"op": "RandomResizedCrop", "size": []int{64, 64}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self, "-test.run=^TestChildEngine$")
	child.Env = append(os.Environ(), childConfig+"="+string(config))
	out, err := child.CombinedOutput()
	_, line, ok := strings.Cut(string(out), "report ")
	var r childReport
	if err != nil || !ok || json.NewDecoder(strings.NewReader(line)).Decode(&r) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// Images that unfold to hundreds of MiB, or claim to, in files of every format, are decoded within the budget.
// Otherwise they are refused by name with the memory that they would need. In both cases the engine takes no more than
// its budget and a constant.
func TestHostileImagesStayWithinTheBudget(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector takes memory of its own")
	}
	dir := t.TempDir()
	if err := hugeimagetest.Folder(dir, "jpeg-progressive", 8); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := len(entries)
	for _, memory := range []int64{96 << 20, 600 << 20} { // four workers, files of up to 14 MB
		r := runEngine(t, dir, memory, OnErrorSkip)
		t.Logf("%d MiB: peak %d MiB, %d beside the budget; %d skipped", memory>>20, r.Peak>>20, (r.Peak-memory)>>20, len(r.Skipped))
		for _, s := range r.Skipped {
			if strings.Contains(s, "huge-") && !strings.Contains(s, "decoding it takes 470 MiB of memory") {
				t.Error(s)
			}
			t.Log(s)
		}
		if r.Failed != "" || r.Rows != files {
			t.Errorf("%d of %d rows: %s", r.Rows, files, r.Failed)
		}
		if r.Peak-memory > budget.Beside {
			t.Errorf("with memory of %d MiB the engine took %d", memory>>20, r.Peak>>20)
		}
	}
}
