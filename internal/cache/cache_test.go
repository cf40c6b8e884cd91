package cache

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// Some tests run this program again as another process that caches records.
const fillVariable = "STOKER_TEST_FILL"

func TestMain(m *testing.M) {
	if what := os.Getenv(fillVariable); what != "" {
		fill(what)
		return
	}
	if what := os.Getenv(stageVariable); what != "" {
		copyChunks(what)
		return
	}
	if what := os.Getenv(chunksVariable); what != "" {
		keepChunks(what)
		return
	}
	goleak.VerifyTestMain(m)
}

// fill caches records FROM to TO in the cache DIR within LIMIT, for the argument "DIR LIMIT FROM TO". It prints their
// number after each write.
func fill(what string) {
	f := strings.Fields(what)
	limit, _ := strconv.ParseInt(f[1], 10, 64)
	from, _ := strconv.Atoi(f[2])
	to, _ := strconv.Atoi(f[3])
	dir, err := At(f[0], limit)
	if err != nil {
		panic(err)
	}
	s, err := Open(dir, "data", func(why string) { fmt.Println("said", why) })
	if err != nil {
		panic(err)
	}
	for i := from; i < to; {
		b := s.Begin(true)
		if b == nil {
			break
		}
		for range 10 {
			b.Add(metaOf(i), valueOf(i))
			i++
		}
		s.Keep(b, false)
		n, _ := s.Kept()
		fmt.Println(n)
	}
	if err := s.Close(); err != nil {
		panic(err)
	}
	n, _ := s.Kept()
	fmt.Println("end", n)
}

func keyOf(i int) (k Key) {
	binary.LittleEndian.PutUint64(k[:], uint64(i+1)*0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(k[8:], uint64(i))
	return k
}

func metaOf(i int) *Meta {
	return &Meta{Key: keyOf(i), Width: uint32(i + 1), Height: 7, Codec: 17, Channels: 3, Orientation: 6, Name: fmt.Sprintf("a/%d.jpg", i)}
}

func valueOf(i int) []byte {
	if i%50 == 49 {
		return nil // no form is worth caching
	}
	r := rand.New(rand.NewPCG(uint64(i), 1))
	b := make([]byte, 1000+r.IntN(20000))
	for k := range b {
		b[k] = byte(r.Uint32())
	}
	return b
}

func mustOpen(t testing.TB, dir string, limit int64) *Set {
	t.Helper()
	d, err := At(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(d, "data", func(why string) { t.Errorf("said: %s", why) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keep(s *Set, from, to int) {
	for i := from; i < to; {
		b := s.Begin(true)
		if b == nil {
			return
		}
		for ; i < to && b.Room(); i++ {
			b.Add(metaOf(i), valueOf(i))
		}
		s.Keep(b, false)
	}
}

// check returns how many of the records 0 to n are cached and intact.
func check(t testing.TB, s *Set, n int) (there int) {
	t.Helper()
	for i := range n {
		k := keyOf(i)
		at := s.Find(&k)
		if at < 0 {
			continue
		}
		r := s.Record(at)
		f, err := os.Open(s.SegmentPath(r.Segment))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, r.Stored())
		_, err = f.ReadAt(b, r.Offset)
		f.Close()
		m := r.Meta
		m.Name = metaOf(i).Name
		if err != nil || !r.Check(b) || !bytes.Equal(b[:r.Size], valueOf(i)) || m != *metaOf(i) {
			t.Fatalf("record %d: %v, %+v", i, err, r.Meta)
		}
		there++
	}
	return there
}

func TestKeepAndFind(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, 1<<30)
	keep(s, 0, 500)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, 1<<30)
	defer s.Close()
	if n := check(t, s, 600); n != 500 {
		t.Errorf("%d of 500 are there", n)
	}
	// Cached files are private to the user.
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if want := fs.FileMode(0o600); err == nil && path != dir && !e.IsDir() && info.Mode().Perm() != want || e.IsDir() && path != dir && info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	d, _ := At(dir, 0)
	list := d.List()
	if len(list) != 1 || list[0].Origin != "data" || list[0].Records != 490 || !list[0].InUse {
		t.Errorf("%+v", list)
	}
	if err := d.Remove(list[0].ID); err != ErrInUse {
		t.Errorf("removed what is in use: %v", err)
	}
}

// A record that is read twice before it is written is cached and counted once.
func TestClaim(t *testing.T) {
	s := mustOpen(t, t.TempDir(), 1<<30)
	defer s.Close()
	k := keyOf(1)
	a, b := s.Begin(true), s.Begin(true)
	if n, ok := a.Claim(&k); n != -1 || !ok {
		t.Fatalf("the first claim: %d, %v", n, ok)
	}
	for _, batch := range []*Batch{a, b} {
		if n, ok := batch.Claim(&k); n != -1 || ok {
			t.Errorf("a claim while the record is not written: %d, %v", n, ok)
		}
	}
	a.Add(metaOf(1), valueOf(1))
	s.Keep(a, true)
	if n, ok := b.Claim(&k); n != s.Find(&k) || n < 0 || ok {
		t.Errorf("a claim of a cached record: %d, %v", n, ok)
	}
	other := keyOf(2) // which is not added in the end
	if _, ok := b.Claim(&other); !ok {
		t.Error("no claim of another record")
	}
	s.Keep(b, true)
	b = s.Begin(true)
	if _, ok := b.Claim(&other); !ok {
		t.Error("the claim of a batch outlives the batch")
	}
	s.Keep(b, true)
	if n, _ := s.Kept(); n != 1 || s.Len() != 1 {
		t.Errorf("%d records were added, %d are cached", n, s.Len())
	}
}

// Records that another process caches are found while both run.
func TestOthersAreSeen(t *testing.T) {
	dir := t.TempDir()
	a, b := mustOpen(t, dir, 1<<30), mustOpen(t, dir, 1<<30)
	defer b.Close()
	keep(a, 0, 100)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b.refresh()
	if n := check(t, b, 100); n != 100 {
		t.Errorf("%d of 100 are seen", n)
	}
}

func onDisk(t testing.TB, dir string) (n int64) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && (strings.HasSuffix(path, segEnd) || strings.HasSuffix(path, listEnd)) {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

func child(dir string, limit int64, from, to int) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %d", fillVariable, dir, limit, from, to))
	return cmd
}

// Three processes cache more than the limit. The limit holds at any moment, with reserved space, and cached records are
// used.
func TestLimit(t *testing.T) {
	dir := t.TempDir()
	const limit = 6 << 20
	var all []*exec.Cmd
	for i := range 3 {
		c := child(dir, limit, i*1000, (i+1)*1000)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, c := range all {
			if err := c.Wait(); err != nil {
				t.Errorf("another process: %v", err)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if n := onDisk(t, dir); n > limit {
			t.Fatalf("%d bytes, the limit is %d", n, limit)
		}
	}
	s := mustOpen(t, dir, limit)
	defer s.Close()
	if n := check(t, s, 3000); n < 300 {
		t.Errorf("%d records are there, of about 550 that there is room for", n)
	}
}

// Data that no job uses makes room for data in use.
func TestUnusedDataMakesRoom(t *testing.T) {
	dir := t.TempDir()
	d, err := At(dir, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, origin := range []string{"old", "new"} {
		s, err := Open(d, origin, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		keep(s, 0, 300)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if n := s.Len(); n < 250 {
			t.Errorf("%s: %d records", origin, n)
		}
	}
	if list := d.List(); len(list) != 1 || list[0].Origin != "new" {
		t.Errorf("%+v", list)
	}
	if err := d.SetLimit(1 << 20); err != nil {
		t.Fatal(err)
	}
	if d, _ = At(dir, 0); d.limit != 0 {
		t.Error("a limit from nowhere")
	}
	d.Trim()
	if n, _ := d.Limit(); n != 1<<20 || onDisk(t, dir) > n {
		t.Errorf("limit %d, %d bytes", n, onDisk(t, dir))
	}
}

// A process that is killed while it writes loses only its unfinished records. The next process uses and completes the
// files that were left behind.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	at := 0
	lost := 0
	for range rounds {
		c := child(dir, 1<<30, at, at+100000)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		n := 0 // this many were written for sure
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, _ = strconv.Atoi(lines.Text()); n > 20+rand.IntN(200) {
				break
			}
		}
		_ = c.Process.Signal(syscall.SIGKILL)
		_ = c.Wait()
		s := mustOpen(t, dir, 1<<30)
		got := 0
		for i := at; i < at+n; i++ {
			k := keyOf(i)
			if s.Find(&k) >= 0 {
				got++
			}
		}
		lost += n - got
		check(t, s, at+n)
		at += n
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if at == 0 || lost > 0 {
		t.Errorf("%d of %d records are lost", lost, at)
	}
	d, _ := At(dir, 1<<30)
	reserved := d.size()
	d.recoverAll()
	if n := d.size(); n != reserved || n > onDisk(t, dir)+onDisk(t, dir)/16+1<<16 {
		t.Errorf("%d bytes stay reserved, %d are used", n, onDisk(t, dir))
	}
}

// A list that is lost or cut off is made again from the segment.
func TestListsAreMadeAgain(t *testing.T) {
	for name, spoil := range map[string]func(string) error{
		"gone":    os.Remove,
		"cut":     func(list string) error { return os.Truncate(list, 1000) },
		"garbage": func(list string) error { return os.WriteFile(list, make([]byte, 5000), 0o600) },
	} {
		dir := t.TempDir()
		s := mustOpen(t, dir, 1<<30)
		keep(s, 0, 200)
		s.Close()
		for _, seg := range segmentsOf(s.Path()) {
			if err := spoil(filepath.Join(s.Path(), listName(seg))); err != nil {
				t.Fatal(err)
			}
		}
		s = mustOpen(t, dir, 1<<30)
		if n := check(t, s, 200); n != 200 {
			t.Errorf("%s: %d of 200 are there", name, n)
		}
		s.Close()
	}
}

func TestVerify(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, 1<<30)
	keep(s, 0, 100)
	s.Close()
	k := keyOf(42)
	r := s.Record(s.Find(&k))
	flip(t, s.SegmentPath(r.Segment), r.Offset+r.Size/2)
	d, _ := At(dir, 0)
	var bad []Damage
	n, _, _, err := d.Verify(t.Context(), ID("data"), func(b Damage) { bad = append(bad, b) })
	if err != nil || n != 100 || len(bad) != 1 || bad[0].Record != "a/42.jpg" {
		t.Errorf("%d records, %v, %+v", n, err, bad)
	}
	s = mustOpen(t, dir, 1<<30)
	defer s.Close()
	if n := check(t, s, 100); n != 99 {
		t.Errorf("%d records are left of 99", n)
	}
}

func flip(t testing.TB, name string, at int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

// A folder that cannot be written to is reported once.
func TestUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := At(file, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(d, "data", nil); err == nil {
		t.Error("opened a cache in a file")
	}
	// Or becomes so.
	dir := t.TempDir()
	said := 0
	d, _ = At(dir, 1<<30)
	s, err := Open(d, "data", func(string) { said++ })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	keep(s, 0, 1000)
	s.Close()
	if said != 1 {
		t.Errorf("said %d times", said)
	}
}

func FuzzSegment(f *testing.F) {
	dir := f.TempDir()
	s := mustOpen(f, dir, 1<<30)
	keep(s, 0, 3)
	s.Close()
	for _, seg := range segmentsOf(s.Path()) {
		a, _ := os.ReadFile(filepath.Join(s.Path(), seg))
		b, _ := os.ReadFile(filepath.Join(s.Path(), listName(seg)))
		f.Add(a, b)
		f.Add(a, []byte{})
		f.Add([]byte{}, b)
	}
	f.Fuzz(func(t *testing.T, segment, list []byte) {
		dir := t.TempDir()
		d, _ := At(dir, 1<<30)
		set := filepath.Join(d.Path(), ID("data"))
		if err := os.MkdirAll(set, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = os.WriteFile(filepath.Join(set, "1.seg"), segment, 0o600)
		_ = os.WriteFile(filepath.Join(set, "1.list"), list, 0o600)
		s := mustOpen(t, dir, 1<<30)
		defer s.Close()
		for i := range s.n {
			r := s.Record(i)
			if r.Offset < 2*headBytes || r.Stored() < 0 || r.Offset+r.Stored()+tail > int64(len(segment)) {
				t.Fatalf("a record outside of its segment: %+v", r)
			}
		}
		d.List()
		_, _, _, _ = d.Verify(t.Context(), ID("data"), func(Damage) {})
	})
}

// Segments of another version have different keys. They are removed with everything that is related to them when their
// data set is opened.
func TestOldSegments(t *testing.T) {
	d, err := At(t.TempDir(), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	var old []string
	for _, origin := range []string{"/data", "/data/photos", "/other"} {
		dir := filepath.Join(d.root, ID(origin))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 4*headBytes)
		copy(first, "stoker records 1\n")
		for name, b := range map[string][]byte{aboutName: []byte(origin + "\n"), "1" + segEnd: first, "1" + listEnd: first[:headBytes]} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		old = append(old, filepath.Join(dir, "1"+segEnd))
	}
	s, err := Open(d, "/data/photos", func(why string) { t.Errorf("said: %s", why) })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, name := range old {
		if _, err := os.Stat(name); (err == nil) != (i == 2) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct {
		path, folder string
		want         bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/a", "/", true},
		{"s3://b/a", "s3://b", true}, {"s3://bc", "s3://b", false}, {"data", "/", false},
	} {
		if got := Below(c.path, c.folder); got != c.want {
			t.Errorf("Below(%q, %q) = %v", c.path, c.folder, got)
		}
	}
}
