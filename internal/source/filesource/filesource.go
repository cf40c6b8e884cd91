// Package filesource reads a folder of any files: each file is one record, its
// bytes as they are, in the order of the paths. It decodes nothing.
package filesource

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Field is the name of the one field.
const Field = "data"

// MaxFileBytes is the largest file.
const MaxFileBytes = 1 << 36

type source struct {
	list *filelist.List
	left *selection.Left
	info driver.Info
}

// Open lists the files of st, or the one file that it is. Files that appear later
// are not seen, files that change later fail with an error that names them.
func Open(ctx context.Context, url string, st store.Store) (driver.Source, error) {
	list, left, err := selection.Names(ctx, st, selection.Options{})
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, left.Nothing(selection.None.Wanted())
	}
	if err := list.Bad.Check(list.Len(), func(_ int, err error) error { return err }); err != nil {
		return nil, err
	}
	_, largest := list.Bytes()
	if largest > MaxFileBytes {
		return nil, fmt.Errorf("a file of %d bytes in %s is larger than the limit of %d for a record", largest, st, int64(MaxFileBytes))
	}
	s := &source{list: list, left: left, info: driver.Info{
		URL: url, Format: "files", Len: int64(list.Len()), Objects: int64(list.Len()), Fingerprint: list.Fingerprint("files"),
		Fields: []driver.Field{{Name: Field, Kind: driver.KindBytes, MaxBytes: largest}},
	}}
	list.Bad.Report(&s.info, list.RelPath)
	return s, nil
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

// Skipped implements driver.Skipper.
func (s *source) Skipped() []driver.Skipped { return s.left.Skipped() }

// Sizes implements driver.Sizer.
func (s *source) Sizes(_ int, ids, sizes []int64) bool {
	for i, id := range ids {
		sizes[i] = s.list.Size(int(id))
	}
	return true
}

func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(k int, id int64) {
		if err := s.list.Bad.Of(int(id)); err != nil {
			g.Records[k].Err = err
			return
		}
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
