package hdf5source

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// lengthOf returns the number of values in row i of the pairs in testdata, startOf the offset of the first one.
func lengthOf(i int64) int64 { return i * 5 % 7 }

func startOf(i int64) (n int64) {
	for k := range i {
		n += lengthOf(k)
	}
	return n
}

// Values with offsets or lengths next to them are found, and are rows of variable length.
func TestPairs(t *testing.T) {
	for _, version := range []string{"earliest", "latest"} {
		s := open(t, "pairs_"+version+".h5", "")
		info := s.Info()
		var names []string
		for _, f := range info.Fields {
			names = append(names, f.Name+":"+string(f.Kind))
		}
		want := "label:int plain/values:ragged sparse/data:ragged sparse/indices:ragged tokens_values:ragged wide/boxes:ragged wide/points:ragged words:ragged"
		if got := strings.Join(names, " "); info.Len != 30 || got != want {
			t.Fatalf("%s: %d records of %s", version, info.Len, got)
		}
		for _, rec := range drivertest.Records(t, s, 17, 3, 0, 29, 7, 28, 1) {
			if rec.Err != nil {
				t.Fatal(rec.Err)
			}
			for i, f := range info.Fields {
				if f.Kind != driver.KindRagged || f.Name == "words" {
					continue
				}
				d := f.DType.Type()
				n := int64(1)
				for _, side := range f.Shape {
					n *= int64(side)
				}
				var want []byte
				for k := startOf(rec.ID) * n; k < startOf(rec.ID+1)*n; k++ {
					want = append(want, number(d, k)...)
				}
				if got := rec.Values[i].Bytes; !bytes.Equal(got, want) {
					t.Fatalf("%s: row %d of %q is %v, want %v", version, rec.ID, f.Name, got, want)
				}
			}
		}
		sizes := make([]int64, 2)
		for i, f := range info.Fields {
			if f.Name == "wide/points" && (!s.(driver.Sizer).Sizes(i, []int64{3, 4}, sizes) || sizes[0] != 12*lengthOf(3) || sizes[1] != 12*lengthOf(4)) {
				t.Errorf("sizes of %q are %v", f.Name, sizes)
			}
		}
		var left []string
		for _, l := range s.(driver.Leaver).Left() {
			left = append(left, l.Path+": "+l.Reason)
		}
		for _, line := range []string{`plain/offsets: it says which rows of "plain/values" are a record`, `starts: its first axis has 31 elements, that of the fields 30`} {
			if !strings.Contains(strings.Join(left, "\n"), line) {
				t.Errorf("%s: left out are %q", version, left)
			}
		}
	}
}

// Pairs can be named, and converted to other kinds.
func TestNamedPairs(t *testing.T) {
	s := open(t, "pairs_latest.h5", "x=events.x@starts&y:ragged=/events.y@/starts&text:text=words&tokens:tokens=tokens_values&plain/values&ids:multilabel=sparse/indices&label:label=label")
	for _, rec := range drivertest.Records(t, s, 5, 0, 29, 12) {
		if rec.Err != nil {
			t.Fatal(rec.Err)
		}
		lo, hi := startOf(rec.ID), startOf(rec.ID+1)
		var x, y, tokens, ids []byte
		for k := lo; k < hi; k++ {
			x = binary.LittleEndian.AppendUint16(x, uint16(k))
			y = append(y, number(s.Info().Fields[1].DType.Type(), k)...)
			tokens = binary.LittleEndian.AppendUint16(tokens, uint16(k))
			ids = binary.LittleEndian.AppendUint64(ids, uint64(k))
		}
		for i, want := range [][]byte{x, y, []byte(strings.Repeat("é", int(hi-lo))), tokens, nil, ids} {
			if got := rec.Values[i].Bytes; want != nil && !bytes.Equal(got, want) {
				t.Errorf("row %d of %q is %v, want %v", rec.ID, s.Info().Fields[i].Name, got, want)
			}
		}
		if rec.Values[6].Int != rec.ID%10 {
			t.Errorf("the label of row %d is %d", rec.ID, rec.Values[6].Int)
		}
	}
	if f := s.Info().Fields; f[4].Name != "plain/values" || f[2].Kind != driver.KindText {
		t.Errorf("%+v", f)
	}
	// Without a name after the @ the values are normal rows.
	s = open(t, "pairs_latest.h5", "plain/values@")
	if f := s.Info().Fields; s.Info().Len != startOf(30) || f[0].Name != "plain/values" || f[0].Kind != driver.KindInt {
		t.Errorf("%d records of %+v", s.Info().Len, f)
	}
	for query, want := range map[string]string{
		"plain/values@nothing":               `has no array "plain/values@nothing"`,
		"plain/values@sparse/data":           `"sparse/data" is float32 of shape`,
		"plain/values@words_offsets":         `its records follow from "words_offsets", whose element `,
		"plain/values@label":                 `"label"`,
		"x:array=plain/values":               "its lists have 0 to 6 elements",
		"words@tokens_lengths&plain/values@": "rows and",
	} {
		if _, err := tryOpen(t, "testdata/pairs_latest.h5", query); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}

// Inconsistent offsets give one line with the file, the data set and the element.
func TestDamagedPairs(t *testing.T) {
	whole := read(t, "pairs_earliest.h5")
	at := bytes.Index(whole, offsetsOf())
	if at < 0 || bytes.LastIndex(whole, offsetsOf()) != at {
		t.Fatal("the offsets are not where the test looks for them")
	}
	for _, c := range []struct {
		element int64
		value   uint64
		want    string
	}{
		{3, 200, `"plain/values": its records follow from "plain/offsets", whose element 3 is 200, beyond the 89 rows`},
		{4, 1, `whose element 4 is 1, less than the one before it`},
		{30, 1 << 62, `whose element 30 is 4611686018427387904, beyond the 89 rows`},
		{2, 1 << 63, `whose element 2 is -9223372036854775808, below 0`},
	} {
		b := bytes.Clone(whole)
		binary.LittleEndian.PutUint64(b[int64(at)+8*c.element:], c.value)
		path := filepath.Join(t.TempDir(), "x.h5")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := tryOpen(t, path, "plain/values@plain/offsets")
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "x.h5") {
			t.Errorf("element %d is %d: %v", c.element, c.value, err)
		}
	}
}

// offsetsOf returns the offsets of testdata as int64.
func offsetsOf() (b []byte) {
	for i := range int64(31) {
		b = binary.LittleEndian.AppendUint64(b, uint64(startOf(i)))
	}
	return b
}
