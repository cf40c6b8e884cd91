package view_test

import (
	"testing"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// Fields that belong to boxes follow a renamed boxes field, and belong to none if it is dropped.
func TestBelongsToBoxes(t *testing.T) {
	for want, spec := range map[string]view.Spec{
		"boxes": {}, "frames": {Rename: map[string]string{"boxes": "frames"}}, "": {Drop: []string{"boxes"}},
	} {
		src := sourcetest.NewMemory(4, []driver.Field{
			{Name: "boxes", Kind: driver.KindBoxes, DType: driver.Float32, Shape: []int{4}, Format: driver.XYXY, MaxBytes: 16},
			{Name: "labels", Kind: driver.KindMultiLabel, Boxes: "boxes", MaxBytes: 8},
		}, func(int64, []driver.Value) error { return nil })
		spec.Select = []string{"labels", "boxes"}
		s := open(t, src, spec)
		if f := s.Info().Fields[0]; f.Name != "labels" || f.Boxes != want {
			t.Errorf("%s belongs to %q, not to %q", f.Name, f.Boxes, want)
		}
		s.Close()
	}
}
