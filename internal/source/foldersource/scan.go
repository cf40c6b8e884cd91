package foldersource

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/internal/source/splits"
	"github.com/stokerdata/stoker/store"
)

// Listing is the sorted list of the files of a folder. It has no pointer per file, so a listing
// of ten million files costs the garbage collector nothing.
type Listing struct {
	// Store is the folder.
	Store store.Store
	// Classes are the sorted names of the class folders, nil for a flat folder.
	Classes []string
	// Bad are files and folders that cannot be read.
	Bad filelist.Bad
	// Left are files and folders that are not records, by reason.
	Left *selection.Left

	dirs     []string // relative to the folder, "" for the folder itself
	names    []byte   // all file names, joined
	versions []byte   // all versions, joined
	ends     []end
	dir      []uint32 // folder of file i
	label    []int32  // class of file i, -1 in a flat folder
	size     []int64
	mtime    []int64  // nanoseconds
	id       []uint64 // the store's numbers
}

// end has the ends of the name and the version of a file.
type end struct{ name, version uint64 }

// ScanOptions select the files of a folder.
type ScanOptions struct {
	// Kind is the kind of the files, selection.Image by default.
	Kind selection.Kind
	// Only is the name of the one file to list, "" for all files.
	Only string
	// Split is the split to list of a folder with splits. URL is used in messages.
	Split, URL string
	// Threads limits the folders listed at the same time, 0 for four per core.
	Threads int

	one bool // the folder is a split of another folder
}

// Len returns the number of files.
func (l *Listing) Len() int { return len(l.ends) }

// Path returns the path of file i relative to the folder, with slashes.
func (l *Listing) Path(i int) string {
	var space [256]byte
	b := space[:0]
	if dir := l.dirs[l.dir[i]]; dir != "" {
		b = append(append(b, dir...), '/')
	}
	return string(append(b, l.nameBytes(i)...))
}

// FullPath returns the path of file i for messages.
func (l *Listing) FullPath(i int) string { return l.Store.Path(l.Path(i)) }

// Entry returns the entry of file i in the listing.
func (l *Listing) Entry(i int) store.Entry {
	return store.Entry{
		Name: l.Path(i), Size: l.size[i], ID: l.id[i], Version: string(l.versions[l.from(i).version:l.ends[i].version]), ModTime: time.Unix(0, l.mtime[i]),
	}
}

// Place adds the path of file i to an error.
func (l *Listing) Place(i int, err error) error {
	return filelist.Located(l.FullPath(i), err)
}

// Label returns the class of file i, -1 in a flat folder.
func (l *Listing) Label(i int) int32 { return l.label[i] }

// Size returns the size of file i at the time of the scan.
func (l *Listing) Size(i int) int64 { return l.size[i] }

// ModTime returns the time of the last change in nanoseconds since 1970, at the time of the
// scan.
func (l *Listing) ModTime(i int) int64 { return l.mtime[i] }

func (l *Listing) from(i int) end {
	if i == 0 {
		return end{}
	}
	return l.ends[i-1]
}

func (l *Listing) nameBytes(i int) []byte { return l.names[l.from(i).name:l.ends[i].name] }

// Bytes returns the total size of all readable files and the size of the largest one.
func (l *Listing) Bytes() (total, largest int64) {
	for i, n := range l.size {
		if l.Bad.Of(i) != nil {
			continue
		}
		total += n
		largest = max(largest, n)
	}
	return total, largest
}

// Fingerprint identifies the listing by the names, order, classes, sizes and times of change of
// all files. It is 32 hexadecimal digits.
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
		put(l.ends[i].name, 8)
		put(uint64(l.dir[i]), 4)
		put(uint64(l.size[i]), 8)
		put(uint64(l.mtime[i]), 8)
	}
	sum := h.Sum128()
	return fmt.Sprintf("%016x%016x", sum.Hi, sum.Lo)
}

// Scan lists the files of st in the order of torchvision's ImageFolder. Class folders are
// sorted by name, the folders in a class by path, files by name. Hidden files and folders are
// skipped, and so are the files that package selection rejects. Folders without a selected file
// are not classes. A folder without class folders is flat: its own files, without labels. A
// folder that cannot be read counts as one bad file in it with a path that ends in a slash.
func Scan(ctx context.Context, st store.Store, opt ScanOptions) (*Listing, error) {
	if opt.Kind == selection.None {
		opt.Kind = selection.Image
	}
	// Over a network each request takes a round trip, so the requests run at the same time.
	whole := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var tops, parts []string
	top := make(chan error, 1)
	go func() {
		var err error
		if tops, err = foldersOf(ctx, st); err != nil {
			cancel() // the rest is not needed
		} else if parts = splits.Among(tops); len(parts) > 0 && opt.Only == "" && !opt.one {
			cancel()
		}
		top <- err
	}()
	l := &Listing{Store: st}
	dirs := map[string]*scannedDir{}
	var sorted []*scannedDir
	var err error
	l.Left, err = selection.Scan(ctx, st, selection.Options{
		Kind: opt.Kind, Only: opt.Only, Threads: opt.Threads,
	}, func(f selection.File) error {
		dir, name := "", f.Name
		if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
			dir, name = name[:slash], name[slash+1:]
		}
		d := dirs[dir]
		if d == nil {
			d = &scannedDir{rel: dir}
			dirs[dir] = d
			sorted = append(sorted, d)
		}
		d.add(name, &f.Entry)
		if f.Bad != nil {
			return d.bad.Note(len(d.ends)-1, f.Bad)
		}
		return nil
	})
	if terr := <-top; terr != nil {
		return nil, terr
	}
	switch {
	case opt.Only != "" || opt.one:
	case len(parts) > 0:
		return scanSplit(whole, st, tops, parts, opt)
	case opt.Split != "":
		return nil, fmt.Errorf("cannot open %s: it has no splits, which are folders called train, val or test", opt.URL)
	}
	if err != nil {
		return nil, err
	}
	// The order of Python's sorted(os.walk(...)): by class, then by whole path.
	slices.SortFunc(sorted, func(a, b *scannedDir) int {
		if c := strings.Compare(a.class(), b.class()); c != 0 {
			return c
		}
		return strings.Compare(a.rel, b.rel)
	})
	// Folders are classes if one of them has a file.
	classes := slices.ContainsFunc(sorted, func(d *scannedDir) bool { return d.rel != "" && d.name(len(d.ends)-1) != "" })
	for _, d := range sorted {
		switch {
		case !classes && d.rel == "":
			l.add(d, -1)
			continue
		case !classes: // folders that cannot be read
			l.Left.AddBad(d.rel+"/", d.bad.Of(0))
			continue
		case d.rel == "":
			for i := range d.ends {
				if err := d.bad.Of(i); err != nil {
					l.Left.AddBad(d.name(i), err)
				} else {
					l.Left.Add(d.name(i), "files next to the class folders, which have no class")
				}
			}
			continue
		}
		if c := d.class(); len(l.Classes) == 0 || l.Classes[len(l.Classes)-1] != c {
			l.Classes = append(l.Classes, c)
		}
		l.add(d, int32(len(l.Classes)-1))
	}
	for _, dir := range tops {
		if _, is := slices.BinarySearch(l.Classes, dir); !is {
			l.Left.AddFolder(dir, len(l.Classes) > 0)
		}
	}
	return l, l.check()
}

// foldersOf lists the folders directly in a folder.
func foldersOf(ctx context.Context, st store.Store) (dirs []string, err error) {
	looked := make(chan error, 1)
	go func() {
		e, err := st.Stat(ctx, "")
		if err == nil && !e.Dir {
			err = fmt.Errorf("%s is not a folder", st)
		}
		looked <- err
	}()
	dirs, err = filelist.Folders(ctx, st, "")
	if serr := <-looked; serr != nil {
		return nil, serr
	}
	return dirs, err
}

// check limits the number of classes and folders.
func (l *Listing) check() error {
	if len(l.Classes) > math.MaxInt32 || len(l.dirs) > math.MaxInt32 {
		return fmt.Errorf("%s has more than 2^31 folders", l.Store)
	}
	return nil
}

// scannedDir has the files directly in a folder, sorted by name, without a pointer per file.
type scannedDir struct {
	rel      string
	names    []byte
	versions []byte
	ends     []end
	size     []int64
	mtime    []int64
	id       []uint64
	bad      filelist.Bad
}

func (d *scannedDir) add(name string, e *store.Entry) {
	d.names = append(d.names, name...)
	d.versions = append(d.versions, e.Version...)
	d.ends = append(d.ends, end{uint64(len(d.names)), uint64(len(d.versions))})
	d.size = append(d.size, e.Size)
	d.mtime = append(d.mtime, e.ModTime.UnixNano())
	d.id = append(d.id, e.ID)
}

func (d *scannedDir) name(i int) string {
	from := uint64(0)
	if i > 0 {
		from = d.ends[i-1].name
	}
	return string(d.names[from:d.ends[i].name])
}

// class returns the first folder of the path.
func (d *scannedDir) class() string {
	c, _, _ := strings.Cut(d.rel, "/")
	return c
}

func (l *Listing) add(d *scannedDir, label int32) {
	l.dirs = append(l.dirs, d.rel)
	n, v := uint64(len(l.names)), uint64(len(l.versions))
	l.Bad.Append(len(l.ends), &d.bad)
	l.names = append(l.names, d.names...)
	l.versions = append(l.versions, d.versions...)
	for i := range d.ends {
		l.ends = append(l.ends, end{n + d.ends[i].name, v + d.ends[i].version})
		l.dir = append(l.dir, uint32(len(l.dirs)-1))
		l.label = append(l.label, label)
	}
	l.size = append(l.size, d.size...)
	l.mtime = append(l.mtime, d.mtime...)
	l.id = append(l.id, d.id...)
}
