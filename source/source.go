// Package source opens datasets by URL: packs, folders of images, of sound and of video, NumPy's .npy
// and .npz files, files of tokens, optical flow and float maps, TFRecords, the files of MNIST, CIFAR, STL-10 and SVHN, tar and zip
// files (those of webdataset, too), HDF5, Zarr and Parquet files, Arrow files (those of `datasets`, too), tables of
// text, volumes, any files as bytes, and files that belong together. What it knows is listed
// in formats.
package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/audio"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/arrowsource"
	"github.com/stokerdata/stoker/source/betonsource"
	"github.com/stokerdata/stoker/source/cachedsource"
	"github.com/stokerdata/stoker/source/cifarsource"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/filesource"
	"github.com/stokerdata/stoker/source/flowsource"
	"github.com/stokerdata/stoker/source/foldersource"
	"github.com/stokerdata/stoker/source/idxsource"
	"github.com/stokerdata/stoker/source/internal/archive"
	"github.com/stokerdata/stoker/source/internal/fixed"
	"github.com/stokerdata/stoker/source/litdatasource"
	"github.com/stokerdata/stoker/source/lmdbsource"
	"github.com/stokerdata/stoker/source/matsource"
	"github.com/stokerdata/stoker/source/mdssource"
	"github.com/stokerdata/stoker/source/npysource"
	"github.com/stokerdata/stoker/source/npzsource"
	"github.com/stokerdata/stoker/source/packsource"
	"github.com/stokerdata/stoker/source/pairsource"
	"github.com/stokerdata/stoker/source/parquetsource"
	"github.com/stokerdata/stoker/source/pathsource"
	"github.com/stokerdata/stoker/source/pointsource"
	"github.com/stokerdata/stoker/source/spoolsource"
	"github.com/stokerdata/stoker/source/stlsource"
	"github.com/stokerdata/stoker/source/tablesource"
	"github.com/stokerdata/stoker/source/tarsource"
	"github.com/stokerdata/stoker/source/tfrecordsource"
	"github.com/stokerdata/stoker/source/tokensource"
	"github.com/stokerdata/stoker/source/view"
	"github.com/stokerdata/stoker/source/zipsource"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/localstore"
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

	// file is the one that the URL names, where the store is its folder.
	file    string
	pairs   []pairsource.Field   // from the URL
	params  map[string]string    // from the URL, of formats that have some
	columns []tablesource.Column // from the URL, of tables
	shards  []string             // the files that a pattern in the URL stands for
	tokens  *tokensource.Options // from the URL, of tokens
}

// format is one kind of dataset.
type format struct {
	name string
	// cached says that its records are worth keeping in the cache (Options.Cache).
	cached bool
	// match reports whether the store holds one. Formats without it are only
	// taken when the URL names them: name:path.
	match func(ctx context.Context, st store.Store, isDir bool) bool
	open  func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error)

	// What a URL may say of it beside the path.

	// window: ?window=N.
	window bool
	// splits: ?split=train. Its files belong to others beside them: the store is
	// the folder of a file that is named (Options.file), and a folder may have
	// several splits.
	splits bool
	// columns: which ones of a table, such as train.csv?image:image=path.
	columns bool
	// tokens: ?window=N and other options of files of tokens.
	tokens bool
	// params: the names of others, such as ?images=FOLDER.
	params []string
	// patterns: several files, by {..} or * in the path.
	patterns bool
	// parts: ?split=train beside the columns, of folders and groups.
	parts bool
	// pairs: fields and their files, as pairs has them, beside params.
	pairs bool
	// own says that only Stoker itself hands over such files: people are not told.
	own bool
}

// withSplits is a format of files that belong together, with splits.
func withSplits(name string, match func(ctx context.Context, st store.Store, isDir bool) bool,
	open func(ctx context.Context, url string, st store.Store, opt *fixed.Options) (driver.Source, error)) format {
	return format{name: name, match: match, splits: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
		return open(ctx, rawURL, st, &fixed.Options{File: opt.file, Split: opt.Split})
	}}
}

// archives is a format of files with other files in them.
func archives(name string, isName func(string) bool, isFile func(context.Context, store.Store, string) bool,
	open func(ctx context.Context, url string, st store.Store, opt *archive.Options) (driver.Source, error)) format {
	return format{name: name, match: isArchive(isName, isFile), patterns: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
		return open(ctx, rawURL, st, &archive.Options{Names: opt.shards, Threads: opt.Threads})
	}}
}

// formats lists everything that Open knows, the more special ones first.
func formats() []format {
	var look listing
	return slices.Concat([]format{
		{name: "pack", match: isPack, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return packsource.Open(ctx, rawURL, st, &packsource.Options{VerifyChunks: opt.VerifyChunks})
		}},
		{name: "spool", own: true, match: func(ctx context.Context, st store.Store, isDir bool) bool {
			return !isDir && spoolsource.IsFile(ctx, st)
		},
			open: func(ctx context.Context, rawURL string, st store.Store, _ *Options) (driver.Source, error) {
				return spoolsource.Open(ctx, rawURL, st)
			}},
		{name: "paths", own: true, match: func(ctx context.Context, st store.Store, isDir bool) bool {
			return !isDir && pathsource.IsFile(ctx, st)
		},
			open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
				return pathsource.Open(ctx, rawURL, st, localstore.New("/"), opt.Threads)
			}},
		{name: "npy", match: named(".npy"), window: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			if opt.Documents {
				return openTokens(ctx, rawURL, st, opt)
			}
			return npysource.Open(ctx, rawURL, st, &npysource.Options{Window: opt.Window})
		}},
		{name: "npz", match: named(".npz"), open: func(ctx context.Context, rawURL string, st store.Store, _ *Options) (driver.Source, error) {
			return npzsource.Open(ctx, rawURL, st)
		}},
		{name: "tfrecord", match: isTFRecord, columns: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return tfrecordsource.Open(ctx, rawURL, st, &tfrecordsource.Options{Columns: opt.columns, Threads: opt.Threads})
		}},
		{name: "mds", match: inFolder(mdssource.Is), parts: true, columns: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return mdssource.Open(ctx, rawURL, st, &mdssource.Options{Columns: opt.columns, Split: opt.Split})
		}},
		{name: "lmdb", match: isLMDB, parts: true, columns: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return lmdbsource.Open(ctx, rawURL, st, &lmdbsource.Options{Columns: opt.columns, Name: opt.Split})
		}},
		{name: "litdata", match: inFolder(litdatasource.Is), columns: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return litdatasource.Open(ctx, rawURL, ofIndex(st), &litdatasource.Options{Columns: opt.columns})
		}},
		{name: betonsource.Format, match: named(".beton"), open: func(ctx context.Context, rawURL string, st store.Store, _ *Options) (driver.Source, error) {
			return betonsource.Open(ctx, rawURL, st)
		}},
		archives("tar", tarsource.IsName, tarsource.IsFile, tarsource.Open),
		archives("zip", zipsource.IsName, zipsource.IsFile, zipsource.Open),
		withSplits("idx", look.has(func(names []string, file string) bool {
			return file == "" && idxsource.HasPair(names) || idxsource.IsName(file)
		}, idxsource.IsFile), idxsource.Open),
		withSplits("cifar", look.has(cifarsource.Is, nil), cifarsource.Open),
		withSplits("stl10", look.has(oneIs(stlsource.IsName), nil), stlsource.Open),
		withSplits("mat", look.has(oneIs(matsource.IsName), matsource.IsFile), matsource.Open),
		{name: "parquet", match: isParquet, open: openParquet, columns: true, patterns: true, parts: true},
		hdf5(),
		zarr(),
		{name: "arrow", match: isArrow, open: openArrow, columns: true, patterns: true},
	}, volumes(), []format{
		clouds(pointsource.PLY, nil),
		clouds(pointsource.KITTI, []string{"numbers"}),
		{name: tokensource.Megatron, match: isMegatron, open: openMegatron, window: true, tokens: true, patterns: true},
		{name: tokensource.Bin, match: isTokens, open: openTokens, window: true, tokens: true, patterns: true},
		{name: "coco", match: isCOCO, open: openCOCO, params: []string{"images", "masks", "split"}},
		{name: "voc", match: isVOC, open: openVOC, params: []string{"split", "masks"}},
		{name: "yolo", match: isYOLO, open: openYOLO, params: []string{"split", "masks"}},
		flow(flowsource.Flo),
		flow(flowsource.PFM),
		table(tablesource.CSV),
		table(tablesource.TSV),
		table(tablesource.JSONL),
		{name: "files", open: func(ctx context.Context, rawURL string, st store.Store, _ *Options) (driver.Source, error) {
			return filesource.Open(ctx, rawURL, st)
		}},
		{name: "pairs", open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			if ofVolumes(opt.pairs) {
				return openVolumes("volumes")(ctx, rawURL, st, opt)
			}
			return pairsource.Open(ctx, rawURL, st, opt.pairs)
		}},
		{name: "audio", match: isSound, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			fo := &foldersource.Options{Threads: opt.Threads, Sound: true}
			if e, err := st.Stat(ctx, ""); err == nil && !e.Dir {
				var dir string
				dir, fo.File = filepath.Split(st.Path(""))
				st = localstore.New(dir)
			}
			return foldersource.Open(ctx, rawURL, st, fo)
		}},
		videos(),
		{name: FormatFolder, match: isFolder, cached: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return foldersource.Open(ctx, rawURL, st, &foldersource.Options{Threads: opt.Threads})
		}},
	})
}

// isParquet matches Parquet files, and folders of them.
func isParquet(ctx context.Context, st store.Store, isDir bool) bool {
	if !isDir {
		return parquetsource.IsName(st.Path("")) || parquetsource.IsFile(ctx, st, "")
	}
	some := false
	return allFiles(ctx, st, func(name string) bool {
		some = some || parquetsource.IsName(name)
		return parquetsource.IsName(name) || slices.Contains(besideTables, strings.ToLower(path.Ext(name))) || strings.HasPrefix(path.Base(name), "_")
	}) && some
}

func openParquet(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	files, folder, err := around(ctx, st)
	if err != nil {
		return nil, err
	}
	return parquetsource.Open(ctx, rawURL, st, &parquetsource.Options{
		Columns: opt.columns, Names: opt.shards, Split: opt.Split, Threads: opt.Threads, Files: files, Folder: folder, Outside: localstore.New("/"),
	})
}

// besideTables are the extensions of files that lie beside tables and describe them.
var besideTables = []string{".json", ".md", ".txt", ".lock", ".yaml", ".yml"}

// besideTokens are the extensions of files that lie beside those of tokens.
var besideTokens = []string{".bin", ".idx", ".json", ".txt", ".md", ".py", ".pkl", ".model", ".sh", ".yaml"}

// isMegatron matches pairs of a .bin file and its index, and folders of them.
func isMegatron(ctx context.Context, st store.Store, isDir bool) bool {
	if !isDir {
		name := tokensource.IndexName(st.Path(""))
		return name != "" && tokensource.IsIndex(ctx, localstore.New(name), "")
	}
	index := ""
	return allFiles(ctx, st, func(name string) bool {
		if index == "" && path.Ext(name) == ".idx" {
			index = name
		}
		return slices.Contains(besideTokens, path.Ext(name))
	}) && index != "" && tokensource.IsIndex(ctx, st, index)
}

// isTokens matches .bin files, and folders of them with the header of llm.c or with
// the names that nanoGPT gives.
func isTokens(ctx context.Context, st store.Store, isDir bool) bool {
	if !isDir {
		return path.Ext(st.Path("")) == ".bin" || tokensource.IsFile(ctx, st, "")
	}
	bin, named := "", false
	return allFiles(ctx, st, func(name string) bool {
		if path.Ext(name) == ".bin" {
			bin = name
			named = named || slices.Contains([]string{"train.bin", "val.bin"}, path.Base(name))
		}
		return slices.Contains(besideTokens, path.Ext(name))
	}) && bin != "" && (named || tokensource.IsFile(ctx, st, bin))
}

// ofTokens are the store and the options with which files of tokens are opened.
func ofTokens(ctx context.Context, st store.Store, opt *Options) (store.Store, *tokensource.Options) {
	o := tokensource.New()
	if opt.tokens != nil {
		*o = *opt.tokens
	}
	o.Names, o.Threads = opt.shards, opt.Threads
	if opt.Window > 0 {
		o.Window = opt.Window
	}
	if e, err := st.Stat(ctx, ""); err == nil && !e.Dir {
		dir, file := filepath.Split(st.Path(""))
		st, o.Names = localstore.New(filepath.Join(dir, ".")), []string{file}
	}
	return st, o
}

func openTokens(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	st, o := ofTokens(ctx, st, opt)
	return tokensource.Open(ctx, rawURL, st, o)
}

func openMegatron(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	st, o := ofTokens(ctx, st, opt)
	return tokensource.OpenMegatron(ctx, rawURL, st, o)
}

// inFolder matches folders with an index, and that index.
func inFolder(is func(ctx context.Context, st store.Store) bool) func(ctx context.Context, st store.Store, isDir bool) bool {
	return func(ctx context.Context, st store.Store, isDir bool) bool {
		if isDir {
			return is(ctx, st)
		}
		dir, file := filepath.Split(st.Path(""))
		return file == "index.json" && is(ctx, localstore.New(dir))
	}
}

// isLMDB matches databases, a file or the folder of one.
func isLMDB(ctx context.Context, st store.Store, isDir bool) bool {
	if isDir {
		return lmdbsource.Is(ctx, st)
	}
	return lmdbsource.IsFile(ctx, st, "")
}

// ofIndex is the folder of an index that a URL names, or the folder that it names.
func ofIndex(st store.Store) store.Store {
	if dir, file := filepath.Split(st.Path("")); file == "index.json" {
		return localstore.New(dir)
	}
	return st
}

// isArrow matches Arrow files, folders of them, and what save_to_disk of `datasets`
// writes.
func isArrow(ctx context.Context, st store.Store, isDir bool) bool {
	if !isDir {
		return arrowsource.IsName(st.Path("")) || arrowsource.IsFile(ctx, st, "")
	}
	if arrowsource.IsSaved(ctx, st) {
		return true
	}
	some := false
	return allFiles(ctx, st, func(name string) bool {
		some = some || arrowsource.IsName(name)
		return arrowsource.IsName(name) || slices.Contains(besideTables, strings.ToLower(path.Ext(name)))
	}) && some
}

func openArrow(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	files, folder, err := around(ctx, st)
	if err != nil {
		return nil, err
	}
	return arrowsource.Open(ctx, rawURL, st, &arrowsource.Options{
		Columns: opt.columns, Names: opt.shards, Threads: opt.Threads, Files: files, Folder: folder, Outside: localstore.New("/"),
	})
}

// around is the store of the folder that a table lies in, or that it is, with its
// absolute path: files that it names lie there.
func around(ctx context.Context, st store.Store) (files store.Store, folder string, err error) {
	files, folder = st, st.Path("")
	if e, err := st.Stat(ctx, ""); err == nil && !e.Dir {
		folder = filepath.Dir(folder)
		files = localstore.New(folder)
	}
	folder, err = filepath.Abs(folder)
	return files, folder, err
}

// flow is a format of float32 pixels.
func flow(name string) format {
	is := func(path string) bool { return flowsource.IsName(name, path) }
	match := func(ctx context.Context, st store.Store, isDir bool) bool {
		if !isDir {
			return is(st.Path(""))
		}
		return allFiles(ctx, st, is)
	}
	return format{name: name, match: match, open: func(ctx context.Context, rawURL string, st store.Store, _ *Options) (driver.Source, error) {
		return flowsource.Open(ctx, rawURL, name, st)
	}}
}

// clouds is a format of point clouds.
func clouds(name string, params []string) format {
	match := func(ctx context.Context, st store.Store, isDir bool) bool {
		if !isDir {
			return pointsource.IsName(name, st.Path(""))
		}
		return allFiles(ctx, st, func(file string) bool { return pointsource.IsName(name, st.Path(file)) })
	}
	return format{name: name, match: match, params: params, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
		to := &pointsource.Options{}
		if text, ok := opt.params["numbers"]; ok {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("numbers=%s: give how many float32 numbers a point has, such as 4", text)
			}
			to.Numbers = n
		}
		return pointsource.Open(ctx, rawURL, name, st, to)
	}}
}

// table is a format of tables of text.
func table(name string) format {
	is := func(path string) bool { return tablesource.IsName(name, path) }
	match := func(ctx context.Context, st store.Store, isDir bool) bool {
		if !isDir {
			return is(st.Path("")) || name == tablesource.JSONL && tablesource.IsJSONL(ctx, st, "")
		}
		return allFiles(ctx, st, is)
	}
	return format{name: name, match: match, columns: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
		to := &tablesource.Options{Columns: opt.columns, Threads: opt.Threads, Outside: localstore.New("/")}
		var err error
		if to.Files, to.Folder, err = around(ctx, st); err != nil {
			return nil, err
		}
		return tablesource.Open(ctx, rawURL, name, st, to)
	}}
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

func isPack(ctx context.Context, st store.Store, isDir bool) bool {
	return isDir && pack.IsPackStore(ctx, st)
}

// named matches files with an extension, and folders of such files.
func named(ext string) func(ctx context.Context, st store.Store, isDir bool) bool {
	return func(ctx context.Context, st store.Store, isDir bool) bool {
		if !isDir {
			return strings.HasSuffix(st.Path(""), ext)
		}
		return allFiles(ctx, st, func(name string) bool { return strings.HasSuffix(name, ext) })
	}
}

func isTFRecord(ctx context.Context, st store.Store, isDir bool) bool {
	if !isDir {
		return tfrecordsource.IsName(st.Path("")) || tfrecordsource.IsFile(ctx, st, "")
	}
	return allFiles(ctx, st, tfrecordsource.IsName)
}

// isArchive matches files that a format knows by their name or their beginning,
// and folders of such files. What webdataset's and other programs put beside them
// (lists, counts, tables of the same data) does not count.
func isArchive(isName func(string) bool, isFile func(context.Context, store.Store, string) bool) func(ctx context.Context, st store.Store, isDir bool) bool {
	return func(ctx context.Context, st store.Store, isDir bool) bool {
		if !isDir {
			return isName(st.Path("")) || isFile(ctx, st, "")
		}
		some := false
		return allFiles(ctx, st, func(name string) bool {
			some = some || isName(name)
			return isName(name) || slices.Contains(besideArchives, strings.ToLower(path.Ext(name)))
		}) && some
	}
}

// besideArchives are the extensions of files that lie beside archives and describe
// them.
var besideArchives = []string{".json", ".jsonl", ".parquet", ".txt", ".md", ".idx", ".index", ".yaml", ".yml", ".csv"}

// isSound matches files of sound, and folders that have some and no images.
func isSound(ctx context.Context, st store.Store, isDir bool) bool {
	is := func(name string, extensions []string) bool {
		return slices.Contains(extensions, strings.ToLower(path.Ext(name)))
	}
	if !isDir {
		return is(st.Path(""), audio.Extensions)
	}
	some := false
	return allFiles(ctx, st, func(name string) bool {
		some = some || is(name, audio.Extensions)
		return !is(name, driver.ImageExtensions)
	}) && some
}

func isFolder(_ context.Context, _ store.Store, isDir bool) bool { return isDir }

// lookAt is how many files of a folder decide what it is.
const lookAt = 1000

// listing is what lies directly in a folder, listed once for all formats that
// are known by the names of a few files.
type listing struct {
	done  bool
	names []string
}

// has matches folders by the names of the files that lie in them, and files by
// their name and those beside them, or by their content.
func (l *listing) has(is func(names []string, file string) bool, content func(ctx context.Context, st store.Store) bool) func(ctx context.Context, st store.Store, isDir bool) bool {
	return func(ctx context.Context, st store.Store, isDir bool) bool {
		if isDir {
			return is(l.of(ctx, st), "")
		}
		dir, file := filepath.Split(st.Path(""))
		return is(l.of(ctx, localstore.New(dir)), file) || content != nil && content(ctx, st)
	}
}

// oneIs matches by the name of a single file.
func oneIs(is func(name string) bool) func(names []string, file string) bool {
	return func(names []string, file string) bool {
		return is(file) || file == "" && slices.ContainsFunc(names, is)
	}
}

// of returns the names of the files that lie directly in st, none where there are
// more than such a data set has.
func (l *listing) of(ctx context.Context, st store.Store) []string {
	if l.done {
		return l.names
	}
	l.done = true
	err := st.List(ctx, "", &store.ListOptions{Shallow: true, Names: true, Threads: 1}, func(e store.Entry) error {
		if len(l.names) == lookAt {
			return errors.New("too many")
		}
		if !e.Dir {
			l.names = append(l.names, e.Name)
		}
		return nil
	})
	if err != nil {
		l.names = nil
	}
	return l.names
}

// allFiles reports whether the first files of a folder, at any depth, all have
// such names.
func allFiles(ctx context.Context, st store.Store, is func(name string) bool) bool {
	seen := 0
	stop := errors.New("enough")
	// Most folders are known by their first file: nothing is read ahead.
	err := st.List(ctx, "", &store.ListOptions{Names: true, Threads: 1}, func(e store.Entry) error {
		if !is(e.Name) || seen == lookAt {
			return stop
		}
		seen++
		return nil
	})
	return seen > 0 && (err == nil || seen == lookAt)
}

// location is where a URL leads.
type location struct {
	format *format
	path   string
	store  store.Store
	opt    Options
	query  string // what stood behind the path, as far as it is not read yet
}

// locate says what rawURL is.
func locate(ctx context.Context, rawURL string, opt *Options) (*location, error) {
	loc := &location{}
	if opt != nil {
		loc.opt = *opt
	}
	named, rest := "", rawURL
	all := formats()
	if scheme, after, ok := strings.Cut(rawURL, ":"); ok {
		for i := range all {
			if all[i].name == strings.ToLower(scheme) {
				if _, err := os.Lstat(rawURL); err != nil { // no file name with a colon in it
					named, rest, loc.format = scheme, strings.TrimPrefix(after, "//"), &all[i]
				}
			}
		}
	}
	var err error
	if loc.format != nil && loc.format.name == "pairs" {
		rest, err = loc.fields(rawURL, rest)
	} else {
		if rest, err = loc.window(rest); err == nil {
			rest = loc.cut(rest)
		}
	}
	if err != nil {
		return nil, err
	}
	if named != "" {
		if rest == "" {
			return nil, fmt.Errorf("cannot open %s: it has no path", rawURL)
		}
		loc.path = rest
	} else if loc.path, err = localPath(rest); err != nil {
		return nil, err
	}
	loc.store = localstore.New(loc.path)
	e, err := loc.store.Stat(ctx, "")
	looked := loc.store // what says which format it is
	if errors.Is(err, store.ErrNotExist) && isPattern(loc.path) {
		if err = loc.expand(ctx); err == nil {
			looked, e = localstore.New(loc.store.Path(loc.opt.shards[0])), store.Entry{}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", rawURL, store.Cause(err))
	}
	for i := 0; loc.format == nil && i < len(all); i++ {
		if f := &all[i]; f.match != nil && f.match(ctx, looked, e.Dir) {
			loc.format = f
		}
	}
	if err := loc.ask(rawURL); err != nil {
		return nil, err
	}
	if loc.format != nil && loc.format.splits && !e.Dir && loc.opt.shards == nil {
		dir, file := filepath.Split(loc.store.Path(""))
		loc.store, loc.opt.file = localstore.New(dir), file
	}
	switch {
	case loc.opt.shards != nil && (loc.format == nil || !loc.format.patterns && !(loc.opt.Documents && loc.format.name == "npy")):
		return nil, fmt.Errorf("cannot open %s: several files by {..} or * are for tar, zip, HDF5, Parquet, Arrow files and tokens; give the folder that they lie in", rawURL)
	case loc.format == nil:
		return nil, fmt.Errorf("cannot open %s: it is a file; give %s", rawURL, supported)
	case loc.opt.Window != 0 && !loc.format.window:
		return nil, fmt.Errorf("cannot open %s: a window is for .npy files and files of tokens, this is a %s", rawURL, loc.format.name)
	case loc.opt.Split != "" && !loc.format.splits && !loc.format.parts && !slices.Contains(loc.format.params, "split"):
		return nil, fmt.Errorf("cannot open %s: a split of its own have MNIST, CIFAR, STL-10, SVHN, COCO, VOC, YOLO, MDS, LMDB, HDF5, Zarr and folders of Parquet files, this is a %s; any data is cut by split=train:0.9,val:0.1", rawURL, loc.format.name)
	case loc.opt.Split != "" && loc.opt.file != "":
		return nil, fmt.Errorf("cannot open %s: a split is of a folder, this is a file", rawURL)
	case loc.opt.Window < 0:
		return nil, fmt.Errorf("cannot open %s: a window has 1 element or more, not %d", rawURL, loc.opt.Window)
	}
	return loc, nil
}

// fields takes the fields off the URL of pairs.
func (loc *location) fields(rawURL, rest string) (string, error) {
	before, query, ok := strings.Cut(rest, "?")
	if !ok {
		return "", fmt.Errorf("cannot open %s: it has no fields; write them behind the folder, such as pairs:data/?image=images/*.jpg&mask=masks/*.png", rawURL)
	}
	if err := loc.pairs(query); err != nil {
		return "", fmt.Errorf("cannot open %s: %w", rawURL, err)
	}
	return before, nil
}

// pairs reads fields and their files, and of volumes how they are cut.
func (loc *location) pairs(query string) (err error) {
	var fields, params []string
	for part := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(part, "="); slices.Contains(volumeParams, name) {
			params = append(params, part)
		} else {
			fields = append(fields, part)
		}
	}
	if len(fields) > 0 {
		if loc.opt.pairs, err = pairsource.ParseQuery(strings.Join(fields, "&")); err != nil {
			return err
		}
	}
	switch {
	case len(params) == 0:
		return nil
	case loc.format.name == "pairs" && !ofVolumes(loc.opt.pairs):
		return fmt.Errorf("%s: only volumes are cut into patches; write volumes: in front of the folder for TIFF files that are some", params[0])
	}
	loc.opt.params, err = parseParams(strings.Join(params, "&"), volumeParams)
	return err
}

// window takes ?window=N off a URL.
func (loc *location) window(rest string) (string, error) {
	before, query, ok := strings.Cut(rest, "?window=")
	if !ok {
		return rest, nil
	}
	if _, err := os.Lstat(rest); err == nil {
		return rest, nil
	}
	if strings.Contains(query, "&") {
		return rest, nil // with other options, of tokens
	}
	n, err := strconv.ParseInt(query, 10, 64)
	if err != nil || n < 1 {
		return "", fmt.Errorf("cannot open %s: window=%s is no number of elements", rest, query)
	}
	loc.opt.Window = n
	return before, nil
}

// cut takes what stands behind a question mark off a path.
func (loc *location) cut(rest string) string {
	before, query, ok := strings.Cut(rest, "?")
	if !ok {
		return rest
	}
	if _, err := os.Lstat(rest); err == nil {
		return rest
	}
	if _, err := os.Lstat(before); err != nil && !(isPattern(before) && strings.Contains(query, "=")) {
		return rest // there is neither
	}
	loc.query = query
	return before
}

// ask reads what stood behind the question mark: the columns of a table, or the
// split of a folder.
func (loc *location) ask(rawURL string) error {
	if loc.query == "" || loc.format == nil {
		return nil
	}
	var err error
	split, isSplit := strings.CutPrefix(loc.query, "split=")
	switch {
	case loc.format.parts:
		if loc.opt.Split, loc.query = splitOff(loc.query, loc.opt.Split); loc.query != "" {
			loc.opt.columns, err = tablesource.ParseQuery(loc.query)
		}
	case loc.format.columns:
		loc.opt.columns, err = tablesource.ParseQuery(loc.query)
	case loc.format.tokens:
		loc.opt.tokens = tokensource.New()
		err = loc.opt.tokens.ParseQuery(loc.query)
	case loc.format.pairs:
		err = loc.pairs(loc.query)
	case loc.format.params != nil:
		loc.opt.params, err = parseParams(loc.query, loc.format.params)
	case loc.format.splits && isSplit && split != "":
		loc.opt.Split = split
	case loc.format.splits:
		err = fmt.Errorf("%q is not known; to say which part is wanted write ?split=train", loc.query)
	default:
		err = fmt.Errorf("%q is not known: columns can be chosen of tables, this is a %s", loc.query, loc.format.name)
	}
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", rawURL, err)
	}
	return nil
}

// splitOff takes split=NAME out of a query.
func splitOff(query, split string) (string, string) {
	var rest []string
	for part := range strings.SplitSeq(query, "&") {
		if name, ok := strings.CutPrefix(part, "split="); ok && name != "" {
			split = name
		} else {
			rest = append(rest, part)
		}
	}
	return split, strings.Join(rest, "&")
}

// cutView takes the views off a URL and adds that of the options. Where the data has
// parts of its own, a split that is a name is one of them, which opt then says.
func cutView(ctx context.Context, rawURL string, opt *Options) (base string, views []view.Spec, out *Options, err error) {
	out = &Options{}
	if opt != nil {
		*out = *opt
	}
	base = rawURL
	if _, err := os.Lstat(rawURL); err != nil { // no file name with a # in it
		if base, views, err = view.CutURL(rawURL); err != nil {
			return "", nil, nil, err
		}
	}
	if !out.View.Empty() {
		views = append(views, *out.View)
	}
	out.View = nil
	if len(views) > 0 && views[0].Split != "" && views[0].Part == "" && !strings.Contains(views[0].Split, ":") {
		out.Split, views[0].Split = views[0].Split, ""
	}
	return base, views, out, nil
}

// HasView says whether a URL or the options ask for a view of the data.
func HasView(rawURL string, opt *Options) bool {
	_, views, _, err := cutView(context.Background(), rawURL, opt)
	return err == nil && len(views) > 0
}

// parseParams reads NAME=VALUE&NAME=VALUE, of the names that there are.
func parseParams(query string, known []string) (map[string]string, error) {
	out := map[string]string{}
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%q is not known; there are %s", name, strings.Join(known, ", "))
		}
		value, err := url.PathUnescape(value)
		if err != nil || value == "" {
			return nil, fmt.Errorf("%q has no value that can be read", part)
		}
		out[name] = value
	}
	return out, nil
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
	return loc.format.name, loc.path, nil
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
	src, err := loc.format.open(ctx, base, loc.store, &loc.opt)
	if err == nil && opt.Cache != nil && loc.format.cached && !slices.ContainsFunc(views, func(v view.Spec) bool { return len(v.Kinds) > 0 }) {
		src = cachedsource.Open(src, *opt.Cache)
	}
	if err == nil {
		at, err := view.AtResolution(ctx, src, views)
		if err != nil {
			_ = src.Close() // the refusal is what counts
			return nil, err
		}
		src = at
	}
	for i := range views {
		if err != nil {
			break
		}
		var v driver.Source
		if v, err = view.Open(ctx, src, &views[i], &view.Options{Threads: opt.Threads, Progress: opt.Looking}); err != nil {
			_ = src.Close() // the refusal is what counts
			return nil, err
		}
		src = v
	}
	return src, err
}

// kinds has a table make the kinds that a view asks for: it knows more ways, such as
// columns of paths.
func (loc *location) kinds(spec *view.Spec) {
	if len(spec.Kinds) == 0 {
		return
	}
	columns := slices.Clone(loc.opt.columns)
	if columns == nil {
		columns = []tablesource.Column{{Name: tablesource.Rest}}
	}
	var first []tablesource.Column
	for _, name := range slices.Sorted(maps.Keys(spec.Kinds)) {
		kind := driver.Kind(spec.Kinds[name])
		if i := slices.IndexFunc(columns, func(c tablesource.Column) bool { return c.Name == name }); i >= 0 {
			columns[i].Kind = kind
		} else if _, err := tablesource.ParseColumn(name + ":" + string(kind)); err == nil {
			first = append(first, tablesource.Column{Name: name, Kind: kind, From: name})
		} else {
			return // the view says what is wrong with it
		}
	}
	loc.opt.columns = append(first, columns...)
	spec.Kinds = nil
}

// localPath returns the path that rawURL means.
func localPath(rawURL string) (string, error) {
	if rawURL == "" {
		return "", fmt.Errorf("no dataset given: give %s", supported)
	}
	scheme, rest, ok := strings.Cut(rawURL, ":")
	if !ok || !isScheme(scheme) {
		return rawURL, nil
	}
	if !strings.EqualFold(scheme, "file") {
		if _, err := os.Lstat(rawURL); err == nil {
			return rawURL, nil // a file name with a colon in it
		}
		return "", fmt.Errorf("cannot open %s: URLs of the scheme %s: are not supported; give %s", rawURL, scheme, supported)
	}
	u, err := url.Parse(rawURL)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot open %s: it is no URL: %w", rawURL, errors.Unwrap(err))
	case u.Host != "" && u.Host != "localhost":
		return "", fmt.Errorf("cannot open %s: it names the machine %s; write file:///path with three slashes", rawURL, u.Host)
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("cannot open %s: file: URLs take no parameters", rawURL)
	case u.Opaque != "":
		p, err := url.PathUnescape(u.Opaque)
		if err != nil {
			return "", fmt.Errorf("cannot open %s: it is no URL: %w", rawURL, err)
		}
		return p, nil
	case u.Path == "" || rest == "":
		return "", fmt.Errorf("cannot open %s: it has no path", rawURL)
	}
	return u.Path, nil
}

// isScheme follows RFC 3986. A single letter is no scheme here.
func isScheme(s string) bool {
	if len(s) < 2 {
		return false
	}
	for i, c := range strings.ToLower(s) {
		if !(c >= 'a' && c <= 'z' || i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return false
		}
	}
	return true
}
