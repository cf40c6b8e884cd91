package localstore

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	gofuse "github.com/hanwen/go-fuse/v2/fuse"

	"github.com/stokerdata/stoker/store"
)

// A few reads of a slow server go through the page cache, and the others are direct. Cached bytes, fast servers and
// servers that refuse direct reads are read through the page cache.
func TestWaysToRead(t *testing.T) {
	no, yes := func() bool { return false }, func() bool { return true }
	for _, c := range []struct {
		name                string
		fast, refused       bool
		cached              func() bool
		first, second, late way
	}{
		{name: "slow", cached: no, first: ahead, second: exact, late: around},
		{name: "cached", cached: yes, first: ahead, second: exact, late: exact},
		{name: "refused", refused: true, cached: no, first: ahead, second: exact, late: exact},
		{name: "fast", fast: true, cached: no, first: ahead, second: ahead, late: ahead},
	} {
		m := newFUSE()
		m.refused.Store(c.refused)
		for range 100 {
			took := 20 * time.Millisecond
			if c.fast {
				took = 50 * time.Microsecond
			}
			m.through.Add(1)
			m.leave(took)
		}
		for n := range 2 * mostThrough {
			want := c.second
			switch {
			case n == 0:
				want = c.first
			case n >= mostThrough:
				want = c.late
			}
			if got := m.enter(c.cached); got != want {
				t.Errorf("%s: read %d goes way %d, want %d", c.name, n, got, want)
			}
		}
	}
}

// waiting is a mount whose reads wait until some number of them are under way, which may be more than the kernel has in
// the background.
type waiting struct {
	*fs.LoopbackNode
	all *meeting
}

func (w *waiting) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &waiting{child.(*fs.LoopbackNode), w.all}
}

type meeting struct {
	on   atomic.Bool
	left atomic.Int32
	met  chan struct{}
}

func (w *waiting) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, f, errno := w.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return &waitingFile{h, w.all, flags}, f, 0
}

type waitingFile struct {
	fs.FileHandle
	all   *meeting
	flags uint32
}

func (f *waitingFile) Read(ctx context.Context, b []byte, off int64) (gofuse.ReadResult, syscall.Errno) {
	if f.flags&syscall.O_DIRECT != 0 {
		return nil, syscall.EINVAL // the server should not learn about direct reads
	}
	if f.all.on.Load() {
		if f.all.left.Add(-1) == 0 {
			close(f.all.met)
		}
		select {
		case <-f.all.met:
		case <-time.After(time.Minute):
			return nil, syscall.EIO
		}
	}
	return f.FileHandle.(fs.FileReader).Read(ctx, b, off)
}

func (f *waitingFile) Release(ctx context.Context) syscall.Errno {
	return f.FileHandle.(fs.FileReleaser).Release(ctx)
}

// More reads of a slow mount are under way than the kernel has in the background, of files that are read once and of
// one that stays open. Their bytes are right at any offset and size.
func TestReadsOfASlowMount(t *testing.T) {
	const (
		reads = 40
		apart = 256 << 10 // more than the readahead of one read, which others would wait for
	)
	data := make([]byte, (reads+1)*apart)
	for i := range data {
		data[i] = byte(i % 251)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{"read once": false, "stays open": true} {
		t.Run(name, func(t *testing.T) {
			all := &meeting{met: make(chan struct{})}
			all.left.Store(reads)
			loopback, err := fs.NewLoopbackRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			at := t.TempDir()
			root := &waiting{loopback.(*fs.LoopbackNode), all}
			server, err := fs.Mount(at, root, &fs.Options{MountOptions: gofuse.MountOptions{DirectMountStrict: true}})
			if err != nil {
				t.Skipf("no file system can be mounted here (/dev/fuse, root): %v", err)
			}
			defer func() {
				if err := server.Unmount(); err != nil {
					t.Error(err)
				}
			}()
			s := New(at)
			open := func() store.Object {
				o, err := s.Open(t.Context(), "x")
				if err != nil {
					t.Fatal(err)
				}
				return o
			}
			shared := open()
			defer func() { _ = shared.Close() }()
			if stays {
				store.Advise(shared, 0, 0, store.Random)
				// Its second descriptor is opened here, because the kernel waits for reads of a file to open it again.
				if err := shared.(*object).ReadDirect(t.Context(), make([]byte, 1), 0); err != nil {
					t.Fatal(err)
				}
			}
			objects := make([]store.Object, reads)
			for i := range objects { // before the reads: the kernel waits for these to open the file again
				objects[i] = shared
				if !stays {
					objects[i] = open()
				}
			}
			all.on.Store(true)
			var wg sync.WaitGroup
			for i, o := range objects {
				wg.Go(func() {
					off, n := int64(i*apart+i), 4000+i
					b := make([]byte, n)
					if err := o.ReadAt(t.Context(), b, off); err != nil || !bytes.Equal(b, data[off:off+int64(n)]) {
						t.Errorf("%d bytes from %d: %v", n, off, err)
					}
					if !stays {
						_ = o.Close()
					}
				})
			}
			wg.Wait()
		})
	}
}
