// Package upload copies files from a local folder into a store, such as a bucket. It is for outputs that are made as
// files and must be complete before a reader sees them.
package upload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/store"
)

const (
	// atOnce is the number of files copied concurrently, and pieceBytes the size of one read.
	atOnce     = 8
	pieceBytes = 1 << 20
	// undoTakes bounds the removal of what went before a failure.
	undoTakes = time.Minute
)

// last are index files: they are copied after all other files.
var last = []string{"index.json", "dataset_info.json", "state.json"}

// Tree puts all files below dir into a store, under the same names, and returns their number and total size. If it
// fails or is interrupted, it removes the files that it has copied. Objects appear one after the other, the index files
// last.
func Tree(ctx context.Context, dir string, st store.WriteStore) (files, bytes int64, err error) {
	var first, then []string
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		files++
		bytes += info.Size()
		if slices.Contains(last, path.Base(name)) {
			then = append(then, name)
		} else {
			first = append(first, name)
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	var mu sync.Mutex
	var gone []string
	for _, names := range [][]string{first, then} {
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(atOnce)
		for _, name := range names {
			g.Go(func() error {
				if err := one(gctx, filepath.Join(dir, filepath.FromSlash(name)), st, name); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				gone = append(gone, name)
				return nil
			})
		}
		if err = g.Wait(); err != nil {
			break
		}
	}
	if err == nil {
		return files, bytes, nil
	}
	uctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTakes)
	defer cancel()
	left := 0
	for _, name := range gone {
		if rerr := st.Remove(uctx, name); rerr != nil && !errors.Is(rerr, store.ErrNotExist) {
			left++
		}
	}
	if left > 0 {
		err = fmt.Errorf("%w; %d objects below %s could not be removed again", err, left, st)
	}
	return 0, 0, err
}

// one puts a file into a store.
func one(ctx context.Context, file string, st store.WriteStore, name string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	u, err := st.Create(ctx, name)
	if err != nil {
		return err
	}
	defer u.Abort()
	buf := make([]byte, pieceBytes)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if _, werr := u.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return u.Commit(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// Empty fails when there is anything at the root of a store, which lies at a place.
func Empty(ctx context.Context, st store.Store, place string) error {
	some := fmt.Errorf("%s already exists: choose another name or delete it first", place)
	err := st.List(ctx, "", &store.ListOptions{Hidden: true, Names: true, Threads: 1}, func(store.Entry) error { return some })
	if errors.Is(err, store.ErrNotExist) {
		return nil
	}
	return err
}
