package measure_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/plan/measure"
)

// A plan follows from a dataset on this machine and from figures that the caller sets.
func TestDataset(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.bin", "b.bin"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 64e3), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := measure.Dataset(context.Background(), "files:"+dir)
	if err != nil || found.Records != 2 || found.RecordBytes != 64e3 {
		t.Fatalf("%+v, %v", found, err)
	}
	p, err := plan.Make(plan.Target{Batch: 2, Step: 0.1, Storage: "nvme"}, found, plan.Machine{Cores: 16})
	if err != nil || p.Reads.IOPS != 20 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := measure.Dataset(context.Background(), filepath.Join(dir, "none")); err == nil {
		t.Error("a missing folder was accepted")
	}
}
