package stoker_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stokerdata/stoker"
)

func ExamplePlan() {
	p, err := stoker.Plan(
		stoker.PlanTarget{Batch: 128, Step: 0.087, Accelerators: 4, Storage: "sata-ssd"},
		stoker.PlanDataset{RecordBytes: 64e3},
		stoker.PlanMachine{},
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

func TestPlanAsksForWhatIsMissing(t *testing.T) {
	_, err := stoker.Plan(stoker.PlanTarget{Batch: 128}, stoker.PlanDataset{RecordBytes: 64e3}, stoker.PlanMachine{})
	var missing *stoker.PlanMissing
	if !errors.As(err, &missing) || len(missing.Figures) != 1 || missing.Figures[0].Key != "step" {
		t.Errorf("error %v", err)
	}
	_, err = stoker.Plan(stoker.PlanTarget{Batch: -1, Step: 1}, stoker.PlanDataset{RecordBytes: 64e3}, stoker.PlanMachine{})
	var bad *stoker.PlanBadInput
	if !errors.As(err, &bad) || bad.Key != "batch" {
		t.Errorf("error %v", err)
	}
}
