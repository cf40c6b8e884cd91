// Package videosource reads clips of frames from video files: from a single file, or from a
// folder with a folder per class. Every clip is a record. Open reads the index of each file
// (package internal/video). For a clip, only the groups of pictures with its frames are read.
package videosource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/foldersource"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/internal/videodec"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options select the clips. Nil means the defaults.
type Options struct {
	// Frames is the number of frames of a clip, 16 by default.
	Frames int
	// Stride is the distance between the frames of a clip, 1 by default. It counts frames of
	// the video. With FPS, it counts frames at that rate.
	Stride int
	// Step is the distance between the starts of clips, in the same frames as Stride. By
	// default a clip begins after the end of the previous one.
	Step int
	FPS  float64
	// Random draws the start of each clip again in each epoch, between its regular start and
	// that of the next clip.
	Random bool
	// Images makes every frame a record, as an image. Frames of MJPEG videos are JPEG files.
	// Other frames are pixels, or JPEG files if Quality is set.
	Images  bool
	Quality int
	// Threads limits the number of indexes that are read at the same time.
	Threads int
	// File is the name of the one file to read, "" for all files of the folder.
	File string
	// Split is the top folder to read of a folder with splits.
	Split string
}

// defaultFrames is the default of Options.Frames.
const defaultFrames = 16

// maxClip limits the encoded size of a clip, in bytes.
const maxClip = 1 << 30

// Indexes of the fields.
const (
	frames = iota
	label
)

type source struct {
	list   *foldersource.Listing
	opt    Options
	info   driver.Info
	videos []*video.Index // nil for a bad file
	ids    []uint64       // of the videos
	first  []int64        // number of the first clip of each video; a bad file is one bad record
	seed   uint64         // of random starts
	work   sync.Pool
}

// Open reads the indexes of the videos in st, in the order of their names.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	s := &source{work: sync.Pool{New: func() any { return new(video.Plan) }}}
	if opt != nil {
		s.opt = *opt
	}
	err := s.opt.defaults()
	if err != nil {
		return nil, err
	}
	s.list, err = foldersource.Scan(ctx, st, foldersource.ScanOptions{
		URL: url, Split: s.opt.Split, Threads: s.opt.Threads, Kind: selection.Video, Only: s.opt.File,
	})
	if err != nil {
		return nil, err
	}
	if err := s.list.Some(selection.Video); err != nil {
		return nil, err
	}
	s.videos, err = Indexes(ctx, &s.list.Bad, s.list.Len(), max(s.opt.Threads, 16), func(ctx context.Context, i int) (store.Object, error) {
		return store.OpenEntry(ctx, s.list.Store, s.list.Entry(i))
	})
	if err == nil {
		err = s.list.Bad.Check(s.list.Len(), s.list.Place)
	}
	if err != nil {
		return nil, err
	}
	o := &s.opt
	s.info = driver.Info{
		URL: url, Format: "video", Objects: int64(s.list.Len()),
		Fingerprint: mix(s.list.Fingerprint(), o.text()),
		Fields:      []driver.Field{{Name: "frames", Kind: driver.KindFrames, Shape: []int{o.Frames}}},
	}
	s.list.Bad.Report(&s.info, s.list.Path)
	if o.Images {
		s.info.Fields[frames] = driver.Field{Name: "image", Kind: driver.KindImage}
	}
	if s.list.Classes != nil {
		s.info.Fields = append(s.info.Fields, driver.Field{Name: "label", Kind: driver.KindLabel, Classes: s.list.Classes})
	}
	s.clips()
	switch {
	case o.Images:
		return newStills(s), nil
	case o.Random:
		return randomStarts{s}, nil
	}
	return s, nil
}

// text returns a text that differs for options with different records.
func (o *Options) text() string {
	s := fmt.Sprint(o.Frames, o.Stride, o.Step, o.FPS, o.Images, o.Quality)
	if o.Random {
		s += " random"
	}
	return s
}

func (o *Options) defaults() error {
	switch {
	case o.Images && o.Random:
		return errors.New("start=random is about clips, and as=images makes every frame a record")
	case o.Images && o.Frames > 1:
		return fmt.Errorf("frames=%d is about clips, and as=images makes every frame a record", o.Frames)
	case o.Quality > 0 && !o.Images:
		return errors.New("quality is about JPEGs, which as=images makes")
	case o.Images:
		o.Frames, o.Stride = 1, 1
	}
	if o.Frames == 0 {
		o.Frames = defaultFrames
	}
	if o.Stride == 0 {
		o.Stride = 1
	}
	if o.Step == 0 {
		o.Step = o.Frames * o.Stride
	}
	return nil
}

// mix returns a fingerprint of texts.
func mix(texts ...string) string {
	h := xxh3.New()
	for _, t := range texts {
		_, _ = h.WriteString(t + "\x00")
	}
	return filelist.Sum(h)
}

// Indexes returns the indexes of n files, nil for bad files. It reads several files at the same
// time.
func Indexes(ctx context.Context, bad *filelist.Bad, n, threads int, open func(context.Context, int) (store.Object, error)) ([]*video.Index, error) {
	all := make([]*video.Index, n)
	err := bad.Probe(ctx, n, threads, func(ctx context.Context, i int) error {
		o, err := open(ctx, i)
		if err != nil {
			return err
		}
		defer o.Close()
		x, err := videodec.Index(ctx, o)
		if err == nil {
			all[i] = x
		}
		return err
	})
	return all, err
}

// clips numbers the clips and sets the size limits of frames and clips.
func (s *source) clips() {
	f := &s.info.Fields[frames]
	width, height, first := 0, 0, true
	for i, x := range s.videos {
		s.ids = append(s.ids, xxh3.HashString(s.info.Fingerprint+strconv.Itoa(i)))
		s.first = append(s.first, s.info.Len)
		if x == nil {
			s.info.Len++
			continue
		}
		n := s.count(x)
		s.info.Len += n
		for k := range n {
			lo, hi := s.starts(x, k)
			for at := lo; at <= hi; at++ {
				a, b := s.frame(x, at, 0), s.frame(x, at, s.opt.Frames-1)
				f.MaxBytes = max(f.MaxBytes, x.MostClip(a, b, s.opt.Frames))
			}
		}
		w, h := x.Upright()
		f.MaxWidth, f.MaxHeight = max(f.MaxWidth, int32(w)), max(f.MaxHeight, int32(h))
		if first {
			width, height, first = w, h, false
		} else if w != width || h != height {
			width, height = 0, 0
		}
	}
	f.MaxBytes = min(f.MaxBytes, maxClip)
	f.Width, f.Height = int32(width), int32(height)
}

// count returns the number of clips of a video, at least one. If the video is too short, its
// clip repeats the last frame.
func (s *source) count(x *video.Index) int64 { return s.last(x)/int64(s.opt.Step) + 1 }

// last returns the last possible start of a clip, in the same frames as Stride.
func (s *source) last(x *video.Index) int64 {
	n := int64(len(x.Shown))
	if s.opt.FPS > 0 {
		n = int64(math.Floor(x.Duration()*s.opt.FPS + 1e-6))
	}
	span := int64(s.opt.Frames-1)*int64(s.opt.Stride) + 1
	return max(n-span, 0)
}

// starts returns the first and the last possible start of clip k of a video.
func (s *source) starts(x *video.Index, k int64) (lo, hi int64) {
	lo = k * int64(s.opt.Step)
	if !s.opt.Random {
		return lo, lo
	}
	return lo, max(min(lo+int64(s.opt.Step)-1, s.last(x)), lo)
}

// frame returns the index in Shown of frame j of a clip that begins at start.
func (s *source) frame(x *video.Index, start int64, j int) int {
	n := start + int64(j)*int64(s.opt.Stride)
	if s.opt.FPS > 0 {
		return x.At(float64(n) / s.opt.FPS)
	}
	return int(min(n, int64(len(x.Shown)-1)))
}

// plan finds the frames of a clip and the bytes to read for them.
func (s *source) plan(w *video.Plan, file int, start int64) {
	x := s.videos[file]
	x.Plan(w, s.opt.Frames, func(j int) int { return s.frame(x, start, j) })
}

// of returns the video of a record and the number of its clip.
func (s *source) of(id int64) (file int, k int64) {
	file = filelist.Find(s.first, id)
	return file, id - s.first[file]
}

// at returns the video of a record and the start of its clip in an epoch.
func (s *source) at(epoch, id int64) (file int, start int64) {
	file, k := s.of(id)
	if s.videos[file] == nil {
		return file, 0
	}
	lo, hi := s.starts(s.videos[file], k)
	if hi == lo {
		return file, lo
	}
	return file, lo + Draw(s.seed, epoch, id, hi-lo+1)
}

// Draw returns a number from 0 to n-1 for a record in an epoch, which selects the start of its
// clip.
func Draw(seed uint64, epoch, id, n int64) int64 {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	binary.LittleEndian.PutUint64(b[8:], uint64(epoch))
	binary.LittleEndian.PutUint64(b[16:], uint64(id))
	drawn, _ := bits.Mul64(xxh3.Hash(b[:]), uint64(n))
	return int64(drawn)
}

// split returns the epoch and the number of the record from a number that may include the
// epoch.
func (s *source) split(n int64) (epoch, id int64) {
	if s.opt.Random {
		return driver.OfEpoch(n)
	}
	return 0, n
}

// number returns the number of a record without the epoch.
func (s *source) number(n int64) int64 {
	_, id := s.split(n)
	return id
}

// randomStarts is a source whose clips begin at other frames in each epoch.
type randomStarts struct{ *source }

// EpochRecords implements driver.Epochs.
func (randomStarts) EpochRecords() {}

// Seed implements driver.Seeded.
func (s randomStarts) Seed(seed uint64) { s.seed = seed }

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object {
	return driver.Object{Store: s.list.Store, Entry: s.list.Entry(int(n)), Keep: true}
}

func (s *source) Name(n int64) string {
	epoch, id := s.split(n)
	if n < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, n)
	}
	_, k := s.of(id)
	file, start := s.at(epoch, id)
	x := s.videos[file]
	if x == nil {
		return s.list.FullPath(file)
	}
	return fmt.Sprintf("%s, clip %d at %.2f s", s.list.FullPath(file), k, x.Seconds(s.frame(x, start, 0)))
}

// Path implements driver.Pather.
func (s *source) Path(n int64, _ int) string {
	_, id := s.split(n)
	file, k := s.of(id)
	if s.videos[file] == nil {
		return s.list.Path(file)
	}
	return s.list.Path(file) + "#" + strconv.FormatInt(k, 10)
}

// Skipped implements driver.Skipper.
func (s *source) Skipped() []driver.Skipped { return s.list.Left.Skipped() }

func (s *source) Locate(g *driver.Group) {
	w := s.work.Get().(*video.Plan)
	defer s.work.Put(w)
	filelist.LocateEach(g, &s.info, s.number, func(k int, n int64) {
		if !g.Wants(frames) {
			return
		}
		file, start := s.at(s.split(n))
		if err := s.list.Bad.Of(file); err != nil {
			g.Records[k].Err = s.list.Place(file, err)
			return
		}
		s.plan(w, file, start)
		if n := s.videos[file].Size(w.Spans, w.Frames); n > maxClip {
			g.Records[k].Err = s.list.Place(file, fmt.Errorf("the clip from frame %d on takes %d bytes, more than the limit of %d", start, n, maxClip))
			return
		}
		for _, p := range w.Pieces {
			g.Extents = append(g.Extents, driver.Extent{Object: int64(file), Offset: p.Offset, Size: p.Size, Field: -1})
		}
	})
}

func (s *source) Parse(g *driver.Group) error {
	w := s.work.Get().(*video.Plan)
	defer s.work.Put(w)
	for k, n := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		file, start := s.at(s.split(n))
		if s.list.Classes != nil {
			rec.Values[label].Int = int64(s.list.Label(file))
		}
		if !g.Wants(frames) {
			continue
		}
		s.plan(w, file, start)
		x := s.videos[file]
		out, err := g.Take(k, frames, x.Size(w.Spans, w.Frames))
		if err != nil {
			return fmt.Errorf("no memory for a clip of %s: %w", s.list.FullPath(file), err)
		}
		_, data := g.Of(k)
		if err := x.Append(out, s.ids[file], w.Spans, w.Frames, w.Pieces, data); err != nil {
			rec.Err = s.list.Place(file, err)
		}
		rec.Values[frames].Bytes = out
	}
	return nil
}

func (s *source) Close() error { return nil }
