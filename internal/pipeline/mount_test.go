package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/stokerdata/stoker/internal/item"
)

// together blocks each read of a mount until some number of them are under way.
type together struct {
	want   int
	direct bool

	mu   sync.Mutex
	on   bool // reads while opening the source do not wait
	out  int
	most int
	met  chan struct{}
}

// read counts a read and waits for the others, but at most a minute.
func (m *together) read() {
	m.mu.Lock()
	if !m.on {
		m.mu.Unlock()
		return
	}
	m.out++
	if m.out > m.most {
		if m.most = m.out; m.most == m.want {
			close(m.met)
		}
	}
	m.mu.Unlock()
	select {
	case <-m.met:
	case <-time.After(time.Minute):
	}
	m.mu.Lock()
	m.out--
	m.mu.Unlock()
}

type mountedNode struct {
	*fs.LoopbackNode
	of *together
}

func (n *mountedNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, f, errno := n.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	if n.of.direct {
		f |= fuse.FOPEN_DIRECT_IO
	}
	return &mountedFile{h, n.of}, f, 0
}

func (n *mountedNode) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &mountedNode{child.(*fs.LoopbackNode), n.of}
}

type mountedFile struct {
	fs.FileHandle
	of *together
}

func (f *mountedFile) Read(ctx context.Context, b []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.of.read()
	return f.FileHandle.(fs.FileReader).Read(ctx, b, off)
}

func (f *mountedFile) Release(ctx context.Context) syscall.Errno {
	return f.FileHandle.(fs.FileReleaser).Release(ctx)
}

// mount shows a folder through FUSE.
func mount(t *testing.T, dir string, m *together) string {
	t.Helper()
	m.met = make(chan struct{})
	root := &fs.LoopbackRoot{Path: dir}
	root.RootNode = &mountedNode{&fs.LoopbackNode{RootData: root}, m}
	at := t.TempDir()
	second := time.Second
	s, err := fs.Mount(at, root.RootNode, &fs.Options{
		AttrTimeout: &second, EntryTimeout: &second, MountOptions: fuse.MountOptions{DirectMountStrict: true},
	})
	if err != nil {
		t.Skipf("no file system can be mounted here (/dev/fuse, root): %v", err)
	}
	t.Cleanup(func() {
		if err := s.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return at
}

// Files on a mount with slow reads are read with many concurrent reads from the beginning. The kernel has at most 12
// reads through its cache under way, so most of them are direct.
func TestReadsOfAMount(t *testing.T) {
	dir := t.TempDir()
	for i := range 400 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.txt", i)), fmt.Appendf(nil, "%03d", i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprintf("direct=%v", direct), func(t *testing.T) {
			m := &together{want: 32, direct: direct}
			p := mustOpen(t, Config{Source: "pairs:" + mount(t, dir, m) + "?x:bytes=*.txt", BatchSize: 100, Threads: 2, Cache: CacheOff})
			m.mu.Lock()
			m.on = true
			m.mu.Unlock()
			p.Start(item.Position{})
			epochs(t, p, 1)
			if m.most < m.want {
				t.Errorf("%d reads at a time, %d pay", m.most, m.want)
			}
		})
	}
}
