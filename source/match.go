package source

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/arrowsource"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/lmdbsource"
	"github.com/stokerdata/stoker/internal/source/parquetsource"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/internal/source/tfrecordsource"
	"github.com/stokerdata/stoker/internal/source/tokensource"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/store"
)

// What says which format a path holds, by names and by the first bytes.

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

// besideTables are the extensions of files that lie beside tables and describe them.
var besideTables = []string{".json", ".md", ".txt", ".lock", ".yaml", ".yml"}

// besideTokens are the extensions of files that lie beside those of tokens.
var besideTokens = []string{".bin", ".idx", ".json", ".txt", ".md", ".py", ".pkl", ".model", ".sh", ".yaml"}

// isMegatron matches pairs of a .bin file and its index, and folders of them.
func isMegatron(ctx context.Context, st store.Store, isDir bool) bool {
	if !isDir {
		name := tokensource.IndexName(st.Path(""))
		return name != "" && tokensource.IsIndex(ctx, beside(st, name), "")
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

// inFolder matches folders with an index, and that index.
func inFolder(is func(ctx context.Context, st store.Store) bool) func(ctx context.Context, st store.Store, isDir bool) bool {
	return func(ctx context.Context, st store.Store, isDir bool) bool {
		if isDir {
			return is(ctx, st)
		}
		dir, file := filepath.Split(st.Path(""))
		return file == "index.json" && is(ctx, beside(st, dir))
	}
}

// isLMDB matches databases, a file or the folder of one.
func isLMDB(ctx context.Context, st store.Store, isDir bool) bool {
	if isDir {
		return lmdbsource.Is(ctx, st)
	}
	return lmdbsource.IsFile(ctx, st, "")
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

// mostly matches files that a format knows by their name, and folders whose media are
// mostly of a kind.
func mostly(media *selection.Census, kind selection.Kind, is func(name string) bool) func(ctx context.Context, st store.Store, isDir bool) bool {
	return func(ctx context.Context, st store.Store, isDir bool) bool {
		if !isDir {
			return is(st.Path(""))
		}
		return media.Of(ctx, st) == kind
	}
}

// readable matches names of files of a kind that are read.
func readable(kind selection.Kind) func(name string) bool {
	return func(name string) bool {
		t := selection.ByName(name)
		return t.Known && t.Kind == kind && t.Unread == ""
	}
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
		return is(l.of(ctx, beside(st, dir)), file) || content != nil && content(ctx, st)
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
	err := st.List(ctx, "", &store.ListOptions{Shallow: true, Names: true, Threads: 1, Bad: filelist.LeaveOut}, func(e store.Entry) error {
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
	err := st.List(ctx, "", &store.ListOptions{Names: true, Threads: 1, Bad: filelist.LeaveOut}, func(e store.Entry) error {
		if !is(e.Name) || seen == lookAt {
			return stop
		}
		seen++
		return nil
	})
	return seen > 0 && (err == nil || seen == lookAt)
}
