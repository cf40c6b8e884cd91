package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// folderOf makes a folder of n images in some classes.
func folderOf(t testing.TB, n, from int, classes ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		writeFile(t, testJPEG(t, from+i, 140+(from+i)%50, 130+(from+i)%40), dir, classes[i%len(classes)], fmt.Sprintf("%04d.jpg", i))
	}
	return dir
}

func appending(opt *Options) *Options {
	o := *opt
	o.Append = true
	return &o
}

// mustCheck opens a pack and looks whether all of it is right.
func mustCheck(t *testing.T, dir string) *Manifest {
	t.Helper()
	rep, err := Verify(t.Context(), dir, &VerifyOptions{Decode: true})
	if err != nil || len(rep.Problems) > 0 || len(rep.Stray) > 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if rep.Records != rep.Manifest.Records {
		t.Fatalf("%d records looked at, not %d", rep.Records, rep.Manifest.Records)
	}
	return rep.Manifest
}

// Appended records follow the existing ones and use the class numbers of the pack. An open reader keeps its contents.
func TestAppend(t *testing.T) {
	a, b := folderOf(t, 60, 0, "cat", "eel"), folderOf(t, 50, 60, "ant", "cat", "dog")
	dst := filepath.Join(t.TempDir(), "p")
	mustWrite(t, a, dst, small(ImagesKeep))
	before := readAll(t, dst)
	old := must(Open(t.Context(), dst, nil))
	defer old.Close()
	sum := mustWrite(t, b, dst, &Options{Append: true}) // stored as before
	if sum.Manifest.Records != 110 || sum.Manifest.Options != must(ReadManifest(dst)).Options {
		t.Errorf("%d records, %+v", sum.Manifest.Records, sum.Manifest.Options)
	}
	m := mustCheck(t, dst)
	if want := []string{"cat", "eel", "ant", "dog"}; !slices.Equal(m.Field("label").Classes, want) {
		t.Errorf("%v", m.Field("label").Classes)
	}
	if m.Version != Version || len(m.Appended) != 1 || m.Appended[0].Records != 50 || m.Appended[0].Options != m.Options {
		t.Errorf("%+v", m.Appended)
	}
	if got, want := m.Field("label").Stats.Classes, map[int64]int64{0: 47, 1: 30, 2: 17, 3: 16}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	other := filepath.Join(t.TempDir(), "b")
	mustWrite(t, b, other, small(ImagesKeep))
	all, added := readAll(t, dst), readAll(t, other)
	for i, want := range append(before, added...) {
		if got := all[i]; got.Class != want.Class || got.Path != want.Path || !bytes.Equal(got.Image, want.Image) {
			t.Errorf("record %d is %s of %s, not %s of %s", i, got.Path, got.Class, want.Path, want.Class)
		}
	}
	for i, rec := range load(t, old, 0, 30, 59) {
		if want := before[[]int{0, 30, 59}[i]]; !bytes.Equal(rec.Values[0].Bytes, want.Image) {
			t.Errorf("the open reader has other bytes in record %d", rec.ID)
		}
	}
	if s := mustWrite(t, b, dst, appending(small(ImagesKeep))); !s.Unchanged || s.Manifest.Records != 110 {
		t.Error("it is appended twice")
	}
	// A pack can also be appended.
	if s := must(WriteSource(t.Context(), must(Open(t.Context(), other, nil)), dst, &Options{Append: true})); s.Manifest.Records != 160 {
		t.Errorf("%d records", s.Manifest.Records)
	}
	mustCheck(t, dst)
}

// Parts and interruptions make the same pack as one run.
func TestAppendParts(t *testing.T) {
	a, b := folderOf(t, 40, 0, "cat", "eel"), folderOf(t, 90, 40, "ant", "cat")
	one, two := filepath.Join(t.TempDir(), "p"), filepath.Join(t.TempDir(), "p")
	for _, dst := range []string{one, two} {
		mustWrite(t, a, dst, small(ImagesDCT))
	}
	in, o := folderInput(t, b, appending(small(ImagesDCT)))
	if err := in.(*sourceInput).into(must(ReadManifest(one)), one); err != nil {
		t.Fatal(err)
	}
	o.Piece = Piece{Whole: true, Base: must(ReadManifest(one)).nextPiece()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := run(ctx, &cancelInput{input: in, after: 50, cancel: cancel}, localstore.New(one), o); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	if m := must(ReadManifest(one)); m.Records != 40 {
		t.Errorf("half of it is there: %d records", m.Records)
	}
	if s := mustWrite(t, b, one, appending(small(ImagesDCT))); s.Resumed == 0 || s.Manifest.Records != 130 {
		t.Errorf("%d resumed, %d records", s.Resumed, s.Manifest.Records)
	}
	for _, i := range []int{2, 0, 1} {
		o := partOf(i, 3, appending(small(ImagesDCT)))
		mustWrite(t, b, two, o)
		if s := mustWrite(t, b, two, o); !s.Unchanged {
			t.Error("a finished part is written again")
		}
		if i == 0 {
			if _, err := Commit(t.Context(), two, 0); err == nil || !strings.Contains(err.Error(), "piece 1 of what is appended is missing") {
				t.Errorf("%v", err)
			}
		}
	}
	if _, err := Compact(t.Context(), two, nil); err == nil || !strings.Contains(err.Error(), "is being appended to") {
		t.Errorf("%v", err)
	}
	must(Commit(t.Context(), two, 0))
	must(Commit(t.Context(), two, 0)) // nothing is left to do
	sameRecords(t, one, two)
	mustCheck(t, one)
	mustCheck(t, two)
}

func TestAppendRefusals(t *testing.T) {
	a := folderOf(t, 10, 0, "cat", "eel")
	dst := filepath.Join(t.TempDir(), "p")
	mustWrite(t, a, dst, small(ImagesKeep))
	flat := t.TempDir()
	writeFile(t, testJPEG(t, 1, 20, 20), flat, "a.jpg")
	text := t.TempDir()
	writeFile(t, []byte("x"), text, "cat", "b.jpg")
	writeFile(t, []byte("x"), text, "dog", "b.jpg")
	before := files(t, dst)
	for want, run := range map[string]func() error{
		"its fields are image and those of the pack image,label": func() error {
			_, err := Write(t.Context(), flat, dst, &Options{Append: true})
			return err
		},
		"to append to: make it without --append": func() error {
			_, err := Write(t.Context(), flat, filepath.Join(t.TempDir(), "none"), &Options{Append: true})
			return err
		},
		"nothing in " + text + " could be packed; " + dst + " stays unchanged; the first one is cat/b.jpg": func() error {
			_, err := Write(t.Context(), text, dst, &Options{Append: true})
			return err
		},
		"has metadata in only one of them": func() error {
			_, err := Write(t.Context(), folderOf(t, 4, 0, "cat"), dst, &Options{Append: true, Images: ImagesAuto, Metadata: true})
			return err
		},
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	after := files(t, dst)
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the pack has changed: %d files, %d before", len(after), len(before))
	}
}

func TestMergeClasses(t *testing.T) {
	all, to := mergeClasses([]string{"b", "c"}, []string{"a", "b", "d"})
	if !slices.Equal(all, []string{"b", "c", "a", "d"}) || !slices.Equal(to, []int64{2, 0, 3}) {
		t.Errorf("%v, %v", all, to)
	}
	if all, to = mergeClasses([]string{"b"}, []string{"b", "d"}); !slices.Equal(all, []string{"b", "d"}) || to != nil {
		t.Errorf("%v, %v", all, to)
	}
}

// After any removals, every way of reading returns the remaining records. Compacting changes none of them.
func TestRemove(t *testing.T) {
	src := testFolder(t, 300)
	dst := filepath.Join(t.TempDir(), "p")
	mustWrite(t, src, dst, small(ImagesKeep))
	left := readAll(t, dst)
	old := must(Open(t.Context(), dst, nil))
	defer old.Close()
	kept := load(t, old, 7)[0].Values[0].Bytes
	rng := rand.New(rand.NewPCG(3, 4))
	for step, share := range []float64{0.02, 0.3, 0.5} {
		var ids []int64
		var next []*flat
		for i, rec := range left {
			if rng.Float64() < share || step == 1 && i > 100 && i < 180 { // some whole chunks
				ids = append(ids, int64(i))
			} else {
				next = append(next, rec)
			}
		}
		if _, err := Remove(t.Context(), dst, "other", ids); err == nil || !strings.Contains(err.Error(), "was changed while") {
			t.Errorf("%v", err)
		}
		m := must(Remove(t.Context(), dst, must(ReadManifest(dst)).Fingerprint, ids))
		left = next
		if m.Stored() != 300 || m.Records != int64(len(left)) {
			t.Errorf("version %d, %d of %d records", m.Version, m.Records, m.Stored())
		}
		hasRecords(t, dst, left)
		if step == 1 {
			c := must(Compact(t.Context(), dst, nil))
			if c.Freed <= 0 || c.Manifest.Version != Version || c.Manifest.Removed() != 0 {
				t.Errorf("%+v", c)
			}
			hasRecords(t, dst, left)
			// The rest is for a pack of the original size again.
			dst2 := filepath.Join(t.TempDir(), "p")
			mustWrite(t, src, dst2, small(ImagesKeep))
			left, dst = readAll(t, dst2), dst2
		}
	}
	if got := load(t, old, 7)[0]; got.Err == nil && !bytes.Equal(got.Values[0].Bytes, kept) {
		t.Error("an open reader has other bytes")
	}
	m := must(ReadManifest(dst))
	if _, err := Remove(t.Context(), dst, m.Fingerprint, seq(m.Records)); err == nil || !strings.Contains(err.Error(), "would remove all") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(dst, changeName+".partial")); err == nil {
		t.Error("the lock is left")
	}
}

func seq(n int64) (ids []int64) {
	for i := range n {
		ids = append(ids, i)
	}
	return ids
}

// hasRecords compares a pack with the expected records, in all ways of reading, and its statistics with those of the
// records.
func hasRecords(t *testing.T, dir string, want []*flat) {
	t.Helper()
	m := mustCheck(t, dir)
	got := readAll(t, dir)
	if len(got) != len(want) {
		t.Fatalf("%d records, not %d", len(got), len(want))
	}
	r := must(Open(t.Context(), dir, nil))
	defer r.Close()
	x := r.Extras()
	defer x.Close()
	recs := load(t, r, seq(r.Len())...)
	shapes := make([]driver.Shape, len(recs))
	sizes := make([]int64, len(recs))
	if !r.Shapes(0, seq(r.Len()), shapes) || !r.Sizes(0, seq(r.Len()), sizes) {
		t.Error("shapes or sizes are not known")
	}
	count, total, labels := map[int64]int64{}, int64(0), 0.0
	for i, w := range want {
		g := got[i]
		if g.ID != int64(i) || g.Path != w.Path || g.Label != w.Label || !bytes.Equal(g.Image, w.Image) || g.Width != w.Width || g.Orientation != w.Orientation {
			t.Fatalf("record %d is %s, not %s", i, g.Path, w.Path)
		}
		if v := recs[i].Values; !bytes.Equal(v[0].Bytes, w.Image) || v[1].Int != w.Label || v[0].Width != w.Width {
			t.Fatalf("record %d is read as another one", i)
		}
		if e := must(x.Read(t.Context(), int64(i))); e.Path != w.Path {
			t.Fatalf("record %d came from %s, not %s", i, e.Path, w.Path)
		}
		if shapes[i].Width != w.Width || sizes[i] != int64(len(w.Image)) {
			t.Fatalf("record %d is %+v with %d bytes", i, shapes[i], sizes[i])
		}
		if f := r.Find(t.Context(), int64(i)); !strings.HasPrefix(f, w.Path+" ") {
			t.Fatalf("record %d is found at %s", i, f)
		}
		count[w.Label]++
		total += int64(len(w.Image))
		labels += float64(w.Label)
	}
	im, l := &m.Fields[0].Stats, &m.Fields[1].Stats
	if im.Count != int64(len(want)) || im.Bytes != total || im.Images.Codecs["jpeg"].Count != im.Count || im.Images.Codecs["jpeg"].Bytes != total {
		t.Errorf("%+v %+v, want %d bytes", im, im.Images, total)
	}
	n := int64(0)
	for _, c := range im.Images.Sides {
		n += c
	}
	if n != im.Count || !reflect.DeepEqual(l.Classes, count) || math.Abs(l.Ints.Mean-labels/float64(len(want))) > 1e-9 || l.Ints.Count != im.Count {
		t.Errorf("%d sides, %+v %+v, want %v", n, l, l.Ints, count)
	}
}

// readBytes counts the bytes read from a store.
type readBytes struct {
	store.WriteStore
	n atomic.Int64
}

func (s *readBytes) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.WriteStore.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return store.Intercept(o, true, func(ctx context.Context, next store.Next, p []byte, off int64) error {
		s.n.Add(int64(len(p)))
		return next.Read(ctx, p, off)
	}), nil
}

// Compact reads a shard once, with its checksum, and refuses any damage in it: in values, paths and heads.
func TestCompactDamage(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "p")
	mustWrite(t, testFolder(t, 30), dst, small(ImagesKeep))
	m := must(Remove(t.Context(), dst, must(ReadManifest(dst)).Fingerprint, []int64{3}))
	name := filepath.Join(dst, m.Shards[0].File)
	whole := must(os.ReadFile(name))
	c := m.Shards[0].Chunks[len(m.Shards[0].Chunks)/2]
	for i := range int64(12) { // the last ones are paths
		b := bytes.Clone(whole)
		b[c.Offset+(c.Bytes-1)*i/11] ^= 1 << (i % 8)
		writeFile(t, b, name)
		if _, err := Compact(t.Context(), dst, nil); err == nil || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("byte %d of %d: %v", (c.Bytes-1)*i/11, c.Bytes, err)
		}
	}
	writeFile(t, whole, name)
	st := &readBytes{WriteStore: must(stores.OpenWrite(t.Context(), dst))}
	must(CompactIn(t.Context(), st, nil))
	if n := st.n.Load(); n > m.Shards[0].Bytes*5/4+100_000 {
		t.Errorf("it read %d bytes, the shard has %d", n, m.Shards[0].Bytes)
	}
}

// An interrupted compaction does no harm, and the next one deletes its files.
func TestCompactStray(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "p")
	mustWrite(t, testFolder(t, 30), dst, small(ImagesKeep))
	writeFile(t, []byte("x"), dst, "shard-00007-00000.arrow")
	writeFile(t, []byte("x"), dst, "shard-00008-00000.arrow.partial")
	rep := must(Verify(t.Context(), dst, nil))
	if len(rep.Problems) != 0 || len(rep.Stray) != 2 {
		t.Errorf("%+v", rep)
	}
	if c := must(Compact(t.Context(), dst, nil)); len(c.Stray) != 2 || c.Shards != 0 {
		t.Errorf("%+v", c)
	}
	mustCheck(t, dst)
}

func TestRowSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 1 + rng.Int64N(60)
		var s rowSet
		gone := make([]bool, n)
		for i := range n {
			if gone[i] = rng.IntN(3) == 0; gone[i] {
				s.add(i, 1)
			}
		}
		id := int64(0)
		for i, g := range gone {
			got, has := s.record(int64(i))
			if got != id || has == g {
				t.Fatalf("row %d is record %d (%t), want %d of %v", i, got, has, id, gone)
			}
			if !g {
				if row := s.stored(id); row != int64(i) {
					t.Fatalf("record %d is row %d, want %d", id, row, i)
				}
				id++
			}
		}
		if s.rows() != n-id {
			t.Fatalf("%d rows, want %d", s.rows(), n-id)
		}
	}
}

// The removed rows of a manifest are validated.
func TestRemovedChecked(t *testing.T) {
	for _, c := range []Chunk{
		{Rows: 10, Removed: []int64{1}}, {Rows: 10, Removed: []int64{-1, 2}}, {Rows: 10, Removed: []int64{4, 0}}, {Rows: 10, Removed: []int64{8, 3}},
		{Rows: 10, Removed: []int64{5, 2, 6, 1}}, {Rows: 10, Removed: []int64{9, math.MaxInt64}}, {Rows: 10, Removed: []int64{10, 1}},
	} {
		if c.checkRemoved() == nil {
			t.Errorf("%v passes", c.Removed)
		}
	}
	dst := filepath.Join(t.TempDir(), "p")
	mustWrite(t, testFolder(t, 9), dst, nil)
	m := must(Remove(t.Context(), dst, must(ReadManifest(dst)).Fingerprint, []int64{2, 3, 8}))
	if got := m.Shards[0].Chunks[0].Removed; !slices.Equal(got, []int64{2, 2, 8, 1}) {
		t.Errorf("%v", got)
	}
	b := must(os.ReadFile(filepath.Join(dst, ManifestName)))
	if _, err := parseManifest(bytes.Replace(b, []byte(`"removed":[2,2,`), []byte(`"removed":[1,2,`), 1)); err == nil || !strings.Contains(err.Error(), "fingerprint") {
		t.Errorf("%v", err)
	}
}
