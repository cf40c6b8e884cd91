package pick

import (
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func TestWrapped(t *testing.T) {
	drivertest.Wrapped(t, drivertest.Wrapping{
		Open: func(testing.TB) driver.Source { return sourcetest.Mixed(30).Copied() },
		Wrap: func(t testing.TB, base driver.Source) driver.Source {
			src, err := Open(t.Context(), base, "29:-1:-1")
			if err != nil {
				t.Fatal(err)
			}
			return src
		},
		Lacks: map[string]string{"Chunker": "the records of a chunk may be anywhere"},
	})
}

func TestParse(t *testing.T) {
	for text, want := range map[string][]int64{
		"0:3": {0, 1, 2}, "1:6:2": {1, 3, 5}, "4:-1:-2": {4, 2, 0}, "3:3": nil, "5,3,3": {5, 3, 3},
	} {
		r, err := Parse(t.Context(), text)
		if err != nil {
			t.Fatal(text, err)
		}
		var got []int64
		for k := range r.Len() {
			got = append(got, r.At(k))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"": "is not the number of a record", "1,x": `"x"`, "1:2:0": "the step is 0", "1:2:3:4": "more than three", "-5:2": "not a number in range",
		"@/does/not/exist.npy": "no such file",
	} {
		if _, err := Parse(t.Context(), text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "write it like") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestOutOfRange(t *testing.T) {
	base := sourcetest.Mixed(10)
	for _, text := range []string{"0:11", "3,10", "0:20:19"} {
		if _, err := Open(t.Context(), base, text); err == nil || !strings.Contains(err.Error(), "out of range: there are 10 records") {
			t.Errorf("%s: %v", text, err)
		}
	}
	src, err := Open(t.Context(), base, "7,7,2")
	if err != nil {
		t.Fatal(err)
	}
	if src.Info().Len != 3 || src.Info().Fingerprint == base.Info().Fingerprint {
		t.Error(src.Info().Len, src.Info().Fingerprint)
	}
	defer src.Close()
	got := drivertest.Records(t, src, 0, 1, 2)
	want := drivertest.Records(t, base, 7, 7, 2)
	for k := range got {
		if string(got[k].Values[0].Bytes) != string(want[k].Values[0].Bytes) || got[k].Values[1].Int != want[k].Values[1].Int {
			t.Errorf("record %d differs", k)
		}
	}
}
