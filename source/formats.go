package source

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/stokerdata/stoker/internal/source/archive"
	"github.com/stokerdata/stoker/internal/source/arrowsource"
	"github.com/stokerdata/stoker/internal/source/betonsource"
	"github.com/stokerdata/stoker/internal/source/cifarsource"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/filesource"
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/flowsource"
	"github.com/stokerdata/stoker/internal/source/foldersource"
	"github.com/stokerdata/stoker/internal/source/idxsource"
	"github.com/stokerdata/stoker/internal/source/lerobotsource"
	"github.com/stokerdata/stoker/internal/source/litdatasource"
	"github.com/stokerdata/stoker/internal/source/lmdbsource"
	"github.com/stokerdata/stoker/internal/source/matsource"
	"github.com/stokerdata/stoker/internal/source/mdssource"
	"github.com/stokerdata/stoker/internal/source/npysource"
	"github.com/stokerdata/stoker/internal/source/npzsource"
	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/internal/source/parquetsource"
	"github.com/stokerdata/stoker/internal/source/pathsource"
	"github.com/stokerdata/stoker/internal/source/pointsource"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/internal/source/spoolsource"
	"github.com/stokerdata/stoker/internal/source/stlsource"
	"github.com/stokerdata/stoker/internal/source/tablesource"
	"github.com/stokerdata/stoker/internal/source/tarsource"
	"github.com/stokerdata/stoker/internal/source/tfrecordsource"
	"github.com/stokerdata/stoker/internal/source/tokensource"
	"github.com/stokerdata/stoker/internal/source/videosource"
	"github.com/stokerdata/stoker/internal/source/wrap/clips"
	"github.com/stokerdata/stoker/internal/source/zipsource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

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
	// clips: columns may have the paths of videos, whose frames become a field.
	clips bool
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
	open func(ctx context.Context, url string, st store.Store, opt *fixedrecords.Options) (driver.Source, error)) format {
	return format{name: name, match: match, splits: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
		return open(ctx, rawURL, st, &fixedrecords.Options{File: opt.file, Split: opt.Split})
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
	var media selection.Census
	return slices.Concat([]format{
		{name: "pack", match: isPack, params: volumeParams, open: openPack},
		{name: "spool", own: true, match: func(ctx context.Context, st store.Store, isDir bool) bool {
			return !isDir && spoolsource.IsFile(ctx, st)
		},
			open: func(ctx context.Context, rawURL string, st store.Store, _ *Options) (driver.Source, error) {
				return spoolsource.Open(ctx, rawURL, st)
			}},
		{name: "paths", own: true, cached: true, match: func(ctx context.Context, st store.Store, isDir bool) bool {
			return !isDir && pathsource.IsFile(ctx, st)
		},
			open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
				return pathsource.Open(ctx, rawURL, st, func(folder string) store.Store { return localstore.New(folder) }, opt.Threads)
			}},
		{name: "npy", match: named(".npy"), window: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			if opt.Documents {
				return openTokens(ctx, rawURL, st, opt)
			}
			return npysource.Open(ctx, rawURL, st, &npysource.Options{Window: opt.Window})
		}},
		{name: "npz", match: named(".npz"), columns: true, parts: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return npzsource.Open(ctx, rawURL, st, &npzsource.Options{Columns: opt.columns, Split: opt.Split, Threads: opt.Threads})
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
		{name: "lerobot", match: inFolder(lerobotsource.Is), params: []string{"deltas"}, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return lerobotsource.Open(ctx, rawURL, st, &lerobotsource.Options{Deltas: opt.params["deltas"], Threads: opt.Threads})
		}},
		{name: betonsource.Format, match: named(".beton"), open: func(ctx context.Context, rawURL string, st store.Store, _ *Options) (driver.Source, error) {
			return betonsource.Open(ctx, rawURL, st)
		}},
		zarr(), // in front of other zip files
		archives("tar", tarsource.IsName, tarsource.IsFile, tarsource.Open),
		archives("zip", zipsource.IsName, zipsource.IsFile, zipsource.Open),
		withSplits("idx", look.has(func(names []string, file string) bool {
			return file == "" && idxsource.HasPair(names) || idxsource.IsName(file)
		}, idxsource.IsFile), idxsource.Open),
		withSplits("cifar", look.has(cifarsource.Is, nil), cifarsource.Open),
		withSplits("stl10", look.has(oneIs(stlsource.IsName), nil), stlsource.Open),
		withSplits("mat", look.has(oneIs(matsource.IsName), matsource.IsFile), matsource.Open),
		{name: "parquet", match: isParquet, open: openParquet, columns: true, clips: true, patterns: true, parts: true},
		hdf5(),
		{name: "arrow", match: isArrow, open: openArrow, columns: true, clips: true, patterns: true},
		pairs(), // in front of what its files are
	}, volumes(&media), []format{
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
		{name: "audio", match: mostly(&media, selection.Sound, readable(selection.Sound)), params: []string{"split"}, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			fo := &foldersource.Options{Threads: opt.Threads, Sound: true, Split: splitOf(opt)}
			if e, err := st.Stat(ctx, ""); err == nil && !e.Dir {
				var dir string
				dir, fo.File = filepath.Split(st.Path(""))
				st = beside(st, dir)
			}
			return foldersource.Open(ctx, rawURL, st, fo)
		}},
		{name: "video", match: mostly(&media, selection.Video, readable(selection.Video)), open: openVideos, params: videosource.Params},
		{name: FormatFolder, match: isFolder, cached: true, params: []string{"split"}, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return foldersource.Open(ctx, rawURL, st, &foldersource.Options{Threads: opt.Threads, Split: splitOf(opt)})
		}},
	})
}

func pairs() format {
	return format{name: "pairs", pairs: true, match: func(ctx context.Context, st store.Store, isDir bool) bool {
		return isDir && pairsource.Layout(ctx, st) != nil
	}, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
		switch {
		case ofVolumes(opt.pairs):
			return openVolumes("volumes")(ctx, rawURL, st, opt)
		case opt.pairs == nil:
			return nil, fmt.Errorf("cannot open %s: %w", rawURL, pairsource.NoFields(ctx, st))
		}
		return pairsource.Open(ctx, rawURL, st, opt.pairs)
	}}
}

func openParquet(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	files, folder, err := around(ctx, st)
	if err != nil {
		return nil, err
	}
	return withClips(ctx, opt, clips.Options{Files: files, Folder: folder, Outside: outside(st)}, func(columns []column.Want) (driver.Source, error) {
		return parquetsource.Open(ctx, rawURL, st, &parquetsource.Options{
			Columns: columns, Names: opt.shards, Split: opt.Split, Threads: opt.Threads, Files: files, Folder: folder, Outside: outside(st),
		})
	})
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
		st, o.Names = beside(st, join(dir, ".")), []string{file}
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

// ofIndex is the folder of an index that a URL names, or the folder that it names.
func ofIndex(st store.Store) store.Store {
	if dir, file := filepath.Split(st.Path("")); file == "index.json" {
		return beside(st, dir)
	}
	return st
}

func openArrow(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	files, folder, err := around(ctx, st)
	if err != nil {
		return nil, err
	}
	return withClips(ctx, opt, clips.Options{Files: files, Folder: folder, Outside: outside(st)}, func(columns []column.Want) (driver.Source, error) {
		return arrowsource.Open(ctx, rawURL, st, &arrowsource.Options{
			Columns: columns, Names: opt.shards, Threads: opt.Threads, Files: files, Folder: folder, Outside: outside(st),
		})
	})
}

// around is the store of the folder that a table lies in, or that it is, with its
// absolute path: files that it names lie there.
func around(ctx context.Context, st store.Store) (files store.Store, folder string, err error) {
	files, folder = st, st.Path("")
	if e, err := st.Stat(ctx, ""); err == nil && !e.Dir {
		folder = folderOf(folder)
		files = beside(st, folder)
	}
	if scheme, rest := origin(folder); scheme != "" {
		return files, "/" + rest, nil // what paths of the table may begin with
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
	return format{name: name, match: match, columns: true, clips: true, open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
		to := &tablesource.Options{Threads: opt.Threads, Outside: outside(st)}
		var err error
		if to.Files, to.Folder, err = around(ctx, st); err != nil {
			return nil, err
		}
		return withClips(ctx, opt, clips.Options{Files: to.Files, Folder: to.Folder, Outside: to.Outside}, func(columns []column.Want) (driver.Source, error) {
			to.Columns = columns
			return tablesource.Open(ctx, rawURL, name, st, to)
		})
	}}
}
