package gen

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// WriteTree writes all images into the existing empty folder dir, one folder for
// each class, with all cores. After each image it calls done with its size, from
// several goroutines. On an error, and when ctx ends, dir holds a part of them.
func (g *Generator) WriteTree(ctx context.Context, dir string, done func(bytes int64)) error {
	for k := range g.opts.Classes {
		if err := os.Mkdir(filepath.Join(dir, g.ClassName(k)), 0o777); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= g.opts.Count {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				data, err := g.Image(i)
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(dir, g.Name(i)), data, 0o666); err != nil {
					return err
				}
				done(int64(len(data)))
			}
		})
	}
	return group.Wait()
}
