// Package clips turns a column of video paths in a table into clips. Each row is a record. Its clip
// has some frames of the video, or of a part of it that other columns select. The table is read by
// its own source. Opening reads the index of each video once. A clip then reads only the groups of
// pictures that contain its frames (packages internal/video and videosource).
package clips

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/columns"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/videosource"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options set where the videos are. Files is the store for relative paths, nil for none, and Folder
// its absolute path. Outside is the store for absolute paths; if it is nil, paths must not lead out
// of Files.
type Options struct {
	Files   store.Store
	Folder  string
	Outside store.Store
	// Threads limits the files that are read at the same time, 0 for the default.
	Threads int
}

// Placed is implemented by tables in several folders. Paths are relative to the folder of the
// table.
type Placed interface {
	// FolderOf returns the folder of the table that has a record, relative to Options.Files.
	FolderOf(id int64) string
}

// maxClip is the size limit of an encoded clip.
const maxClip = 1 << 30

// clipColumn is a column of clips.
type clipColumn struct {
	Clip
	field          int // index of the field
	path, from, to int // indexes of its columns in the table, -1 for none
	rows           []row
	wrong          map[int64]error // error of each row without a clip
	videos         []*video.Index  // nil if a video cannot be read
	ids            []uint64        // of the videos
}

type source struct {
	driver.Mapped
	info   driver.Info
	from   []int         // by field, its index in the table
	place  []int         // the reverse, -1 for columns that are not fields
	clips  []*clipColumn // in the order of their fields
	of     []*clipColumn // by field, nil for fields that come from the table
	files  *columns.Files
	paths  driver.Pather // of the table, nil if it has none
	random bool
	seed   uint64
	spare  sync.Pool
}

// Open adds the clips that Cut has found to a table. It takes ownership of the table.
func Open(ctx context.Context, base driver.Source, wanted []Clip, opt *Options) (driver.Source, error) {
	s, err := open(ctx, base, wanted, opt)
	if err != nil {
		_ = base.Close() // the first error is the one to report
		return nil, err
	}
	return s, nil
}

func open(ctx context.Context, base driver.Source, wanted []Clip, opt *Options) (*source, error) {
	in := base.Info()
	if in.Sequential {
		return nil, fmt.Errorf("%s: clips of video need a table that is read at random", in.URL)
	}
	s := &source{info: *in, place: slices.Repeat([]int{-1}, len(in.Fields)), of: make([]*clipColumn, 0, len(in.Fields))}
	s.Base = base
	s.Record = func(n int64) int64 { _, id := s.split(n); return id }
	s.Field = func(field int) (int, bool) { return s.from[field], s.of[field] == nil }
	s.spare.New = func() any { return newWork(s) }
	s.paths, _ = driver.As[driver.Pather](base)
	s.info.Fields = nil
	byPath, hidden := map[int]*clipColumn{}, map[int]bool{}
	for _, w := range wanted {
		if err := w.defaults(); err != nil {
			return nil, err
		}
		c := &clipColumn{Clip: w, wrong: map[int64]error{}}
		for _, of := range []struct {
			column, name string
			to           *int
		}{{w.Column, w.Name, &c.path}, {w.From, w.fromName(), &c.from}, {w.To, w.toName(), &c.to}} {
			if *of.to = -1; of.column != "" {
				*of.to = slices.IndexFunc(in.Fields, func(f driver.Field) bool { return f.Name == of.name })
			}
			hidden[*of.to] = true
		}
		if c.path < 0 {
			return nil, fmt.Errorf("%s: there is no column %q", in.URL, w.Name)
		}
		byPath[c.path] = c
		s.random = s.random || w.Start == Random
	}
	for i := range in.Fields {
		c := byPath[i]
		if c == nil && hidden[i] {
			continue
		}
		s.place[i] = len(s.from)
		f := in.Fields[i]
		if c != nil {
			c.field = len(s.from)
			f = driver.Field{Name: c.Name, Kind: driver.KindFrames, Shape: []int{c.Frames}}
			s.clips = append(s.clips, c)
		}
		s.from, s.of, s.info.Fields = append(s.from, i), append(s.of, c), append(s.info.Fields, f)
	}
	// Videos are not in the chunks of the table. Tables have no variants and no volumes.
	s.Without = []any{(*driver.Chunker)(nil), (*driver.Varied)(nil), (*driver.Cutter)(nil)}
	if !s.random {
		s.Without = append(s.Without, (*driver.Epochs)(nil))
	}
	threads := opt.Threads
	if threads <= 0 {
		threads = 4 * runtime.GOMAXPROCS(0)
	}
	s.files = columns.NewFiles(len(s.clips), opt.Files, opt.Folder, opt.Outside, threads)
	more := []string{in.Fingerprint}
	for n, c := range s.clips {
		if err := s.read(ctx, n, c, threads); err != nil {
			return nil, fmt.Errorf("%s: column %q: %w", in.URL, c.Column, err)
		}
		more = append(more, c.Name, fmt.Sprintf("%+v", c.Clip))
	}
	s.info.Objects = in.Objects + s.files.Len()
	h := xxh3.New()
	for _, text := range append(more, s.files.Fingerprints()...) {
		_, _ = h.WriteString(text + "\x00")
	}
	s.info.Fingerprint = filelist.Sum(h)
	return s, nil
}

// Info implements driver.Source.
func (s *source) Info() *driver.Info { return &s.info }

// Object implements driver.Source: the objects of the table come first, then the videos.
func (s *source) Object(n int64) driver.Object {
	if mine := n - s.Base.Info().Objects; mine >= 0 {
		o := s.files.Object(mine)
		o.Keep = true
		return o
	}
	return s.Base.Object(n)
}

// split splits the number of a record into epoch and row.
func (s *source) split(n int64) (epoch, id int64) {
	if s.random {
		return driver.OfEpoch(n)
	}
	return 0, n
}

// Path implements driver.Pather. For a field without a path it returns the path of the first video.
func (s *source) Path(n int64, field int) string {
	_, id := s.split(n)
	c := s.of[field]
	switch {
	case c == nil && s.paths != nil:
		return s.paths.Path(id, s.from[field])
	case c == nil:
		c = s.clips[0]
	}
	if c.wrong[id] != nil {
		return ""
	}
	return s.file(c, c.rows[id].video).Entry.Name
}

// file returns a video of a column.
func (s *source) file(c *clipColumn, v int32) driver.Object {
	n, _, _ := s.files.Locate(slices.Index(s.clips, c), int64(v))
	return s.files.Object(n)
}

// EpochRecords implements driver.Epochs: the start of random clips differs per epoch.
func (s *source) EpochRecords() {}

// Seed implements driver.Seeded.
func (s *source) Seed(seed uint64) {
	s.seed = seed
	driver.SeedOf(s.Base, seed)
}

// Held implements driver.Holder: the memory of the table, the rows and the indexes of the videos.
func (s *source) Held() int64 {
	n := driver.Held(s.Base)
	for _, c := range s.clips {
		n += int64(len(c.rows)) * rowBytes
		for _, x := range c.videos {
			if x != nil {
				n += x.Held()
			}
		}
	}
	return n
}

// Videos implements videosource.Videos.
func (s *source) Videos() (all []*video.Index) {
	for _, c := range s.clips {
		for _, x := range c.videos {
			if x != nil {
				all = append(all, x)
			}
		}
	}
	return all
}

var _ videosource.Videos = (*source)(nil)

// Describer is implemented by sources with clips from columns.
type Describer interface {
	// DescribeClips returns a line per column of clips: the frames of a clip, and the number of
	// rows without one.
	DescribeClips() []string
}

// DescribeClips implements Describer.
func (s *source) DescribeClips() []string {
	var out []string
	for _, c := range s.clips {
		text := fmt.Sprintf("%s: %s", c.Name, c.Clip.String())
		if n := len(c.wrong); n > 0 {
			first := int64(-1)
			for id := range c.wrong {
				if first < 0 || id < first {
					first = id
				}
			}
			text += fmt.Sprintf("; %s without a clip, first row %d: %s", units.Plural(n, "row"), first, strings.ReplaceAll(c.wrong[first].Error(), "\n", " "))
		}
		out = append(out, text)
	}
	return out
}
