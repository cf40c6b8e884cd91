// Package filelist has the common parts of sources of ordinary files: a list of the objects of
// a store in the order of their names, and the beginning of Locate.
package filelist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// List is a list of objects with their versions, sorted by name, byte by byte, unless the
// caller adds them in another order. It has no pointer per object, so a list of ten million
// objects costs the garbage collector nothing.
type List struct {
	Store store.Store
	// Bad are the objects that cannot be read.
	Bad Bad

	names    []byte
	versions []byte
	ends     []end
	size     []int64
	mtime    []int64
	id       []uint64
	total    int64
	most     int64
}

// end has the ends of the name and the version of an object.
type end struct{ name, version uint64 }

// Scan lists the objects of a store whose names keep accepts (nil for all), in all folders that
// are not hidden. It fails if an object or folder cannot be listed, since a training run must
// not lose data silently. The limit threads is the number of folders listed at the same time, 0
// for the store's choice.
func Scan(ctx context.Context, st store.Store, keep func(name string) bool, threads int) (*List, error) {
	return scan(ctx, st, keep, threads, func(l *List, e store.Entry, err error) error {
		if !store.IsObjectError(err) {
			return err
		}
		return fmt.Errorf("%w: the number of its records is not known; move it out of %s to go on without it", err, st)
	})
}

// ScanRecords is Scan for files that are a record each. Objects and folders that cannot be
// listed are in List.Bad.
func ScanRecords(ctx context.Context, st store.Store, keep func(name string) bool, threads int) (*List, error) {
	return scan(ctx, st, keep, threads, (*List).AddBad)
}

func scan(ctx context.Context, st store.Store, keep func(name string) bool, threads int, bad func(l *List, e store.Entry, err error) error) (*List, error) {
	l := &List{Store: st}
	err := st.List(ctx, "", &store.ListOptions{Keep: keep, Threads: threads, Bad: func(e store.Entry, err error) error { return bad(l, e, err) }},
		func(e store.Entry) error {
			l.Add(e)
			return nil
		})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// AddBad appends an object or a folder that cannot be read. It returns err if err concerns more
// than this object (Bad.Note).
func (l *List) AddBad(e store.Entry, err error) error {
	if err := l.Bad.Note(l.Len(), err); err != nil {
		return err
	}
	l.Add(e)
	return nil
}

// Named lists the objects of a store that have these names, in this order.
func Named(ctx context.Context, st store.Store, names []string) (*List, error) {
	l, err := NamedRecords(ctx, st, names)
	for i := 0; err == nil && i < l.Len(); i++ {
		err = l.Bad.Of(i)
	}
	return l, err
}

// NamedRecords is Named for files that are a record each. Objects that cannot be read are in
// List.Bad.
func NamedRecords(ctx context.Context, st store.Store, names []string) (*List, error) {
	l := &List{Store: st}
	for _, name := range names {
		e, err := st.Stat(ctx, name)
		if err == nil && e.Dir {
			err = fmt.Errorf("%s is a folder, and not a file", st.Path(name))
		}
		if err == nil {
			l.Add(e)
		} else if err := l.AddBad(store.Entry{Name: name}, err); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Add appends an object.
func (l *List) Add(e store.Entry) {
	l.names = append(l.names, e.Name...)
	l.versions = append(l.versions, e.Version...)
	l.ends = append(l.ends, end{uint64(len(l.names)), uint64(len(l.versions))})
	l.size = append(l.size, e.Size)
	l.mtime = append(l.mtime, mtime(e.ModTime))
	l.id = append(l.id, e.ID)
	l.total += e.Size
	l.most = max(l.most, e.Size)
}

// mtime returns a time in nanoseconds since 1970, 0 for the zero time.
func mtime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Len returns the number of objects.
func (l *List) Len() int { return len(l.ends) }

func (l *List) from(i int) end {
	if i == 0 {
		return end{}
	}
	return l.ends[i-1]
}

// Name returns the name of object i in the store.
func (l *List) Name(i int) string { return string(l.names[l.from(i).name:l.ends[i].name]) }

// Entry returns the entry of object i in the listing.
func (l *List) Entry(i int) store.Entry {
	e := store.Entry{
		Name: l.Name(i), Size: l.size[i], Version: string(l.versions[l.from(i).version:l.ends[i].version]), ID: l.id[i],
	}
	if l.mtime[i] != 0 {
		e.ModTime = time.Unix(0, l.mtime[i])
	}
	return e
}

// Path returns the path of object i for messages.
func (l *List) Path(i int) string { return l.Store.Path(l.Name(i)) }

// RelPath returns the path of object i below the store: its name. If the store is one object,
// it is the last part of the store's path.
func (l *List) RelPath(i int) string {
	if name := l.Name(i); name != "" {
		return name
	}
	p := l.Store.Path("")
	return p[bytes.LastIndexByte([]byte(p), '/')+1:]
}

// Size returns the size of object i when it was listed.
func (l *List) Size(i int) int64 { return l.size[i] }

// Bytes returns the total size of all objects and the size of the largest one.
func (l *List) Bytes() (total, largest int64) { return l.total, l.most }

// Object returns object i for a driver.Source.
func (l *List) Object(i int64, keep bool) driver.Object {
	return driver.Object{Store: l.Store, Entry: l.Entry(int(i)), Keep: keep}
}

// Open opens object i. It fails if the object has changed since it was listed.
func (l *List) Open(ctx context.Context, i int) (store.Object, error) {
	return store.OpenEntry(ctx, l.Store, l.Entry(i))
}

// Fingerprint identifies the objects by names, sizes and times of change, and by the strings
// also, which affect the records. It has 32 characters.
func (l *List) Fingerprint(also ...string) string {
	h := xxh3.New()
	_, _ = h.Write(l.names)
	for i := range l.ends {
		writeNumbers(h, l.ends[i].name, uint64(l.size[i]), uint64(l.mtime[i]))
	}
	for _, s := range also {
		_, _ = h.WriteString(s + "\x00")
	}
	return Sum(h)
}

func writeNumbers(h *xxh3.Hasher, values ...uint64) {
	var num [64]byte
	for k, v := range values {
		for b := range 8 {
			num[8*k+b] = byte(v >> (8 * b))
		}
	}
	_, _ = h.Write(num[:8*len(values)])
}

// Sum returns a checksum as 32 hexadecimal digits, the format of fingerprints.
func Sum(h *xxh3.Hasher) string {
	sum := h.Sum128()
	return fmt.Sprintf("%016x%016x", sum.Hi, sum.Lo)
}

// Find returns the index of the last element of the ascending list first that is not above v.
// If the list has the number of each file's first record, the index is the file of record v.
func Find(first []int64, v int64) int {
	return sort.Search(len(first), func(i int) bool { return first[i] > v }) - 1
}

// Locate is the Locate method of most sources. It calls f, which appends the extents, for each
// record that exists and has no error yet.
func Locate(g *driver.Group, info *driver.Info, f func(k int, id int64)) {
	for k, id := range g.IDs {
		if Has(g, k, info) {
			f(k, id)
		}
		g.Next()
	}
}

// LocateEach is Locate for sources whose record numbers include the epoch. number returns the
// record number without the epoch.
func LocateEach(g *driver.Group, info *driver.Info, number func(n int64) int64, f func(k int, n int64)) {
	for k, n := range g.IDs {
		if uint64(number(n)) >= uint64(info.Len) {
			outside(g, k, info)
		}
		if g.Records[k].Err == nil {
			f(k, n)
		}
		g.Next()
	}
}

// Has reports whether record k of a group may be located. It sets the record's Err if there is
// no such record.
func Has(g *driver.Group, k int, info *driver.Info) bool {
	if uint64(g.IDs[k]) >= uint64(info.Len) {
		outside(g, k, info)
	}
	return g.Records[k].Err == nil
}

func outside(g *driver.Group, k int, info *driver.Info) {
	if rec := &g.Records[k]; rec.Err == nil {
		rec.Err = fmt.Errorf("record %d is outside of the %d records of %s", g.IDs[k], info.Len, info.URL)
	}
}

// ErrPlace adds the path of a file to an error about its content.
func ErrPlace(l *List, object int64, format string, err error) error {
	var se *store.Error
	if errors.As(err, &se) {
		return err // it has the path already
	}
	return fmt.Errorf("%s%s: %w", l.Path(int(object)), format, err)
}

// Head returns the first n bytes of an object, or all bytes of a smaller one. It returns nil
// for an object that cannot be read, since callers only probe for a format.
func Head(ctx context.Context, st store.Store, name string, n int) []byte {
	o, err := st.Open(ctx, name)
	if err != nil {
		return nil
	}
	defer o.Close()
	b := make([]byte, min(o.Size(), int64(n)))
	if o.ReadAt(ctx, b, 0) != nil {
		return nil
	}
	return b
}

// Quoted returns the first few of several names for a message.
func Quoted(all []string) string {
	const most = 10
	if len(all) == 0 {
		return "none"
	}
	var out []string
	for _, s := range all[:min(len(all), most)] {
		out = append(out, fmt.Sprintf("%.100q", s))
	}
	if len(all) > most {
		out = append(out, fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(out, ", ")
}
