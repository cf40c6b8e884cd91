package localstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/store"
)

// maxDepth is the maximum nesting of folders. It only ends loops of symbolic links that the comparison with the
// parents cannot see.
const maxDepth = 64

// List lists a folder. It reads the folders in it ahead, several at the same time.
func (s *Store) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	if err := s.check(ctx, dir); err != nil {
		return s.failed("list", dir, err)
	}
	l := &lister{s: s, f: f}
	if opt != nil {
		l.opt = *opt
	}
	threads := l.opt.Threads
	if threads <= 0 {
		// Reading folders waits for the disk more than for the processor.
		threads = 4 * runtime.GOMAXPROCS(0)
	}
	l.slots = make(chan struct{}, threads)
	var cancel context.CancelFunc
	ctx, cancel = context.WithCancel(ctx)
	defer l.wg.Wait() // after cancel
	defer cancel()
	if dir == "" {
		e, err := s.Stat(ctx, "")
		if err != nil {
			return err
		}
		if !e.Dir {
			return f(e)
		}
	}
	top := l.start(ctx, dir)
	r := <-top
	if r.err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return s.failed("list", dir, r.err)
	}
	return l.walk(ctx, dir, r, nil)
}

// lister is one run of List.
type lister struct {
	s     *Store
	opt   store.ListOptions
	f     func(store.Entry) error
	slots chan struct{} // one for each folder that is being read
	wg    sync.WaitGroup
}

// folder is the content of one folder.
type folder struct {
	id    fileID
	items []item
	err   error
}

// item is an entry of a folder. There may be millions.
type item struct {
	own         string // its name in the folder
	dir         bool
	looked      bool // size, mtime and id are known
	size, mtime int64
	id          uint64
	err         error
}

// compare orders items by the paths of their objects: a folder is compared as if its name ended in a slash.
func compare(a, b item) int {
	n := min(len(a.own), len(b.own))
	if c := strings.Compare(a.own[:n], b.own[:n]); c != 0 {
		return c
	}
	return a.at(n) - b.at(n)
}

// at returns byte n of the name, -1 after its end.
func (it *item) at(n int) int {
	switch {
	case n < len(it.own):
		return int(it.own[n])
	case it.dir:
		return '/'
	}
	return -1
}

// below returns the name of the entry own of the folder dir.
func below(dir, own string) string {
	if dir == "" {
		return own
	}
	return dir + "/" + own
}

// fileID tells whether two paths are the same folder.
type fileID struct{ dev, ino uint64 }

// start reads a folder in the background.
func (l *lister) start(ctx context.Context, dir string) <-chan folder {
	out := make(chan folder, 1)
	l.wg.Go(func() {
		select {
		case l.slots <- struct{}{}:
			defer func() { <-l.slots }()
			out <- l.read(ctx, dir)
		case <-ctx.Done():
			out <- folder{err: context.Cause(ctx)}
		}
	})
	return out
}

// walk passes the content of a folder to f.
func (l *lister) walk(ctx context.Context, dir string, r folder, parents []fileID) error {
	if slices.Contains(parents, r.id) {
		return nil // a link back to a parent: its objects are listed there
	}
	parents = append(parents, r.id)
	ahead := map[int]<-chan folder{}
	next := 0 // the first item that was not considered for reading ahead
	for i := range r.items {
		if i%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		it := &r.items[i]
		for ; !l.opt.Shallow && next < len(r.items) && len(ahead) < cap(l.slots); next++ {
			if r.items[next].dir && len(parents) <= maxDepth {
				ahead[next] = l.start(ctx, below(dir, r.items[next].own))
			}
		}
		name := below(dir, it.own)
		var err error
		switch {
		case it.err != nil:
			err = l.bad(store.Entry{Name: name}, l.s.failed("look at", name, it.err))
		case !it.dir:
			err = l.f(it.entry(name))
		case l.opt.Shallow:
			err = l.f(store.Entry{Name: name, Dir: true})
		case ahead[i] == nil:
			err = l.bad(store.Entry{Name: name, Dir: true}, l.s.failed("list", name, fmt.Errorf("folders are nested more than %d deep", maxDepth)))
		default:
			sub := <-ahead[i]
			delete(ahead, i)
			switch {
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case sub.err != nil:
				err = l.bad(store.Entry{Name: name, Dir: true}, l.s.failed("list", name, sub.err))
			default:
				err = l.walk(ctx, name, sub, parents)
			}
		}
		if err != nil {
			return err
		}
		*it = item{} // free its memory
	}
	return nil
}

func (it *item) entry(name string) store.Entry {
	if !it.looked {
		return store.Entry{Name: name}
	}
	return entry(name, it.size, it.mtime, it.id)
}

func (l *lister) bad(e store.Entry, err error) error {
	if l.opt.Bad == nil {
		return err
	}
	return l.opt.Bad(e, err)
}

// read reads one folder, ordered by key. If its handle is stale it starts again.
func (l *lister) read(ctx context.Context, dir string) (r folder) {
	for range 1 + staleTries {
		if r = l.readOnce(ctx, dir); !errors.Is(r.err, unix.ESTALE) {
			break
		}
	}
	return r
}

// atOnce is the number of files of a folder that one goroutine stats. Large folders use several goroutines, since
// each stat may wait for a disk or a server.
const atOnce = 1024

func (l *lister) readOnce(ctx context.Context, dir string) (r folder) {
	var d *os.File
	if err := l.s.sys(func() (err error) {
		d, err = os.Open(l.s.Path(dir))
		return err
	}); err != nil {
		return folder{err: err}
	}
	defer d.Close()
	fd := int(d.Fd())
	var st unix.Stat_t
	if err := l.s.sys(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return folder{err: err}
	}
	r.id = fileID{st.Dev, st.Ino}
	var parts []*[]item
	var looks sync.WaitGroup
	defer looks.Wait() // before the folder is closed
	for {
		if ctx.Err() != nil {
			return folder{err: context.Cause(ctx)}
		}
		var list []fs.DirEntry
		err := l.s.sys(func() (err error) {
			list, err = d.ReadDir(atOnce)
			return err
		})
		if len(list) > 0 {
			part := new([]item)
			parts = append(parts, part)
			select {
			case l.slots <- struct{}{}:
				looks.Go(func() {
					defer func() { <-l.slots }()
					*part = l.lookAll(fd, dir, list)
				})
			default: // all slots are in use
				*part = l.lookAll(fd, dir, list)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return folder{err: err}
		}
	}
	looks.Wait()
	n := 0
	for _, part := range parts {
		n += len(*part)
	}
	r.items = make([]item, 0, n)
	for _, part := range parts {
		r.items = append(r.items, *part...)
		*part = nil
	}
	slices.SortFunc(r.items, compare)
	return r
}

// lookAll stats some entries of the folder fd.
func (l *lister) lookAll(fd int, dir string, list []fs.DirEntry) []item {
	items := make([]item, 0, len(list))
	for _, e := range list {
		if it, ok := l.look(fd, dir, e); ok {
			items = append(items, it)
		}
	}
	return items
}

// look stats an entry of the folder fd, and reports whether it is listed.
func (l *lister) look(fd int, dir string, e fs.DirEntry) (item, bool) {
	own := e.Name()
	if !l.opt.Hidden && strings.HasPrefix(own, ".") {
		return item{}, false
	}
	it := item{own: own, dir: e.IsDir()}
	if it.dir {
		return it, true
	}
	wanted := l.opt.Keep == nil || l.opt.Keep(below(dir, own))
	if known := e.Type()&(fs.ModeSymlink|fs.ModeIrregular) == 0; known && (!wanted || l.opt.Names) {
		return it, wanted
	}
	var st unix.Stat_t
	err := l.s.again(func() error { return unix.Fstatat(fd, own, &st, 0) })
	switch kind := st.Mode & unix.S_IFMT; {
	case err == nil && kind == unix.S_IFDIR:
		it.dir = true
	case !wanted:
		return item{}, false
	case err != nil:
		it.err = err
	case kind != unix.S_IFREG:
		it.err = store.ErrIrregular
	default:
		it.looked, it.size, it.mtime, it.id = true, st.Size, st.Mtim.Nano(), id(&st)
	}
	return it, true
}
