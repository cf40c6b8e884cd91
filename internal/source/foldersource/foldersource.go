// Package foldersource reads a folder of image files as torchvision's
// ImageFolder does. The class of a file is the first folder of its path.
// Records are numbered in sorted order. A folder without class folders is read
// as images without labels. A folder of files of sound is read in the same way.
//
// Top folders such as train and test are splits (splits.go).
//
// Nothing is prepared: every record costs an open, a read and a close. A pack
// (package pack) of the same folder has the same records under the same
// numbers and costs one read each.
package foldersource

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// MaxFileBytes is the largest file that is taken for an image, MaxSoundBytes that for
// sound.
const (
	MaxFileBytes  = 1 << 30
	MaxSoundBytes = 1 << 33
)

// Options change how a folder is read. Nil means the defaults.
type Options struct {
	// Threads bounds the folders listed at the same time, 0 for four per core.
	Threads int
	// Sound reads files of sound and not of images: of the whole folder, or the one
	// whose name is File.
	Sound bool
	File  string
	// Split is the top folder that is read, of a folder with splits.
	Split string
}

type source struct {
	list  *Listing
	info  driver.Info
	label bool
	limit int64 // of a file
}

// Open lists the folder that st is. The list is taken once: files that appear later
// are not seen, files that change later fail with an error that names them.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	scan := ScanOptions{Kind: selection.Image, URL: url, Split: o.Split, Threads: o.Threads, Only: o.File}
	format, field, limit := "folder", driver.Field{Name: "image", Kind: driver.KindImage}, int64(MaxFileBytes)
	if o.Sound {
		format, field, limit = "audio", driver.Field{Name: "audio", Kind: driver.KindAudio}, MaxSoundBytes
		scan.Kind = selection.Sound
	}
	list, err := Scan(ctx, st, scan)
	if err != nil {
		return nil, err
	}
	if err := list.Some(scan.Kind); err != nil {
		return nil, err
	}
	_, largest := list.Bytes()
	s := &source{list: list, label: list.Classes != nil, limit: limit}
	field.MaxBytes = min(largest, limit)
	s.info = driver.Info{
		URL:         url,
		Format:      format,
		Len:         int64(list.Len()),
		Objects:     int64(list.Len()),
		Fields:      []driver.Field{field},
		Fingerprint: list.Fingerprint(),
	}
	list.Bad.Report(&s.info, list.Path)
	if s.label {
		s.info.Fields = append(s.info.Fields, driver.Field{Name: "label", Kind: driver.KindLabel, Classes: list.Classes})
	}
	return s, nil
}

// Some fails if the listing has no file that may be read.
func (l *Listing) Some(kind selection.Kind) error {
	if l.Len() == 0 {
		return l.Left.Nothing(kind.Wanted())
	}
	return l.Bad.Check(l.Len(), l.Place)
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return s.list.FullPath(int(id))
}

// Path implements driver.Pather.
func (s *source) Path(id int64, _ int) string { return s.list.Path(int(id)) }

// Skipped implements driver.Skipper.
func (s *source) Skipped() []driver.Skipped { return s.list.Left.Skipped() }

func (s *source) Object(n int64) driver.Object {
	return driver.Object{Store: s.list.Store, Entry: s.list.Entry(int(n))}
}

// Sizes implements driver.Sizer.
func (s *source) Sizes(field int, ids, sizes []int64) bool {
	clear(sizes)
	for i, id := range ids {
		if field == 0 {
			sizes[i] = s.list.Size(int(id))
		}
	}
	return true
}

func (s *source) Locate(g *driver.Group) {
	for k, id := range g.IDs {
		if filelist.Has(g, k, &s.info) && g.Wants(0) {
			size, err := s.list.Size(int(id)), s.list.Bad.Of(int(id))
			if err == nil && size > s.limit {
				err = fmt.Errorf("%d bytes are more than the limit of %d", size, s.limit)
			}
			if err != nil {
				g.Records[k].Err = s.list.Place(int(id), err)
			} else {
				g.Extents = append(g.Extents, driver.Extent{Object: id, Size: size, Tail: true, Field: -1})
			}
		}
		g.Next()
	}
}

func (s *source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		if g.Wants(0) {
			rec.Values[0].Bytes = g.Bytes[g.First[k]]
		}
		if s.label {
			rec.Values[1].Int = int64(s.list.Label(int(id)))
		}
	}
	return nil
}

func (s *source) Close() error { return nil }
