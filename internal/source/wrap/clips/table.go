package clips

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// OpenTable opens a table, whose format has format.ClipParam. Columns that the URL asks for as
// clips become clips, and so do columns that look like paths of videos.
func OpenTable(ctx context.Context, f *format.Format, r *format.Request) (driver.Source, error) {
	rest, wanted, err := Cut(r.Columns)
	if err != nil {
		return nil, err
	}
	table := *r
	table.Columns = rest
	src, err := f.Open(ctx, &table)
	if err != nil {
		return nil, err
	}
	if t, ok := src.(interface{ VideoPaths() []string }); ok {
		for _, name := range t.VideoPaths() {
			wanted = append(wanted, Clip{Name: name, Column: name})
		}
	}
	if len(wanted) == 0 {
		return src, nil
	}
	near, err := r.Options()
	if err != nil {
		_ = src.Close() // the refusal is what counts
		return nil, err
	}
	return Open(ctx, src, wanted, &Options{Files: near.Files, Folder: near.Folder, Outside: near.Outside, Threads: r.Threads})
}
