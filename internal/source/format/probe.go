package format

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/place"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/store"
)

// Probe is a file or a folder whose format is not known yet. Every format's Match gets the
// same Probe, so that names are listed once for all of them.
type Probe struct {
	Store store.Store
	Dir   bool

	first, siblings *names
	media           selection.Census
}

// names are the first names of a listing.
type names struct {
	all []string
	// whole is set if all holds every name.
	whole bool
}

// MaxNames is the number of files in a folder that decide its format.
const MaxNames = 1000

// list returns the first names in a store.
func list(ctx context.Context, st store.Store, most int, shallow bool) *names {
	n := &names{}
	stop := errors.New("enough")
	err := st.List(ctx, "", &store.ListOptions{Shallow: shallow, Names: true, Threads: 1, Bad: filelist.LeaveOut}, func(e store.Entry) error {
		if e.Dir {
			return nil
		}
		if len(n.all) == most {
			return stop
		}
		n.all = append(n.all, e.Name)
		return nil
	})
	if n.whole = err == nil; err != nil && err != stop {
		n.all = nil
	}
	return n
}

// Folder returns the folder that holds a file, and the file's name. For a folder it returns
// the folder itself and "".
func (p *Probe) Folder() (folder store.Store, file string) { return folderOf(p.Store, p.Dir) }

func folderOf(st store.Store, isDir bool) (folder store.Store, file string) {
	if isDir {
		return st, ""
	}
	dir, file := filepath.Split(st.Path(""))
	return place.At(st, dir), file
}

// Siblings returns the names of the files that lie directly in the folder, or directly in
// the folder of the file, and the name of the file, "" for a folder. There are none if
// the folder has more than MaxNames.
func (p *Probe) Siblings(ctx context.Context) (all []string, file string) {
	folder, file := p.Folder()
	if p.siblings == nil {
		if p.siblings = list(ctx, folder, MaxNames, true); !p.siblings.whole {
			p.siblings.all = nil
		}
	}
	return p.siblings.all, file
}

// First returns the name of the first file of the folder, at any depth, "" for an empty folder. Most folders are known
// by it.
func (p *Probe) First(ctx context.Context) string {
	if p.first == nil {
		p.first = list(ctx, p.Store, 1, false)
	}
	if len(p.first.all) == 0 {
		return ""
	}
	return p.first.all[0]
}

// All reports whether is accepts the names of the first MaxNames files of the folder, at
// any depth. An empty folder has none.
func (p *Probe) All(ctx context.Context, is func(name string) bool) bool {
	if first := p.First(ctx); first == "" || !is(first) {
		return false
	}
	if len(p.first.all) == 1 && !p.first.whole {
		p.first = list(ctx, p.Store, MaxNames, false)
	}
	return len(p.first.all) > 0 && !slices.ContainsFunc(p.first.all, func(name string) bool { return !is(name) })
}

// MatchFolders returns a Match that accepts folders.
func MatchFolders(is func(ctx context.Context, st store.Store) bool) func(context.Context, *Probe) bool {
	return func(ctx context.Context, p *Probe) bool { return p.Dir && is(ctx, p.Store) }
}

// MatchIndex returns a Match that accepts folders with an index, and the file index itself.
func MatchIndex(index string, is func(ctx context.Context, st store.Store) bool) func(context.Context, *Probe) bool {
	return func(ctx context.Context, p *Probe) bool {
		if p.Dir {
			return is(ctx, p.Store)
		}
		folder, file := p.Folder()
		return file == index && is(ctx, folder)
	}
}

// MatchFiles returns a Match that accepts files by their name, or by their content if isFile
// is not nil, and folders of such files. A folder may also hold files that isOther
// accepts, if it is not nil: those that describe the data.
func MatchFiles(isName func(name string) bool, isFile func(ctx context.Context, st store.Store, name string) bool, isOther func(name string) bool) func(context.Context, *Probe) bool {
	return func(ctx context.Context, p *Probe) bool {
		if !p.Dir {
			return isName(p.Store.Path("")) || isFile != nil && isFile(ctx, p.Store, "")
		}
		some := false
		return p.All(ctx, func(name string) bool {
			is := isName(name)
			some = some || is
			return is || isOther != nil && isOther(name)
		}) && some
	}
}

// MatchMedia returns a Match that accepts folders whose media are mostly of one kind, and
// files that isName accepts. Without isName it accepts files of the kind by their name, or else by their content.
func MatchMedia(kind selection.Kind, isName func(name string) bool) func(context.Context, *Probe) bool {
	return func(ctx context.Context, p *Probe) bool {
		switch {
		case p.Dir:
			return p.media.Of(ctx, p.Store) == kind
		case isName != nil:
			return isName(p.Store.Path(""))
		}
		t := selection.ByName(p.Store.Path(""))
		if !t.Known {
			t = selection.OfFile(ctx, p.Store)
		}
		return t.Known && t.Kind == kind && t.Unread == ""
	}
}

// Extensions returns a function that accepts the names with one of the extensions, in upper
// or lower case.
func Extensions(extensions ...string) func(name string) bool {
	return func(name string) bool { return slices.Contains(extensions, strings.ToLower(path.Ext(name))) }
}

// IsNote accepts the files that describe tables next to them.
var IsNote = Extensions(".json", ".md", ".txt", ".lock", ".yaml", ".yml")
