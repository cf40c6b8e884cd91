package view_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// Numbers get the narrower type. A number that does not fit is an error that contains the number.
func TestNarrow(t *testing.T) {
	name := filepath.Join(t.TempDir(), "t.csv")
	text := "n,f,list,pair\n1,2,\"[1]\",\"[1, 2]\"\n255,7,\"[1, 255, 3]\",\"[0, 4]\"\n256,3,\"[]\",\"[3, 4]\"\n4,-1,\"[2, 900]\",\"[3, 256]\"\n"
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, openTable(t, name), view.Spec{Kinds: map[string]string{"n": "uint8", "f": "uint16", "list": "uint8", "pair": "uint8"}})
	defer s.Close()
	var types []string
	for _, f := range s.Info().Fields {
		types = append(types, fmt.Sprintf("%s:%s/%s%v", f.Name, f.Kind, f.DType, f.Shape))
	}
	if got := strings.Join(types, " "); got != "n:array/uint8[] f:array/uint16[] list:ragged/uint8[] pair:array/uint8[2]" {
		t.Error(got)
	}
	r := recordread.NewDirect(s, recordread.NewObjects(s, nil))
	for id, want := range []string{"[[1] [2 0] [1] [1 2]]", "[[255] [7 0] [1 255 3] [0 4]]", `field "n": 256 does not fit into uint8`, "field"} {
		recs, err := r.Read(t.Context(), []int64{int64(id)})
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(recs[0].Err)
		if recs[0].Err == nil {
			var all [][]byte
			for _, v := range recs[0].Values {
				all = append(all, v.Bytes)
			}
			got = fmt.Sprint(all)
		}
		if !strings.Contains(got, want) {
			t.Errorf("record %d: %s, want %s", id, got, want)
		}
	}
}

// A pack stores labels in the requested type, and returns the original numbers.
func TestNarrowLabels(t *testing.T) {
	csv := table(t, 300)
	for kind, size := range map[string]int{"uint8": 1, "uint16": 2} {
		src := openTable(t, csv)
		s := open(t, src, view.Spec{Where: "n < 256", Kinds: map[string]string{"n": "label"}, Select: []string{"n"}})
		s = open(t, s, view.Spec{Kinds: map[string]string{"n": kind}})
		dir := filepath.Join(t.TempDir(), kind)
		if _, err := pack.WriteSource(t.Context(), s, dir, nil); err != nil {
			t.Fatal(err)
		}
		s.Close()
		p, err := pack.Open(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f := p.Info().Fields[0]; f.Kind != driver.KindLabel || f.DType.Size() != size {
			t.Errorf("%s: %s of %s", kind, f.Kind, f.DType)
		}
		for i, n := range ints(t, p, 0) {
			if n != int64(i) {
				t.Fatalf("%s: record %d is %d", kind, i, n)
			}
		}
		p.Close()
	}
}
