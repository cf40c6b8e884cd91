package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stokerdata/stoker/store"
)

// Memory is a store of objects in memory without any optional abilities, for tests of code that uses stores.
type Memory struct {
	mu      sync.Mutex
	objects map[string]*memoryObject
	changes int
}

// NewMemory returns a store with these objects. An object with the name "" must be the only one.
func NewMemory(objects map[string][]byte) *Memory {
	m := &Memory{objects: map[string]*memoryObject{}}
	for _, name := range slices.Sorted(maps.Keys(objects)) { // so that versions are deterministic
		m.Put(name, objects[name])
	}
	return m
}

// Put stores an object. The store uses data without a copy: a copy for each store is much of the time of tests under the
// race detector.
func (m *Memory) Put(name string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	m.objects[name] = &memoryObject{path: m.Path(name), data: data, version: fmt.Sprint(m.changes)}
}

// String returns "memory:".
func (m *Memory) String() string { return "memory:" }

// Path names an object for messages.
func (m *Memory) Path(name string) string { return "memory:" + name }

// Close has no effect.
func (m *Memory) Close() error { return nil }

func (m *Memory) look(ctx context.Context, op, name string) (o *memoryObject, dir bool, err error) {
	err = store.CheckName(name)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, false, &store.Error{Op: op, Path: m.Path(name), Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.objects[name]; o != nil {
		return o, false, nil
	}
	for other := range m.objects {
		if name == "" && other != "" || strings.HasPrefix(other, name+"/") {
			return nil, true, nil
		}
	}
	if name == "" {
		return nil, true, nil
	}
	return nil, false, &store.Error{Op: op, Path: m.Path(name), Err: store.ErrNotExist}
}

// Open opens an object.
func (m *Memory) Open(ctx context.Context, name string) (store.Object, error) {
	o, dir, err := m.look(ctx, "open", name)
	if dir {
		err = &store.Error{Op: "open", Path: m.Path(name), Err: errors.New("it is a folder")}
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Stat describes an object or a folder.
func (m *Memory) Stat(ctx context.Context, name string) (store.Entry, error) {
	o, dir, err := m.look(ctx, "look at", name)
	if err != nil || dir {
		return store.Entry{Name: name, Dir: dir}, err
	}
	return o.entry(name), nil
}

// List lists a folder.
func (m *Memory) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	o, _, err := m.look(ctx, "list", dir)
	if err != nil {
		return err
	}
	if o != nil {
		if dir == "" {
			return f(o.entry(""))
		}
		return &store.Error{Op: "list", Path: m.Path(dir), Err: store.ErrNotExist}
	}
	if opt == nil {
		opt = &store.ListOptions{}
	}
	m.mu.Lock()
	objects := maps.Clone(m.objects)
	m.mu.Unlock()
	prefix := ""
	if dir != "" {
		prefix = dir + "/"
	}
	var list []store.Entry
	seen := map[string]bool{}
	for name, o := range objects {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || !opt.Hidden && hidden(rest) {
			continue
		}
		if top, _, deep := strings.Cut(rest, "/"); deep && opt.Shallow {
			if !seen[top] {
				seen[top] = true
				list = append(list, store.Entry{Name: prefix + top, Dir: true})
			}
			continue
		}
		if opt.Keep == nil || opt.Keep(name) {
			list = append(list, o.entry(name))
		}
	}
	key := func(e store.Entry) string {
		if e.Dir {
			return e.Name + "/"
		}
		return e.Name
	}
	slices.SortFunc(list, func(a, b store.Entry) int { return cmp.Compare(key(a), key(b)) })
	for _, e := range list {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := m.give(e, opt, f); err != nil {
			return err
		}
	}
	return nil
}

func hidden(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return strings.HasPrefix(part, ".") && part != "." && part != ".."
	})
}

// give passes an entry to f, or to Bad if its name is not valid.
func (m *Memory) give(e store.Entry, opt *store.ListOptions, f func(store.Entry) error) error {
	err := store.CheckName(e.Name)
	if e.Name == "" {
		err = store.ErrName
	}
	if err == nil {
		return f(e)
	}
	if err = (&store.Error{Op: "look at", Path: m.Path(e.Name), Err: err}); opt.Bad != nil {
		err = opt.Bad(store.Entry{Name: e.Name, Dir: e.Dir}, err)
	}
	return err
}

type memoryObject struct {
	path    string
	data    []byte
	version string
}

func (o *memoryObject) entry(name string) store.Entry {
	return store.Entry{Name: name, Size: o.Size(), Version: o.version, ModTime: time.Unix(1, 0)}
}

func (o *memoryObject) Size() int64     { return int64(len(o.data)) }
func (o *memoryObject) Version() string { return o.version }
func (o *memoryObject) Close() error    { return nil }

func (o *memoryObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := context.Cause(ctx)
	if err == nil && (off < 0 || off > o.Size() || int64(len(p)) > o.Size()-off) {
		err = store.ErrShort
	}
	if err != nil {
		return &store.Error{Op: "read", Path: o.path, Off: off, Len: int64(len(p)), Err: err}
	}
	copy(p, o.data[off:])
	return nil
}
