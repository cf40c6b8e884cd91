package view_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/tablesource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/source/view"
)

// tensors parses NAME=COLUMNS pairs, separated by spaces.
func tensors(t testing.TB, text string) map[string]view.Tensor {
	t.Helper()
	out := map[string]view.Tensor{}
	for _, part := range strings.Fields(text) {
		name, columns, _ := strings.Cut(part, "=")
		one, err := view.ParseColumns(columns)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = one
	}
	return out
}

// elements returns a field of all records, as numbers.
func elements(t testing.TB, s driver.Source, name string) (out [][]float64) {
	t.Helper()
	field := slices.IndexFunc(s.Info().Fields, func(f driver.Field) bool { return f.Name == name })
	f := s.Info().Fields[field]
	r := recordread.NewDirect(s, recordread.NewObjects(s, nil))
	for id := range s.Info().Len {
		recs, err := r.Read(t.Context(), []int64{id})
		if err != nil || recs[0].Err != nil {
			t.Fatal(err, recs[0].Err)
		}
		var row []float64
		for b, size := recs[0].Values[field].Bytes, f.DType.Size(); len(b) > 0; b = b[size:] {
			row = append(row, f.DType.Type().Float(b))
		}
		out = append(out, row)
	}
	return out
}

func people(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "people.csv")
	text := "age,rooms,city,ok\n10,1,Rome,true\n,2,Oslo,false\n30,10,,true\n20,2,Bern,true\n"
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestTensors(t *testing.T) {
	name := people(t)
	for spec, want := range map[string]string{
		"x=age":                         "[[10] [20] [30] [20]]",
		"x=age:fill=7:flag":             "[[10 0] [7 1] [30 0] [20 0]]",
		"x=age:fill=none":               "[[10] [NaN] [30] [20]]",
		"x=rooms,ok":                    "[[1 1] [2 0] [10 1] [2 1]]",
		"x=city":                        "[[3] [2] [0] [1]]",
		"x=city:flag":                   "[[3 0] [2 0] [0 1] [1 0]]",
		"x=city:onehot":                 "[[0 0 1] [0 1 0] [0 0 0] [1 0 0]]",
		"x=rooms:code":                  "[[1] [2] [3] [2]]", // 10 behind 2
		"x=rooms:onehot:top=1,ok":       "[[0 1] [1 0] [0 1] [1 1]]",
		"x=*:code:fill=0":               "[[10 1 3 2] [0 2 2 1] [30 3 0 2] [20 2 1 2]]",
		"x=age:fill=20:normalize,rooms": "[[-1.2247448713915890 1] [0 2] [1.2247448713915890 10] [0 2]]",
	} {
		s := open(t, openTable(t, name), view.Spec{Tensors: tensors(t, strings.Replace(spec, "x=", "x:float64=", 1))})
		got := elements(t, s, "x")
		for _, row := range got {
			for i, x := range row {
				if r := math.Round(x*1e12) / 1e12; !math.IsNaN(x) && math.Abs(r) == 1.224744871392 {
					row[i] = math.Copysign(1.2247448713915890, x)
				}
			}
		}
		if fmt.Sprint(got) != strings.ReplaceAll(want, "1.2247448713915890", "1.224744871391589") {
			t.Errorf("%s: %v, want %s", spec, got, want)
		}
		f := s.Info().Fields[len(s.Info().Fields)-1]
		if err := driver.CheckColumns(f.Columns, f.Shape[0]); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
		s.Close()
	}
}

// The suite passes for tensors of tables, of packs made from them, and of sequential sources.
func TestTensorConformance(t *testing.T) {
	csv := table(t, 100)
	spec := &view.Spec{Kinds: map[string]string{"cls": "label"}, Where: "n >= 20", Tensors: tensors(t, "x=score:normalize,cls:onehot,n y:int32=n,cls:code")}
	drivertest.Run(t, drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		s, err := tablesource.Open(ctx, csv, tablesource.CSV, localstore.New(csv), nil)
		if err != nil {
			return nil, err
		}
		return view.Open(ctx, s, spec, nil)
	}))
	dir := filepath.Join(t.TempDir(), "pack")
	src := openTable(t, csv)
	if _, err := pack.WriteSource(t.Context(), src, dir, nil); err != nil {
		t.Fatal(err)
	}
	src.Close()
	drivertest.Run(t, drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		s, err := pack.Open(ctx, dir, nil)
		if err != nil {
			return nil, err
		}
		return view.Open(ctx, s, spec, nil)
	}))
}

// The result is bit-identical for every order of reads, and it is cached.
func TestTensorsAreDeterministic(t *testing.T) {
	name := filepath.Join(t.TempDir(), "t.csv")
	var b strings.Builder
	b.WriteString("x,c\n")
	for i := range 20000 {
		fmt.Fprintf(&b, "%.17g,k%d\n", math.Sin(float64(i))*math.Pow(10, float64(i%17)), i*i%97)
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := view.Spec{Tensors: tensors(t, "t=x:normalize,c:onehot:top=5")}
	want := ""
	for i, threads := range []int{1, 7, 16, 16} {
		src := openTable(t, name)
		one := spec
		s, err := view.Open(t.Context(), src, &one, &view.Options{Threads: threads, NoCache: i < 3})
		if err != nil {
			t.Fatal(err)
		}
		columns, err := json.Marshal(s.Info().Fields[0].Columns)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Info().Fingerprint + string(columns); want == "" {
			want = got
		} else if got != want {
			t.Errorf("%d threads: %.300s, want %.300s", threads, got, want)
		}
		s.Close()
	}
}

// FuzzColumns checks that columns are the same after they are written and read again.
func FuzzColumns(f *testing.F) {
	for _, text := range []string{"age", "age:normalize:flag", "a:b:onehot:top=3", "x:fill=none", "x:fill=0.5,*", ":", "a:onhot", `[{"field":"a","classes":["x"]}]`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return // JSON text must be UTF-8
		}
		one, err := view.ParseColumns(text)
		if err != nil {
			if json.Unmarshal([]byte(text), &one) != nil {
				return
			}
		}
		b, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		var two view.Tensor
		if err := json.Unmarshal(b, &two); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if again, _ := json.Marshal(two); string(again) != string(b) {
			t.Errorf("%s becomes %s", b, again)
		}
		url := "t.csv" + view.Fragment(&view.Spec{Tensors: map[string]view.Tensor{"x": one}})
		base, specs, err := view.CutURL(url)
		if err != nil || base != "t.csv" || len(specs) != 1 {
			t.Fatalf("%s: %v", url, err)
		}
	})
}
