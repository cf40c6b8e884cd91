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

// This file has the requests to a store when a pack is opened. In a bucket each request is a round trip and costs
// money.

// listed has the manifest and the shards of a pack from one listing, by name. It is nil if objects are requested one
// by one.
type listed map[string]store.Entry

// list lists a pack if one listing describes all objects, which saves a request for each. If it fails, the objects
// are requested one by one, which also finds the cause. For bare shards the listing has only names, for example on
// web servers.
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
	if listing != st { // its owner has looked up the manifest to see that it is a pack
		if e, err := listing.Stat(ctx, ManifestName); err == nil && !e.Dir && e.Version != "" {
			return listed{ManifestName: e}, nil
		}
	}
	return nil, nil
}

// lookAhead requests the sizes and versions of shards in the background. wait adds the results to the listing, or
// stops after a failure elsewhere. Failed requests are repeated later, which reports the error.
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

// manifest reads the manifest. A manifest with a known version is fetched once for all processes of the user on this
// machine, for example the ranks of a job. It is cached by its version in the user's cache folder.
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

// manifestsOf and manifestOf return the cache keys of the manifests of a location: the key of all versions, and that
// of one.
func manifestsOf(place string) string { return "manifest of a pack\x01" + place }

func manifestOf(place string, e store.Entry) string {
	return strings.Join([]string{manifestsOf(place), e.Version, strconv.FormatInt(e.Size, 10)}, "\x01")
}

// maxEarly is the largest manifest that is read before anybody knows that it is one.
const maxEarly = 32 << 20

// ReadEarly reads the manifest of a location that may be a pack, while the listing of the location is in progress. It
// does so only if no manifest of the location was read before on this machine. It waits for the result.
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
			err = store.ErrChanged // its version is unknown
		}
		return manifestOf(place, e), b, err
	})
}

// shardsAtOnce is the number of shards that are probed at the same time. In a bucket each probe is a round trip.
const shardsAtOnce = 64

// lookAtShards checks all shards. It sends no requests for listed shards. Of several failures it returns that of the
// first shard.
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

// shard checks a shard.
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
