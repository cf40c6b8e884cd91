package localcache

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/store/disk"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// maxMore is the size limit of the additional file of a copy.
const maxMore = 1 << 30

// StageOptions configure a copy.
type StageOptions struct {
	// Dir is the parent folder of the copy. Cache is the cache folder as for cache.At, in which the copy is registered.
	Dir, Cache string
	// Buffers and Largest are as in Options.
	Buffers int
	Largest int64
	// Say is called once when nothing can be copied any more.
	Say func(string)
}

// Staged is a complete or partial copy of the objects of a source on this machine.
type Staged struct {
	src    driver.Source
	folder string
	whole  bool
	stage  *cache.Stage // nil when it was whole
	disk   *disk.Disk
	bytes  int64
	more   *store.Entry // an additional file of the copy
	from   store.Store
	say    func(string)
}

// OpenStage continues the copy of a source's objects, or starts it.
func OpenStage(ctx context.Context, src driver.Source, opt StageOptions) (*Staged, error) {
	info := src.Info()
	if info.Objects == 0 || info.Objects > maxObjects {
		return nil, errors.New("the data is not stored in objects that can be copied")
	}
	s := &Staged{src: src, from: src.Object(0).Store, say: opt.Say}
	if Local(s.from) != "" && !Remote(s.from) {
		return nil, fmt.Errorf("stage is for data in other places; %s is on this machine", info.URL)
	}
	sizes := map[string]int64{}
	for n := range info.Objects {
		ob := src.Object(n)
		if ob.Store != s.from {
			return nil, errors.New("its objects are in several places")
		}
		sizes[ob.Store.Path(ob.Entry.Name)] = ob.Entry.Size
	}
	cut := disk.NewCut(Chunks(src), true, func(path string) int64 { return sizes[path] })
	objects := make([]cache.StageObject, 0, info.Objects)
	for n := range info.Objects {
		e := src.Object(n).Entry
		if e.Version == "" {
			return nil, fmt.Errorf("nothing says which version %s is", s.from.Path(e.Name))
		}
		objects = append(objects, cache.StageObject{Name: s.local(e.Name), Size: e.Size, Keys: cut.Keys(s.from.Path(e.Name), e.Version, e.Size)})
		s.bytes += e.Size
	}
	dir, err := filepath.Abs(opt.Dir)
	if err != nil {
		return nil, err
	}
	name := cache.StageName(base(s.from.String()), objects)
	s.folder, s.whole = cache.StageIsWhole(dir, name)
	s.note(opt.Cache)
	if s.whole {
		return s, nil
	}
	if info.Format == "pack" {
		e, err := s.from.Stat(ctx, pack.ManifestName)
		if err != nil {
			return nil, err
		}
		s.more = &e
	}
	s.stage, err = cache.OpenStage(dir, name, objects, func(why string) { opt.Say("nothing more is copied: " + why) })
	if errors.Is(err, cache.ErrWhole) {
		s.whole = true
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if s.disk, err = disk.New(disk.Options{Shelf: s.stage, Cut: cut, Remote: Remote, Buffers: opt.Buffers, Largest: opt.Largest}); err != nil {
		_ = s.stage.Close()
		return nil, err
	}
	return s, nil
}

// note registers the copy, and removes unfinished copies of earlier versions of the data. Errors are ignored.
func (s *Staged) note(folder string) {
	dir, err := cache.At(folder, 0)
	if err != nil {
		return
	}
	origin := originOf(s.from)
	if !s.whole {
		_ = dir.Reclaim(origin, s.folder)
	}
	_ = dir.NoteCopy(origin, s.folder, s.bytes)
}

// local returns the name of an object in the copy.
func (s *Staged) local(name string) string {
	if name == "" {
		return base(s.from.String())
	}
	return name
}

// base is the last part of a URL, as the name of a folder or file.
func base(url string) string {
	name := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, path.Base(url))
	if name = strings.TrimLeft(name, "."); name == "" {
		return "data"
	}
	return name[:min(len(name), 64)]
}

// Drop removes damaged parts of a copy that is being made. Those of a whole one stay: each job reads the damaged
// records from the store.
func (s *Staged) Drop(path, version string, size, off, n int64) {
	if !s.whole {
		s.disk.Drop(path, version, size, off, n)
	}
}

// Store returns s, with reads going to the copy first.
func (s *Staged) Store(st store.Store) store.Store {
	switch {
	case !Remote(st):
		return st
	case s.whole:
		return &copied{st, localstore.New(s.folder), s}
	}
	return s.disk.Store(st)
}

// copied reads objects of a whole copy as the local files that they are.
type copied struct {
	store.Store
	to store.Store
	s  *Staged
}

// Unwrap finds the abilities of the store below.
func (c *copied) Unwrap() store.Store { return c.Store }

// OpenEntry opens the copy of an object, or the object itself if the copy has been removed.
func (c *copied) OpenEntry(ctx context.Context, e store.Entry) (store.Object, error) {
	o, err := c.to.Open(ctx, c.s.local(e.Name))
	if err == nil && o.Size() == e.Size {
		return o, nil
	}
	if err == nil {
		_ = o.Close()
	}
	return store.OpenEntry(ctx, c.Store, e)
}

// Run copies the chunks that were not read in the first epoch, one at a time, after end is closed. It then gives the
// copy its name if it is complete. The function read reads bytes of an object through Store. Run ends with ctx.
func (s *Staged) Run(ctx context.Context, end <-chan struct{}, read func(ctx context.Context, object int64, p []byte, off int64) error) {
	if s.whole {
		return
	}
	more, err := s.rest(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.say("the copy is not finished: " + err.Error())
		}
		return
	}
	select {
	case <-end:
	case <-ctx.Done():
	}
	whole := false
	for range 3 { // chunks that are damaged at the end are copied again
		if err = s.copy(ctx, read); err != nil && ctx.Err() == nil || s.stage.Dead() {
			break
		}
		if ctx.Err() != nil && !s.stage.Complete() {
			return // the next job continues
		}
		if whole, err = s.stage.Finish(more); whole || err != nil {
			break
		}
	}
	if !whole && err != nil {
		s.say("the copy is not finished: " + err.Error())
	}
}

// copy copies the missing chunks.
func (s *Staged) copy(ctx context.Context, read func(ctx context.Context, object int64, p []byte, off int64) error) error {
	var buf []byte
	return s.stage.Missing(func(object int, k disk.Key) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if int64(cap(buf)) < k.Size {
			buf = make([]byte, k.Size)
		}
		return read(ctx, int64(object), buf[:k.Size], k.Off)
	})
}

// rest returns the files that belong to the copy in addition to the objects.
func (s *Staged) rest(ctx context.Context) (map[string][]byte, error) {
	if s.more == nil {
		return nil, nil
	}
	if s.more.Size > maxMore {
		return nil, fmt.Errorf("%s has %d bytes", s.from.Path(s.more.Name), s.more.Size)
	}
	o, err := store.OpenEntry(ctx, s.from, *s.more)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	b := make([]byte, s.more.Size)
	if err := o.ReadAt(ctx, b, 0); err != nil {
		return nil, err
	}
	return map[string][]byte{s.more.Name: b}, nil
}

// StageStats are the progress of the copy and its disk statistics.
type StageStats struct {
	disk.Stats
	cache.StageStats
}

// Stats returns the counters.
func (s *Staged) Stats() StageStats {
	if s.whole {
		return StageStats{StageStats: cache.StageStats{Folder: s.folder, Whole: true, Bytes: s.bytes, Of: s.bytes}}
	}
	return StageStats{s.disk.Stats(), s.stage.Stats()}
}

// Close closes the copy after all reads through it have ended.
func (s *Staged) Close() error {
	if s.whole {
		return nil
	}
	s.disk.Close()
	return s.stage.Close()
}
