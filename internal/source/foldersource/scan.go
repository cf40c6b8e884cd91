package foldersource

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Listing is the sorted list of the files of a folder. It holds no pointer per
// file: a listing of ten million files costs the garbage collector nothing.
type Listing struct {
	// Store is the folder.
	Store store.Store
	// Classes are the names of the class folders in their order, nil for a
	// flat folder.
	Classes []string
	// Bad are files and folders that cannot be read.
	Bad filelist.Bad
	// Skipped are files that lie beside the class folders, and folders of a flat folder.
	Skipped []Skipped

	dirs     []string // relative to the folder, "" for the folder itself
	names    []byte   // all file names, one after the other
	versions []byte   // and their versions
	ends     []end
	dir      []uint32 // folder of file i
	label    []int32  // class of file i, -1 in a flat folder
	size     []int64
	mtime    []int64  // nanoseconds
	id       []uint64 // the store's numbers
}

// end says where the name and the version of a file end.
type end struct{ name, version uint64 }

// names counts files, and those whose name says that they are what is looked for.
type names struct{ any, known int }

func (n *names) add(name string, opt *ScanOptions) {
	n.any++
	if opt.hasExtension(name) {
		n.known++
	}
}

// Skipped is something that a scan left out.
type Skipped struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// ScanOptions say which files count.
type ScanOptions struct {
	// AllFiles lists every regular file; otherwise those with an extension of
	// Extensions, of which nil stands for driver.ImageExtensions.
	AllFiles   bool
	Extensions []string
	// Only is the name of the one file that is listed, "" for all.
	Only string
	// Threads bounds the folders read at once, 0 for four per core.
	Threads int
}

// Len is the number of files.
func (l *Listing) Len() int { return len(l.ends) }

// Path is the path of file i relative to the folder, with slashes.
func (l *Listing) Path(i int) string {
	var space [256]byte
	b := space[:0]
	if dir := l.dirs[l.dir[i]]; dir != "" {
		b = append(append(b, dir...), '/')
	}
	return string(append(b, l.nameBytes(i)...))
}

// FullPath is the path of file i, for messages.
func (l *Listing) FullPath(i int) string { return l.Store.Path(l.Path(i)) }

// Place puts the path of file i in front of what is wrong with it.
func (l *Listing) Place(i int, err error) error {
	var se *store.Error
	if errors.As(err, &se) {
		return err // names it already
	}
	return fmt.Errorf("%s: %w", l.FullPath(i), err)
}

// Entry describes file i as it was listed.
func (l *Listing) Entry(i int) store.Entry {
	return store.Entry{
		Name: l.Path(i), Size: l.size[i], ID: l.id[i], Version: string(l.versions[l.from(i).version:l.ends[i].version]), ModTime: time.Unix(0, l.mtime[i]),
	}
}

// Label is the class of file i, -1 in a flat folder.
func (l *Listing) Label(i int) int32 { return l.label[i] }

// Size and ModTime (in nanoseconds) are those of the time of the scan.
func (l *Listing) Size(i int) int64 { return l.size[i] }

// ModTime is the time of the last change in nanoseconds since 1970.
func (l *Listing) ModTime(i int) int64 { return l.mtime[i] }

func (l *Listing) from(i int) end {
	if i == 0 {
		return end{}
	}
	return l.ends[i-1]
}

func (l *Listing) nameBytes(i int) []byte { return l.names[l.from(i).name:l.ends[i].name] }

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
		put(l.ends[i].name, 8)
		put(uint64(l.dir[i]), 4)
		put(uint64(l.size[i]), 8)
		put(uint64(l.mtime[i]), 8)
	}
	sum := h.Sum128()
	return fmt.Sprintf("%016x%016x", sum.Hi, sum.Lo)
}

// Scan lists the files of st in the order of torchvision's ImageFolder: the
// class folders sorted by name, in each of them the folders sorted by path and
// the files sorted by name. Hidden files and folders are skipped. A folder
// without class folders is flat: its own files, without labels. A folder that cannot be read
// counts as one bad file in it, whose path ends in a slash.
func Scan(ctx context.Context, st store.Store, opt ScanOptions) (*Listing, error) {
	// Over a network each question is a way there and back: they are asked at once.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var classes []string
	top := make(chan error, 1)
	go func() {
		var err error
		if classes, err = classesOf(ctx, st); err != nil {
			cancel() // nobody needs the rest
		}
		top <- err
	}()
	l := &Listing{Store: st}
	dirs := map[string]*scannedDir{}
	var sorted []*scannedDir
	var above, below names
	add := func(e *store.Entry) *scannedDir {
		dir, name := "", e.Name
		if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
			dir, name = name[:slash], name[slash+1:]
			if name != "" { // of a folder
				below.add(name, &opt)
			}
		} else {
			above.add(name, &opt)
		}
		d := dirs[dir]
		if d == nil {
			d = &scannedDir{rel: dir}
			dirs[dir] = d
			sorted = append(sorted, d)
		}
		d.add(name, e)
		return d
	}
	err := st.List(ctx, "", &store.ListOptions{
		Folder:  true,
		Threads: opt.Threads,
		Shallow: opt.Only != "",
		Keep: func(name string) bool {
			return opt.Only == "" && (opt.AllFiles || opt.hasExtension(name)) || opt.Only != "" && name == opt.Only
		},
		Bad: func(e store.Entry, err error) error {
			if e.Dir {
				e.Name += "/"
			}
			d := add(&e)
			return d.bad.Note(len(d.ends)-1, err)
		},
	}, func(e store.Entry) error {
		if !e.Dir {
			add(&e)
		}
		return nil
	})
	if terr := <-top; terr != nil {
		return nil, terr
	}
	if err != nil {
		return nil, err
	}
	// As Python's sorted(os.walk(...)) does: in the order of the class, and in
	// it of the whole path.
	slices.SortFunc(sorted, func(a, b *scannedDir) int {
		if c := strings.Compare(a.class(), b.class()); c != 0 {
			return c
		}
		return strings.Compare(a.rel, b.rel)
	})
	// Folders make classes when there are images (or sounds) in them; files without a
	// telling name count as such where no file has one.
	if below.any == 0 || below.known == 0 && above.known > 0 {
		for _, d := range sorted {
			if d.rel == "" {
				l.add(d, -1)
			} else {
				reason := "a folder without images beside images without classes"
				if d.name(0) == "" { // that cannot be read
					reason = d.why(0, reason)
				}
				l.Skipped = append(l.Skipped, Skipped{d.rel + "/", reason})
			}
		}
		return l, l.check()
	}
	l.Classes = classes
	for _, d := range sorted {
		if k, ok := slices.BinarySearch(classes, d.class()); ok {
			l.add(d, int32(k))
			continue
		}
		for i := range d.ends {
			l.Skipped = append(l.Skipped, Skipped{strings.TrimPrefix(d.rel+"/"+d.name(i), "/"), d.why(i, "lies beside the class folders, so it has no class")})
		}
	}
	return l, l.check()
}

// classesOf lists the folders that lie directly in a folder, sorted.
func classesOf(ctx context.Context, st store.Store) (classes []string, err error) {
	looked := make(chan error, 1)
	go func() {
		e, err := st.Stat(ctx, "")
		if err == nil && !e.Dir {
			err = fmt.Errorf("%s is not a folder", st)
		}
		looked <- err
	}()
	err = st.List(ctx, "", &store.ListOptions{Folder: true, Shallow: true, Keep: none, Bad: filelist.LeaveOut}, func(e store.Entry) error {
		if e.Dir {
			classes = append(classes, e.Name)
		}
		return nil
	})
	if serr := <-looked; serr != nil {
		return nil, serr
	}
	slices.Sort(classes)
	return classes, err
}

func none(string) bool { return false }

// check finishes a listing.
func (l *Listing) check() error {
	sort.SliceStable(l.Skipped, func(a, b int) bool { return l.Skipped[a].Path < l.Skipped[b].Path })
	if len(l.Classes) > math.MaxInt32 || len(l.dirs) > math.MaxInt32 {
		return fmt.Errorf("%s has more than 2^31 folders", l.Store)
	}
	return nil
}

// scannedDir is what was found directly in a folder, sorted by name, without a
// pointer per file.
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

// why says why file i is left out.
func (d *scannedDir) why(i int, reason string) string {
	if err := d.bad.Of(i); err != nil {
		return store.Cause(err).Error()
	}
	return reason
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

// class is the first folder of the path.
func (d *scannedDir) class() string {
	c, _, _ := strings.Cut(d.rel, "/")
	return c
}

func (l *Listing) add(d *scannedDir, label int32) {
	l.dirs = append(l.dirs, d.rel)
	n, v := uint64(len(l.names)), uint64(len(l.versions))
	l.names = append(l.names, d.names...)
	l.versions = append(l.versions, d.versions...)
	l.Bad.Append(len(l.ends), &d.bad)
	for i := range d.ends {
		l.ends = append(l.ends, end{n + d.ends[i].name, v + d.ends[i].version})
		l.dir = append(l.dir, uint32(len(l.dirs)-1))
		l.label = append(l.label, label)
	}
	l.size = append(l.size, d.size...)
	l.mtime = append(l.mtime, d.mtime...)
	l.id = append(l.id, d.id...)
}

// hasExtension says whether a name says that a file is what is looked for.
func (o *ScanOptions) hasExtension(name string) bool {
	known := o.Extensions
	if known == nil {
		known = driver.ImageExtensions
	}
	dot := strings.LastIndexByte(name, '.')
	return dot >= 0 && slices.Contains(known, strings.ToLower(name[dot:]))
}
