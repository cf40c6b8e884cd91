package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/localcache"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/wrap/cachedsource"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

func newCacheCommand(app *App) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "cache",
		GroupID: groupData,
		Short:   "Show and manage the cache of image folders and remote data",
		Long: `Show and manage the cache on this machine.

A loader with cache=True that reads a folder of JPEGs caches them in a form that decodes
several times as fast, with the same pixels. From the second epoch on, the folder is as fast
as a pack. Remote data, such as packs in buckets, is cached unchanged, in chunks. All jobs
of a user share the cache. Its folder is STOKER_CACHE_DIR, or stoker/ in XDG_CACHE_HOME, or
~/.cache/stoker.`,
		Example: `  stoker cache ls
  stoker cache limit 200GB
  stoker cache warm s3://bucket/train
  stoker cache rm photos/`,
		Args: cobra.NoArgs,
	}
	cmd.PersistentFlags().StringVar(&dir, "cache-dir", "", "the `FOLDER` of the cache")
	at := func() (*cache.Dir, error) { return cache.At(dir, 0) }
	cmd.AddCommand(newCacheLs(app, at), newCacheRm(app, at), newCacheVerify(app, at), newCacheLimit(app, at), newCacheWarm(app, &dir))
	return cmd
}

func newCacheLs(app *App, at func() (*cache.Dir, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the cached data",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			d, err := at()
			if err != nil {
				return err
			}
			all, copies := d.List(), d.Copies()
			limit, from := d.Limit()
			if asJSON {
				e := json.NewEncoder(app.Stdout)
				e.SetIndent("", "  ")
				e.SetEscapeHTML(false)
				return e.Encode(map[string]any{
					"folder": d.Path(), "limit": limit, "data": append([]cache.Entry{}, all...), "copies": append([]cache.Copy{}, copies...),
				})
			}
			total := int64(0)
			p := new(page)
			t := newTable("data", "records", "chunks", "size", "last used", "id")
			for _, e := range all {
				total += e.Bytes
				used := e.Used.Format(time.DateTime)
				if e.InUse {
					used = "now"
				}
				t.Row(clean(e.Origin), units.Int(e.Records), units.Int(e.Chunks), units.Bytes(e.Bytes), used, e.ID[:8])
			}
			if len(all) > 0 {
				p.f("%s\n", t)
			}
			p.f("%s of %s (%s) in %s\n", units.Bytes(total), units.Bytes(limit), from, d.Path())
			if len(copies) > 0 {
				p.f("\nCopies that stage= has made; they do not count for the limit:\n%s\n", copiesTable(copies))
			}
			_, err = lipgloss.Fprint(app.Stdout, p.String())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// copiesTable lists copies on scratch.
func copiesTable(copies []cache.Copy) fmt.Stringer {
	t := newTable("data", "copy", "size", "whole", "last used", "id")
	for _, c := range copies {
		whole, used := "yes", c.Used.Format(time.DateTime)
		if !c.Whole {
			whole = fmt.Sprintf("%.0f%%", 100*min(1, float64(c.Bytes)/float64(max(c.Of, 1))))
		}
		if c.InUse {
			used = "now"
		}
		t.Row(clean(c.Origin), clean(c.Folder), units.Bytes(c.Bytes), whole, used, c.ID[:8])
	}
	return t
}

// copiesOf finds the copies that an argument names: the data, the folder, or the beginning
// of an id.
func copiesOf(d *cache.Dir, arg string) (found []cache.Copy) {
	folder, err := filepath.Abs(strings.TrimSuffix(arg, ".part"))
	url := originOf(arg)
	for _, c := range d.Copies() {
		if c.Origin == url || err == nil && c.Folder == folder || len(arg) >= 6 && strings.HasPrefix(c.ID, arg) {
			found = append(found, c)
		}
	}
	return found
}

// originOf is a URL as its store calls itself.
func originOf(arg string) string {
	if stores.IsURL(arg) {
		arg, _, _ = strings.Cut(stores.Public(arg), "?")
		arg, _, _ = strings.Cut(arg, "#")
		arg = strings.TrimRight(arg, "/")
	}
	return arg
}

// cached finds the data sets that an argument names: a path, which includes the data below it, or the beginning of an
// id.
func cached(d *cache.Dir, arg string) ([]cache.Entry, error) {
	if path, err := filepath.Abs(arg); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if found := d.Find(path); len(found) > 0 {
			return found, nil
		}
	}
	arg = originOf(arg)
	if found := d.Find(arg); len(found) > 0 {
		return found, nil
	}
	return nil, &Error{Msg: fmt.Sprintf("nothing is cached of %s", arg), Hint: "stoker cache ls lists what is"}
}

func newCacheRm(app *App, at func() (*cache.Dir, error)) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "rm [DATA...]",
		Short: "Remove the cache of some data, or of all with --all",
		Long: `Show or set the size limit of the cache, for all data together. The default is a tenth of
the free space of its disk, and at most 20 GiB. If the cache is full, the data that was
unused for the longest time is removed. Data that a job uses is not removed.`,
		Example: `  stoker cache rm photos/
  stoker cache rm /scratch/train-0123456789ab
  stoker cache rm --all`,
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := at()
			if err != nil {
				return err
			}
			var gone []cache.Entry
			var copies []cache.Copy
			switch {
			case all && len(args) > 0:
				return usageError("stoker cache rm --all", "--all and %s exclude each other", stores.Public(args[0]))
			case all:
				gone = d.List()
				copies = slices.DeleteFunc(d.Copies(), func(c cache.Copy) bool { return c.Whole })
			case len(args) == 0:
				return usageError("stoker cache rm photos/", "there is nothing to remove: name the data, or give --all")
			}
			for _, arg := range args {
				named := copiesOf(d, arg)
				copies = append(copies, named...)
				if found, err := cached(d, arg); err == nil {
					gone = append(gone, found...)
				} else if len(named) == 0 {
					return err
				}
			}
			for _, c := range copies {
				if err := d.RemoveCopy(c); errors.Is(err, cache.ErrInUse) {
					return &Error{Msg: fmt.Sprintf("the copy of %s is not removed: a job is making it", c.Origin), Hint: "try again when it has ended"}
				} else if err != nil {
					return err
				}
				if asJSON {
					continue
				}
				if _, err := fmt.Fprintf(app.Stdout, "removed the copy %s (%s) of %s\n", clean(c.Folder), units.Bytes(c.Bytes), clean(c.Origin)); err != nil {
					return err
				}
			}
			for _, e := range gone {
				if err := d.Remove(e.ID); errors.Is(err, cache.ErrInUse) {
					return &Error{Msg: fmt.Sprintf("the cache of %s is not removed: a job uses it", e.Origin), Hint: "try again when it has ended"}
				} else if err != nil {
					return err
				}
				if asJSON {
					continue
				}
				if _, err := fmt.Fprintf(app.Stdout, "removed %s (%s) of %s\n", what(e.Records, e.Chunks), units.Bytes(e.Bytes), e.Origin); err != nil {
					return err
				}
			}
			if asJSON {
				return app.cacheJSON(map[string]any{"data": append([]cache.Entry{}, gone...), "copies": append([]cache.Copy{}, copies...)})
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove everything")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// what returns the number of records and chunks as text.
func what(records, chunks int64) string {
	switch {
	case chunks == 0:
		return units.Records(records)
	case records == 0:
		return units.Plural(chunks, "chunk")
	}
	return fmt.Sprintf("%s and %s", units.Records(records), units.Plural(chunks, "chunk"))
}

func newCacheVerify(app *App, at func() (*cache.Dir, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify [DATA...]",
		Short: "Read the cache and compare every checksum",
		Long: `Read the cache of some data, or the whole cache, and compare every checksum. Damaged
records and chunks are listed, and the exit code is 4. Loaders do not use them: they read
the data again.`,
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := at()
			if err != nil {
				return err
			}
			all := d.List()
			if len(args) > 0 {
				all = nil
				for _, arg := range args {
					found, err := cached(d, arg)
					if err != nil {
						return err
					}
					all = append(all, found...)
				}
			}
			damaged := 0
			data, damages := []map[string]any{}, []map[string]any{}
			for _, e := range all {
				n, chunks, bytes, err := d.Verify(app.Context, e.ID, func(b cache.Damage) {
					damaged++
					if asJSON {
						damages = append(damages, map[string]any{"origin": e.Origin, "record": b.Record, "segment": b.Segment, "offset": b.Offset, "reason": fmt.Sprint(b.Err)})
						return
					}
					if b.Chunk {
						fmt.Fprintf(app.Stdout, "%s: the cached chunk in %s is %v\n", b.Record, b.Segment, b.Err)
						return
					}
					record := b.Record // below the origin, or absolute
					if !filepath.IsAbs(record) {
						record = filepath.Join(e.Origin, record)
					}
					fmt.Fprintf(app.Stdout, "%s: the cached record at byte %d of %s is %v\n", record, b.Offset, b.Segment, b.Err)
				})
				if err != nil {
					return err
				}
				if asJSON {
					data = append(data, map[string]any{"origin": e.Origin, "records": n, "chunks": chunks, "bytes": bytes})
					continue
				}
				if _, err := fmt.Fprintf(app.Stdout, "%s: %s read, %s\n", e.Origin, what(n, chunks), units.Bytes(bytes)); err != nil {
					return err
				}
			}
			if asJSON {
				if err := app.cacheJSON(map[string]any{"whole": damaged == 0, "data": data, "damaged": damages}); err != nil {
					return err
				}
			}
			if damaged > 0 {
				return &Error{Code: ExitDamaged, Msg: fmt.Sprintf("%s damaged", units.Plural(damaged, "cached record")),
					Hint: "they are made again when they are wanted; a disk that loses data should be looked at"}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// cacheJSON prints the result of a command about the cache, for programs.
func (app *App) cacheJSON(v any) error {
	e := json.NewEncoder(app.Stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func newCacheLimit(app *App, at func() (*cache.Dir, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "limit [SIZE|auto]",
		Short: "Show or set the size limit of the cache",
		Long: `Show or set the size limit of the cache, all data together. Without a limit it is a
tenth of what is free on its disk, at most 20 GiB. When it is full, data that no job
uses makes room, the longest unused first; data in use is not replaced.`,
		Example: `  stoker cache limit 200GB
  stoker cache limit auto`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := at()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				n := int64(0)
				if args[0] != "auto" {
					if n, err = parseBytes("SIZE", args[0]); err != nil {
						return err
					}
				}
				if err := d.SetLimit(n); err != nil {
					return err
				}
				d.Trim()
			}
			n, from := d.Limit()
			if asJSON {
				return app.cacheJSON(map[string]any{"limit": n, "from": from, "folder": d.Path()})
			}
			_, err = fmt.Fprintf(app.Stdout, "%s (%s) in %s\n", units.Bytes(n), from, d.Path())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newCacheWarm(app *App, dir *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "warm SRC",
		Short: "Fill the cache with a folder of images or remote data now",
		Example: `  stoker cache warm photos/
  stoker cache warm s3://bucket/train`,
		Args: exactArgs("SRC"),
		RunE: func(_ *cobra.Command, args []string) error {
			var why atomic.Pointer[string]
			var c *cachedsource.Source
			var n int64
			src, err := source.Open(app.Context, args[0], &source.Options{Cache: &cachedsource.Options{
				Dir: *dir, Wait: true, Say: func(s string) { why.Store(&s) }, Opened: func(s *cachedsource.Source) { c = s },
			}})
			if err != nil {
				return err
			}
			switch {
			case c != nil:
				if err = app.warm(src); err == nil {
					n = c.Cached()
				}
			case localcache.Of(src):
				err = app.warmChunks(src, *dir, asJSON)
				if cerr := src.Close(); err == nil {
					err = cerr
				}
				return err
			}
			if cerr := src.Close(); err == nil {
				err = cerr
			}
			switch {
			case err != nil:
				return err
			case why.Load() != nil:
				return &Error{Msg: *why.Load()}
			case c == nil:
				return &Error{Msg: stores.Public(args[0]) + " is not cached", Hint: "folders of images are, and data in buckets and on web servers"}
			}
			st := c.Stats()
			if asJSON {
				return app.cacheJSON(map[string]any{
					"records": src.Info().Len, "cached": n, "new": st.Kept, "new_bytes": st.KeptBytes, "folder": st.Folder,
				})
			}
			_, err = fmt.Fprintf(app.Stdout, "%s of %s records are cached, %s of them now (%s), in %s\n", units.Int(n), units.Int(src.Info().Len),
				units.Int(st.Kept), units.Bytes(st.KeptBytes), st.Folder)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// warmChunks caches remote data.
func (app *App) warmChunks(src driver.Source, dir string, asJSON bool) error {
	var why atomic.Pointer[string]
	c, err := localcache.Open(src, localcache.Options{Dir: dir, Buffers: 1, Largest: localcache.Largest(src), Say: func(s string) { why.Store(&s) }})
	if err != nil {
		return err
	}
	progress := app.NewProgress("caching", "bytes", c.Bytes())
	w, err := c.Warm(app.Context, 8, func(n int64) { progress.Add(n, n) })
	progress.Stop()
	folder := c.Chunks.Path()
	if cerr := c.Close(); err == nil {
		err = cerr
	}
	switch {
	case err != nil:
		return err
	case why.Load() != nil:
		return &Error{Msg: *why.Load()}
	}
	if asJSON {
		return app.cacheJSON(map[string]any{
			"chunks": w.Chunks, "cached": w.Kept, "bytes": w.Bytes, "cached_bytes": w.KeptBytes, "new": w.Now, "new_bytes": w.NowBytes, "folder": folder,
		})
	}
	_, err = fmt.Fprintf(app.Stdout, "%s of %s are cached (%s of %s), %s of them now (%s), in %s\n", units.Int(w.Kept), units.Plural(w.Chunks, "chunk"),
		units.Bytes(w.KeptBytes), units.Bytes(w.Bytes), units.Int(w.Now), units.Bytes(w.NowBytes), folder)
	return err
}

// warm reads all records, on all cores.
func (app *App) warm(src driver.Source) error {
	const group = 16
	obj := recordread.NewObjects(src, nil)
	defer obj.Close()
	n := src.Info().Len
	progress := app.NewProgress("caching", "records", n)
	defer progress.Stop()
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, runtime.GOMAXPROCS(0))
	for w := range errs {
		wg.Go(func() {
			r := recordread.NewDirect(src, obj)
			ids := make([]int64, 0, group)
			for errs[w] == nil {
				lo := next.Add(group) - group
				if lo >= n {
					return
				}
				ids = ids[:0]
				for id := lo; id < min(lo+group, n); id++ {
					ids = append(ids, id)
				}
				_, errs[w] = r.Read(app.Context, ids) // what cannot be read is for the loader to say
				progress.Add(int64(len(ids)), 0)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
