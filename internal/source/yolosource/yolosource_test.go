package yolosource

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

func opener(dir string, m boxes.Masks) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return open(ctx, localstore.New(dir), m) })
}

func open(ctx context.Context, st store.Store, m boxes.Masks) (driver.Source, error) {
	return Open(ctx, "test", st, &Options{Folders: []string{"images/train"}, Data: &Data{Names: []string{"a", "b", "c"}}, Masks: m})
}

func BenchmarkFile(b *testing.B) { drivertest.Bench(b, opener(formattest.YOLO(b), boxes.NoMasks)) }

func TestRecords(t *testing.T) {
	s := opener(formattest.YOLO(t), boxes.Classes)(t)
	defer s.Close()
	if f := s.Info().Fields; s.Info().Len != formattest.YOLOImages || len(f) != 4 || f[1].Format != driver.CXCYWH || !slices.Equal(f[3].Classes, []string{"background", "a", "b", "c"}) {
		t.Fatalf("%+v", s.Info())
	}
	for i := range formattest.YOLOImages {
		r := drivertest.Records(t, s, int64(i))[0]
		w := float32(20 + i)
		var boxes, classes []byte
		for k := range i % 4 {
			box, class := [4]float32{0.5 * w, 8, 0.25 * w, float32(float64(k+1)/10) * 16}, k
			if k == 1 {
				lo, hi := [2]float32{0.1, 0.2}, [2]float32{0.9, 0.75}
				box, class = [4]float32{(lo[0] + hi[0]) / 2 * w, (lo[1] + hi[1]) / 2 * 16, (hi[0] - lo[0]) * w, (hi[1] - lo[1]) * 16}, 2
			}
			for _, v := range box {
				boxes = binary.LittleEndian.AppendUint32(boxes, math.Float32bits(v))
			}
			classes = binary.LittleEndian.AppendUint64(classes, uint64(class))
		}
		v := r.Values
		if r.Err != nil || !bytes.Equal(v[0].Bytes, formattest.Gray(t, 20+i, 16, i)) || !bytes.Equal(v[1].Bytes, boxes) || !bytes.Equal(v[2].Bytes, classes) {
			t.Errorf("record %d: %v, %v", i, v[1:3], r.Err)
		}
		if m := v[3]; int(m.Width) != 20+i || len(m.Bytes) != (20+i)*16 || i%4 > 1 && m.Bytes[4*(20+i)+int(w/2)] != 3 {
			t.Errorf("record %d: another mask", i)
		}
	}
}

// Key points follow the box, with or without visibility.
func TestPoses(t *testing.T) {
	dir := t.TempDir()
	drivertest.Put(t, dir, "images/a.png", formattest.Gray(t, 10, 20, 0))
	for dims, line := range map[int]string{3: "0 0.5 0.5 0.1 0.1 0.5 0.25 2 0 0 0\n", 2: "0 0.5 0.5 0.1 0.1 0.5 0.25 0 0\n"} {
		drivertest.Put(t, dir, "labels/a.txt", []byte(line))
		s, err := Open(t.Context(), "test", localstore.New(dir), &Options{Folders: []string{"images"}, Data: &Data{Points: 2, Dims: dims}})
		if err != nil {
			t.Fatal(err)
		}
		v := drivertest.Records(t, s, 0)[0].Values
		want := []byte{}
		for _, x := range []float32{5, 5, 0, 0} {
			want = binary.LittleEndian.AppendUint32(want, math.Float32bits(x))
		}
		if seen := map[int]string{3: "\x02\x00", 2: "\x02\x02"}[dims]; !bytes.Equal(v[3].Bytes, want) || string(v[4].Bytes) != seen {
			t.Errorf("%d numbers: %v", dims, v[3:])
		}
	}
}

// A list names images in separate folders.
func TestLists(t *testing.T) {
	dir := formattest.YOLO(t)
	drivertest.Put(t, dir, "train.txt", []byte("./images/train/03.png\n\n"+dir+"/images/train/01.png\n"))
	s, err := Open(t.Context(), "test", localstore.New(dir), &Options{Folders: []string{"train.txt"}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Info().Len != 2 || !strings.HasSuffix(s.Name(1), "03.png") || len(drivertest.Records(t, s, 1)[0].Values[1].Bytes) != 48 {
		t.Errorf("%+v", s.Info())
	}
	drivertest.Put(t, dir, "bad.txt", []byte("a.png\n../../x.png\n"))
	if _, err := Open(t.Context(), "test", localstore.New(dir), &Options{Folders: []string{"bad.txt"}}); err == nil || !strings.Contains(err.Error(), "bad.txt, line 2") {
		t.Error(err)
	}
}

// Invalid lines are errors of their record.
func TestBadLabels(t *testing.T) {
	for text, want := range map[string]string{
		"0 1 2\n": "2 numbers after the class", "x 0 0 0 0": `expected a class number, got "x"`, "7 0 0 0 0": "class number 7 is out of range", "-1 0 0 0 0": "expected a class number",
		"0 0 0 0 a": `expected a number, got "a"`, "0 0 0 0 NaN": "expected a number", "0 100 20 30 40": "relative to the size", "0 0 0 0 0\n0 0.5 0.5 0.": "line 2: 3 numbers",
		"0 0 0 1 0 1 1 0": "7 numbers",
	} {
		dir := t.TempDir()
		for _, name := range []string{"a", "b"} {
			drivertest.Put(t, dir, "images/train/"+name+".png", formattest.Gray(t, 4, 4, 0))
		}
		drivertest.Put(t, dir, "labels/train/a.txt", []byte(text))
		drivertest.Put(t, dir, "labels/train/b.txt", []byte("1 0.5 0.5 1 1"))
		s := opener(dir, boxes.NoMasks)(t)
		r := drivertest.Records(t, s, 0, 1)
		if err := r[0].Err; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "a.txt, line ") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if r[1].Err != nil || len(r[1].Values[1].Bytes) != 16 {
			t.Errorf("%q: the other record: %v", text, r[1].Err)
		}
	}
	if _, err := open(t.Context(), localstore.New(t.TempDir()), boxes.NoMasks); err == nil {
		t.Error("a folder that is not there")
	}
	open := func(ctx context.Context, st store.Store) (driver.Source, error) { return open(ctx, st, boxes.NoMasks) }
	drivertest.BadFiles{Folder: formattest.YOLO(t), Name: "images/train/zz.png", Content: formattest.Gray(t, 20, 15, 3), Opaque: true, Open: open}.Run(t)
	dir := formattest.YOLO(t)
	for fault, want := range map[error]string{syscall.EACCES: "", syscall.EMFILE: "too many open files"} {
		s, err := open(t.Context(), faulttest.New(localstore.New(dir), 1, faulttest.Error(fault).On(faulttest.Open).Named("05.txt")))
		if want != "" {
			if !errors.Is(err, fault) {
				t.Errorf("%v: %v", fault, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for id := range s.Info().Len {
			if r := drivertest.Records(t, s, id)[0]; (r.Err != nil) != strings.HasSuffix(s.Name(id), "/05.png") {
				t.Errorf("%s: %v", s.Name(id), r.Err)
			}
		}
		s.Close()
	}
}

func TestParseData(t *testing.T) {
	for text, want := range map[string]Data{
		"# Ultralytics\npath: ../datasets/coco8 # root\ntrain: images/train\nval: images/val\ntest: # none\n\nnames:\n  0: person\n  1: 'it''s: a dog'\n  3: \"x # y\"\n": {
			Root: "../datasets/coco8", Splits: map[string][]string{"train": {"images/train"}, "val": {"images/val"}}, Names: []string{"person", "it's: a dog", "2", "x # y"}},
		"train: [a, 'b, c']\nvalid: v\nnc: 2\nnames: ['one', two]\nroboflow:\n  license: MIT\n": {Splits: map[string][]string{"train": {"a", "b, c"}, "val": {"v"}}, Names: []string{"one", "two"}},
		"names:\n- a\n- b\ntrain:\n  - x\n  - y\nkpt_shape: [17, 3]\nflip_idx: [0,\n  1]\n":     {Splits: map[string][]string{"train": {"x", "y"}}, Names: []string{"a", "b"}, Points: 17, Dims: 3},
		"names: {0: a, 1: b}": {Splits: map[string][]string{}, Names: []string{"a", "b"}},
	} {
		got, err := ParseData(text)
		if err == nil {
			got.mappings = 0
		}
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"names: [a,": "line 2: did not find expected", "train: x\nnames:\n  x: a\n": "line 3: names: expected a class number", "kpt_shape: [3]": "kpt_shape",
		"kpt_shape: [3, 5]": "kpt_shape", "just words": "expected NAME: VALUE", "names:\n  a\n": "expected a list item", "names: {99999999: a}": "expected a class number",
		"train: {a: b}": "expected a word", "names: [[a]]": "expected a word", "- a": "expected NAME: VALUE", "a: b\n c: d\n": "line 2: mapping values are not allowed",
		"train: x\ntrain\t: [": "line ", "names: *n": "line 1: unknown anchor 'n'", "a: &a\n  <<: *a\n<<: *a\ntrain: x": "more than 100 mappings",
		bomb(): "expected a word",
	} {
		if _, err := ParseData(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// bomb returns a file whose aliases expand to a billion words.
func bomb() string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	return text + "names: *a9\n"
}

// Everything that a YAML library reads is read: members that are not needed have any content.
func TestYAML(t *testing.T) {
	want := Data{Splits: map[string][]string{"train": {"images/train"}, "val": {"images/val"}}, Names: []string{"a", "b: x"}}
	start := "train: images/train\nval: images/val\n"
	for _, text := range []string{
		start + "names:\n  0: a\n  1: 'b: x'\ndownload: |\n  import os\n  names: 3\n\n  def f(): pass\n",
		start + "names: [a, 'b: x']\ndescription: >-\n  hello\n  world: x\nroboflow: {a: [1, {b: 2}], ? c : d}\n",
		"x: &n [a, 'b: x']\n" + start + "names: *n\n",
		"base: &base\n  train: images/train\n  val: other\n<<: *base\nval: images/val\nnames: {1: 'b: x', 0: a}\n",
		"b1: &b1 {train: images/train}\nb2: &b2 {train: other, val: images/val}\n<<: [*b1, *b2]\nnames: [a, \"b: x\"]\n",
		"names: &n\n  0: a\n  1: >-\n    b:\n    x\n" + start,
		"%YAML 1.2\n---\n" + start + "names: !!seq [!!str a, 'b: x'] # two\n...\n",
		"\uFEFF" + strings.ReplaceAll(start+"names:\n- a\n- 'b: x'\n", "\n", "\r\n"),
		"validation: images/val\ntrain: [images/train]\nnames: [a, 'b: x']\ntest: ~\nauthor: Jos\xe9\x01\n",
		"train: other\n" + start + "names: [c]\nnames: [a, 'b: x']\n",
	} {
		got, err := ParseData(text)
		if err == nil {
			got.mappings = 0
		}
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// A data.yaml that cannot be read is recognised, and opening it says why.
func TestReasons(t *testing.T) {
	for text, want := range map[string]string{
		"train: [a\nval: b\n": "data.yaml, line ", "names: [a, b]\n": "names no folder of images: expected a line such as train:",
		"train: images/train\nnames: 7\n": "data.yaml, line 2: names: expected", strings.Repeat("#", maxYAML+1): "data.yaml",
	} {
		dir := formattest.YOLO(t)
		drivertest.Put(t, dir, "data.yaml", []byte(text))
		st := localstore.New(dir + "/data.yaml")
		if !Format.Match(t.Context(), &format.Probe{Store: st}) {
			t.Errorf("%.40q is not recognised", text)
		}
		_, err := Format.Open(t.Context(), &format.Request{URL: dir + "/data.yaml", Store: st})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "give a path") {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]bool{"train: [a\n": true, "model: [a\n": false, "model: a\n": false} {
		dir := t.TempDir()
		drivertest.Put(t, dir, "data.yaml", []byte(text))
		if got := Format.Match(t.Context(), &format.Probe{Store: localstore.New(dir), Dir: true}); got != want {
			t.Errorf("a folder with %q: %v", text, got)
		}
	}
}

func FuzzLabels(f *testing.F) {
	f.Add([]byte(formattest.YOLOLabels(3)), true)
	f.Add([]byte("names: [a, b]\ntrain: x\n"), false)
	f.Fuzz(func(t *testing.T, b []byte, pose bool) {
		data, err := ParseData(string(b))
		if err != nil {
			data = &Data{}
		}
		if pose {
			data.Points, data.Dims = 1, 3
		}
		var o objects
		if o.parse(b, data) == nil && (len(o.boxes) != 4*len(o.class) || len(o.ends) != len(o.class) || pose && len(o.points) != 2*len(o.class)) {
			t.Fatalf("%+v", o)
		}
	})
}
