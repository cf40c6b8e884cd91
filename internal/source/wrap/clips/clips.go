// Package clips makes clips of video of a column of a table: the records are the rows, and
// where a row has the path of a video they have some frames of it, of all of it or of the
// part that other columns say. The table is read by its own source; of the videos the
// index is read when the source is opened, each once, and of a clip no more than the
// groups of pictures that its frames are in (packages internal/video and videosource).
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

// Options say where the videos lie. Files is the store below which their paths lead, nil
// for none, and Folder its absolute path; Outside is the store of all absolute paths, nil
// where paths may not lead out of Files.
type Options struct {
	Files   store.Store
	Folder  string
	Outside store.Store
	// Threads bounds the files that are looked at at once, 0 for a choice.
	Threads int
}

// Placed is implemented by tables that lie in several folders: paths lead from there.
type Placed interface {
	// FolderOf is the folder of the table that a record is a row of, below
	// Options.Files.
	FolderOf(id int64) string
}

// maxClip is the largest clip, as it is encoded.
const maxClip = 1 << 30

// clipColumn is a column of clips.
type clipColumn struct {
	Clip
	field          int // its place among the fields
	path, from, to int // those of its columns in the table, -1 for none
	rows           []row
	wrong          map[int64]error // of rows that have no clip
	videos         []*video.Index  // nil for those that cannot be read
	ids            []uint64        // of the videos
}

type source struct {
	driver.Mapped
	info   driver.Info
	from   []int         // by field, its place in the table
	place  []int         // the reverse, -1 for columns that are no field
	clips  []*clipColumn // in the order of their fields
	of     []*clipColumn // by field, nil for those that are as in the table
	files  *columns.Files
	paths  driver.Pather // of the table, nil when it has none
	random bool
	seed   uint64
	spare  sync.Pool
}

// Open makes clips of the columns of a table that Cut has named, and owns the table from
// then on.
func Open(ctx context.Context, base driver.Source, wanted []Clip, opt *Options) (driver.Source, error) {
	s, err := open(ctx, base, wanted, opt)
	if err != nil {
		_ = base.Close() // the refusal is what counts
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
	// Videos lie outside of the chunks of the table. Tables have no variants, and no volumes.
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

// Object implements driver.Source: the videos are behind the objects of the table.
func (s *source) Object(n int64) driver.Object {
	if mine := n - s.Base.Info().Objects; mine >= 0 {
		o := s.files.Object(mine)
		o.Keep = true
		return o
	}
	return s.Base.Object(n)
}

// split is the epoch and the row that the number of a record stands for.
func (s *source) split(n int64) (epoch, id int64) {
	if s.random {
		return driver.OfEpoch(n)
	}
	return 0, n
}

// Path implements driver.Pather. A field without a path of its own has that of the first
// video.
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

// file is a video of a column.
func (s *source) file(c *clipColumn, v int32) driver.Object {
	n, _, _ := s.files.Locate(slices.Index(s.clips, c), int64(v))
	return s.files.Object(n)
}

// EpochRecords implements driver.Epochs: random clips begin elsewhere in each epoch.
func (s *source) EpochRecords() {}

// Seed implements driver.Seeded.
func (s *source) Seed(seed uint64) {
	s.seed = seed
	driver.SeedOf(s.Base, seed)
}

// Held implements driver.Holder: what the table holds, the rows and the indexes of the
// videos.
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

// Describer is implemented by sources with clips out of columns.
type Describer interface {
	// DescribeClips has a line for each of them: which clips there are, and how many rows
	// have none.
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
			text += fmt.Sprintf("; %s without one, the first is row %d: %s", units.Plural(n, "row"), first, strings.ReplaceAll(c.wrong[first].Error(), "\n", " "))
		}
		out = append(out, text)
	}
	return out
}
