// Package source opens datasets by URL: packs, folders of images, of sound and of video, NumPy's .npy
// and .npz files, files of tokens, optical flow and float maps, TFRecords, the files of MNIST, CIFAR, STL-10 and SVHN, tar and zip
// files (those of webdataset, too), HDF5, Zarr and Parquet files, Arrow files (those of `datasets`, too), tables of
// text, volumes, any files as bytes, and files that belong together. What it knows is listed
// in formats.
package source

import (
	"context"
	"maps"
	"slices"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/internal/source/tokensource"
	"github.com/stokerdata/stoker/internal/source/wrap/cachedsource"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
	"github.com/stokerdata/stoker/store"
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

	// looked is the store, with what was seen of it already.
	looked store.Store
	// file is the one that the URL names, where the store is its folder.
	file    string
	pairs   []pairsource.Field   // from the URL
	params  map[string]string    // from the URL, of formats that have some
	columns []column.Want        // from the URL, of tables
	shards  []string             // the files that a pattern in the URL stands for
	tokens  *tokensource.Options // from the URL, of tokens
}

// IsTable says whether a format is one of tables, whose columns a URL may choose:
// train.csv?image:image=path&label:label=class.
func IsTable(name string) bool {
	return slices.ContainsFunc(formats(), func(f format) bool { return f.name == name && f.columns })
}

// Formats returns the names that may stand in front of a path: npy:PATH.
func Formats() []string {
	var all []string
	for _, f := range formats() {
		if !f.own {
			all = append(all, f.name)
		}
	}
	return all
}

// FormatFolder is the format of folders of images, as Format and driver.Info have
// it.
const FormatFolder = "folder"

// supported is for messages.
const supported = "a path or a file: URL of a pack, of a folder of images, of sound or of video, of .npy, .npz, .flo, .pfm, TFRecord, tokens (.bin), tar, zip, HDF5, Zarr, Parquet, Arrow, CSV, TSV or JSONL files, of MNIST, CIFAR, STL-10 or SVHN, files:PATH for any files as bytes, or pairs:PATH?image=images/*.jpg&mask=masks/*.png for files that belong together"

// HasView says whether a URL or the options ask for a view of the data.
func HasView(rawURL string, opt *Options) bool {
	_, views, _, err := cutView(context.Background(), rawURL, opt)
	return err == nil && len(views) > 0
}

// Format says what lies at rawURL, without opening it: "pack", FormatFolder,
// "npy", "npz", "tfrecord", "mds", "lmdb", "litdata", "idx", "cifar", "stl10", "mat", "tar", "zip", "hdf5", "zarr", "parquet", "arrow",
// "coco", "voc", "yolo", "nifti", "dicom", "volumes", "megatron", "tokens", "flo", "pfm", "csv", "tsv", "jsonl", "audio", "video", "files" or "pairs"; and at which path.
func Format(ctx context.Context, rawURL string, opt *Options) (name, path string, err error) {
	base, _, opt, err := cutView(ctx, rawURL, opt)
	if err != nil {
		return "", "", err
	}
	loc, err := locate(ctx, base, opt)
	if err != nil {
		return "", "", err
	}
	return loc.format.name, loc.path + loc.options, nil
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
	if loc.format.columns && len(views) > 0 {
		loc.kinds(&views[0])
	}
	if err := loc.noClips(stores.Public(base)); err != nil {
		return nil, err
	}
	src, err := loc.format.open(ctx, stores.Public(base), loc.store, &loc.opt)
	if err == nil && opt.Cache != nil && loc.format.cached && !slices.ContainsFunc(views, func(v view.Spec) bool { return len(v.Kinds) > 0 }) {
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
		if f.Kind == driver.KindText && slices.ContainsFunc(loc.opt.columns, func(w column.Want) bool { return w.Name == f.Name && w.Kind == driver.KindLabel }) {
			spec.Kinds[f.Name] = string(driver.KindLabel)
		}
	}
	return spec
}

// openOther opens a source that a view is to be like.
func openOther(ctx context.Context, url string) (driver.Source, error) { return Open(ctx, url, nil) }

// kinds has a table make the kinds that a view asks for: it knows more ways, such as
// columns of paths.
func (loc *location) kinds(spec *view.Spec) {
	if len(spec.Kinds) == 0 {
		return
	}
	columns := slices.Clone(loc.opt.columns)
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
	loc.opt.columns = append(first, columns...)
	spec.Kinds = nil
}
