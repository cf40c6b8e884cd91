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
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/store"
)

func partOf(i, n int, opt *Options) *Options {
	o := *opt
	o.Piece = Piece{Part: i, Parts: n}
	return &o
}

// sameRecords compares two packs record by record, and their statistics.
func sameRecords(t *testing.T, a, b string) {
	t.Helper()
	one, two := readAll(t, a), readAll(t, b)
	if len(one) != len(two) {
		t.Fatalf("%d records, not %d", len(two), len(one))
	}
	for i := range one {
		if p, q := one[i], two[i]; p.Path != q.Path || p.Class != q.Class || p.Label != q.Label || !bytes.Equal(p.Image, q.Image) {
			t.Errorf("record %d is %s, not %s", i, q.Path, p.Path)
		}
	}
	x, y := must(ReadManifest(a)), must(ReadManifest(b))
	for _, m := range []*Manifest{x, y} {
		for i := range m.Fields {
			if s := m.Fields[i].Stats.Ints; s != nil {
				s.Mean = math.Round(s.Mean*1e9) / 1e9 // the order of adding shows
			}
		}
	}
	if !reflect.DeepEqual(x.Fields, y.Fields) {
		t.Errorf("other fields:\n%+v\n%+v", x.Fields, y.Fields)
	}
	if !reflect.DeepEqual(x.Skipped, y.Skipped) {
		t.Errorf("others were left out: %v, %v", x.Skipped, y.Skipped)
	}
	if x.Source != y.Source {
		t.Errorf("another source: %+v, %+v", x.Source, y.Source)
	}
}

// Parts that are written in any order, some of them interrupted, make the pack that
// one run makes.
func TestParts(t *testing.T) {
	src := testFolder(t, 120)
	writeFile(t, []byte("x"), src, "cat", "0003.txt")
	writeFile(t, []byte("x"), src, "zebra", "9999.txt")
	straight := filepath.Join(t.TempDir(), "p")
	mustWrite(t, src, straight, small(ImagesKeep))
	parts := []int{1, 2, 7, 200} // of 200, most have nothing
	if testing.Short() {
		parts = []int{2, 7}
	}
	for _, n := range parts {
		dst := filepath.Join(t.TempDir(), "p")
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		for _, i := range rng.Perm(n) {
			o := partOf(i, n, small(ImagesKeep))
			if from, to := o.Piece.span(122); to-from > 10 && rng.IntN(2) == 0 {
				interrupt(t, src, dst, o, from+(to-from)/2)
				if _, err := Commit(t.Context(), dst, 0); err == nil {
					t.Fatal("an unfinished part is taken")
				}
			}
			mustWrite(t, src, dst, o)
			if s := mustWrite(t, src, dst, o); !s.Unchanged {
				t.Error("a finished part is written again")
			}
			if o.Piece.some() && rng.IntN(2) == 0 { // as if it was killed before it removed its journal
				writeFile(t, []byte("{}\n"), dst, o.Piece.journal()+store.PartialSuffix)
			}
			if IsPack(dst) {
				if _, err := ReadManifest(dst); err == nil || !strings.Contains(err.Error(), "--commit") && n > 1 {
					t.Errorf("parts are read as a pack: %v", err)
				}
			}
		}
		m := must(Commit(t.Context(), dst, n))
		if m.Records != 120 {
			t.Errorf("%d records", m.Records)
		}
		sameRecords(t, straight, dst)
		if again := must(Commit(t.Context(), dst, 0)); again.Fingerprint != m.Fingerprint {
			t.Error("committing again makes another pack")
		}
		if left, _ := filepath.Glob(filepath.Join(dst, "*.journal*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if left, _ := filepath.Glob(filepath.Join(dst, "piece-*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// Sources that can only be read in order can also be packed in parts.
func TestPartsInOrder(t *testing.T) {
	compressed, _ := recordFiles(t)
	straight, dst := filepath.Join(t.TempDir(), "p"), filepath.Join(t.TempDir(), "q")
	mustWriteSource(t, recordSource(t, compressed), straight, smallRecords())
	for i := range 3 {
		mustWriteSource(t, recordSource(t, compressed), dst, partOf(2-i, 3, smallRecords()))
	}
	must(Commit(t.Context(), dst, 3))
	x, y := must(ReadManifest(straight)), must(ReadManifest(dst))
	if x.Records != y.Records || !reflect.DeepEqual(x.Fields, y.Fields) {
		t.Errorf("%+v\n%+v", x, y)
	}
}

// Each thing that can be wrong with pieces is named.
func TestPiecesThatDoNotFit(t *testing.T) {
	src, other := testFolder(t, 40), testFolder(t, 30)
	write := func(change func(dst string)) error {
		dst := filepath.Join(t.TempDir(), "p")
		for i := range 3 {
			mustWrite(t, src, dst, partOf(i, 3, small(ImagesKeep)))
		}
		change(dst)
		_, err := Commit(t.Context(), dst, 0)
		return err
	}
	piece := func(dst string, i int) string { return filepath.Join(dst, pieceName(i)) }
	// beside writes a part of another pack into its own folder, and moves it. Writing it to dst is refused.
	beside := func(src, dst string, i, n int, o *Options) {
		if _, err := Write(t.Context(), src, dst, partOf(i, n, o)); err == nil || !strings.Contains(err.Error(), "has parts of another pack") {
			t.Errorf("a part that does not fit: %v", err)
		}
		own := t.TempDir() + "/p"
		mustWrite(t, src, own, partOf(i, n, o))
		for _, name := range []string{pieceName(i), fmt.Sprintf("shard-%05d-00000.arrow", i)} {
			if err := os.Rename(filepath.Join(own, name), filepath.Join(dst, name)); err != nil {
				t.Error(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(dst string)
		want   string
	}{
		"missing":  {func(dst string) { _ = os.Remove(piece(dst, 1)) }, "piece 1 is missing"},
		"last":     {func(dst string) { _ = os.Remove(piece(dst, 2)) }, "has 2 of 3 pieces"},
		"damaged":  {func(dst string) { _ = os.Truncate(piece(dst, 1), 100) }, "piece-00001.json: the manifest is damaged"},
		"no shard": {func(dst string) { _ = os.Remove(filepath.Join(dst, "shard-00001-00000.arrow")) }, "shard-00001-00000.arrow is missing: write the piece again"},
		"shard": {func(dst string) { // of the same size
			name := filepath.Join(dst, "shard-00001-00000.arrow")
			b := must(os.ReadFile(name))
			b[len(b)-20] ^= 1
			writeFile(t, b, name)
		}, "is not the shard that its piece wrote (checksum"},
		"short": {func(dst string) {
			name := filepath.Join(dst, "shard-00001-00000.arrow")
			_ = os.Truncate(name, must(os.Stat(name)).Size()-1)
		}, "is not the shard that its piece wrote ("},
		"options": {func(dst string) {
			_ = os.Remove(piece(dst, 1))
			beside(src, dst, 1, 3, small(ImagesRaw))
		}, "other options"},
		"source": {func(dst string) {
			_ = os.Remove(piece(dst, 1))
			beside(other, dst, 1, 3, small(ImagesKeep))
		}, "was not the same when it was written"},
		"number": {func(dst string) {
			_ = os.Remove(piece(dst, 2))
			beside(src, dst, 2, 4, small(ImagesKeep))
		}, "one of 4 parts, not of 3"},
		"journal": {func(dst string) {
			_ = os.WriteFile(filepath.Join(dst, "unfinished-00003.journal"+store.PartialSuffix), nil, 0o644)
		}, "is not finished"},
	} {
		if err := write(c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
	if _, err := Commit(t.Context(), t.TempDir(), 0); err == nil || !strings.Contains(err.Error(), "no finished pieces") {
		t.Error(err)
	}
	if _, err := Commit(t.Context(), filepath.Join(t.TempDir(), "none"), 0); !errors.Is(err, store.ErrNotExist) {
		t.Error(err)
	}
	dst := filepath.Join(t.TempDir(), "p")
	mustWrite(t, src, dst, partOf(0, 2, small(ImagesKeep)))
	if _, err := Write(t.Context(), src, dst, small(ImagesKeep)); err == nil || !strings.Contains(err.Error(), "has pieces of a pack") {
		t.Errorf("a pack is written between pieces: %v", err)
	}
	for _, text := range []string{"", "1", "1/1", "-1/2", "2/2", "a/2", "0/0", "0/100001"} {
		if p, err := ParsePiece(text); err == nil {
			t.Errorf("%q is %+v", text, p)
		}
	}
}

// meeting is a folder in which a part of another pack begins after this one has looked for others.
type meeting struct {
	*localstore.Store
	other string // the journal of the other part
	lists int
}

func (s *meeting) List(ctx context.Context, dir string, opt *store.ListOptions, entry func(store.Entry) error) error {
	if s.lists++; s.lists == 2 {
		b, err := os.ReadFile(s.other)
		if err == nil {
			err = os.WriteFile(filepath.Join(s.Path(""), filepath.Base(s.other)), b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return s.Store.List(ctx, dir, opt, entry)
}

// Of parts of two packs that begin at the same time, one refuses before it writes a shard.
func TestPartsThatMeet(t *testing.T) {
	src, theirs, dst := testFolder(t, 60), filepath.Join(t.TempDir(), "p"), filepath.Join(t.TempDir(), "p")
	interrupt(t, src, theirs, partOf(1, 2, small(ImagesKeep)), 45)
	journal := filepath.Join(theirs, "unfinished-00001.journal"+store.PartialSuffix)
	in, o := folderInput(t, src, partOf(0, 3, small(ImagesKeep)))
	_, err := run(t.Context(), in, &meeting{Store: localstore.New(dst), other: journal}, o)
	if err == nil || !strings.Contains(err.Error(), "such as "+filepath.Base(journal)+": it is one of 2 parts and not of 3") {
		t.Errorf("error is %v", err)
	}
	if left := must(filepath.Glob(filepath.Join(dst, "*"))); len(left) != 1 || filepath.Base(left[0]) != filepath.Base(journal) {
		t.Errorf("left: %v", left)
	}
}

// held is a folder whose first part is locked for some calls.
type held struct {
	*localstore.Store
	calls int
}

func (s *held) Resume(ctx context.Context, name string) (store.Partial, error) {
	if s.calls--; s.calls >= 0 {
		return nil, store.ErrLocked
	}
	return s.Store.Resume(ctx, name)
}

// A part waits for another process that writes it, with a limit.
func TestPartWaits(t *testing.T) {
	defer func(d time.Duration) { partWait = d }(partWait)
	src, dst := testFolder(t, 3), filepath.Join(t.TempDir(), "p")
	in, o := folderInput(t, src, partOf(0, 1, small(ImagesKeep)))
	if _, err := run(t.Context(), in, &held{localstore.New(dst), 1}, o); err != nil {
		t.Fatal(err)
	}
	partWait = 0
	in, o = folderInput(t, src, partOf(0, 1, small(ImagesKeep)))
	_, err := run(t.Context(), in, &held{localstore.New(filepath.Join(t.TempDir(), "q")), 1}, o)
	if err == nil || !strings.Contains(err.Error(), "is being packed by another process") {
		t.Error(err)
	}
}

// Parts of an append must fit each other.
func TestAppendedPartsThatDoNotFit(t *testing.T) {
	src, more, other := testFolder(t, 30), testFolder(t, 31), testFolder(t, 32)
	dst := filepath.Join(t.TempDir(), "p")
	for i := range 2 {
		mustWrite(t, src, dst, partOf(i, 2, small(ImagesKeep)))
	}
	must(Commit(t.Context(), dst, 2))
	part := func(src string, i, n int) error {
		o := partOf(i, n, small(ImagesKeep))
		o.Append = true
		_, err := Write(t.Context(), src, dst, o)
		return err
	}
	if err := part(more, 0, 3); err != nil {
		t.Fatal(err)
	}
	if err := part(more, 1, 4); err == nil || !strings.Contains(err.Error(), "it is one of 3 parts and not of 4") {
		t.Errorf("another number: %v", err)
	}
	if err := part(other, 1, 3); err == nil || !strings.Contains(err.Error(), "it has data of") {
		t.Errorf("other data: %v", err)
	}
	for i := range 3 {
		if err := part(more, i, 3); err != nil {
			t.Fatal(err)
		}
	}
	if b := must(LookAt(t.Context(), dst)); b.Parts != 3 || len(b.Pieces) != 3 {
		t.Errorf("%+v", b)
	}
	if m := must(Commit(t.Context(), dst, 0)); m.Records != 61 {
		t.Errorf("%d records", m.Records)
	}
}

// Parts have all inputs, in order, each once.
func TestSpans(t *testing.T) {
	for _, n := range []int64{0, 1, 5, 97, 1 << 40} {
		for _, parts := range []int{1, 2, 3, 16, 99} {
			at := int64(0)
			for i := range parts {
				from, to := Piece{Part: i, Parts: parts}.span(n)
				if from != at || to < from || to-from > n/int64(parts)+1 {
					t.Fatalf("part %d of %d of %d: %d to %d", i, parts, n, from, to)
				}
				at = to
			}
			if at != n {
				t.Fatalf("%d parts of %d end at %d", parts, n, at)
			}
		}
	}
}
