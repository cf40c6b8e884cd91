package foldersource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/source/driver"
)

// maxDepth bounds the nesting of folders; it only ever ends a loop of symbolic
// links that the loop check cannot see.
const maxDepth = 64

// Listing is the sorted list of the files of a folder. It holds no pointer per
// file: a listing of ten million files costs the garbage collector nothing.
type Listing struct {
	// Root is the folder.
	Root string
	// Classes are the names of the class folders in their order, nil for a
	// flat folder.
	Classes []string
	// Skipped are folders that could not be read and files that lie beside
	// the class folders, with the reason.
	Skipped []Skipped

	dirs  []string // relative to Root, slash-separated, "" for Root itself
	names []byte   // all file names, one after the other
	ends  []uint64 // end of name i in names
	dir   []uint32 // folder of file i
	label []int32  // class of file i, -1 in a flat folder
	size  []int64
	mtime []int64 // nanoseconds
}

// names counts files, and those whose name says that they are images.
type names struct{ any, images int }

func (n *names) add(files []scannedFile) {
	n.any += len(files)
	for _, f := range files {
		if hasImageExtension(f.name) {
			n.images++
		}
	}
}

// Skipped is something that a scan left out.
type Skipped struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`

	beside bool // a readable file that belongs to no class
}

// ScanOptions say which files count.
type ScanOptions struct {
	// AllFiles lists every regular file; otherwise those with an extension of
	// driver.ImageExtensions.
	AllFiles bool
	// Threads bounds the folders read at once, 0 for four per core.
	Threads int
}

// Len is the number of files.
func (l *Listing) Len() int { return len(l.ends) }

// Path is the path of file i relative to Root, with slashes.
func (l *Listing) Path(i int) string { return path.Join(l.dirs[l.dir[i]], string(l.nameBytes(i))) }

// FullPath is the path of file i with Root.
func (l *Listing) FullPath(i int) string {
	var space [256]byte
	b := append(space[:0], l.Root...)
	if !strings.HasSuffix(l.Root, "/") {
		b = append(b, '/')
	}
	if dir := l.dirs[l.dir[i]]; dir != "" {
		b = append(append(b, dir...), '/')
	}
	return string(append(b, l.nameBytes(i)...))
}

// Label is the class of file i, -1 in a flat folder.
func (l *Listing) Label(i int) int32 { return l.label[i] }

// Size and ModTime (in nanoseconds) are those of the time of the scan.
func (l *Listing) Size(i int) int64 { return l.size[i] }

// ModTime is the time of the last change in nanoseconds since 1970.
func (l *Listing) ModTime(i int) int64 { return l.mtime[i] }

func (l *Listing) nameBytes(i int) []byte {
	start := uint64(0)
	if i > 0 {
		start = l.ends[i-1]
	}
	return l.names[start:l.ends[i]]
}

// Bytes is the size of all files together, MaxBytes that of the largest one.
func (l *Listing) Bytes() (total, largest int64) {
	for _, n := range l.size {
		total += n
		largest = max(largest, n)
	}
	return total, largest
}

// Fingerprint identifies the listing: names, order, classes, sizes and times
// of change of all files, as 32 hexadecimal digits.
func (l *Listing) Fingerprint() string {
	h := xxh3.New()
	var num [20]byte
	put := func(v uint64, n int) {
		for k := range n {
			num[k] = byte(v >> (8 * k))
		}
		_, _ = h.Write(num[:n])
	}
	for _, c := range l.Classes {
		put(uint64(len(c)), 4)
		_, _ = h.WriteString(c)
	}
	for _, d := range l.dirs {
		put(uint64(len(d)), 4)
		_, _ = h.WriteString(d)
	}
	_, _ = h.Write(l.names)
	for i := range l.ends {
		put(l.ends[i], 8)
		put(uint64(l.dir[i]), 4)
		put(uint64(l.size[i]), 8)
		put(uint64(l.mtime[i]), 8)
	}
	sum := h.Sum128()
	return fmt.Sprintf("%016x%016x", sum.Hi, sum.Lo)
}

// folder is what was found below one top folder (a class, or the root of a
// flat folder).
type folder struct {
	dirs    []scannedDir
	skipped []Skipped
}

type scannedDir struct {
	rel     string
	entries []scannedFile
}

type scannedFile struct {
	name  string
	size  int64
	mtime int64
}

// Scan lists the files of root in the order of torchvision's ImageFolder: the
// class folders sorted by name, in each of them the folders sorted by path and
// the files sorted by name. Hidden files and folders are skipped. A folder
// without class folders is flat: its own files, without labels.
func Scan(ctx context.Context, root string, opt ScanOptions) (*Listing, error) {
	st, err := os.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("cannot open the folder %s: %w", root, reason(err))
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%s is not a folder", root)
	}
	top, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("cannot list the folder %s: %w", root, reason(err))
	}
	var classes []string
	for _, e := range top {
		if hidden(e.Name()) {
			continue
		}
		if isDir(root, e) {
			classes = append(classes, e.Name())
		}
	}
	slices.Sort(classes)

	threads := opt.Threads
	if threads <= 0 {
		// Reading folders waits for the disk more than for the processor.
		threads = 4 * runtime.GOMAXPROCS(0)
	}
	w := &walker{root: root, opt: opt}
	found := make([]folder, len(classes))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(threads)
	for k, name := range classes {
		g.Go(func() error { return w.walk(gctx, name, &found[k], nil, 0) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}

	l := &Listing{Root: root}
	rootFiles, err := w.files(ctx, "", top, &l.Skipped)
	if err != nil {
		return nil, err
	}
	var below names
	for k := range found {
		l.Skipped = append(l.Skipped, found[k].skipped...)
		for _, d := range found[k].dirs {
			below.add(d.entries)
		}
	}
	var above names
	above.add(rootFiles)
	// Folders make classes when there are images in them; files without a
	// telling name count as images where no file has one.
	if below.any == 0 || below.images == 0 && above.images > 0 {
		l.add(scannedDir{rel: "", entries: rootFiles}, -1)
		for k := range found {
			for _, d := range found[k].dirs {
				if len(d.entries) > 0 {
					l.Skipped = append(l.Skipped, Skipped{d.rel + "/", "a folder without images beside images without classes", true})
				}
			}
		}
		return l, l.check()
	}
	l.Classes = classes
	for k := range found {
		for _, d := range found[k].dirs {
			l.add(d, int32(k))
		}
	}
	for _, f := range rootFiles {
		l.Skipped = append(l.Skipped, Skipped{f.name, "lies beside the class folders, so it has no class", true})
	}
	return l, l.check()
}

// check finishes a listing.
func (l *Listing) check() error {
	sort.SliceStable(l.Skipped, func(a, b int) bool { return l.Skipped[a].Path < l.Skipped[b].Path })
	if len(l.Classes) > math.MaxInt32 || len(l.dirs) > math.MaxInt32 {
		return fmt.Errorf("%s has more than 2^31 folders", l.Root)
	}
	return nil
}

func (l *Listing) add(d scannedDir, label int32) {
	if len(d.entries) == 0 {
		return
	}
	l.dirs = append(l.dirs, d.rel)
	for _, f := range d.entries {
		l.names = append(l.names, f.name...)
		l.ends = append(l.ends, uint64(len(l.names)))
		l.dir = append(l.dir, uint32(len(l.dirs)-1))
		l.label = append(l.label, label)
		l.size = append(l.size, f.size)
		l.mtime = append(l.mtime, f.mtime)
	}
}

type walker struct {
	root string
	opt  ScanOptions
}

// walk lists the folder rel and all below it into out, in sorted order.
// parents are the folders above, to see a symbolic link that leads back.
func (w *walker) walk(ctx context.Context, rel string, out *folder, parents []os.FileInfo, depth int) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	full := filepath.Join(w.root, rel)
	st, err := os.Stat(full)
	if err == nil && depth > maxDepth {
		err = fmt.Errorf("folders are nested more than %d deep", maxDepth)
	}
	if err != nil {
		out.skipped = append(out.skipped, Skipped{Path: rel + "/", Reason: reason(err).Error()})
		return nil
	}
	for _, p := range parents {
		if os.SameFile(p, st) {
			return nil // a link back to a parent: its files are listed there
		}
	}
	entries, err := os.ReadDir(full)
	if err != nil {
		out.skipped = append(out.skipped, Skipped{Path: rel + "/", Reason: reason(err).Error()})
		return nil
	}
	files, err := w.files(ctx, rel, entries, &out.skipped)
	if err != nil {
		return err
	}
	if depth == 0 {
		// Folders are sorted by their whole path at the end, as Python's
		// sorted(os.walk(...)) does.
		defer func() {
			slices.SortFunc(out.dirs, func(a, b scannedDir) int { return strings.Compare(a.rel, b.rel) })
		}()
	}
	out.dirs = append(out.dirs, scannedDir{rel: rel, entries: files})
	parents = append(parents, st)
	for _, e := range entries {
		if hidden(e.Name()) || !isDir(full, e) {
			continue
		}
		if err := w.walk(ctx, path.Join(rel, e.Name()), out, parents, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// files returns the wanted files among the entries of rel, sorted by name.
func (w *walker) files(ctx context.Context, rel string, entries []os.DirEntry, skipped *[]Skipped) ([]scannedFile, error) {
	var out []scannedFile
	for i, e := range entries {
		if i%1024 == 0 {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
		}
		name := e.Name()
		if hidden(name) || e.IsDir() || (!w.opt.AllFiles && !hasImageExtension(name)) {
			continue
		}
		info, err := e.Info()
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			info, err = os.Stat(filepath.Join(w.root, rel, name))
		}
		switch {
		case err != nil:
			*skipped = append(*skipped, Skipped{Path: path.Join(rel, name), Reason: reason(err).Error()})
			continue
		case info.IsDir():
			continue // a link to a folder
		case !info.Mode().IsRegular():
			*skipped = append(*skipped, Skipped{Path: path.Join(rel, name), Reason: "not a regular file"})
			continue
		}
		out = append(out, scannedFile{name: name, size: info.Size(), mtime: info.ModTime().UnixNano()})
	}
	slices.SortFunc(out, func(a, b scannedFile) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// isDir follows symbolic links, as torchvision does.
func isDir(parent string, e os.DirEntry) bool {
	if e.IsDir() {
		return true
	}
	if e.Type()&fs.ModeSymlink == 0 {
		return false
	}
	st, err := os.Stat(filepath.Join(parent, e.Name()))
	return err == nil && st.IsDir()
}

func hasImageExtension(name string) bool {
	dot := strings.LastIndexByte(name, '.')
	return dot >= 0 && slices.Contains(driver.ImageExtensions, strings.ToLower(name[dot:]))
}

// reason is the plain cause of a file system error, without the path that the
// message names already.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
