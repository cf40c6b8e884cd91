// Package sinktest is the test suite that every sink passes:
//
//	func TestConformance(t *testing.T) {
//		sinktest.Run(t, &sinktest.Suite{Target: "tar:out", Kinds: []driver.Kind{driver.KindImage, driver.KindLabel}})
//	}
package sinktest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/sink"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

// Kinds are all kinds of fields.
var Kinds = []driver.Kind{
	driver.KindImage, driver.KindLabel, driver.KindInt, driver.KindText, driver.KindArray, driver.KindBytes, driver.KindMask, driver.KindMultiLabel,
	driver.KindFloat, driver.KindJSON, driver.KindRagged, driver.KindAudio, driver.KindTokens,
	driver.KindBoxes,
}

// Suite describes a format to the tests.
type Suite struct {
	// Target is the destination, relative to a folder of the test: "tar:out", "out.npz".
	Target string
	// Kinds are the kinds that the format holds. It must refuse all others with an error that names
	// the field.
	Kinds []driver.Kind
	// Read is appended to the path of the target to open the output as a source, for example
	// "?split=train" or "/shard-00000.csv". It is "-" if Stoker does not read the format.
	Read string
	// Same reports whether a value was read back correctly. It is called if kind or value differ.
	Same func(want, got *driver.Field, w, g *driver.Value) bool
	// Names maps field names to the names they have when read back, if these differ.
	Names map[string]string
}

// Run runs the suite.
func Run(t *testing.T, s *Suite) {
	t.Run("Equal", s.Equal)
	t.Run("Refused", s.refused)
	t.Run("Threads", s.threads)
	t.Run("Overwrite", s.overwrite)
	t.Run("Cancelled", s.cancelled)
	t.Run("BadRecords", s.badRecords)
	t.Run("Shards", s.shards)
}

// target returns a target in a new folder, and its path.
func (s *Suite) target(t testing.TB) (*sink.Target, string) {
	t.Helper()
	name, path, ok := strings.Cut(s.Target, ":")
	if !ok {
		name, path = "", s.Target
	}
	path = filepath.Join(t.TempDir(), path)
	to, err := sink.ParseTarget(path, name)
	if err != nil {
		t.Fatal(err)
	}
	return to, path
}

func (s *Suite) write(t testing.TB, opt *sink.Options) string {
	t.Helper()
	to, path := s.target(t)
	sum, err := sink.Write(t.Context(), Source(t, s.Kinds...), to, opt)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Records != Rows || sum.Files < 1 || sum.Bytes < 1 || len(sum.Skipped) != 0 {
		t.Fatalf("%+v", sum)
	}
	return path
}

// Equal writes a dataset, reads it back and compares. A variant of a format that passes the whole
// suite needs only this test.
func (s *Suite) Equal(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	path := s.write(t, &sink.Options{Threads: 3})
	if s.Read == "-" {
		return
	}
	s.compare(t, path, Source(t, s.Kinds...), nil)
}

// compare opens path and compares its records with the records of src, except the bad ones.
func (s *Suite) compare(t *testing.T, path string, src driver.Source, bad map[int64]error) {
	t.Helper()
	got, err := source.Open(t.Context(), path+s.Read, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	var want []driver.Record
	for id := range int64(Rows) {
		if bad[id] == nil {
			want = append(want, read(t, src, id)[0])
		}
	}
	if got.Info().Len != int64(len(want)) {
		t.Fatalf("%d records, want %d", got.Info().Len, len(want))
	}
	ids := make([]int64, len(want))
	for i := range ids {
		ids[i] = int64(i)
	}
	back := read(t, got, ids...)
	if s.Names == nil {
		s.Names = map[string]string{}
	}
	for k := range src.Info().Fields {
		f := &src.Info().Fields[k]
		name := f.Name
		if other := s.Names[name]; other != "" {
			name = other
		}
		at := slices.IndexFunc(got.Info().Fields, func(g driver.Field) bool { return g.Name == name })
		if at < 0 {
			var names []string
			for i := range got.Info().Fields {
				names = append(names, got.Info().Fields[i].Name)
			}
			t.Errorf("field %q is not among %v", name, names)
			continue
		}
		g := &got.Info().Fields[at]
		for i := range want {
			w, b := &want[i].Values[k], &back[i].Values[at]
			same := g.Kind == f.Kind && equal(f, g, w, b)
			if !same && s.Same != nil {
				same = s.Same(f, g, w, b)
			}
			if !same {
				t.Fatalf("field %q (%s, read as %s %s %v) of record %d: %v, want %v", f.Name, f.Kind, g.Kind, g.DType, g.Shape, i, short(b), short(w))
			}
		}
	}
}

func short(v *driver.Value) string {
	return fmt.Sprintf("%d %v %.60q", v.Int, v.Float, v.Bytes)
}

// equal reports whether two values of the same kind are equal.
func equal(f, g *driver.Field, w, b *driver.Value) bool {
	switch f.Kind {
	case driver.KindLabel:
		if len(g.Classes) > 0 {
			return b.Int < int64(len(g.Classes)) && f.Classes[w.Int] == g.Classes[b.Int]
		}
		return w.Int == b.Int
	case driver.KindInt:
		return w.Int == b.Int
	case driver.KindFloat:
		return w.Float == b.Float
	case driver.KindImage, driver.KindMask:
		return File(f, w) == File(g, b)
	case driver.KindArray, driver.KindRagged, driver.KindTokens:
		return f.DType == g.DType && slices.Equal(f.Shape, g.Shape) && string(w.Bytes) == string(b.Bytes)
	}
	return string(w.Bytes) == string(b.Bytes)
}

// File returns an image or a mask as the bytes of a file.
func File(f *driver.Field, v *driver.Value) string {
	pv := pack.Value{Field: &pack.Field{Name: f.Name, Kind: f.Kind, DType: f.DType}, Value: *v, Depth: 8}
	b, _, err := pv.File()
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func read(t testing.TB, src driver.Source, ids ...int64) []driver.Record {
	t.Helper()
	obj := recordread.NewObjects(src, nil)
	t.Cleanup(func() { obj.Close() })
	recs, err := recordread.NewReader(src, obj).Read(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for i := range recs {
		if recs[i].Err != nil {
			t.Fatal(recs[i].Err)
		}
	}
	return recs
}

// refused checks that the error for an unsupported kind names the field, and that no file is left.
func (s *Suite) refused(t *testing.T) {
	for _, k := range Kinds {
		if slices.Contains(s.Kinds, k) {
			continue
		}
		to, path := s.target(t)
		kinds := append(slices.Clone(s.Kinds), k)
		if !to.Format.Folder && len(s.Kinds) == 1 {
			kinds = []driver.Kind{k}
		}
		src := Source(t, kinds...)
		_, err := sink.Write(t.Context(), src, to, nil)
		if k == driver.KindArray {
			k = "bool"
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", k)) {
			t.Errorf("%s: %v", k, err)
		}
		nothing(t, path)
	}
	to, path := s.target(t)
	_, err := sink.Write(t.Context(), Source(t, s.Kinds...), to, &sink.Options{Fields: []sink.Pick{{Name: "x", From: "none"}}})
	if err == nil || !strings.Contains(err.Error(), `no field "none"`) {
		t.Error(err)
	}
	nothing(t, path)
}

// nothing fails if a failed run has left files.
func nothing(t testing.TB, path string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(list) != 0 {
		t.Errorf("%v is left, %v", list, err)
	}
}

// tree returns a checksum of each file below a path.
func tree(t testing.TB, path string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(path, p)
		out[rel] = fmt.Sprintf("%d bytes %x", len(b), sha256.Sum256(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// threads checks that the files do not depend on the number of goroutines.
func (s *Suite) threads(t *testing.T) {
	one, more := tree(t, s.write(t, &sink.Options{Threads: 1})), tree(t, s.write(t, &sink.Options{Threads: 4}))
	if !maps.Equal(one, more) {
		t.Errorf("%v, then %v", one, more)
	}
}

func (s *Suite) overwrite(t *testing.T) {
	path := s.write(t, nil)
	before := tree(t, path)
	to, err := sink.ParseTarget(path, strings.SplitN(s.Target+":", ":", 2)[0])
	if err != nil {
		to, err = sink.ParseTarget(path, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = sink.Write(t.Context(), Source(t, s.Kinds...), to, nil)
	if err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Error(err)
	}
	if after := tree(t, path); !maps.Equal(before, after) {
		t.Errorf("%v, then %v", before, after)
	}
}

func (s *Suite) cancelled(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	to, path := s.target(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sink.Write(ctx, Source(t, s.Kinds...), to, nil); !errors.Is(err, sink.ErrInterrupted) {
		t.Error(err)
	}
	nothing(t, path)
}

// badRecords checks that records that cannot be read are skipped and listed, and that all others
// are written.
func (s *Suite) badRecords(t *testing.T) {
	to, path := s.target(t)
	src := Source(t, s.Kinds...).(*dataset)
	src.bad = map[int64]error{0: errors.New("it is broken"), 21: errors.New("it is broken"), Rows - 1: errors.New("it is broken")}
	sum, err := sink.Write(t.Context(), src, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Records != Rows-3 || len(sum.Skipped) != 3 || sum.Skipped[1].Path != "record 21" || sum.Skipped[1].Reason != "it is broken" {
		t.Errorf("%+v", sum)
	}
	if s.Read != "-" {
		s.compare(t, path, src, src.bad)
	}
	to, path = s.target(t)
	for i := range int64(Rows) {
		src.bad[i] = errors.New("it is broken")
	}
	if _, err = sink.Write(t.Context(), src, to, nil); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("none of the %d records", Rows)) {
		t.Error(err)
	}
	nothing(t, path)
}

// shards checks that shards have about the requested size.
func (s *Suite) shards(t *testing.T) {
	to, path := s.target(t)
	const size = 16 << 10
	opt := &sink.Options{ShardBytes: size}
	src := Source(t, s.Kinds...)
	_, err := sink.Write(t.Context(), src, to, opt)
	if to.File || !to.Format.Sharded {
		if err == nil || !strings.Contains(err.Error(), "--shard-size") {
			t.Error(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	sizes, total, n := []int64{}, int64(0), 0
	for _, e := range must(os.ReadDir(path)) {
		if fi, _ := e.Info(); !e.IsDir() {
			sizes = append(sizes, fi.Size())
			total += fi.Size()
			n++
			if fi.Size() > 2*size {
				t.Errorf("%s has %d bytes", e.Name(), fi.Size())
			}
		}
	}
	if total > 2*size && n < 2 {
		t.Errorf("shards of %v bytes", sizes)
	}
	if s.Read == "" {
		s.compare(t, path, src, nil)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
