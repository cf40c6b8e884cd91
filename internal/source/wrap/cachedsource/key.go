package cachedsource

import (
	"encoding/binary"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/localcache"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// names identifies files, so that a file has one key in all data sets that it belongs to.
//
// A local file is its file system, size, modification time, and Entry.ID: its inode and the time of
// its last change. Where these may belong to another file at another time its real path takes the
// place of the file system. Objects of buckets are their URL and version.
type names struct {
	mu      sync.RWMutex
	stores  map[store.Store]string
	folders map[string]localFolder
}

// localFolder is a folder of local files.
type localFolder struct {
	real string // its path without links
	// system identifies its file system, "" if files of another file system may have the same numbers: one without a
	// number, such as NFS, or an image, another of which may be mounted in its place.
	system string
	fixed  bool // Entry.ID is the same each time, which it is not on FUSE
}

func newNames() *names {
	return &names{stores: map[store.Store]string{}, folders: map[string]localFolder{}}
}

// store returns the name of a store, "" if other processes cannot know the store.
func (n *names) store(st store.Store) string {
	return look(&n.mu, n.stores, st, func() string {
		id, ok := store.As[store.Identifier](st)
		if !ok {
			return ""
		}
		name, _ := id.Identity()
		return name
	})
}

// folder returns a folder of local files.
func (n *names) folder(dir string) localFolder {
	return look(&n.mu, n.folders, dir, func() localFolder {
		f := localFolder{real: dir}
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			f.real = real
		}
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) != nil {
			return f
		}
		f.fixed = st.Type != unix.FUSE_SUPER_MAGIC
		if f.fixed && st.Fsid != (unix.Fsid{}) && st.Flags&unix.ST_RDONLY == 0 {
			f.system = fmt.Sprintf("%x %x", st.Fsid.Val[0], st.Fsid.Val[1])
		}
		return f
	})
}

func look[K comparable, V any](mu *sync.RWMutex, known map[K]V, k K, find func() V) V {
	mu.RLock()
	v, ok := known[k]
	mu.RUnlock()
	if !ok {
		v = find()
		mu.Lock()
		known[k] = v
		mu.Unlock()
	}
	return v
}

// where returns the path or URL of an object, with the links in its folder resolved.
func (n *names) where(o *driver.Object) (string, localFolder) {
	name := n.store(o.Store)
	if o.Entry.Name != "" {
		name = strings.TrimSuffix(name, "/") + "/" + o.Entry.Name
	}
	if !filepath.IsAbs(name) {
		return name, localFolder{}
	}
	f := n.folder(path.Dir(name))
	return path.Join(f.real, path.Base(name)), f
}

// key returns the cache key of the bytes at extent e of an object, and its path or URL.
func (n *names) key(o *driver.Object, e *driver.Extent) (cache.Key, string) {
	at, f := n.where(o)
	var space [512]byte
	b := binary.LittleEndian.AppendUint64(space[:0], uint64(e.Offset))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Size))
	id, of := o.Entry.ID, at
	if f.real != "" && !f.fixed {
		id = 0
	}
	if id != 0 && f.system != "" {
		of = f.system
	}
	b = binary.LittleEndian.AppendUint64(b, id)
	b = append(append(b, o.Entry.Version...), 0)
	return cache.Key(xxh3.Hash128(append(b, of...)).Bytes()), at
}

// sampled is the number of records that are looked at when a source is opened.
const sampled = 64

// sample describes the images of a source by some of its records.
type sample struct {
	store  store.Store // that has the first image
	origin string      // the deepest folder that has all of them
	files  bool        // each image is a whole file
	alone  bool        // a record has nothing but its image
}

// look locates some records of a source, whose images are in a field.
func (n *names) look(src driver.Source, field int) (s sample) {
	info := src.Info()
	all, image := driver.Group{}, driver.Group{Want: make([]bool, len(info.Fields))}
	image.Want[field] = true
	var ids []int64
	for i := range min(sampled, info.Len) {
		ids = append(ids, i*(info.Len-1)/max(min(sampled, info.Len)-1, 1))
	}
	for _, g := range []*driver.Group{&all, &image} {
		g.Begin(ids, len(info.Fields))
		src.Locate(g)
	}
	s.files, s.alone = true, true
	for k := range ids {
		if image.Records[k].Err != nil || image.First[k+1]-image.First[k] != 1 {
			continue
		}
		e := &image.Extents[image.First[k]]
		o := src.Object(e.Object)
		s.files = s.files && e.Offset == 0 && e.Size == o.Entry.Size
		s.alone = s.alone && all.First[k+1]-all.First[k] == 1
		s.add(n, &o)
	}
	if s.store == nil { // the records cannot be located yet
		o := src.Object(0)
		s.files = false
		s.add(n, &o)
	}
	return s
}

func (s *sample) add(n *names, o *driver.Object) {
	at, _ := n.where(o)
	if real, err := filepath.EvalSymlinks(at); err == nil && filepath.IsAbs(at) {
		at = real
	}
	dir := parent(at)
	if s.store == nil {
		s.store, s.origin = o.Store, dir
	}
	for !cache.Below(dir, s.origin) {
		up := parent(s.origin)
		if up == s.origin {
			return
		}
		s.origin = up
	}
}

// parent returns the folder of a path or URL, and a root as it is.
func parent(at string) string {
	i := strings.LastIndexByte(at, '/')
	switch {
	case i == 0:
		return "/"
	case i < 0 || at[i-1] == '/':
		return at
	}
	return at[:i]
}

// far reports whether records are cached as chunks of their files and not as images: data on
// another machine whose records are more than an image.
func (s *sample) remote() bool { return !s.alone && localcache.Remote(s.store) }

// located returns the extent in the source of the image of each record of a group. Object is -1 if a record has none.
// It returns nil if no image is wanted.
func (s *Source) located(g *driver.Group) []driver.Extent {
	if !g.Wants(s.field) {
		return nil
	}
	image := driver.Group{Want: s.only}
	image.Begin(g.IDs, len(s.info.Fields))
	s.Base.Locate(&image)
	out := make([]driver.Extent, len(g.IDs))
	for k := range g.IDs {
		if out[k].Object = -1; image.Records[k].Err == nil && image.First[k+1]-image.First[k] == 1 {
			out[k] = image.Extents[image.First[k]]
		}
	}
	return out
}
