// Package filesource reads a folder of any files. The bytes of each file are one record,
// in the order of the paths. Nothing is decoded.
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
	filelist.PerFile
	left *selection.Left
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
	_, largest := list.Bytes()
	if largest > MaxFileBytes {
		return nil, fmt.Errorf("a file of %d bytes in %s is larger than the limit of %d for a record", largest, st, int64(MaxFileBytes))
	}
	s := &source{left: left, PerFile: filelist.PerFile{List: list, About: driver.Info{
		URL: url, Format: "files", Len: int64(list.Len()), Objects: int64(list.Len()), Fingerprint: list.Fingerprint("files"),
		Fields: []driver.Field{{Name: Field, Kind: driver.KindBytes, MaxBytes: largest}},
	}}}
	return s, s.Check()
}

// Skipped implements driver.Skipper.
func (s *source) Skipped() []driver.Skipped { return s.left.Skipped() }

// Sizes implements driver.Sizer.
func (s *source) Sizes(_ int, ids, sizes []int64) bool {
	return s.List.Sizes(ids, sizes)
}

func (s *source) Locate(g *driver.Group) {
	s.Located(g, func(_ int, id int64) {
		g.Extents = append(g.Extents, driver.Extent{Object: id, Size: s.List.Size(int(id))})
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
