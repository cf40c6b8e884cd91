package flowsource

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func open(t testing.TB, format, path string) driver.Source {
	s, err := Open(t.Context(), path, format, localstore.New(path))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Values have the top row first, in either byte order of the file.
func TestValues(t *testing.T) {
	for name, c := range map[string]struct {
		format string
		file   []byte
		shape  []int
	}{
		"flow":       {Flo, formattest.Flo(5, 3, formattest.FlowNumbers(0, 30)), []int{3, 5, 2}},
		"gray":       {PFM, formattest.PFM("Pf", 5, 3, false, formattest.FlowNumbers(0, 15)), []int{3, 5}},
		"big-endian": {PFM, formattest.PFM("Pf", 5, 3, true, formattest.FlowNumbers(0, 15)), []int{3, 5}},
		"colour":     {PFM, formattest.PFM("PF", 5, 3, true, formattest.FlowNumbers(0, 45)), []int{3, 5, 3}},
	} {
		dir := formattest.Maps(t, c.format, func(int) []byte { return c.file })
		s := open(t, c.format, dir)
		defer s.Close()
		if got := s.Info().Fields[0].Shape; !slices.Equal(got, c.shape) {
			t.Errorf("%s: the shape is %v", name, got)
		}
		rec := drivertest.Records(t, s, 7)[0]
		if rec.Err != nil {
			t.Fatal(rec.Err)
		}
		b := rec.Values[0].Bytes
		for k, want := range formattest.FlowNumbers(0, len(b)/4) {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(b[4*k:])); got != want {
				t.Fatalf("%s: number %d is %v, want %v", name, k, got, want)
			}
		}
	}
}

// Errors name the file: the first file fails at opening, others when they are read.
func TestDamage(t *testing.T) {
	good := formattest.PFM("Pf", 5, 3, false, formattest.FlowNumbers(0, 15))
	for name, c := range map[string]struct {
		format string
		file   []byte
		want   string
	}{
		"cut":       {Flo, formattest.Flows(1)[:100], "its header announces 3 x 5 x 2 of float32 (120 bytes), 88 bytes follow: the file is cut off or was changed"},
		"magic":     {Flo, []byte("HEIPxxxxxxxx"), "it does not begin with PIEH, as .flo files do"},
		"empty":     {Flo, nil, "it does not begin with PIEH"},
		"huge":      {Flo, formattest.Flo(math.MaxInt32, math.MaxInt32, nil), "a float32 array of shape [2147483647 2147483647 2] is out of range"},
		"negative":  {Flo, formattest.Flo(-5, 3, nil), "a float32 array of shape [3 -5 2] is out of range"},
		"other":     {Flo, formattest.Flo(3, 5, formattest.FlowNumbers(0, 30)), "its shape is 5 x 3 x 2, but all files must have the shape of "},
		"large":     {Flo, formattest.Flo(50, 30, formattest.FlowNumbers(0, 3000)), "it has 12012 bytes, which do not fit float32 3 x 5 x 2"},
		"pfm cut":   {PFM, good[:40], "its header announces 3 x 5 of float32 (60 bytes), 28 bytes follow: the file is cut off"},
		"pfm magic": {PFM, []byte("P6\n5 3\n255\n"), "it does not begin with PF or Pf"},
		"pfm side":  {PFM, []byte("Pf\n5 x\n-1\n"), `its header has "x" where width and height are expected`},
		"pfm huge":  {PFM, []byte("Pf\n99999999999 3\n-1\n"), `its header has "99999999999" where`},
		"pfm scale": {PFM, []byte("Pf\n5 3\n0\n"), `its header has the scale "0"`},
		"pfm nan":   {PFM, []byte("Pf\n5 3\nnan\n"), `its header has the scale "nan"`},
		"endless":   {PFM, append([]byte("Pf\n5 3\n"), make([]byte, 200)...), "its header does not end within 207 bytes"},
	} {
		dir := formattest.Maps(t, c.format, func(i int) []byte {
			switch {
			case i == 4: // a/04, record 5
				return c.file
			case c.format == Flo:
				return formattest.Flows(i)
			}
			return good
		})
		s := open(t, c.format, dir)
		recs := drivertest.Records(t, s, 4, 5)
		if err := recs[1].Err; err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "04."+c.format) {
			t.Errorf("%s: %v", name, err)
		}
		if recs[0].Err != nil {
			t.Error(recs[0].Err)
		}
		if name == "other" || name == "large" {
			continue
		}
		one := filepath.Join(dir, "a", "04."+c.format)
		if _, err := Open(t.Context(), one, c.format, localstore.New(one)); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "cannot read "+one) {
			t.Errorf("%s alone: %v", name, err)
		}
	}
	if _, err := Open(t.Context(), "x", Flo, localstore.New(t.TempDir())); err == nil || !strings.Contains(err.Error(), "no .flo file in ") {
		t.Error(err)
	}
}
