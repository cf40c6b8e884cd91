package joined

import (
	"context"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/source/wrap/pick"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func parts(t testing.TB) []driver.Source {
	t.Helper()
	var all []driver.Source
	for _, rows := range []string{"0:10", "10:11", "11:11", "11:30"} {
		src, err := pick.Open(t.Context(), sourcetest.Mixed(30), rows)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, src)
	}
	return all
}

func TestRecords(t *testing.T) {
	src, err := Open("concat:test", parts(t))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	whole := sourcetest.Mixed(30)
	defer whole.Close()
	ids := []int64{29, 0, 10, 11, 9, 11}
	got, want := drivertest.Records(t, src, ids...), drivertest.Records(t, whole, ids...)
	for k := range got {
		for f := range got[k].Values {
			a, b := got[k].Values[f], want[k].Values[f]
			if string(a.Bytes) != string(b.Bytes) || a.Int != b.Int || a.Float != b.Float {
				t.Errorf("record %d, field %d differs", ids[k], f)
			}
		}
		if src.Name(ids[k]) != whole.Name(ids[k]) {
			t.Errorf("record %d is called %q, want %q", ids[k], src.Name(ids[k]), whole.Name(ids[k]))
		}
	}
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Opener(func(context.Context) (driver.Source, error) { return Open("concat:test", parts(t)) }))
}

// The numbers of a mixture have the round of their part.
func TestMixed(t *testing.T) {
	src, err := OpenMixed("concat:test", parts(t))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if !driver.EpochsOf(src) || src.Differ() || len(Parts(src)) != 5 {
		t.Fatal("it is not a mixture of four parts")
	}
	whole := sourcetest.Mixed(30)
	defer whole.Close()
	got := drivertest.Records(t, src, 29, driver.InEpoch(3, 29), driver.InEpoch(1, 4))
	want := drivertest.Records(t, whole, 29, 29, 4)
	for k := range got {
		for f := range got[k].Values {
			if a, b := got[k].Values[f], want[k].Values[f]; string(a.Bytes) != string(b.Bytes) || a.Int != b.Int || a.Float != b.Float {
				t.Errorf("record %d, field %d differs", k, f)
			}
		}
	}
	if src.Name(driver.InEpoch(2, 11)) != whole.Name(11) {
		t.Errorf("record 11 is called %q", src.Name(driver.InEpoch(2, 11)))
	}
}

func TestMixedConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Opener(func(context.Context) (driver.Source, error) { return OpenMixed("concat:test", parts(t)) }))
}

func TestOtherFields(t *testing.T) {
	for what, change := range map[string]func(f *driver.Field){
		`no field "other"`:            func(f *driver.Field) { f.Name = "other" },
		"is label and text":           func(f *driver.Field) { f.Kind = driver.KindText },
		"has elements of type":        func(f *driver.Field) { f.DType = driver.Float64 },
		`other classes: class 0 is`:   func(f *driver.Field) { f.Classes = []string{"x"} },
		"other coordinates or belong": func(f *driver.Field) { f.Boxes = "boxes" },
	} {
		all := parts(t)
		other := sourcetest.Mixed(30)
		for i := range other.Info().Fields {
			if f := &other.Info().Fields[i]; f.Kind == driver.KindLabel {
				change(f)
			}
		}
		_, err := Open("concat:test", append(all, other))
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "have different fields") {
			t.Errorf("%v, want %q", err, what)
		}
	}
}
