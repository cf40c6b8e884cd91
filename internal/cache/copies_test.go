package cache

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// makeStage starts a copy and copies all but some chunks.
func makeStage(t *testing.T, root, name string, leave int) *Stage {
	t.Helper()
	objects := stageObjects(12, 30_000)
	s, err := OpenStage(root, name, objects, func(why string) { t.Error(why) })
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects[:len(objects)-leave] {
		for _, k := range o.Keys {
			if what := useChunk(s, k, make([]byte, k.Size)); what != "kept" {
				t.Fatal(what)
			}
		}
	}
	return s
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Unfinished copies are found and removed, unless a job is making them.
func TestCopies(t *testing.T) {
	d, err := At(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	folder := func(n string) string { return filepath.Join(scratch, "train-00000000000"+n) }
	note := func(n string) {
		t.Helper()
		if err := d.NoteCopy("s3://bucket/train", folder(n), 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.Copies(); len(got) != 0 {
		t.Fatalf("%+v", got)
	}
	for _, n := range []string{"1", "2", "3", "4"} {
		note(n)
		note(n) // again: it is one
	}
	now := makeStage(t, scratch, filepath.Base(folder("1")), 3)
	left := makeStage(t, scratch, filepath.Base(folder("2")), 3)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	whole := makeStage(t, scratch, filepath.Base(folder("3")), 0)
	if ok, err := whole.Finish(nil); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := whole.Close(); err != nil {
		t.Fatal(err)
	}
	if exists(folder("3") + stateEnd) {
		t.Error("the state of a whole copy is left")
	}

	find := func(n string) (Copy, bool) {
		all := d.Copies()
		i := slices.IndexFunc(all, func(c Copy) bool { return c.Folder == folder(n) })
		if i < 0 {
			return Copy{}, false
		}
		return all[i], true
	}
	one, ok1 := find("1")
	two, ok2 := find("2")
	three, ok3 := find("3")
	_, ok4 := find("4") // which is not there: it is forgotten
	if !ok1 || !ok2 || !ok3 || ok4 || len(d.notes()) != 3 {
		t.Fatal(d.Copies(), d.notes())
	}
	if !one.InUse || two.InUse || three.InUse || one.Whole || two.Whole || !three.Whole || two.Bytes <= 0 || two.Bytes >= three.Bytes ||
		two.Origin != "s3://bucket/train" || two.Of != 1<<20 || two.Used.IsZero() {
		t.Errorf("%+v\n%+v\n%+v", one, two, three)
	}
	if err := d.RemoveCopy(one); !errors.Is(err, ErrInUse) || !exists(folder("1")+partEnd) {
		t.Errorf("%v", err)
	}
	for _, c := range []Copy{two, three} {
		if err := d.RemoveCopy(c); err != nil {
			t.Error(err)
		}
	}
	if err := now.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.RemoveCopy(one); err != nil {
		t.Error(err)
	}
	if rest, err := os.ReadDir(scratch); err != nil || len(rest) > 0 || len(d.Copies()) > 0 {
		t.Errorf("%v, %v are left", rest, d.Copies())
	}
}

// An unfinished copy of another version makes room for the next one. Complete copies stay, and so do copies of other
// data, in other folders or in use.
func TestReclaim(t *testing.T) {
	d, err := At(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	scratch, elsewhere := t.TempDir(), t.TempDir()
	const origin = "s3://bucket/train"
	begin := func(origin, root, name string, leave int) *Stage {
		s := makeStage(t, root, name, leave)
		if err := d.NoteCopy(origin, filepath.Join(root, name), 1); err != nil {
			t.Fatal(err)
		}
		return s
	}
	old := begin(origin, scratch, "train-000000000001", 2)
	whole := begin(origin, scratch, "train-000000000002", 0)
	if ok, err := whole.Finish(nil); !ok || err != nil {
		t.Fatal(ok, err)
	}
	other := begin("s3://bucket/other", scratch, "train-000000000003", 2)
	far := begin(origin, elsewhere, "train-000000000004", 2)
	busy := begin(origin, scratch, "train-000000000005", 2)
	for _, s := range []*Stage{old, whole, other, far} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.Reclaim(origin, filepath.Join(scratch, "train-000000000006")); got <= 0 {
		t.Errorf("%d bytes", got)
	}
	var left []string
	for _, root := range []string{scratch, elsewhere} {
		entries, err := os.ReadDir(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			left = append(left, e.Name())
		}
	}
	want := []string{
		"train-000000000002", "train-000000000003.part", "train-000000000003.state", "train-000000000005.part", "train-000000000005.state",
		"train-000000000004.part", "train-000000000004.state",
	}
	if !slices.Equal(left, want) {
		t.Errorf("%q", left)
	}
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	// A copy in progress does not remove itself.
	if got := d.Reclaim(origin, filepath.Join(scratch, "train-000000000005")); got != 0 || !exists(filepath.Join(scratch, "train-000000000005"+partEnd)) {
		t.Errorf("%d bytes", got)
	}
}

// A forged note removes nothing.
func TestBadNotes(t *testing.T) {
	d, err := At(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(d.root, copiesName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Dir(home) + "/x/../train-000000000001"
	for i, s := range []string{
		"", "{", `{"folder":"` + home + `"}`, `{"folder":"train-000000000001"}`, `{"folder":"` + odd + `"}`,
		`{"folder":"/train-000000000001","of":-1}`, `{"folder":"/other-000000000001"}`,
	} {
		name := ID(home)
		switch i {
		case 4:
			name = ID(odd)
		case 5:
			name = ID("/train-000000000001")
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := d.notes(); len(n) > 0 {
			t.Errorf("%s: %+v", s, n)
		}
	}
	if err := d.RemoveCopy(Copy{ID: ID(home), Folder: home}); err == nil || !exists(home) {
		t.Error("a folder that is no copy is removed")
	}
}
