// Package filesource reads a folder of any files: each file is one record, its
// bytes as they are, in the order of the paths. It decodes nothing.
package filesource

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Field is the name of the one field.
const Field = "data"

// MaxFileBytes is the largest file.
const MaxFileBytes = 1 << 36

type source struct {
	list *filelist.List
	info driver.Info
}

// Open lists the files of st, or the one file that it is. Files that appear later
// are not seen, files that change later fail with an error that names them.
func Open(ctx context.Context, url string, st store.Store) (driver.Source, error) {
	list, err := filelist.Scan(ctx, st, nil, 0)
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no file in %s or its subfolders", st)
	}
	_, largest := list.Bytes()
	if largest > MaxFileBytes {
		return nil, fmt.Errorf("a file of %d bytes in %s is larger than the limit of %d for a record", largest, st, int64(MaxFileBytes))
	}
	return &source{list: list, info: driver.Info{
		URL: url, Format: "files", Len: int64(list.Len()), Objects: int64(list.Len()), Fingerprint: list.Fingerprint("files"),
		Fields: []driver.Field{{Name: Field, Kind: driver.KindBytes, MaxBytes: largest}},
	}}, nil
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object { return s.list.Object(n, false) }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return s.list.Path(int(id))
}

// Path implements driver.Pather.
func (s *source) Path(id int64, _ int) string { return s.list.RelPath(int(id)) }

// Sizes implements driver.Sizer.
func (s *source) Sizes(_ int, ids, sizes []int64) bool {
	for i, id := range ids {
		sizes[i] = s.list.Size(int(id))
	}
	return true
}

func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(_ int, id int64) {
		g.Extents = append(g.Extents, driver.Extent{Object: id, Size: s.list.Size(int(id))})
	})
}

func (s *source) Parse(g *driver.Group) error {
	for k := range g.IDs {
		if rec := &g.Records[k]; rec.Err == nil {
			_, b := g.Of(k)
			rec.Values[0].Bytes = b[0]
		}
	}
	return nil
}

func (s *source) Close() error { return nil }
