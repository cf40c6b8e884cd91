package view_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/foldersource"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/source/tablesource"
	"github.com/stokerdata/stoker/internal/source/tfrecordsource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/source/view"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "views")
	if err != nil {
		panic(err)
	}
	os.Setenv("STOKER_CACHE_DIR", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// table writes n rows: a number, a class in runs of different lengths, a text.
func table(t testing.TB, n int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("n,cls,caption,score\n")
	for i := range n {
		fmt.Fprintf(&b, "%d,%s,row %d of all,%g\n", i, []string{"cat", "dog", "owl", "ant"}[min(i*i%11/3, 3)], i, float64(i)/8)
	}
	name := filepath.Join(t.TempDir(), "t.csv")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func openTable(t testing.TB, name string) driver.Source {
	t.Helper()
	s, err := tablesource.Open(t.Context(), name, tablesource.CSV, localstore.New(name), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func open(t testing.TB, src driver.Source, spec view.Spec) driver.Source {
	t.Helper()
	s, err := view.Open(t.Context(), src, &spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ints reads a field of all records.
func ints(t testing.TB, s driver.Source, field int) (out []int64) {
	t.Helper()
	r := recordread.NewDirect(s, recordread.NewObjects(s, nil))
	for id := range s.Info().Len {
		recs, err := r.Read(t.Context(), []int64{id})
		if err != nil || recs[0].Err != nil {
			t.Fatal(err, recs[0].Err)
		}
		out = append(out, recs[0].Values[field].Int)
	}
	return out
}

// The suite passes for views of different kinds of sources.
func TestConformance(t *testing.T) {
	csv := table(t, 100)
	spec := &view.Spec{
		Kinds: map[string]string{"cls": "label"}, Where: "n >= 20 and cls != 'ant'", Split: "a:0.6,b:rest", Part: "a", Seed: 3,
		Select: []string{"caption", "cls"}, Rename: map[string]string{"cls": "label"},
	}
	for name, of := range map[string]func(ctx context.Context) (driver.Source, error){
		"table": func(ctx context.Context) (driver.Source, error) {
			return tablesource.Open(ctx, csv, tablesource.CSV, localstore.New(csv), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
				s, err := of(ctx)
				if err != nil {
					return nil, err
				}
				return view.Open(ctx, s, spec, nil)
			}))
		})
	}
	t.Run("pack", func(t *testing.T) {
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
			return view.Open(ctx, s, &view.Spec{Where: "n != 40 and caption.length > 9", Drop: []string{"cls"}}, nil)
		}))
	})
	t.Run("folder", func(t *testing.T) {
		dir := images(t, 80)
		drivertest.Run(t, drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
			s, err := foldersource.Open(ctx, dir, localstore.New(dir), nil)
			if err != nil {
				return nil, err
			}
			return view.Open(ctx, s, &view.Spec{Where: "width < 75", Split: "a:0.8,b:0.2", Part: "a", Stratify: "label"}, nil)
		}))
	})
	t.Run("compressed", func(t *testing.T) {
		base := compressed(t)
		drivertest.Run(t, func(t testing.TB) driver.Source {
			return open(t, base(t), view.Spec{Split: "a:0.7,b:0.3", Part: "a"})
		})
	})
}

// compressed writes a file that can only be read in order.
func compressed(t testing.TB) drivertest.Open {
	t.Helper()
	b, err := os.ReadFile("../../internal/source/tfrecordsource/testdata/examples.tfrecord.gz")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "x.tfrecord.gz")
	if err := os.WriteFile(name, bytes.Repeat(b, 10), 0o644); err != nil {
		t.Fatal(err)
	}
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return tfrecordsource.Open(ctx, name, localstore.New(name), nil)
	})
}

// Parts are disjoint, cover everything, have the declared sizes, keep the order of the source, and
// do not change when they are made again.
func TestSplit(t *testing.T) {
	src := sourcetest.Raw(1003, 2, 2, 1, 7)
	for _, c := range []struct {
		split, stratify, group string
		sizes                  []int64
	}{
		{"train:0.9,val:0.1", "", "", []int64{903, 100}},
		{"train:0.8,val:0.1,test:0.1", "", "", []int64{802, 101, 100}},
		{"val:100,train:rest", "", "", []int64{100, 903}},
		{"a:33%,b:33%,c:*", "", "", []int64{331, 331, 341}},
		{"a:0.5,b:0.5", "label", "", []int64{502, 501}},
		{"train:0.9,val:0.05,test:0.05", "label", "", []int64{903, 50, 50}},
		{"a:0.7,b:0.3", "", "label", nil},
	} {
		for _, where := range []string{"", "label != 3"} {
			seen := map[int64]string{}
			var parts []view.Part
			names := strings.Split(c.split, ",")
			for _, name := range names {
				name, _, _ = strings.Cut(name, ":")
				spec := view.Spec{Where: where, Split: c.split, Part: name, Seed: 5, Stratify: c.stratify, Group: c.group}
				s := open(t, src, spec)
				v := s.(view.Viewer)
				parts = v.Parts()
				var ids []int64
				for id := range s.Info().Len {
					of := s.Name(id)
					n := int64(0)
					fmt.Sscanf(of, "memory record %d", &n)
					ids = append(ids, n)
					if other, ok := seen[n]; ok {
						t.Fatalf("%+v: record %d is in %s and %s", spec, n, other, name)
					}
					seen[n] = name
				}
				if !slices.IsSorted(ids) {
					t.Errorf("%+v: not in order", spec)
				}
				for _, p := range parts {
					if p.Name == name && p.Records != s.Info().Len {
						t.Errorf("%+v: %d records, stated are %d", spec, s.Info().Len, p.Records)
					}
				}
				again := open(t, src, spec)
				if again.Info().Fingerprint != s.Info().Fingerprint || again.Info().Len != s.Info().Len {
					t.Errorf("%+v: another one when made again", spec)
				}
			}
			if c.sizes != nil && where == "" {
				for i, p := range parts {
					if p.Records != c.sizes[i] {
						t.Errorf("%s by %q: part %s has %d records and not %d", c.split, c.stratify, p.Name, p.Records, c.sizes[i])
					}
				}
			}
			if want := 1003 - 143*bool01(where != ""); len(seen) != want {
				t.Errorf("%s: %d of %d records are in parts", c.split, len(seen), want)
			}
			if c.group != "" { // all records of a label are in one part
				for id, part := range seen {
					if other := seen[id%7]; other != part {
						t.Fatalf("records %d and %d have the same label and are in %s and %s", id, id%7, part, other)
					}
				}
			}
			if c.stratify != "" { // each label in its share, but for less than two records
				count := map[[2]string]int{}
				for id, part := range seen {
					count[[2]string{part, fmt.Sprint(id % 7)}]++
				}
				for _, p := range parts {
					share := float64(p.Records) / float64(len(seen))
					for label := range 7 {
						n := count[[2]string{p.Name, fmt.Sprint(label)}]
						if n == 0 && where != "" && label == 3 {
							continue
						}
						if want := share * 1003 / 7; float64(n) < want-2.2 || float64(n) > want+2.2 {
							t.Errorf("%s: %d records of label %d in %s, its share is %.1f", c.split, n, label, p.Name, want)
						}
					}
				}
			}
		}
	}
}

func bool01(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A split never changes: these are its first records.
func TestSplitIsForever(t *testing.T) {
	src := sourcetest.Raw(1000, 2, 2, 1, 7)
	for _, c := range []struct {
		spec view.Spec
		want string
	}{
		{view.Spec{Split: "train:0.9,val:0.1", Part: "val"}, "[1 13 30 36 44 54 78 81]"},
		{view.Spec{Split: "train:0.9,val:0.1", Part: "val", Seed: 1}, "[0 4 12 23 28 34 36 39]"},
		{view.Spec{Split: "train:0.9,val:0.1", Part: "val", Stratify: "label"}, "[1 19 30 39 46 62 73 74]"},
		{view.Spec{Split: "a:0.5,b:0.5", Part: "b", Group: "label"}, "[0 2 4 6 7 9 11 13]"},
	} {
		s := open(t, src, c.spec)
		var got []int64
		for id := range int64(8) {
			n := int64(0)
			fmt.Sscanf(s.Name(id), "memory record %d", &n)
			got = append(got, n)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%+v begins with %v and not %s", c.spec, got, c.want)
		}
	}
}

func TestWhere(t *testing.T) {
	name := table(t, 200)
	class := func(i int64) string { return []string{"cat", "dog", "owl", "ant"}[min(i*i%11/3, 3)] }
	for _, c := range []struct {
		where string
		want  func(i int64) bool
	}{
		{"n < 10", func(i int64) bool { return i < 10 }},
		{"10 <= n < 20 or n == 150", func(i int64) bool { return i >= 10 && i < 20 || i == 150 }},
		{"not (n > 5 and n != 7)", func(i int64) bool { return !(i > 5 && i != 7) }},
		{"n in (3, 5, 7, 1000)", func(i int64) bool { return i == 3 || i == 5 || i == 7 }},
		{"n not in [3, 5] and n<=6", func(i int64) bool { return i <= 6 && i != 3 && i != 5 }},
		{`cls == "cat"`, func(i int64) bool { return class(i) == "cat" }},
		{`cls in ('cat', "owl") and score >= 2.5`, func(i int64) bool { return (class(i) == "cat" || class(i) == "owl") && i >= 20 }},
		{"score == 2", func(i int64) bool { return i == 16 }},
		{`"row 1" in caption`, func(i int64) bool { return strings.HasPrefix(fmt.Sprintf("%d", i), "1") }},
		{"caption.length == 12", func(i int64) bool { return i < 10 }},
		{"index >= 190 AND n<195", func(i int64) bool { return i >= 190 && i < 195 }},
		{"`n` < -1", func(int64) bool { return false }},
	} {
		s := open(t, openTable(t, name), view.Spec{Where: c.where})
		var want []int64
		for i := range int64(200) {
			if c.want(i) {
				want = append(want, i)
			}
		}
		if got := ints(t, s, 0); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.where, got, want)
		}
	}
}

// Labels are compared by number and by name, also labels made from texts.
func TestLabels(t *testing.T) {
	src := sourcetest.Raw(70, 4, 4, 3, 7)
	for _, where := range []string{"label == 'class3'", "label == 3", "3 == label", "label in ('class3')", "label in (3, 9)"} {
		if got := open(t, src, view.Spec{Where: where}).Info().Len; got != 10 {
			t.Errorf("%s: %d records", where, got)
		}
	}
	s := open(t, openTable(t, table(t, 50)), view.Spec{Kinds: map[string]string{"cls": "label"}, Where: "cls != 'cat'"})
	f := s.Info().Fields[1]
	if f.Kind != driver.KindLabel || fmt.Sprint(f.Classes) != "[ant cat dog]" {
		t.Errorf("%+v", f)
	}
	if got := ints(t, s, 1); slices.Contains(got, 1) || !slices.Contains(got, 2) {
		t.Errorf("%v", got)
	}
}

func TestErrors(t *testing.T) {
	src := sourcetest.Raw(70, 4, 4, 3, 7)
	for _, c := range []struct {
		spec view.Spec
		want string
	}{
		{view.Spec{Where: "lable < 3"}, "where: there is no field \"lable\"; did you mean \"label\"?\n  lable < 3\n  ^^^^^"},
		{view.Spec{Where: "label <"}, "where: the expression ends where a field, a number or a text is expected\n  label <\n         ^"},
		{view.Spec{Where: "label = 3"}, "to compare write =="},
		{view.Spec{Where: "label == 'class33'"}, `there is no class "class33"; did you mean "class3"?`},
		{view.Spec{Where: "label < 'class3'"}, "names of classes have no order"},
		{view.Spec{Where: "label"}, "say what it is to be compared with"},
		{view.Spec{Where: "image == 3"}, "has kind image, whose values cannot be compared; you can compare image.width"},
		{view.Spec{Where: "path == 'x'"}, "records of format memory have no path"},
		{view.Spec{Where: "label == 1 && label == 2"}, "write and\n  label == 1 && label == 2\n             ^^"},
		{view.Spec{Where: "(label == 1"}, ") is expected here"},
		{view.Spec{Where: "label.width > 1"}, "which has no width"},
		{view.Spec{Where: "width == 'a'"}, "a number is compared with text"},
		{view.Spec{Where: strings.Repeat("(", 200) + "1"}, "more than 100 parts"},
		{view.Spec{Split: "train:0.9"}, "set part to one of train"},
		{view.Spec{Split: "train:0.9,val:0.1", Part: "vall"}, `there is no part "vall"; did you mean "val"?`},
		{view.Spec{Split: "train:0.9,val:0.2", Part: "val"}, "more than all"},
		{view.Spec{Split: "train:60,val:20", Part: "val"}, "80 records together and there are 70"},
		{view.Spec{Split: "train", Part: "val"}, `"train" is not a part`},
		{view.Spec{Part: "val"}, "there is no split"},
		{view.Spec{Stratify: "label"}, "need split"},
		{view.Spec{Split: "a:1.0", Part: "a", Stratify: "label", Group: "label"}, "only one of them"},
		{view.Spec{Split: "a:1.0", Part: "a", Group: "folder"}, "have no path"},
		{view.Spec{Select: []string{"label", "label"}}, "is listed twice"},
		{view.Spec{Select: []string{"lab"}}, `has no field "lab"; did you mean "label"?`},
		{view.Spec{Drop: []string{"label", "image"}}, "leave no field"},
		{view.Spec{Rename: map[string]string{"label": "image"}}, `two fields of the view are called "image"`},
		{view.Spec{Rename: map[string]string{"label": "index"}}, "cannot be called"},
		{view.Spec{Kinds: map[string]string{"label": "image"}}, "cannot be read as image"},
	} {
		_, err := view.Open(t.Context(), src, &c.spec, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v\nwant %s", c.spec, err, c.want)
		}
	}
}

// The result is cached: the second time nothing is read.
func TestCache(t *testing.T) {
	name := table(t, 300)
	spec := view.Spec{Where: "score < 20", Split: "a:0.5,b:0.5", Part: "b", Stratify: "cls"}
	scans := 0
	opt := &view.Options{Progress: func(string, int64, int64) { scans++ }}
	first, err := view.Open(t.Context(), openTable(t, name), &spec, opt)
	if err != nil || scans == 0 {
		t.Fatal(err, scans)
	}
	scans = 0
	spec.Where = " (score<20) " // which is the same
	second, err := view.Open(t.Context(), openTable(t, name), &spec, opt)
	if err != nil || scans != 0 {
		t.Errorf("%v, %d looks at records", err, scans)
	}
	if first.Info().Fingerprint != second.Info().Fingerprint || !slices.Equal(ints(t, first, 0), ints(t, second, 0)) {
		t.Error("what was kept is something else")
	}
	files, _ := filepath.Glob(filepath.Join(os.Getenv("STOKER_CACHE_DIR"), "answers", "*"))
	if len(files) == 0 {
		t.Fatal("nothing is kept")
	}
	for _, f := range files { // damaged files are computed again
		b, _ := os.ReadFile(f)
		b[len(b)-1] ^= 1
		if err := os.WriteFile(f, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	third, err := view.Open(t.Context(), openTable(t, name), &spec, opt)
	if err != nil || scans == 0 || third.Info().Len != first.Info().Len {
		t.Errorf("%v, %d", err, scans)
	}
}

// Every view has its own fingerprint.
func TestFingerprint(t *testing.T) {
	src := sourcetest.Raw(70, 4, 4, 3, 7)
	seen := map[string]view.Spec{src.Info().Fingerprint: {}}
	for _, spec := range []view.Spec{
		{Where: "label == 1"}, {Where: "label == 2"}, {Drop: []string{"label"}}, {Rename: map[string]string{"label": "l"}},
		{Split: "a:0.5,b:0.5", Part: "a"}, {Split: "a:0.5,b:0.5", Part: "b"}, {Split: "a:0.5,b:0.5", Part: "a", Seed: 1},
		{Split: "a:0.5,b:0.5", Part: "a", Stratify: "label"}, {Kinds: map[string]string{"label": "int"}},
	} {
		f := open(t, src, spec).Info().Fingerprint
		if other, ok := seen[f]; ok || len(f) == 0 || len(f) > 32 {
			t.Errorf("%+v and %+v: %s", spec, other, f)
		}
		seen[f] = spec
	}
}

// Views are the same after a round trip through a URL.
func TestURL(t *testing.T) {
	for _, spec := range []view.Spec{
		{Where: `caption == "a#where=b & 100%" and n<3`, Select: []string{"a,b", "c:d"}, Rename: map[string]string{"a,b": "x", "c:d": "y=z"}},
		{Split: "train:90%,val:10%", Part: "val", Seed: 7, Stratify: "label", Kinds: map[string]string{"label": "label"}, Drop: []string{"x"}},
		{Split: "a:0.5,b:rest", Part: "b", Group: "folder"},
	} {
		base, got, err := view.CutURL("data/a#b.csv" + view.Fragment(&spec))
		if err != nil || base != "data/a#b.csv" || len(got) != 1 || fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", spec) {
			t.Errorf("%s: %q %+v %v\nwant %+v", view.Fragment(&spec), base, got, err, spec)
		}
	}
	base, got, err := view.CutURL("x#split=train:90%,val:10%&part=val#where=a<1")
	if err != nil || base != "x" || len(got) != 2 || got[0].Split != "train:90%,val:10%" || got[1].Where != "a<1" {
		t.Error(base, got, err)
	}
	if base, got, err := view.CutURL("a#b"); base != "a#b" || got != nil || err != nil {
		t.Error(base, got, err)
	}
	if _, _, err := view.CutURL("x#where=a&b<1"); err == nil || !strings.Contains(err.Error(), `"b<1" is not known after the #`) {
		t.Error(err)
	}
}

// A folder can be split by the folders of its paths. Image sizes are found by reading only the
// headers of files.
func TestFolder(t *testing.T) {
	dir := images(t, 60)
	src, err := foldersource.Open(t.Context(), dir, localstore.New(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if n := open(t, src, view.Spec{Where: "width >= 50 and height == 20 and label == 'c1'"}).Info().Len; n != 7 {
		t.Errorf("%d records", n)
	}
	if n := open(t, src, view.Spec{Where: `path == "c1/p1/1.bmp" or folder == 'c2/p2'`}).Info().Len; n != 6 {
		t.Errorf("%d records", n)
	}
	seen := map[string]string{}
	for _, part := range []string{"a", "b"} {
		s := open(t, src, view.Spec{Split: "a:0.5,b:0.5", Part: part, Group: "folder"})
		for id := range s.Info().Len {
			paths, _ := driver.As[driver.Pather](s)
			folder := filepath.Dir(paths.Path(id, 0))
			if other, ok := seen[folder]; ok && other != part {
				t.Errorf("%s is in both parts", folder)
			}
			seen[folder] = part
		}
	}
	if len(seen) != 12 {
		t.Errorf("%d folders", len(seen))
	}
	// The error for a file that is not an image names the file.
	if err := os.WriteFile(filepath.Join(dir, "c0", "p0", "x.bmp"), []byte("BM no image at all, but long enough"), 0o644); err != nil {
		t.Fatal(err)
	}
	bad, err := foldersource.Open(t.Context(), dir, localstore.New(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := view.Open(t.Context(), bad, &view.Spec{Where: "width > 3"}, nil); err == nil || !strings.Contains(err.Error(), "x.bmp") {
		t.Error(err)
	}
}

// images writes n images into nested folders, each wider than the one before.
func images(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("c%d", i%3), fmt.Sprintf("p%d", i%12))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("%d.bmp", i)), bmp(10+i, 20), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bmp returns an image without pixels, which the test does not read.
func bmp(w, h int) []byte {
	b := make([]byte, 54+(w*3+3)/4*4*h)
	copy(b, "BM")
	put := func(at, v int) { b[at], b[at+1], b[at+2], b[at+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24) }
	put(2, len(b))
	put(10, 54)
	put(14, 40)
	put(18, w)
	put(22, h)
	b[26], b[28] = 1, 24
	return b
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := view.Open(ctx, openTable(t, table(t, 500)), &view.Spec{Where: "n < 3"}, &view.Options{NoCache: true}); !errors.Is(err, stop) {
		t.Error(err)
	}
}
