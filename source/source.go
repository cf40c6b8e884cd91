// Package source opens datasets by URL, in any of the formats that Formats lists.
package source

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/wrap/cachedsource"
	"github.com/stokerdata/stoker/internal/source/wrap/clips"
	"github.com/stokerdata/stoker/internal/source/wrap/joined"
	"github.com/stokerdata/stoker/internal/source/wrap/pooled"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// Options configure Open. Nil means the defaults.
type Options struct {
	// Threads limits the parallel work while a source is opened. 0 means the default of the format.
	Threads int
	// VerifyChunks compares checksums while reading, in formats that have them.
	VerifyChunks bool
	// Window cuts one-dimensional .npy arrays, such as tokens, into records of this many elements.
	// The URL can also set it: tokens.npy?window=1024.
	Window int64

	// Split is the split to read from data with several splits, such as train and test. The URL can
	// also set it: cifar-10-batches-py?split=train.
	Split string

	// Documents opens arrays of one axis as documents of tokens, one per file, instead of one
	// number per record. Sequences are cut from documents.
	Documents bool
	// View selects and converts records and fields. The URL can also have a view:
	// train.csv#where=n<10. View then applies to the result of the URL's view.
	View *view.Spec
	// Cache, if set, caches records of formats that store each of them as a small file, for example
	// images. A view that converts fields to another kind turns the cache off.
	Cache *cachedsource.Options
	// Looking, if set, reports the progress of reading records for a view: what is read, and how
	// many records are done.
	Looking func(what string, done, total int64)

	// Memory limits what formats decompress into memory while a source is opened, in bytes. 0 means a part of the free
	// memory.
	Memory int64

	// Mixed opens the datasets of a concat: URL as the parts of a mixture: numbers of records include the round of their
	// part (driver.InEpoch). Part, if set, wraps each of them; it closes src if it fails.
	Mixed bool
	Part  func(ctx context.Context, src driver.Source) (driver.Source, error)

	// Pool, if set, shares sources between callers with equal options, Seed and Turned: the seed of the records, and
	// whether images are turned. Rank is the caller's rank in its job, or pooled.NoRank.
	Pool   *pooled.Pool
	Rank   int
	Seed   uint64
	Turned bool

	// Connections is the number of parallel reads to expect after opening. Open starts connections
	// to remote data for them.
	Connections int
}

// Formats returns the formats, in the order in which they are tried. The caller must not change
// them.
func Formats() []*format.Format {
	var all []*format.Format
	for _, f := range formats {
		if !f.Internal {
			all = append(all, f)
		}
	}
	return all
}

// IsTable reports whether the URL of a format may choose columns:
// train.csv?image:image=path&label:label=class.
func IsTable(name string) bool {
	f := find(name)
	return f != nil && f.Has(format.Columns)
}

// find returns the format of a name, nil if there is none.
func find(name string) *format.Format {
	if i := slices.IndexFunc(formats, func(f *format.Format) bool { return f.Name == name }); i >= 0 {
		return formats[i]
	}
	return nil
}

// namesOf lists the formats that is accepts, for messages.
func namesOf(is func(f *format.Format) bool) string {
	var names []string
	for _, f := range Formats() {
		if is(f) {
			names = append(names, f.Name)
		}
	}
	return units.List(names, "and")
}

// FormatFolder is the name of the format for folders of images, in Format and driver.Info.
const FormatFolder = "folder"

// supported is a hint for messages.
const supported = "'stoker formats' lists the formats; a format's name before the path chooses it, such as files:PATH for any file"

// HasView reports whether the URL or the options have a view of the data.
func HasView(rawURL string, opt *Options) bool {
	_, views, _, err := cutView(context.Background(), rawURL, opt)
	return err == nil && len(views) > 0
}

// Format returns the name of the format at rawURL, such as FormatFolder, and its path. It
// does not open the data.
func Format(ctx context.Context, rawURL string, opt *Options) (name, path string, err error) {
	defer func() { err = hide(rawURL, err) }()
	base, _, opt, err := cutView(ctx, rawURL, opt)
	if err != nil {
		return "", "", err
	}
	if list, ok := strings.CutPrefix(base, concatPrefix); ok {
		return "concat", list, nil
	}
	loc, err := locate(ctx, base, opt)
	if err != nil {
		return "", "", err
	}
	return loc.format.Name, loc.path + loc.options, nil
}

// Open opens the dataset at rawURL. rawURL is a path, a file: URL, a URL of remote data, or one of
// these after the name of a format, such as files:/data/scans. A view can follow after a #.
func Open(ctx context.Context, rawURL string, opt *Options) (driver.Source, error) {
	src, err := openAll(ctx, rawURL, opt)
	return src, hide(rawURL, err)
}

// openAll opens a dataset and its views.
func openAll(ctx context.Context, rawURL string, opt *Options) (driver.Source, error) {
	base, views, opt, err := cutView(ctx, rawURL, opt)
	if err != nil {
		return nil, err
	}
	ctx = fixedrecords.WithLimit(ctx, opt.Memory)
	if list, ok := strings.CutPrefix(base, concatPrefix); ok {
		src, err := openJoined(ctx, base, list, opt)
		return openViews(ctx, src, views, opt, err)
	}
	loc, err := locate(ctx, base, opt)
	if err != nil {
		return nil, err
	}
	if loc.format.Has(format.Columns) && len(views) > 0 {
		loc.kinds(&views[0])
	}
	src, err := loc.pooled(ctx, base)
	if err == nil {
		driver.ValidNames(src.Info().Fields)
	}
	if err == nil && opt.Cache != nil && loc.format.Cached && !slices.ContainsFunc(views, func(v view.Spec) bool { return len(v.Kinds) > 0 }) {
		src = cachedsource.Open(src, *opt.Cache)
	}
	if err == nil {
		if spec := loc.named(src); len(spec.Kinds) > 0 {
			views = append([]view.Spec{spec}, views...)
		}
		at, err := view.AtResolution(ctx, src, views)
		if err != nil {
			_ = src.Close() // report the first error
			return nil, err
		}
		src = at
	}
	return openViews(ctx, src, views, opt, err)
}

// openViews opens the views of a source, unless opening the source failed with err.
func openViews(ctx context.Context, src driver.Source, views []view.Spec, opt *Options, err error) (driver.Source, error) {
	look := &view.Options{Threads: opt.Threads, Progress: opt.Looking, OpenSource: openOther}
	for i := range views {
		if err != nil {
			break
		}
		var v driver.Source
		if v, err = view.Open(ctx, src, &views[i], look); err != nil {
			_ = src.Close() // report the first error
			return nil, err
		}
		src = v
	}
	return src, err
}

// concatPrefix begins the URL of several datasets, one after the other. The datasets are separated by commas. In
// their URLs the characters , # % and & are escaped: %2C, %23, %25 and %26.
const concatPrefix = "concat:"

// openTogether is the number of datasets of a list that are opened at a time.
const openTogether = 8

// openJoined opens a list of datasets.
func openJoined(ctx context.Context, rawURL, list string, opt *Options) (driver.Source, error) {
	var urls []string
	for text := range strings.SplitSeq(list, ",") {
		one, err := url.PathUnescape(text)
		if err != nil || one == "" {
			return nil, fmt.Errorf("cannot open %s: %q is not the URL of a dataset; write it like concat:a,b, with %%2C for a comma in a URL", rawURL, text)
		}
		urls = append(urls, one)
	}
	parts, errs := make([]driver.Source, len(urls)), make([]error, len(urls))
	together := min(openTogether, len(urls))
	if opt.Looking != nil { // which is for one goroutine
		together = 1
	}
	var next atomic.Int64
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range together {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(urls) && !failed.Load(); i = int(next.Add(1)) - 1 {
				if parts[i], errs[i] = openPart(ctx, urls[i], opt, len(urls)); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	open := joined.Open
	if opt.Mixed {
		open = joined.OpenMixed
	}
	err := cmp.Or(errs...)
	if err == nil {
		var src driver.Source
		if src, err = open(rawURL, parts); err == nil {
			return src, nil
		}
	}
	for _, p := range parts {
		if p != nil {
			_ = p.Close() // report the first error
		}
	}
	return nil, err
}

// openPart opens one of several datasets.
func openPart(ctx context.Context, url string, opt *Options, of int) (src driver.Source, err error) {
	defer func() { // in a goroutine of its own, a panic would end the process
		if r := recover(); r != nil {
			src, err = nil, fmt.Errorf("internal error while opening %s: %v\n%s", url, r, debug.Stack())
		}
	}()
	one := *opt
	if of > openTogether {
		one.Threads = 1 // there are enough datasets for all cores
	}
	src, err = Open(ctx, url, &one)
	if err != nil || opt.Part == nil {
		return src, err
	}
	return opt.Part(ctx, src)
}

// named returns a view that makes labels of text fields, if the user asks for labels. It is for
// formats that do not read all values on opening. The other formats make the labels themselves.
func (loc *location) named(src driver.Source) view.Spec {
	spec := view.Spec{Kinds: map[string]string{}}
	for _, f := range src.Info().Fields {
		if f.Kind == driver.KindText && slices.ContainsFunc(loc.values.Columns, func(w column.Want) bool { return w.Name == f.Name && w.Kind == driver.KindLabel }) {
			spec.Kinds[f.Name] = string(driver.KindLabel)
		}
	}
	return spec
}

// pooled opens the data without views, or returns equal data that is open.
func (loc *location) pooled(ctx context.Context, base string) (driver.Source, error) {
	open := func(ctx context.Context) (driver.Source, error) { return loc.open(ctx, stores.Public(base)) }
	if loc.opt.Pool == nil {
		return open(ctx)
	}
	o := &loc.opt
	key := fmt.Sprintf("%q %q %q %t %t %t %d %d %#v", base, loc.format.Name, loc.names, o.Documents, o.VerifyChunks, o.Turned, o.Seed, o.Memory, loc.values)
	return o.Pool.Open(ctx, key, o.Rank, open)
}

// open opens the data without views.
func (loc *location) open(ctx context.Context, url string) (driver.Source, error) {
	r := &format.Request{
		URL: url, Store: loc.store, Dir: loc.dir, Names: loc.names, Values: loc.values, Threads: loc.opt.Threads,
		Documents: loc.opt.Documents, VerifyChunks: loc.opt.VerifyChunks, Probed: loc.probed,
	}
	if loc.format.Has(format.Clips) {
		return clips.OpenTable(ctx, loc.format, r)
	}
	for _, c := range r.Columns {
		if c.Kind == driver.KindFrames {
			return nil, r.Fail(fmt.Errorf("field %q: %s has no clips of video: formats that have some are %s", c.Name, loc.format.Name,
				namesOf(func(f *format.Format) bool { return f.Has(format.Clips) })))
		}
	}
	return loc.format.Open(ctx, r)
}

// openOther opens another source for a view.
func openOther(ctx context.Context, url string) (driver.Source, error) { return Open(ctx, url, nil) }

// kinds moves the kinds of a view to the columns of a table. A table supports more conversions,
// such as columns of paths.
func (loc *location) kinds(spec *view.Spec) {
	if len(spec.Kinds) == 0 {
		return
	}
	columns := slices.Clone(loc.values.Columns)
	if columns == nil {
		columns = []column.Want{{Name: column.Rest}}
	}
	var first []column.Want
	for _, name := range slices.Sorted(maps.Keys(spec.Kinds)) {
		kind := driver.Kind(spec.Kinds[name])
		if i := slices.IndexFunc(columns, func(c column.Want) bool { return c.Name == name }); i >= 0 {
			columns[i].Kind = kind
		} else if _, err := column.Parse(name + ":" + string(kind)); err == nil {
			first = append(first, column.Want{Name: name, Kind: kind, From: name})
		} else {
			return // opening the view returns the error
		}
	}
	loc.values.Columns = append(first, columns...)
	spec.Kinds = nil
}
