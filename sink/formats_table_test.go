package sink_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/sink"
	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

// row is a format in the table, or a variant of one. Every statement of the suite is tested with every row.
type row struct {
	// name is the name of the format, for variants with a slash and more: "csv", "csv/file".
	name string
	// target is the destination, relative to a folder of the test: "tar:out", "out.npz".
	target string
	// kinds are the kinds of fields that the format holds. It refuses all others with an error that names the field.
	kinds []driver.Kind
	// read is the URL that reads the output, with its path in place of *. It is "" if the path is the URL.
	read string
	// fields are the fields as read back, as drivertest.Fields returns them.
	fields string
	// names has the names of fields that are read back under another one.
	names map[string]string
	// equal replaces the comparison of records in their order.
	equal func(t *testing.T, got driver.Source, want *sinktest.Dataset)
	// not has the statements that do not hold for the row, each with the reason.
	not map[string]string
}

// statements are the tests of the suite. Each row passes all of them, except those that it names in row.not.
var statements = []struct {
	name string
	test func(r *row, t *testing.T)
}{
	{"Equal", (*row).readBack},
	{"Compressed", (*row).compressed},
	{"Refused", (*row).refused},
	{"Named", (*row).named},
	{"Threads", (*row).threads},
	{"Overwrite", (*row).overwrite},
	{"Cancelled", (*row).cancelled},
	{"Interrupted", (*row).interrupted},
	{"Killed", (*row).killed},
	{"BadRecords", (*row).badRecords},
	{"Empty", (*row).empty},
	{"Shards", (*row).shards},
}

// Reasons why a statement does not hold for a row.
const (
	ownLibrary = "read by its own library in python/tests/test_convert.py"
	noNames    = "its files have no names of fields"
)

var (
	numbers = []driver.Kind{driver.KindArray, driver.KindInt, driver.KindLabel, driver.KindFloat}
	lists   = []driver.Kind{driver.KindRagged, driver.KindTokens, driver.KindMultiLabel, driver.KindBoxes}
)

// inCells are the kinds whose values are in the cells of a table, and not files next to it.
func inCells() []driver.Kind {
	return slices.DeleteFunc(slices.Clone(sinktest.Kinds), func(k driver.Kind) bool {
		return k == driver.KindImage || k == driver.KindMask || k == driver.KindAudio || k == driver.KindBytes
	})
}

// table has a row for each format, and more for variants.
var table = []row{
	{name: "folder", target: "folder:out", kinds: []driver.Kind{driver.KindImage, driver.KindLabel}, fields: "image:image[] label:label[]", equal: anyOrder, not: map[string]string{"Named": noNames}},
	{name: "tar", target: "tar:out", kinds: sinktest.Kinds, fields: "image:image[] mask:mask/uint8[] audio:audio[] bool:array/bool[2 3] boxes:ragged/float32[4] bytes.bin:bytes[] float:float[] float16:array/float16[2 3] float32:array/float32[2 3] float64:array/float64[2 3] int:int[] int16:array/int16[2 3] int32:array/int32[2 3] int64:array/int64[2 3] int8:array/int8[2 3] json:json[] label:label[] multilabel:ragged/int64[] ragged:ragged/float32[2] text:text[] tokens:ragged/uint16[] uint16:array/uint16[2 3] uint32:array/uint32[2 3] uint64:array/uint64[2 3] uint8:array/uint8[2 3]", names: map[string]string{"bytes": "bytes.bin"}},
	{name: "tar/file", target: "out.tar", kinds: sinktest.Kinds, fields: "image:image[] mask:mask/uint8[] audio:audio[] bool:array/bool[2 3] boxes:ragged/float32[4] bytes.bin:bytes[] float:float[] float16:array/float16[2 3] float32:array/float32[2 3] float64:array/float64[2 3] int:int[] int16:array/int16[2 3] int32:array/int32[2 3] int64:array/int64[2 3] int8:array/int8[2 3] json:json[] label:label[] multilabel:ragged/int64[] ragged:ragged/float32[2] text:text[] tokens:ragged/uint16[] uint16:array/uint16[2 3] uint32:array/uint32[2 3] uint64:array/uint64[2 3] uint8:array/uint8[2 3]", names: map[string]string{"bytes": "bytes.bin"}},
	{name: "tfrecord", target: "tfrecord:out", kinds: sinktest.Kinds, fields: "audio:bytes[] bool:array/int64[6] bool/shape:array/int64[2] boxes:ragged/float32[] boxes/shape:array/int64[2] bytes:bytes[] float:float[] float16:array/float32[6] float16/shape:array/int64[2] float32:array/float32[6] float32/shape:array/int64[2] float64:array/float32[6] float64/shape:array/int64[2] image:image[] int:int[] int16:array/int64[6] int16/shape:array/int64[2] int32:array/int64[6] int32/shape:array/int64[2] int64:array/int64[6] int64/shape:array/int64[2] int8:array/int64[6] int8/shape:array/int64[2] json:text[] label:int[] mask:mask/uint8[] multilabel:ragged/int64[] ragged:ragged/float32[] ragged/shape:array/int64[2] text:text[] tokens:ragged/int64[] uint16:array/int64[6] uint16/shape:array/int64[2] uint32:array/int64[6] uint32/shape:array/int64[2] uint64:array/int64[6] uint64/shape:array/int64[2] uint8:bytes[] uint8/shape:array/int64[2]"},
	{name: "parquet", target: "parquet:out", kinds: sinktest.Kinds, fields: "image:image[] label:label[] int:int[] text:text[] bool:array/uint8[2 3] uint8:array/uint8[2 3] int8:array/int8[2 3] uint16:array/uint16[2 3] int16:array/int16[2 3] uint32:array/uint32[2 3] int32:array/int32[2 3] uint64:array/uint64[2 3] int64:array/int64[2 3] float16:array/float16[2 3] float32:array/float32[2 3] float64:array/float64[2 3] bytes:bytes[] mask:mask/uint8[] multilabel:multilabel[] float:float[] json:text[] ragged:ragged/float32[2] audio:audio[] tokens:ragged/uint16[] boxes:ragged/float32[4]"},
	{name: "arrow", target: "arrow:out", kinds: sinktest.Kinds, fields: "image:image[] label:label[] int:int[] text:text[] bool:array/uint8[2 3] uint8:array/uint8[2 3] int8:array/int8[2 3] uint16:array/uint16[2 3] int16:array/int16[2 3] uint32:array/uint32[2 3] int32:array/int32[2 3] uint64:array/uint64[2 3] int64:array/int64[2 3] float16:array/float16[2 3] float32:array/float32[2 3] float64:array/float64[2 3] bytes:bytes[] mask:mask/uint8[] multilabel:multilabel[] float:float[] json:text[] ragged:ragged/float32[2] audio:audio[] tokens:ragged/uint16[] boxes:ragged/float32[4]"},
	{name: "mds", target: "mds:out", kinds: sinktest.Kinds, fields: "audio:bytes[] bool:array/uint8[2 3] boxes:ragged/float32[4] bytes:bytes[] float:float[] float16:array/float16[2 3] float32:array/float32[2 3] float64:array/float64[2 3] image:image[] int:int[] int16:array/int16[2 3] int32:array/int32[2 3] int64:array/int64[2 3] int8:array/int8[2 3] json:json[] label:int[] mask:mask/uint8[] multilabel:ragged/int64[] ragged:ragged/float32[2] text:text[] tokens:ragged/uint16[] uint16:array/uint16[2 3] uint32:array/uint32[2 3] uint64:array/uint64[2 3] uint8:array/uint8[2 3]"},
	{name: "lmdb", target: "lmdb:out", kinds: sinktest.Kinds, read: ownLibrary},
	{name: "hdf5", target: "out.h5", kinds: sinktest.Kinds, fields: "audio:ragged/uint8[] bool:array/bool[2 3] boxes:ragged/float32[] bytes:ragged/uint8[] float:float[] float16:array/float16[2 3] float32:array/float32[2 3] float64:array/float64[2 3] image:image[] int:int[] int16:array/int16[2 3] int32:array/int32[2 3] int64:array/int64[2 3] int8:array/int8[2 3] json:text[] label:int[] mask:mask/uint8[] multilabel:ragged/int64[] ragged:ragged/float32[] text:text[] tokens:ragged/uint16[] uint16:array/uint16[2 3] uint32:array/uint32[2 3] uint64:array/uint64[2 3] uint8:array/uint8[2 3]"},
	{name: "bin", target: "bin:out", kinds: []driver.Kind{driver.KindTokens}, fields: "tokens:array/uint16[1]", read: "tokens:*?window=1", equal: joined, not: map[string]string{"Named": noNames}},
	{name: "npy", target: "npy:out", kinds: numbers, fields: "bool:array/bool[2 3] float:float[] float16:array/float16[2 3] float32:array/float32[2 3] float64:array/float64[2 3] int:int[] int16:array/int16[2 3] int32:array/int32[2 3] int64:array/int64[2 3] int8:array/int8[2 3] label:int[] uint16:array/uint16[2 3] uint32:array/uint32[2 3] uint64:array/uint64[2 3] uint8:array/uint8[2 3]"},
	{name: "npz", target: "out.npz", kinds: numbers, fields: "bool:array/bool[2 3] uint8:array/uint8[2 3] int8:array/int8[2 3] uint16:array/uint16[2 3] int16:array/int16[2 3] uint32:array/uint32[2 3] int32:array/int32[2 3] uint64:array/uint64[2 3] int64:array/int64[2 3] float16:array/float16[2 3] float32:array/float32[2 3] float64:array/float64[2 3] int:int[] label:int[] float:float[]", not: map[string]string{"Refused": "it holds lists, too"}},
	{name: "npz/lists", target: "out.npz", kinds: append(slices.Clone(lists), numbers...), read: ownLibrary},
	{name: "jsonl", target: "jsonl:out", kinds: sinktest.Kinds, fields: "image:image[] audio:audio[] mask:mask/uint8[] bytes:bytes[] label:text[] int:int[] text:text[] bool:json[] uint8:array/int64[2 3] int8:array/int64[2 3] uint16:array/int64[2 3] int16:array/int64[2 3] uint32:array/int64[2 3] int32:array/int64[2 3] uint64:array/int64[2 3] int64:array/int64[2 3] float16:array/float64[2 3] float32:array/float64[2 3] float64:array/float64[2 3] multilabel:json[] float:float[] json:json[] ragged:ragged/float64[2] tokens:ragged/int64[] boxes:ragged/float64[4]", read: "jsonl:*?image:image&audio:audio&mask:mask&bytes:bytes&*"},
	{name: "csv", target: "csv:out", kinds: sinktest.Kinds, fields: "image:image[] audio:audio[] mask:mask/uint8[] bytes:bytes[] label:text[] int:int[] text:text[] bool:json[] uint8:array/int64[2 3] int8:array/int64[2 3] uint16:array/int64[2 3] int16:array/int64[2 3] uint32:array/int64[2 3] int32:array/int64[2 3] uint64:array/int64[2 3] int64:array/int64[2 3] float16:array/float64[2 3] float32:array/float64[2 3] float64:array/float64[2 3] multilabel:json[] float:float[] json:json[] ragged:ragged/float64[2] tokens:ragged/int64[] boxes:ragged/float64[4]", read: "csv:*?image:image&audio:audio&mask:mask&bytes:bytes&*"},
	{name: "tsv", target: "tsv:out", kinds: sinktest.Kinds, fields: "image:image[] audio:audio[] mask:mask/uint8[] bytes:bytes[] label:text[] int:int[] text:text[] bool:json[] uint8:array/int64[2 3] int8:array/int64[2 3] uint16:array/int64[2 3] int16:array/int64[2 3] uint32:array/int64[2 3] int32:array/int64[2 3] uint64:array/int64[2 3] int64:array/int64[2 3] float16:array/float64[2 3] float32:array/float64[2 3] float64:array/float64[2 3] multilabel:json[] float:float[] json:json[] ragged:ragged/float64[2] tokens:ragged/int64[] boxes:ragged/float64[4]", read: "tsv:*?image:image&audio:audio&mask:mask&bytes:bytes&*"},
	{name: "csv/file", target: "out.csv", kinds: inCells(), fields: "label:text[] int:int[] text:text[] bool:json[] uint8:array/int64[2 3] int8:array/int64[2 3] uint16:array/int64[2 3] int16:array/int64[2 3] uint32:array/int64[2 3] int32:array/int64[2 3] uint64:array/int64[2 3] int64:array/int64[2 3] float16:array/float64[2 3] float32:array/float64[2 3] float64:array/float64[2 3] multilabel:json[] float:float[] json:json[] ragged:ragged/float64[2] tokens:ragged/int64[] boxes:ragged/float64[4]"},
}

// TestFormats tests every statement with every row of the table.
func TestFormats(t *testing.T) {
	for i := range table {
		t.Run(table[i].name, func(t *testing.T) {
			for _, s := range statements {
				if table[i].not[s.name] == "" {
					t.Run(s.name, func(t *testing.T) { s.test(&table[i], t) })
				}
			}
		})
	}
}

// TestTableIsWhole checks that every format has a row, and that the rows name statements that exist.
func TestTableIsWhole(t *testing.T) {
	names := map[string]bool{}
	for _, r := range table {
		if names[r.name] || sink.Find(strings.Split(r.name, "/")[0]) == nil {
			t.Errorf("row %q: no such format, or it is there twice", r.name)
		}
		names[r.name] = true
		for name := range r.not {
			if !slices.ContainsFunc(statements, func(s struct {
				name string
				test func(r *row, t *testing.T)
			}) bool {
				return s.name == name
			}) {
				t.Errorf("%s: %q is not a statement", r.name, name)
			}
		}
	}
	for _, name := range sink.Names() {
		if !names[name] {
			t.Errorf("the format %s has no row in the table", name)
		}
	}
}

// to returns a target in a new folder, and its path.
func (r *row) to(t testing.TB) (*sink.Target, string) {
	t.Helper()
	name, path, ok := strings.Cut(r.target, ":")
	if !ok {
		name, path = "", r.target
	}
	path = filepath.Join(t.TempDir(), path)
	to, err := sink.ParseTarget(path, name)
	if err != nil {
		t.Fatal(err)
	}
	return to, path
}

// data returns the dataset with the fields that the format holds.
func (r *row) data(t testing.TB) *sinktest.Dataset { return sinktest.Source(t, r.kinds...) }

// write writes the dataset and checks the summary.
func (r *row) write(t testing.TB, opt sink.Options) string {
	t.Helper()
	to, path := r.to(t)
	var last sink.Progress
	opt.Progress = func(p sink.Progress) { last = p }
	sum, err := sink.Write(t.Context(), r.data(t), to, &opt)
	if err != nil {
		t.Fatal(err)
	}
	r.counted(t, sum, path, sinktest.Rows)
	if len(sum.Skipped) != 0 || last.Records != sinktest.Rows || last.Total != sinktest.Rows {
		t.Errorf("%+v, the last progress is %+v", sum, last)
	}
	return path
}

// counted checks the figures of a summary, and that there is nothing but the output.
func (r *row) counted(t testing.TB, sum *sink.Summary, path string, records int64) {
	t.Helper()
	files, bytes := int64(0), int64(0)
	walk(t, path, func(_ string, b []byte) { files, bytes = files+1, bytes+int64(len(b)) })
	if sum.Records != records || sum.Files != files || sum.Bytes != bytes || sum.Path != path || sum.Format != strings.Split(r.name, "/")[0] {
		t.Errorf("%+v, want %d records in %d files of %d bytes in %s", sum, records, files, bytes, path)
	}
	if list := must(os.ReadDir(filepath.Dir(path))); len(list) != 1 {
		t.Errorf("next to %s there is more: %v", path, list)
	}
}

// walk calls f for each file below a path.
func walk(t testing.TB, path string, f func(name string, b []byte)) {
	t.Helper()
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(path, p)
			f(name, must(os.ReadFile(p)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// tree returns a checksum of each file below a path.
func tree(t testing.TB, path string) map[string]string {
	t.Helper()
	out := map[string]string{}
	walk(t, path, func(name string, b []byte) { out[name] = fmt.Sprintf("%d bytes %x", len(b), sha256.Sum256(b)) })
	return out
}

// nothing fails if a failed run has left files.
func nothing(t testing.TB, path string) {
	t.Helper()
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 0 {
		t.Errorf("%v is left, %v", list, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// open opens the output. It returns nil for a format that only its own library reads.
func (r *row) open(t testing.TB, path string) driver.Source {
	t.Helper()
	if r.read == ownLibrary {
		return nil
	}
	url := path
	if r.read != "" {
		url = strings.Replace(r.read, "*", path, 1)
	}
	s, err := source.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// readBack writes the dataset, reads it back and compares.
func (r *row) readBack(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	got := r.open(t, r.write(t, sink.Options{Threads: 3}))
	if got == nil {
		return
	}
	if fields := drivertest.Fields(got); fields != r.fields {
		t.Errorf("fields %s, want %s", fields, r.fields)
	}
	r.compare(t, got, r.data(t))
	got.Close()
}

// compare compares the records that were read back with those of the dataset that are not bad.
func (r *row) compare(t *testing.T, got driver.Source, want *sinktest.Dataset) {
	t.Helper()
	if r.equal != nil {
		r.equal(t, got, want)
		return
	}
	ids := good(want)
	if got.Info().Len != int64(len(ids)) {
		t.Fatalf("%d records, want %d", got.Info().Len, len(ids))
	}
	for n, id := range ids {
		w, b := drivertest.Records(t, want, id)[0], drivertest.Records(t, got, int64(n))[0]
		if b.Err != nil {
			t.Fatal(b.Err)
		}
		for k := range want.Info().Fields {
			f := &want.Info().Fields[k]
			name := f.Name
			if other := r.names[name]; other != "" {
				name = other
			}
			at := slices.IndexFunc(got.Info().Fields, func(g driver.Field) bool { return g.Name == name })
			if at < 0 {
				t.Fatalf("field %q is not among %s", name, drivertest.Fields(got))
			}
			if g := &got.Info().Fields[at]; !same(f, g, &w.Values[k], &b.Values[at]) {
				t.Fatalf("field %q (%s, read as %s %s %v) of record %d: %.200q, want %.200q",
					name, f.Kind, g.Kind, g.DType, g.Shape, n, sinktest.Text(g, &b.Values[at]), sinktest.Text(f, &w.Values[k]))
			}
		}
	}
}

// good returns the numbers of the records that can be read.
func good(s *sinktest.Dataset) (ids []int64) {
	for id := range s.Info().Len {
		if s.Bad[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// same reports whether a value was read back as it was. A class may have become its number, and what a format has no
// type for may have become bytes, or a list in JSON.
func same(f, g *driver.Field, w, b *driver.Value) bool {
	want, got := sinktest.Text(f, w), sinktest.Text(g, b)
	switch {
	case got == want:
		return true
	case f.Kind == driver.KindLabel:
		return got == fmt.Sprint(w.Int)
	case f.Kind == driver.KindInt || f.Kind == driver.KindFloat:
		return false
	case string(b.Bytes) == string(w.Bytes):
		return true
	}
	var list any
	return (g.Kind == driver.KindJSON || g.Kind == driver.KindText) && json.Unmarshal(b.Bytes, &list) == nil &&
		fmt.Sprint(flat(list)) == want
}

// flat returns the elements of nested lists in JSON as sinktest.Text has them.
func flat(list any) []any {
	out := []any{}
	switch x := list.(type) {
	case []any:
		for _, e := range x {
			out = append(out, flat(e)...)
		}
	case float64:
		out = append(out, float32(x))
	case bool:
		out = append(out, map[bool]int{true: 1}[x])
	case string:
		out = append(out, slices.Index(sinktest.Classes, x))
	}
	return out
}

// anyOrder compares the records in any order, since a folder is read in the order of its names.
func anyOrder(t *testing.T, got driver.Source, want *sinktest.Dataset) {
	t.Helper()
	all := func(s driver.Source, ids []int64) (out []string) {
		for _, id := range ids {
			rec, text := drivertest.Records(t, s, id)[0], ""
			for i := range rec.Values {
				text += sinktest.Text(&s.Info().Fields[i], &rec.Values[i]) + "\n"
			}
			out = append(out, text)
		}
		slices.Sort(out)
		return out
	}
	ids := make([]int64, got.Info().Len)
	for i := range ids {
		ids[i] = int64(i)
	}
	if g, w := all(got, ids), all(want, good(want)); !slices.Equal(g, w) {
		t.Errorf("%q, want %q", g, w)
	}
}

// joined compares the tokens of all records, since a file of tokens does not say where a record ends.
func joined(t *testing.T, got driver.Source, want *sinktest.Dataset) {
	t.Helper()
	g, w := "", ""
	for id := range got.Info().Len {
		g += string(drivertest.Records(t, got, id)[0].Values[0].Bytes)
	}
	for _, id := range good(want) {
		w += string(drivertest.Records(t, want, id)[0].Values[0].Bytes)
	}
	if g != w {
		t.Errorf("%d bytes of tokens, want %d, or other ones", len(g), len(w))
	}
}

// compressed checks that the records do not depend on the compression, and that others are refused.
func (r *row) compressed(t *testing.T) {
	to, path := r.to(t)
	for _, c := range to.Format.Compress {
		if got := r.open(t, r.write(t, sink.Options{Compress: c})); got != nil {
			r.compare(t, got, r.data(t))
		}
	}
	_, err := sink.Write(t.Context(), r.data(t), to, &sink.Options{Compress: "rar"})
	if err == nil || !strings.Contains(err.Error(), "--compress rar") {
		t.Error(err)
	}
	nothing(t, path)
}

// refused checks that the error for an unsupported kind names the field, and that no file is left.
func (r *row) refused(t *testing.T) {
	for _, k := range sinktest.Kinds {
		if slices.Contains(r.kinds, k) {
			continue
		}
		to, path := r.to(t)
		kinds := append(slices.Clone(r.kinds), k)
		if !to.Format.Folder && len(r.kinds) == 1 {
			kinds = []driver.Kind{k}
		}
		_, err := sink.Write(t.Context(), sinktest.Source(t, kinds...), to, nil)
		if k == driver.KindArray {
			k = "bool"
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", k)) {
			t.Errorf("%s: %v", k, err)
		}
		nothing(t, path)
	}
	to, path := r.to(t)
	_, err := sink.Write(t.Context(), r.data(t), to, &sink.Options{Fields: []sink.Pick{{Name: "x", From: "none"}}})
	if err == nil || !strings.Contains(err.Error(), `no field "none"`) {
		t.Error(err)
	}
	nothing(t, path)
}

// named gives fields odd names. A format stores a name as it is, or refuses it with an error that has the name. It
// never writes a file outside of its folder.
func (r *row) named(t *testing.T) {
	for _, name := range []string{"a b", "ü", "A", "a.b", "a/b", `a"b`, `a\b`, "a,b", "a\tb", "a\nb", ".a", "..", "../a", "a\x00b", strings.Repeat("n", 200)} {
		for _, from := range []string{"label", "image"} {
			if from == "image" && !slices.Contains(r.kinds, driver.KindImage) {
				continue
			}
			to, path := r.to(t)
			_, err := sink.Write(t.Context(), r.data(t), to, &sink.Options{Fields: []sink.Pick{{Name: name, From: from}, {Name: "int", From: "int"}}})
			if err != nil {
				if !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%q: %v", name, err)
				}
				nothing(t, path)
				continue
			}
			if list := must(os.ReadDir(filepath.Dir(path))); len(list) != 1 {
				t.Errorf("%q: there is more than the output: %v", name, list)
			}
			if from == "image" || r.read == ownLibrary {
				continue
			}
			got := must(source.Open(t.Context(), path, nil))
			if !slices.ContainsFunc(got.Info().Fields, func(f driver.Field) bool { return f.Name == name }) {
				t.Errorf("%q: it is read as %s", name, drivertest.Fields(got))
			}
			got.Close()
		}
	}
}

// threads checks that the files do not depend on the number of goroutines.
func (r *row) threads(t *testing.T) {
	one, more := tree(t, r.write(t, sink.Options{Threads: 1})), tree(t, r.write(t, sink.Options{Threads: 4}))
	if !maps.Equal(one, more) {
		t.Errorf("%v, then %v", one, more)
	}
}

// overwrite checks that a destination that exists is not changed, except for an empty folder.
func (r *row) overwrite(t *testing.T) {
	to, path := r.to(t)
	if !to.File {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sink.Write(t.Context(), r.data(t), to, nil); err != nil {
		t.Fatal(err)
	}
	before := tree(t, path)
	if _, err := sink.Write(t.Context(), r.data(t), to, nil); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Error(err)
	}
	if after := tree(t, path); !maps.Equal(before, after) {
		t.Errorf("%v, then %v", before, after)
	}
}

// cancelled checks that a run that is cancelled before it starts leaves nothing.
func (r *row) cancelled(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	to, path := r.to(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sink.Write(ctx, r.data(t), to, nil); !errors.Is(err, sink.ErrInterrupted) {
		t.Error(err)
	}
	nothing(t, path)
}

// interrupted cancels a run in the middle. Until then its output never looks whole, and another run to the same
// destination is refused. It leaves nothing.
func (r *row) interrupted(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	to, path := r.to(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	src, second := r.data(t), r.data(t)
	src.Reading = func(id int64) {
		if id != sinktest.Rows/2 {
			return
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the output is there before the end: %v", err)
		}
		if _, err := sink.Write(context.WithoutCancel(ctx), second, to, nil); err == nil || !strings.Contains(err.Error(), "is being written by another process") {
			t.Errorf("another run: %v", err)
		}
		cancel()
	}
	if _, err := sink.Write(ctx, src, to, nil); !errors.Is(err, sink.ErrInterrupted) {
		t.Error(err)
	}
	nothing(t, path)
}

// killed checks that what a killed run has left is not a part of the next one.
func (r *row) killed(t *testing.T) {
	want := tree(t, r.write(t, sink.Options{}))
	to, path := r.to(t)
	left := path + store.PartialSuffix
	if err := errors.Join(os.MkdirAll(filepath.Join(left, "sub"), 0o755), os.WriteFile(filepath.Join(left, "sub", "a"), []byte("left"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(left, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(left, name), []byte("left"), 0o644); err != nil && name != "." {
			t.Fatal(err)
		}
	}
	sum, err := sink.Write(t.Context(), r.data(t), to, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.counted(t, sum, path, sinktest.Rows)
	if got := tree(t, path); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// small is set in a process whose files cannot grow, as on a full disk.
const small = "STOKER_TEST_SMALL_FILES"

// TestFull checks that a run fails if a file cannot be written, and leaves nothing. It runs in a process of its own: the
// limit is one of the process, and the tool that runs tests writes files, too.
func TestFull(t *testing.T) {
	if os.Getenv(small) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFull$")
		cmd.Env = append(os.Environ(), small+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100, Max: 100}); err != nil {
		t.Fatal(err)
	}
	for i := range table {
		t.Run(table[i].name, func(t *testing.T) {
			to, path := table[i].to(t)
			if _, err := sink.Write(t.Context(), table[i].data(t), to, nil); !errors.Is(err, syscall.EFBIG) || strings.Contains(err.Error(), "\n") {
				t.Error(err)
			}
			nothing(t, path)
		})
	}
}

// badRecords checks that records that cannot be read are skipped and listed, and that all others are written.
func (r *row) badRecords(t *testing.T) {
	to, path := r.to(t)
	broken := errors.New("it is broken")
	src := r.data(t)
	src.Bad = map[int64]error{0: broken, 21: broken, sinktest.Rows - 1: broken}
	sum, err := sink.Write(t.Context(), src, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.counted(t, sum, path, sinktest.Rows-3)
	if len(sum.Skipped) != 3 || sum.Skipped[1].Path != "record 21" || sum.Skipped[1].Reason != "it is broken" {
		t.Errorf("%+v", sum)
	}
	if got := r.open(t, path); got != nil {
		r.compare(t, got, src)
	}
	to, path = r.to(t)
	for i := range int64(sinktest.Rows) {
		src.Bad[i] = broken
	}
	if _, err = sink.Write(t.Context(), src, to, nil); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("none of the %d records", sinktest.Rows)) {
		t.Error(err)
	}
	nothing(t, path)
}

// empty writes a dataset without records. The output opens as one, or opening says that there is nothing.
func (r *row) empty(t *testing.T) {
	to, path := r.to(t)
	src := r.data(t)
	src.Info().Len = 0
	sum, err := sink.Write(t.Context(), src, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.counted(t, sum, path, 0)
	if r.read == ownLibrary {
		return
	}
	url := path
	if r.read != "" {
		url = strings.Replace(r.read, "*", path, 1)
	}
	got, err := source.Open(t.Context(), url, nil)
	if err != nil {
		if !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Error(err)
		}
		return
	}
	defer got.Close()
	if got.Info().Len != 0 {
		t.Errorf("%d records", got.Info().Len)
	}
}

// shards checks that shards have about the requested size.
func (r *row) shards(t *testing.T) {
	to, path := r.to(t)
	const size = 16 << 10
	src := r.data(t)
	_, err := sink.Write(t.Context(), src, to, &sink.Options{ShardBytes: size})
	if to.File || !to.Format.Sharded {
		if err == nil || !strings.Contains(err.Error(), "--shard-size") {
			t.Error(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	total, n := int64(0), int64(0)
	for _, e := range must(os.ReadDir(path)) {
		if e.IsDir() {
			continue
		}
		info := must(e.Info())
		if total, n = total+info.Size(), n+1; info.Size() > 2*size {
			t.Errorf("%s has %d bytes", e.Name(), info.Size())
		}
	}
	if total > 2*size && n < 2 {
		t.Errorf("%d bytes are in %d shards", total, n)
	}
	if got := r.open(t, path); got != nil {
		r.compare(t, got, src)
	}
}
