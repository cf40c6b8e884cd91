package filelist

import (
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
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

// Close implements driver.Source.
func (p *PerFile) Close() error { return nil }

// Sizes sets sizes to those of the files, for a driver.Sizer.
func (l *List) Sizes(ids, sizes []int64) bool {
	for i, id := range ids {
		sizes[i] = l.Size(int(id))
	}
	return true
}
