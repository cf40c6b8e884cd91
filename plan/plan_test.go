package plan_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stokerdata/stoker/plan"
)

func ExampleMake() {
	p, err := plan.Make(
		plan.Target{Batch: 128, Step: 0.087, Accelerators: 4, Storage: "sata-ssd"},
		plan.Dataset{RecordBytes: 64e3},
		plan.Machine{},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.0f IOPS, %.0f MB/s\n", p.Reads.IOPS, p.Reads.Bandwidth/1e6)
	fmt.Println(p.Meets, p.FirstToFail)
	// Output:
	// 5885 IOPS, 377 MB/s
	// true storage bandwidth
}

func TestAsksForWhatIsMissing(t *testing.T) {
	_, err := plan.Make(plan.Target{Batch: 128}, plan.Dataset{RecordBytes: 64e3}, plan.Machine{})
	var missing *plan.Missing
	if !errors.As(err, &missing) || len(missing.Figures) != 1 || missing.Figures[0].Key != "step" {
		t.Errorf("error %v", err)
	}
	_, err = plan.Make(plan.Target{Batch: -1, Step: 1}, plan.Dataset{RecordBytes: 64e3}, plan.Machine{})
	var bad *plan.BadInput
	if !errors.As(err, &bad) || bad.Key != "batch" {
		t.Errorf("error %v", err)
	}
}
