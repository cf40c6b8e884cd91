package selection

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

const (
	textReason   = "text, tables and other files that are not media"
	systemReason = "thumbnail databases and settings of a file manager"
	litterReason = "folders that a system or a program leaves behind"
	otherReason  = "content that is not of a known format"
)

// Left counts the files that were not selected, by reason. Its methods may be called by several
// goroutines at the same time.
type Left struct {
	st     store.Store
	kind   Kind
	mu     sync.Mutex
	groups map[string]*group
	seen   map[uint64]struct{} // names counted so far, since a restarted listing repeats names
	bad    []driver.Skipped
}

type group struct {
	n     int64
	first []string // the first names, sorted
}

// Empty returns a Left for a folder without skipped files.
func Empty(st store.Store) *Left { return &Left{st: st} }

// add counts a file, or a folder whose name ends in a slash.
func (l *Left) add(name, reason string) {
	key := xxh3.HashString(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, again := l.seen[key]; again {
		return
	}
	if l.groups == nil {
		l.groups, l.seen = map[string]*group{}, map[uint64]struct{}{}
	}
	l.seen[key] = struct{}{}
	g := l.groups[reason]
	if g == nil {
		g = &group{}
		l.groups[reason] = g
	}
	g.n++
	if at, _ := slices.BinarySearch(g.first, name); at < driver.MaxExamples {
		g.first = slices.Insert(g.first, at, name)
		g.first = g.first[:min(len(g.first), driver.MaxExamples)]
	}
}

// Add counts a file that the caller skips, or a folder if the name ends in a slash.
func (l *Left) Add(name, reason string) { l.add(name, reason) }

// AddFolder counts a folder without a selected file. The folder counts as an empty class
// if classes is true.
func (l *Left) AddFolder(dir string, classes bool) {
	switch {
	case Litter(dir+"/") != "":
		l.add(dir+"/", litterReason)
	case classes:
		l.add(dir+"/", fmt.Sprintf("folders without %s, which are not classes", l.kind.Files()))
	}
}

// AddBad notes a file that cannot be read and does not become a bad record.
func (l *Left) AddBad(name string, err error) {
	l.bad = append(l.bad, driver.Skipped{Path: name, Reason: store.Cause(err).Error()})
}

// other counts a file of another kind.
func (l *Left) other(name string, t Type) {
	switch {
	case t.Kind != None:
		l.add(name, fmt.Sprintf("%s in a folder of %s, which %s:%s reads", t.Kind.Files(), l.kind.Files(), t.Kind.format(), l.st.Path("")))
	case ByName(name).Known:
		l.add(name, textReason)
	default:
		l.add(name, otherReason)
	}
}

// Skipped lists the counted files by reason. The listing must be finished.
func (l *Left) Skipped() []driver.Skipped {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = nil // the listing is over
	out := slices.Clone(l.bad)
	for _, reason := range slices.Sorted(maps.Keys(l.groups)) {
		g := l.groups[reason]
		out = append(out, driver.Skipped{Path: g.first[0], Reason: reason, Beside: true, Count: g.n, Examples: g.first})
	}
	return out
}

// NothingError is the error of a folder without records.
type NothingError struct{ text string }

// Error names the wanted files and some files of the folder.
func (e *NothingError) Error() string { return e.text }

// Nothing returns the error of a folder without records. The message has the wanted kind of
// file, the usual names of such files (ends), and some files of the folder.
func (l *Left) Nothing(wanted, ends string) error {
	var have []string
	for _, s := range l.Skipped() {
		have = append(have, fmt.Sprintf("%s (%s)", s.Path, s.Reason))
	}
	text := fmt.Sprintf("no %s in %s or its subfolders: looked for %s", wanted, l.st, ends)
	if len(have) > 0 {
		text += "; found " + strings.Join(have[:min(len(have), driver.MaxExamples)], ", ")
	}
	return &NothingError{text}
}

// litter has lower-case names of folders without data.
var litter = []string{
	"__macosx", "@eadir", "lost+found", ".ipynb_checkpoints", "#recycle", "$recycle.bin", "@recycle", "#snapshot", "@tmp",
	"system volume information", "__pycache__", ".trashes",
}

// Litter returns the part of a path up to a folder that a system or a program has created, such
// as __MACOSX, "" if there is none. A folder has a name that ends in a slash.
func Litter(name string) string {
	for at := 0; ; {
		n := strings.IndexByte(name[at:], '/')
		if n < 0 {
			return ""
		}
		switch name[at] {
		case '_', '@', 'l', 'L', '.', '#', '$', 's', 'S': // the first letters of litter
			if slices.Contains(litter, strings.ToLower(name[at:at+n])) {
				return name[:at+n]
			}
		}
		at += n + 1
	}
}

// System reports whether a file belongs to a file manager.
func System(name string) bool {
	switch strings.ToLower(path.Base(name)) {
	case "thumbs.db", "ehthumbs.db", "desktop.ini", ".ds_store", "icon\r":
		return true
	}
	return false
}
