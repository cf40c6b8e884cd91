package pack

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stokerdata/stoker/internal/querycache"
	"github.com/stokerdata/stoker/store"
)

// This file is about what is asked of a store when a pack is opened. In a bucket each
// question is a way to another machine and back, and costs money.

// listed are the manifest and the shards of a pack as one listing describes them, by
// name; nil where objects are asked for one by one.
type listed map[string]store.Entry

// list lists a pack where that says of all objects at once what would take a question
// each. Where it fails they are asked for one by one, which says what is wrong. Of bare
// shards it says the names alone, as web servers do.
func list(ctx context.Context, st, listing store.Store) (objects listed, bare []string) {
	if _, far := st.(store.EntryOpener); !far {
		return nil, nil
	}
	objects = listed{}
	opt := &store.ListOptions{Shallow: true, Keep: func(name string) bool { return name == ManifestName || isShard(name) }}
	err := listing.List(ctx, "", opt, func(e store.Entry) error {
		switch {
		case e.Dir:
		case e.Version != "":
			objects[e.Name] = e
		case isShard(e.Name):
			bare = append(bare, e.Name)
		}
		return nil
	})
	if err == nil {
		return objects, bare
	}
	if listing != st { // who has it has looked at the manifest to see that it is a pack
		if e, err := listing.Stat(ctx, ManifestName); err == nil && !e.Dir && e.Version != "" {
			return listed{ManifestName: e}, nil
		}
	}
	return nil, nil
}

// lookAhead asks for shards in the background; wait adds what was said of them to what was
// listed, or gives up where something failed. What fails here is asked for again, which says
// what is wrong.
func (l listed) lookAhead(ctx context.Context, st store.Store, bare []string) (wait func(failed error)) {
	ctx, cancel := context.WithCancel(ctx)
	found := make([]store.Entry, len(bare))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(shardsAtOnce, len(bare)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(bare) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if e, err := st.Stat(ctx, bare[i]); err == nil && !e.Dir {
					found[i] = e
				}
			}
		})
	}
	return func(failed error) {
		if failed != nil {
			cancel()
		}
		wg.Wait()
		cancel()
		for _, e := range found {
			if e.Version != "" {
				l[e.Name] = e
			}
		}
	}
}

// manifest reads the manifest. One that was listed is fetched once for all processes of
// the user on this machine, such as the ranks of a job: it is kept by its version in the
// user's cache folder.
func (l listed) manifest(ctx context.Context, st store.Store) ([]byte, error) {
	e, ok := l[ManifestName]
	if !ok {
		return store.ReadFile(ctx, st, ManifestName, maxManifestBytes)
	}
	read := func() ([]byte, error) { return store.ReadEntry(ctx, st, e, maxManifestBytes) }
	id, ok := store.As[store.Identifier](st)
	if !ok {
		return read()
	}
	place, _ := id.Identity()
	b, err := querycache.Once(ctx, manifestsOf(place), manifestOf(place, e), read)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != e.Size {
		return read()
	}
	return b, nil
}

// manifestsOf and manifestOf are what the manifests of a place are kept by, of all versions
// and of one.
func manifestsOf(place string) string { return "manifest of a pack\x01" + place }

func manifestOf(place string, e store.Entry) string {
	return strings.Join([]string{manifestsOf(place), e.Version, strconv.FormatInt(e.Size, 10)}, "\x01")
}

// maxEarly is the largest manifest that is read before anybody knows that it is one.
const maxEarly = 32 << 20

// ReadEarly has the manifest read of what may be a pack, for who opens it once it is known
// to be one: while a listing of it is on its way, and where none of this place was read
// before on this machine. It waits for that.
func ReadEarly(ctx context.Context, st store.Store) {
	id, ok := store.As[store.Identifier](st)
	w, can := store.As[store.WholeReader](st)
	if !ok || !can {
		return
	}
	place, _ := id.Identity()
	if querycache.Begun(manifestsOf(place)) {
		return
	}
	querycache.Begin(manifestsOf(place), func() (string, []byte, error) {
		b, e, err := w.ReadWhole(ctx, ManifestName, maxEarly)
		if err == nil && e.Version == "" {
			err = store.ErrChanged // nobody can say of what it is
		}
		return manifestOf(place, e), b, err
	})
}

// shardsAtOnce is how many shards are looked at together: in a bucket each look is a
// way to another machine and back.
const shardsAtOnce = 64

// lookAtShards looks at all shards, at those that were listed without asking for them.
// Of several failures it gives that of the first one.
func (r *Reader) lookAtShards(ctx context.Context, objects listed) error {
	errs := make([]error, len(r.entries))
	var next atomic.Int64
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range min(shardsAtOnce, len(r.entries)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(r.entries) && !failed.Load(); i = int(next.Add(1)) - 1 {
				if r.entries[i], errs[i] = r.shard(ctx, i, objects); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// shard looks at a shard.
func (r *Reader) shard(ctx context.Context, i int, objects listed) (store.Entry, error) {
	s := &r.man.Shards[i]
	e, ok := objects[s.File]
	if !ok {
		var err error
		if e, err = r.st.Stat(ctx, s.File); err != nil {
			return e, fmt.Errorf("the pack is not whole: %w", err)
		}
	}
	if e.Size != s.Bytes {
		return e, fmt.Errorf("the pack is not whole: shard %s has %d bytes, its manifest says %d; stoker verify says what is damaged", r.st.Path(s.File), e.Size, s.Bytes)
	}
	return e, nil
}
