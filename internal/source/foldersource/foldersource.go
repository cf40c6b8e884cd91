// Package foldersource reads a folder of image files as torchvision's ImageFolder does. The
// class of a file is the first folder of its path. Records are numbered in sorted order. A
// folder without class folders is read as images without labels. Folders of audio files are
// read in the same way.
//
// Top folders such as train and test are splits (splits.go).
//
// Every record costs an open, a read and a close. A pack (package pack) of the same folder has
// the same records with the same numbers and costs one read per record.
package foldersource

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// MaxFileBytes is the size limit of an image file, MaxSoundBytes that of an audio file.
const (
	MaxFileBytes  = 1 << 30
	MaxSoundBytes = 1 << 33
)

// Options select the files of a folder. Nil means the defaults.
type Options struct {
	// Threads limits the folders listed at the same time, 0 for four per core.
	Threads int
	// Sound selects audio files instead of images. With File, only the file with that name is
	// read.
	Sound bool
	File  string
	// Split is the top folder to read of a folder with splits.
	Split string
}

type source struct {
	list  *Listing
	info  driver.Info
	label bool
	limit int64 // of a file
}

// Open returns a source of the folder st. It lists the folder once. Files that appear later are
// not seen. Files that change later fail with an error that names them.
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

// Some returns an error if the listing does not have a readable file.
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
