// Package source opens datasets by URL, in any of the formats that Formats lists.
package source

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/wrap/cachedsource"
	"github.com/stokerdata/stoker/internal/source/wrap/clips"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// Options change how a source is opened. Nil means the defaults.
type Options struct {
	// Threads bounds what a source does at once while it is opened, 0 for its
	// own choice.
	Threads int
	// VerifyChunks compares checksums while reading, where a source has them.
	VerifyChunks bool
	// Window cuts one-dimensional .npy arrays, such as tokens, into records of
	// that many elements. The URL may say it too: tokens.npy?window=1024.
	Window int64

	// Split is the part that is wanted of a folder that has several, such as train
	// and test. The URL may say it too: cifar-10-batches-py?split=train.
	Split string

	// Documents opens arrays of one axis as documents of tokens, one for each file,
	// and not as records of one number each: for sequences that are cut out of them.
	Documents bool
	// View says which records and fields are wanted, and as what. The URL may say it
	// too: train.csv#where=n<10. Then it is about what that gives.
	View *view.Spec
	// Cache, when it is set, keeps what is read of images in files of their own. Where
	// the view makes another kind of them they are not kept.
	Cache *cachedsource.Options
	// Looking, when it is set, is told now and then how many records were looked at to
	// find those of a view, and for what.
	Looking func(what string, done, total int64)

	// Connections is how many reads there will be at once as soon as it is open: connections
	// for those are opened meanwhile, where it lies far away.
	Connections int
}

// Formats returns the formats, in the order in which they are tried. They must not be
// changed.
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

// namesOf lists the formats that some function accepts, for messages.
func namesOf(is func(f *format.Format) bool) string {
	var names []string
	for _, f := range Formats() {
		if is(f) {
			names = append(names, f.Name)
		}
	}
	return units.List(names, "and")
}

// FormatFolder is the format of folders of images, as Format and driver.Info have
// it.
const FormatFolder = "folder"

// supported is for messages.
const supported = "'stoker formats' lists the formats; a format's name before the path chooses it, such as files:PATH for any file"

// HasView says whether a URL or the options ask for a view of the data.
func HasView(rawURL string, opt *Options) bool {
	_, views, _, err := cutView(context.Background(), rawURL, opt)
	return err == nil && len(views) > 0
}

// Format returns the name of the format at rawURL, such as FormatFolder, and its path. It
// does not open the data.
func Format(ctx context.Context, rawURL string, opt *Options) (name, path string, err error) {
	base, _, opt, err := cutView(ctx, rawURL, opt)
	if err != nil {
		return "", "", err
	}
	loc, err := locate(ctx, base, opt)
	if err != nil {
		return "", "", err
	}
	return loc.format.Name, loc.path + loc.options, nil
}

// Open opens the dataset at rawURL: a path, a URL of the scheme file, or the name
// of a format and a path, such as files:/data/scans; behind a # the records and
// fields of it that are wanted.
func Open(ctx context.Context, rawURL string, opt *Options) (driver.Source, error) {
	base, views, opt, err := cutView(ctx, rawURL, opt)
	if err != nil {
		return nil, err
	}
	loc, err := locate(ctx, base, opt)
	if err != nil {
		return nil, err
	}
	if loc.format.Has(format.Columns) && len(views) > 0 {
		loc.kinds(&views[0])
	}
	src, err := loc.open(ctx, stores.Public(base))
	if err == nil && opt.Cache != nil && loc.format.Cached && !slices.ContainsFunc(views, func(v view.Spec) bool { return len(v.Kinds) > 0 }) {
		src = cachedsource.Open(src, *opt.Cache)
	}
	if err == nil {
		if spec := loc.named(src); len(spec.Kinds) > 0 {
			views = append([]view.Spec{spec}, views...)
		}
		at, err := view.AtResolution(ctx, src, views)
		if err != nil {
			_ = src.Close() // the refusal is what counts
			return nil, err
		}
		src = at
	}
	look := &view.Options{Threads: opt.Threads, Progress: opt.Looking, OpenSource: openOther}
	for i := range views {
		if err != nil {
			break
		}
		var v driver.Source
		if v, err = view.Open(ctx, src, &views[i], look); err != nil {
			_ = src.Close() // the refusal is what counts
			return nil, err
		}
		src = v
	}
	return src, err
}

// named returns the view that makes labels of the text of src that the user wants as labels. Only
// formats whose opening reads all values do so themselves.
func (loc *location) named(src driver.Source) view.Spec {
	spec := view.Spec{Kinds: map[string]string{}}
	for _, f := range src.Info().Fields {
		if f.Kind == driver.KindText && slices.ContainsFunc(loc.values.Columns, func(w column.Want) bool { return w.Name == f.Name && w.Kind == driver.KindLabel }) {
			spec.Kinds[f.Name] = string(driver.KindLabel)
		}
	}
	return spec
}

// open opens what lies there, without views.
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

// openOther opens a source that a view is to be like.
func openOther(ctx context.Context, url string) (driver.Source, error) { return Open(ctx, url, nil) }

// kinds has a table make the kinds that a view asks for: it knows more ways, such as
// columns of paths.
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
			return // the view says what is wrong with it
		}
	}
	loc.values.Columns = append(first, columns...)
	spec.Kinds = nil
}
