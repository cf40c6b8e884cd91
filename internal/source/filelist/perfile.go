package filelist

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// PerFile is embedded by sources with one record per file.
type PerFile struct {
	List  *List
	About driver.Info
}

// Info implements driver.Source.
func (p *PerFile) Info() *driver.Info { return &p.About }

// Object implements driver.Source.
func (p *PerFile) Object(n int64) driver.Object { return p.List.Object(n, false) }

// Name implements driver.Source.
func (p *PerFile) Name(id int64) string {
	if id < 0 || id >= p.About.Len {
		return fmt.Sprintf("%s, record %d", p.About.URL, id)
	}
	return p.List.Path(int(id))
}

// Path implements driver.Pather.
func (p *PerFile) Path(id int64, _ int) string { return p.List.RelPath(int(id)) }

// First calls f with a file after the other until f takes it, and returns the number of that
// file. The files that cannot be read, or that f refuses, are bad. First fails if all are bad.
// It sets About.Bad.
func (p *PerFile) First(ctx context.Context, f func(o store.Object) error) (int, error) {
	n, l := 0, p.List
	for ; n < l.Len(); n++ {
		err := l.with(ctx, n, f)
		if err == nil {
			break
		}
		if err = l.note(ctx, n, err); err != nil {
			return n, err
		}
	}
	return n, p.Check()
}

// Check sets About.Bad. It fails if all files are bad.
func (p *PerFile) Check() error {
	l := p.List
	l.Bad.Report(&p.About, l.RelPath)
	return l.Bad.Check(l.Len(), func(i int, err error) error { return Located(l.Path(i), err) })
}

// with opens file i for f, if it is not a bad one.
func (l *List) with(ctx context.Context, i int, f func(o store.Object) error) error {
	if err := l.Bad.Of(i); err != nil {
		return err
	}
	o, err := l.Open(ctx, i)
	if err != nil {
		return err
	}
	defer o.Close()
	return f(o)
}

// Located is Locate of a source with one record per file: f appends the extents of a record
// whose file is good.
func (p *PerFile) Located(g *driver.Group, f func(k int, id int64)) {
	Locate(g, &p.About, func(k int, id int64) {
		if err := p.List.Bad.Of(int(id)); err != nil {
			g.Records[k].Err = Located(p.List.Path(int(id)), err)
			return
		}
		f(k, id)
	})
}

// Close implements driver.Source.
func (p *PerFile) Close() error { return nil }

// Sizes sets sizes to those of the files, for a driver.Sizer.
func (l *List) Sizes(ids, sizes []int64) bool {
	for i, id := range ids {
		sizes[i] = l.Size(int(id))
	}
	return true
}
