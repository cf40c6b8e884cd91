package bucket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a bucket in memory.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	info    map[string]Info
	n       int
	pages   int // objects on a page
	// fail returns the error to inject, nil for none.
	fail func(op, key string) error
	// list replaces the listing if it is set.
	list     func(q Query) (Page, error)
	requests []string
}

func newMemory() *memory {
	return &memory{objects: map[string][]byte{}, info: map[string]Info{}, pages: 3}
}

func (m *memory) begin(op, key string) error {
	m.requests = append(m.requests, op+" "+key)
	if m.fail != nil {
		return m.fail(op, key)
	}
	return nil
}

func (m *memory) URL() string  { return "memory://bucket" }
func (m *memory) Close() error { return nil }

func (m *memory) Stat(ctx context.Context, key string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(context.Cause(ctx), m.begin("stat", key)); err != nil {
		return Info{}, err
	}
	i, ok := m.info[key]
	if !ok {
		return i, store.ErrNotExist
	}
	i.Now = time.Now()
	return i, nil
}

func (m *memory) List(ctx context.Context, q Query) (Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(context.Cause(ctx), m.begin("list", q.Prefix)); err != nil {
		return Page{}, err
	}
	if m.list != nil {
		return m.list(q)
	}
	var p Page
	limit := m.pages
	if q.Max > 0 {
		limit = min(limit, q.Max)
	}
	for _, k := range slices.Sorted(maps.Keys(m.objects)) {
		rest, ok := strings.CutPrefix(k, q.Prefix)
		if !ok || k <= q.Next {
			continue
		}
		if top, _, deep := strings.Cut(rest, "/"); q.Folders && deep {
			folder := q.Prefix + top + "/"
			if strings.HasPrefix(q.Next, folder) || len(p.Prefixes) > 0 && p.Prefixes[len(p.Prefixes)-1] == folder {
				continue
			}
			if len(p.Objects)+len(p.Prefixes) == limit {
				return p, nil
			}
			p.Prefixes, p.Next = append(p.Prefixes, folder), folder+"\xff"
			continue
		}
		if len(p.Objects)+len(p.Prefixes) == limit {
			return p, nil
		}
		p.Objects, p.Next = append(p.Objects, m.info[k]), k
	}
	p.Next = ""
	return p, nil
}

func (m *memory) ReadAt(ctx context.Context, i Info, p []byte, off int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(context.Cause(ctx), m.begin("read", i.Key)); err != nil {
		return err
	}
	have, ok := m.info[i.Key]
	switch {
	case !ok:
		return store.ErrNotExist
	case i.Version != "" && i.Version != have.Version:
		return store.ErrChanged
	case off+int64(len(p)) > have.Size:
		return store.ErrShort
	}
	copy(p, m.objects[i.Key][off:])
	return nil
}

func (m *memory) put(key string, data []byte) Info {
	m.n++
	i := Info{Key: key, Size: int64(len(data)), Version: fmt.Sprintf(`"%d"`, m.n), ModTime: time.Now()}
	m.objects[key], m.info[key] = slices.Clone(data), i
	return i
}

func (m *memory) Put(ctx context.Context, key string, data []byte, c Condition) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(context.Cause(ctx), m.begin("put", key)); err != nil {
		return Info{}, err
	}
	have, ok := m.info[key]
	if c.Absent && ok || c.Version != "" && c.Version != have.Version {
		return Info{}, store.ErrChanged
	}
	return m.put(key, data), nil
}

func (m *memory) Delete(ctx context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(context.Cause(ctx), m.begin("delete", key)); err != nil {
		return err
	}
	delete(m.objects, key)
	delete(m.info, key)
	return nil
}

func (m *memory) Concat(ctx context.Context, key string, pieces []Info) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(context.Cause(ctx), m.begin("concat", key)); err != nil {
		return err
	}
	var all []byte
	for i, p := range pieces {
		if len(m.objects[p.Key]) < LeastPart && i < len(pieces)-1 {
			return errors.New("a part is too small")
		}
		all = append(all, m.objects[p.Key]...)
	}
	m.put(key, all)
	return nil
}

func (m *memory) Sweep(ctx context.Context, key string) error { return m.begin("sweep", key) }

type memoryParts struct {
	m   *memory
	key string
	all map[int][]byte
}

func (m *memory) Begin(ctx context.Context, key string) (Parts, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memoryParts{m, key, map[int][]byte{}}, m.begin("begin", key)
}

func (p *memoryParts) Part(ctx context.Context, n int, data []byte) error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.all[n] = slices.Clone(data)
	return p.m.begin("part", p.key)
}

func (p *memoryParts) Finish(ctx context.Context, n int) error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	var all []byte
	for i := 1; i <= n; i++ {
		all = append(all, p.all[i]...)
	}
	p.m.put(p.key, all)
	return p.m.begin("finish", p.key)
}

func (p *memoryParts) Abort(ctx context.Context) error { return nil }

func at(t *testing.T, m *memory, path string) *Store {
	t.Helper()
	s, err := New(m, path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	for _, root := range []string{"", "some/folder", "folder/"} {
		t.Run("root "+root, func(t *testing.T) {
			drivers := map[store.Store]*memory{}
			storetest.Run(t, storetest.Suite{
				Open: func(t *testing.T, objects map[string][]byte) store.Store {
					m := newMemory()
					s := at(t, m, root)
					if _, single := objects[""]; single {
						s = at(t, m, "single")
					}
					for name, data := range objects {
						m.put(s.key(name), data)
					}
					drivers[s] = m
					return s
				},
				Change: func(t *testing.T, s store.Store, name string, data []byte) {
					drivers[s].put(s.(*Store).key(name), data)
				},
				Again: func(t *testing.T, s store.Store) store.Store { return at(t, drivers[s], root) },
				Spoil: func(t *testing.T, s store.Store) []string {
					for _, key := range storetest.OddKeys {
						drivers[s].put(s.(*Store).prefix("")+key, []byte("odd"))
					}
					return slices.Clone(storetest.OddKeys)
				},
			})
		})
	}
}

// Listings of a server are validated.
func TestLies(t *testing.T) {
	pages := 0
	for name, c := range map[string]struct {
		list func(q Query) (Page, error)
		want string
	}{
		"names with ..": {func(Query) (Page, error) { return Page{Objects: []Info{{Key: "d/../../x"}}}, nil }, "not a name"},
		"another place": {func(Query) (Page, error) { return Page{Objects: []Info{{Key: "e/x"}}}, nil }, "does not begin with"},
		"absurd sizes":  {func(Query) (Page, error) { return Page{Objects: []Info{{Key: "d/x", Size: 1 << 60}}}, nil }, "bytes"},
		"no size":       {func(Query) (Page, error) { return Page{Objects: []Info{{Key: "d/x", Size: -1}}}, nil }, "bytes"},
		"no order": {func(q Query) (Page, error) {
			if q.Next == "" {
				return Page{Objects: []Info{{Key: "d/y"}}, Next: "1"}, nil
			}
			return Page{Objects: []Info{{Key: "d/x"}}}, nil
		}, "not in order"},
		"the same page": {func(Query) (Page, error) {
			pages++
			return Page{Objects: []Info{{Key: "d/x"}}, Next: fmt.Sprint(pages)}, nil
		}, `"d/x" twice`},
		"a loop": {func(Query) (Page, error) { return Page{Next: "x"}, nil }, "leads to itself"},
		"an unsorted loop": {func(q Query) (Page, error) {
			return Page{Objects: []Info{{Key: "d/y"}, {Key: "d/x"}}, Next: map[string]string{"": "1", "1": "2", "2": "1"}[q.Next]}, nil
		}, "leads to itself or to an earlier page"},
		"empty pages": {func(Query) (Page, error) { pages++; return Page{Next: fmt.Sprint(pages)}, nil }, "does not end"},
		"endless": {func(Query) (Page, error) {
			pages++
			return Page{Objects: []Info{{Key: fmt.Sprintf("d/%09d", pages)}}, Next: fmt.Sprint(pages)}, nil
		}, "more than 5000 objects"},
		"a folder elsewhere": {func(q Query) (Page, error) { return Page{Prefixes: []string{"e/"}}, nil }, "lists the folder"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			m.list = c.list
			s := at(t, m, "d")
			s.limit = 5000
			opt := &store.ListOptions{Shallow: name == "a folder elsewhere", Threads: 1}
			err := s.List(t.Context(), "", opt, func(store.Entry) error { return nil })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
			if one := strings.HasPrefix(name, "no size") || name == "absurd sizes" || name == "names with .."; store.IsObjectError(err) != one {
				t.Errorf("IsObjectError of %v is %v", err, !one)
			}
		})
	}
	m := newMemory()
	m.info["d/x"] = Info{Key: "d/x", Size: 1 << 62}
	if _, err := at(t, m, "d").Open(t.Context(), "x"); err == nil {
		t.Error("an absurd size can be opened")
	}
}

// reversed is a bucket whose listings are not sorted, on a page or as a whole.
type reversed struct {
	*memory
	whole bool
}

func (r *reversed) Unordered() bool { return r.whole }

func (r *reversed) List(ctx context.Context, q Query) (Page, error) {
	if r.whole { // from the last page to the first one
		q.Max = 1 << 30
	}
	p, err := r.memory.List(ctx, q)
	slices.Reverse(p.Objects)
	slices.Reverse(p.Prefixes)
	if at := 0; r.whole && len(p.Objects) > 0 {
		if q.Next != "" {
			_, _ = fmt.Sscan(q.Next, &at)
		}
		p.Objects, p.Next = p.Objects[at:at+1], fmt.Sprint(at+1)
		if at > 0 {
			p.Prefixes = nil
		}
		if at+1 == len(r.objects) {
			p.Next = ""
		}
	}
	return p, err
}

// Listings in another order are sorted here.
func TestUnsorted(t *testing.T) {
	m := newMemory()
	m.pages = 1000
	var want []string
	for _, key := range []string{"a/1", "a/2", "b", "c/1/x", "c/2", "d"} {
		m.put(key, []byte("x"))
		want = append(want, key)
	}
	for _, whole := range []bool{false, true} {
		s, err := New(&reversed{m, whole}, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := s.List(t.Context(), "", nil, func(e store.Entry) error { got = append(got, e.Name); return nil }); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v", got, err)
		}
	}
	s, err := New(&reversed{m, false}, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = s.List(t.Context(), "", &store.ListOptions{Shallow: true}, func(e store.Entry) error { got = append(got, e.Name); return nil })
	if want := []string{"a", "b", "c", "d"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

// Archived objects are bad ones in listings, and cannot be opened. They can be named and looked at.
func TestArchived(t *testing.T) {
	m := newMemory()
	for _, key := range []string{"a", "b", "c"} {
		m.put(key, []byte("x"))
	}
	i := m.info["b"]
	i.Archived = "DEEP_ARCHIVE"
	m.info["b"] = i
	s := at(t, m, "")
	list := func(opt store.ListOptions) (good, bad []string) {
		t.Helper()
		opt.Bad = func(e store.Entry, err error) error {
			if !errors.Is(err, store.ErrArchived) || !store.IsObjectError(err) || !strings.Contains(err.Error(), "DEEP_ARCHIVE") {
				t.Error(err)
			}
			bad = append(bad, e.Name)
			return nil
		}
		if err := s.List(t.Context(), "", &opt, func(e store.Entry) error { good = append(good, e.Name); return nil }); err != nil {
			t.Error(err)
		}
		return good, bad
	}
	if good, bad := list(store.ListOptions{}); !slices.Equal(good, []string{"a", "c"}) || !slices.Equal(bad, []string{"b"}) {
		t.Errorf("%q and %q", good, bad)
	}
	if good, bad := list(store.ListOptions{Names: true}); len(good) != 3 || len(bad) != 0 {
		t.Errorf("%q and %q", good, bad)
	}
	if _, err := s.Open(t.Context(), "b"); !errors.Is(err, store.ErrArchived) {
		t.Errorf("error is %v", err)
	}
	if e, err := s.Stat(t.Context(), "b"); err != nil || e.Size != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}

// Keys that are not valid names are passed to Bad one by one, if it is set.
func TestOddKeys(t *testing.T) {
	for _, pages := range []int{3, 100} {
		m := newMemory()
		m.pages = pages
		for _, key := range []string{"d/a/1.jpg", "d/a//2.jpg", "d/a/./3.jpg", "d/a/../4.jpg", "d/a/5.jpg", "d/b/zero\x00.jpg", "d/b/", "d/b/bell\a\x1b\n.jpg", "d//6.jpg", "d/../7.jpg",
			"d/a//x.txt", "d/.hidden//8.jpg", "d/c/9.jpg/", "d/c/10.jpg"} {
			m.put(key, []byte("x"))
		}
		s := at(t, m, "d")
		var good, bad []string
		err := s.List(t.Context(), "", &store.ListOptions{
			Keep: func(name string) bool { return strings.HasSuffix(name, ".jpg") },
			Bad: func(e store.Entry, err error) error {
				if !errors.Is(err, store.ErrName) || !store.IsObjectError(err) {
					t.Errorf("%q: %v", e.Name, err)
				}
				bad = append(bad, e.Name)
				return nil
			},
		}, func(e store.Entry) error { good = append(good, e.Name); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"a/1.jpg", "a/5.jpg", "b/bell\a\x1b\n.jpg", "c/10.jpg"}; !slices.Equal(good, want) {
			t.Errorf("listed %q, want %q", good, want)
		}
		if want := []string{"../7.jpg", "/6.jpg", "a/../4.jpg", "a/./3.jpg", "a//2.jpg", "b/zero\x00.jpg"}; !slices.Equal(bad, want) {
			t.Errorf("bad are %q, want %q", bad, want)
		}
	}
}

// A listing that fails while an unfinished upload is searched is an error.
func TestStatOfUpload(t *testing.T) {
	m := newMemory()
	m.fail = func(op, _ string) error {
		if op == "list" {
			return errors.New("no list")
		}
		return nil
	}
	if _, err := at(t, m, "d").Stat(t.Context(), "x"+store.PartialSuffix); err == nil || !strings.Contains(err.Error(), "no list") {
		t.Errorf("error is %v", err)
	}
}

// Folders are listed ahead, and entries come in order.
func TestListAhead(t *testing.T) {
	m := newMemory()
	var want []string
	for i := range 40 {
		for j := range 20 {
			name := fmt.Sprintf("c%02d/sub%d/%03d", i, j%3, j)
			m.put(name, nil)
			want = append(want, name)
		}
	}
	m.put("c05.txt", nil)
	want = append(want, "c05.txt")
	m.put("c07/", nil) // a folder marker of some programs
	slices.Sort(want)
	var got []string
	if err := at(t, m, "").List(t.Context(), "", nil, func(e store.Entry) error {
		got = append(got, e.Name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d names, want %d", len(got), len(want))
	}
}

func resume(t *testing.T, s *Store, name string) *partial {
	t.Helper()
	p, err := s.Resume(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*partial)
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>11)
	}
	return b
}

// crash simulates a crash: memory is lost, and the lock has no owner.
func crash(p *partial) {
	_ = p.out.wait()
	p.lock.cancel()
	<-p.lock.done
	hold(p.lock.token, false)
}

// Large uploads are resumed from every state that a crash may leave.
func TestResumeLarge(t *testing.T) {
	m := newMemory()
	m.pages = 1000
	s := at(t, m, "d")
	data := pattern(30<<20 + 12345)
	p := resume(t, s, "x")
	if _, err := p.Write(data[:20<<20]); err != nil {
		t.Fatal(err)
	}
	crash(p)
	p = resume(t, s, "x")
	if p.Size() != 16<<20 {
		t.Fatalf("after a crash there are %d bytes", p.Size())
	}
	// Truncate into a finished piece, and continue from there.
	if err := p.Truncate(9<<20 + 7); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(data[9<<20+7:]); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 3<<20)
	if err := p.ReadAt(t.Context(), got, 7<<20); err != nil || !bytes.Equal(got, data[7<<20:10<<20]) {
		t.Errorf("reading over pieces: %v", err)
	}
	if e, err := s.Stat(t.Context(), "x"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("before Commit it is there: %+v", e)
	}
	// The crash comes after the commit: both exist, and both are complete.
	m.fail = func(op, key string) error {
		if op == "delete" {
			return errors.New("the line is dead")
		}
		return nil
	}
	l := p.lock
	if err := p.Commit(t.Context()); err == nil {
		t.Error("nothing is said")
	}
	m.fail = nil
	hold(l.token, false)
	if b, err := store.ReadFile(t.Context(), s, "x", 1<<30); err != nil || !bytes.Equal(b, data) {
		t.Errorf("after the commit: %v", err)
	}
	p = resume(t, s, "x")
	if p.Size() != int64(len(data)) {
		t.Errorf("taken back it has %d bytes", p.Size())
	}
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b, err := store.ReadFile(t.Context(), s, "x", 1<<30); err != nil || !bytes.Equal(b, data) {
		t.Errorf("after the second commit: %v", err)
	}
	if left := slices.Sorted(maps.Keys(m.objects)); !slices.Equal(left, []string{"d/x"}) {
		t.Errorf("left are %q", left)
	}
}

// The lock of a dead process is taken over: immediately on this machine, after two minutes if the process cannot be
// checked.
func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := at(t, m, "")
		put := func(h holder) {
			b, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.put(s.lockKey("x"), b)
		}
		machine, pid, start := proc.Identity()
		put(holder{Token: "old", Machine: machine, PID: pid, Start: start + 1})
		p := resume(t, s, "x")
		if err := p.Abort(); err != nil {
			t.Fatal(err)
		}
		put(holder{Token: "far", Machine: "another", PID: pid, Start: start})
		if _, err := s.Resume(t.Context(), "x"); !errors.Is(err, store.ErrLocked) {
			t.Errorf("error is %v", err)
		}
		time.Sleep(lockEnds)
		p = resume(t, s, "x")
		// A held lock stays held, however long.
		for range 10 {
			time.Sleep(lockEnds)
			put2 := at(t, m, "")
			if _, err := put2.Resume(t.Context(), "x"); !errors.Is(err, store.ErrLocked) {
				t.Errorf("error is %v", err)
			}
		}
		// If the lock is lost anyway, nothing more is written.
		put(holder{Token: "thief", Machine: "another", PID: 1, Start: 1})
		time.Sleep(2 * beat)
		if _, err := p.Write([]byte("x")); !errors.Is(err, store.ErrLocked) {
			t.Errorf("error is %v", err)
		}
		if err := p.Abort(); err != nil {
			t.Fatal(err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if _, ok := m.objects[s.lockKey("x")]; !ok {
			t.Error("the other's lock is gone")
		}
	})
}

// Uploads that are not resumed: small ones are one request, large ones have parts, and a failure of a part is
// reported.
func TestCreate(t *testing.T) {
	m := newMemory()
	s := at(t, m, "")
	if err := store.WriteFile(t.Context(), s, "small", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"list small.partial/", "put small"}; !slices.Equal(m.requests, want) {
		t.Errorf("requests are %q, want %q", m.requests, want)
	}
	data := pattern(20<<20 + 5)
	if err := store.WriteFile(t.Context(), s, "large", data); err != nil || !bytes.Equal(m.objects["large"], data) {
		t.Errorf("a large one: %v", err)
	}
	dead := errors.New("the disk is full")
	m.fail = func(op, key string) error {
		if op == "part" {
			return dead
		}
		return nil
	}
	if err := store.WriteFile(t.Context(), s, "never", data); !errors.Is(err, dead) {
		t.Errorf("error is %v", err)
	}
	if _, ok := m.objects["never"]; ok {
		t.Error("it is there")
	}
}
