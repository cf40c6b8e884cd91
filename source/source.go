// Package source opens datasets by URL: packs, folders of images, NumPy's .npy
// and .npz files, optical flow and float maps, TFRecords, the files of MNIST, CIFAR, STL-10 and SVHN, tar and zip
// files (those of webdataset, too), Arrow files (those of `datasets`, too), tables of
// text, any files as bytes, and files that belong together. What it knows is listed
// in formats.
package source

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/arrowsource"
	"github.com/stokerdata/stoker/source/cifarsource"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/filesource"
	"github.com/stokerdata/stoker/source/flowsource"
	"github.com/stokerdata/stoker/source/foldersource"
	"github.com/stokerdata/stoker/source/idxsource"
	"github.com/stokerdata/stoker/source/internal/archive"
	"github.com/stokerdata/stoker/source/matsource"
	"github.com/stokerdata/stoker/source/npysource"
	"github.com/stokerdata/stoker/source/npzsource"
	"github.com/stokerdata/stoker/source/packsource"
	"github.com/stokerdata/stoker/source/pairsource"
	"github.com/stokerdata/stoker/source/stlsource"
	"github.com/stokerdata/stoker/source/tablesource"
	"github.com/stokerdata/stoker/source/tarsource"
	"github.com/stokerdata/stoker/source/tfrecordsource"
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

	// file is the one that the URL names, where the store is its folder.
	file    string
	pairs   []pairsource.Field   // from the URL
	columns []tablesource.Column // from the URL, of tables
	shards  []string             // the files that a pattern in the URL stands for
}

// format is one kind of dataset.
type format struct {
	name string
	// match reports whether the store holds one. Formats without it are only
	// taken when the URL names them: name:path.
	match func(ctx context.Context, st store.Store, isDir bool) bool
	open  func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error)
}

// formats lists everything that Open knows, the more special ones first.
func formats() []format {
	var look listing
	return []format{
		{"pack", isPack, func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return packsource.Open(ctx, rawURL, st, &packsource.Options{VerifyChunks: opt.VerifyChunks})
		}},
		{"npy", named(".npy"), func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return npysource.Open(ctx, rawURL, st, &npysource.Options{Window: opt.Window})
		}},
		{"npz", named(".npz"), func(ctx context.Context, rawURL string, st store.Store, _ *Options) (driver.Source, error) {
			return npzsource.Open(ctx, rawURL, st)
		}},
		{"tfrecord", isTFRecord, func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return tfrecordsource.Open(ctx, rawURL, st, &tfrecordsource.Options{Threads: opt.Threads})
		}},
		{"tar", isArchive(tarsource.IsName, tarsource.IsFile), func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return tarsource.Open(ctx, rawURL, st, &archive.Options{Names: opt.shards, Threads: opt.Threads})
		}},
		{"zip", isArchive(zipsource.IsName, zipsource.IsFile), func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return zipsource.Open(ctx, rawURL, st, &archive.Options{Names: opt.shards, Threads: opt.Threads})
		}},
		{"idx", look.has(func(names []string, file string) bool {
			return file == "" && idxsource.HasPair(names) || idxsource.IsName(file)
		}, idxsource.IsFile), func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return idxsource.Open(ctx, rawURL, st, &idxsource.Options{File: opt.file, Split: opt.Split})
		}},
		{"cifar", look.has(cifarsource.Is, nil), func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return cifarsource.Open(ctx, rawURL, st, &cifarsource.Options{File: opt.file, Split: opt.Split})
		}},
		{"stl10", look.has(oneIs(stlsource.IsName), nil), func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return stlsource.Open(ctx, rawURL, st, &stlsource.Options{File: opt.file, Split: opt.Split})
		}},
		{"mat", look.has(oneIs(matsource.IsName), matsource.IsFile), func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return matsource.Open(ctx, rawURL, st, &matsource.Options{File: opt.file, Split: opt.Split})
		}},
		{formatArrow, isArrow, openArrow},
		flow(flowsource.Flo),
		flow(flowsource.PFM),
		table(tablesource.CSV),
		table(tablesource.TSV),
		table(tablesource.JSONL),
		{"files", nil, func(ctx context.Context, rawURL string, st store.Store, _ *Options) (driver.Source, error) {
			return filesource.Open(ctx, rawURL, st)
		}},
		{"pairs", nil, func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return pairsource.Open(ctx, rawURL, st, opt.pairs)
		}},
		{FormatFolder, isFolder, func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return foldersource.Open(ctx, rawURL, st, &foldersource.Options{Threads: opt.Threads})
		}},
	}
}

// formatArrow is the format of Arrow files.
const formatArrow = "arrow"

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
		return arrowsource.IsName(name) || slices.Contains([]string{".json", ".md", ".txt", ".lock"}, strings.ToLower(path.Ext(name)))
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
	return format{name, match, func(ctx context.Context, rawURL string, st store.Store, _ *Options) (driver.Source, error) {
		return flowsource.Open(ctx, rawURL, name, st)
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
	return format{name, match, func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
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
func IsTable(format string) bool {
	return format == tablesource.CSV || format == tablesource.TSV || format == tablesource.JSONL || format == formatArrow
}

// hasSplits says whether a format is one of files that belong to others beside
// them: its store is the folder of a file that is named (Options.file), and a
// folder may have several splits.
func (f *format) hasSplits() bool {
	return slices.Contains([]string{"idx", "cifar", "stl10", "mat"}, f.name)
}

// Formats returns the names that may stand in front of a path: npy:PATH.
func Formats() []string {
	var all []string
	for _, f := range formats() {
		all = append(all, f.name)
	}
	return all
}

// FormatFolder is the format of folders of images, as Format and driver.Info have
// it.
const FormatFolder = "folder"

// supported is for messages.
const supported = "a path or a file: URL of a pack, of a folder of images, of .npy, .npz, .flo, .pfm, TFRecord, tar, zip, Arrow, CSV, TSV or JSONL files, of MNIST, CIFAR, STL-10 or SVHN, files:PATH for any files as bytes, or pairs:PATH?image=images/*.jpg&mask=masks/*.png for files that belong together"

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
	if loc.format != nil && loc.format.hasSplits() && !e.Dir && loc.opt.shards == nil {
		dir, file := filepath.Split(loc.store.Path(""))
		loc.store, loc.opt.file = localstore.New(dir), file
	}
	switch {
	case loc.opt.shards != nil && (loc.format == nil || !slices.Contains([]string{"tar", "zip", formatArrow}, loc.format.name)):
		return nil, fmt.Errorf("cannot open %s: several files by {..} or * are for tar, zip and Arrow files; give the folder that they lie in", rawURL)
	case loc.format == nil:
		return nil, fmt.Errorf("cannot open %s: it is a file; give %s", rawURL, supported)
	case loc.opt.Window != 0 && loc.format.name != "npy":
		return nil, fmt.Errorf("cannot open %s: a window is for .npy files, this is a %s", rawURL, loc.format.name)
	case loc.opt.Split != "" && !loc.format.hasSplits():
		return nil, fmt.Errorf("cannot open %s: a split is of MNIST, CIFAR, STL-10 and SVHN, this is a %s", rawURL, loc.format.name)
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
	var err error
	if loc.opt.pairs, err = pairsource.ParseQuery(query); err != nil {
		return "", fmt.Errorf("cannot open %s: %w", rawURL, err)
	}
	return before, nil
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
	if _, err := os.Lstat(before); err != nil {
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
	case IsTable(loc.format.name):
		loc.opt.columns, err = tablesource.ParseQuery(loc.query)
	case loc.format.hasSplits() && isSplit && split != "":
		loc.opt.Split = split
	case loc.format.hasSplits():
		err = fmt.Errorf("%q is not known; to say which part is wanted write ?split=train", loc.query)
	default:
		err = fmt.Errorf("%q is not known: columns can be chosen of tables, this is a %s", loc.query, loc.format.name)
	}
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", rawURL, err)
	}
	return nil
}

// Format says what lies at rawURL, without opening it: "pack", FormatFolder,
// "npy", "npz", "tfrecord", "idx", "cifar", "stl10", "mat", "tar", "zip", "arrow",
// "flo", "pfm", "csv", "tsv", "jsonl", "files" or "pairs"; and at which path.
func Format(ctx context.Context, rawURL string, opt *Options) (name, path string, err error) {
	loc, err := locate(ctx, rawURL, opt)
	if err != nil {
		return "", "", err
	}
	return loc.format.name, loc.path, nil
}

// Open opens the dataset at rawURL: a path, a URL of the scheme file, or the name
// of a format and a path, such as files:/data/scans.
func Open(ctx context.Context, rawURL string, opt *Options) (driver.Source, error) {
	loc, err := locate(ctx, rawURL, opt)
	if err != nil {
		return nil, err
	}
	return loc.format.open(ctx, rawURL, loc.store, &loc.opt)
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
