package clips

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/scan"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/videosource"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// row describes the clip of a row: its video, where its part of the video starts (Clip.part),
// and the number n of its frames, 0 if there is no clip.
type row struct {
	video int32
	n     int32
	begin float64
}

const rowBytes = 16 // of memory

// found collects the videos that rows name while the table is read.
type found struct {
	mu     sync.Mutex
	number map[string]int32
	paths  []string
	first  []int64 // first row of each
}

// of returns the number of a video, by its path.
func (f *found) of(p string, id int64) int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.number[p]
	if !ok {
		n = int32(len(f.paths))
		f.number[p] = n
		f.paths, f.first = append(f.paths, p), append(f.first, id)
	}
	f.first[n] = min(f.first[n], id)
	return n
}

// sort sorts the videos by the first row that names them, so that numbers do not depend on the
// order of reads. It returns the new number of each video.
func (f *found) sort() (paths []string, number []int32) {
	order := make([]int32, len(f.paths))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(f.first[a], f.first[b]) })
	number = make([]int32, len(order))
	for to, from := range order {
		paths, number[from] = append(paths, f.paths[from]), int32(to)
	}
	return paths, number
}

// read finds the clip of each row of column n. It reads the rows, then the index of each video.
func (s *source) read(ctx context.Context, n int, c *clipColumn, threads int) error {
	rows := s.info.Len
	c.rows = make([]row, rows)
	ends := make([]float64, 0, rows)
	if c.to >= 0 {
		ends = ends[:rows]
	}
	placed, _ := s.Base.(Placed)
	all := found{number: map[string]int32{}}
	var mu sync.Mutex // of c.wrong
	req := scan.Request{Values: []int{c.path}, Lenient: true}
	for _, i := range []int{c.from, c.to} {
		if i >= 0 {
			req.Values = append(req.Values, i)
		}
	}
	err := scan.Run(ctx, s.Base, &req, func(r *scan.Rows) error {
		for k := range r.N {
			id, err := r.First+int64(k), r.Errs[k]
			to := &c.rows[id]
			if err == nil {
				rec := &r.Records[k]
				p := string(rec.Values[c.path].Bytes)
				switch {
				case p == "":
					err = errNone
				default:
					if placed != nil && !path.IsAbs(p) {
						p = path.Join(placed.FolderOf(id), p)
					}
					to.video, to.begin = all.of(p, id), math.NaN()
				}
				if c.from >= 0 {
					to.begin = rec.Values[c.from].Float
				}
				if c.to >= 0 {
					ends[id] = rec.Values[c.to].Float
				}
			}
			if err != nil {
				mu.Lock()
				c.wrong[id] = err
				mu.Unlock()
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	paths, number := all.sort()
	bad, err := s.open(ctx, n, c, paths, threads)
	if err != nil {
		return err
	}
	for id := range c.rows {
		r := &c.rows[id]
		if c.wrong[int64(id)] != nil {
			continue
		}
		r.video = number[r.video]
		end := math.NaN()
		if c.to >= 0 {
			end = ends[id]
		}
		err := bad.Of(int(r.video))
		if err == nil {
			var frames int64
			if r.begin, frames, err = c.part(c.videos[r.video], r.begin, end); err == nil {
				r.n = int32(min(frames, math.MaxInt32))
			}
		}
		if err != nil {
			c.wrong[int64(id)] = s.located(n, c, r.video, err)
		}
	}
	if int64(len(c.wrong)) == rows && rows > 0 {
		return fmt.Errorf("no row leads to a clip; row 0: %w", c.wrong[0])
	}
	s.bounds(c)
	return nil
}

var errNone = errors.New("the cell has no value")

// open reads the indexes of the videos of a column, and returns those that are bad.
func (s *source) open(ctx context.Context, n int, c *clipColumn, paths []string, threads int) (bad filelist.Bad, err error) {
	numbers := make([]int64, len(paths))
	for i := range numbers {
		numbers[i] = int64(i)
	}
	s.files.Begin(n)
	if err := s.files.Add(ctx, n, &driver.Field{}, numbers, paths); err != nil {
		return bad, err
	}
	c.ids = make([]uint64, len(paths))
	c.videos, err = videosource.Indexes(ctx, &bad, len(paths), threads, func(ctx context.Context, i int) (store.Object, error) {
		file, _, err := s.files.Locate(n, int64(i))
		if err != nil {
			return nil, err
		}
		of := s.files.Object(file)
		c.ids[i] = xxh3.HashString(of.Store.Path(of.Entry.Name) + "\x00" + of.Entry.Version)
		return store.OpenEntry(ctx, of.Store, of.Entry)
	})
	return bad, err
}

// located adds the path of a video to an error.
func (s *source) located(n int, c *clipColumn, v int32, err error) error {
	var se *store.Error
	if _, _, none := s.files.Locate(n, int64(v)); none != nil || errors.As(err, &se) {
		return err // names it already
	}
	return fmt.Errorf("%s: %w", s.pathOf(c, v), err)
}

// pathOf returns the path of a video for messages.
func (s *source) pathOf(c *clipColumn, v int32) string {
	of := s.file(c, v)
	return of.Store.Path(of.Entry.Name)
}

// bounds computes the size limits of frames and clips.
func (s *source) bounds(c *clipColumn) {
	f := &s.info.Fields[c.field]
	width, height, first := 0, 0, true
	for _, x := range c.videos {
		if x == nil {
			continue
		}
		w, h := x.Upright()
		if first {
			width, height, first = w, h, false
		} else if w != width || h != height {
			width, height = 0, 0
		}
		f.MaxWidth, f.MaxHeight = max(f.MaxWidth, int32(w)), max(f.MaxHeight, int32(h))
		f.MaxBytes = max(f.MaxBytes, c.most(x))
	}
	f.MaxBytes = min(f.MaxBytes, maxClip)
	f.Width, f.Height = int32(width), int32(height)
}

// windows is the number of windows of a video that are checked to limit the size of its clips.
const windows = 256

// most returns a size limit for the clips of a video, for any start. It checks windows that overlap
// by the length of a clip.
func (c *clipColumn) most(x *video.Index) (size int64) {
	frames := int64(len(x.Shown))
	long := c.span() + 1
	if c.FPS > 0 {
		long = int64(float64(c.span()+1)/c.FPS*x.Rate()) + 2
		// The local frame rate may be higher than the average.
		long = min(2*long, frames)
	}
	step := max(frames/windows, 1)
	for at := int64(0); at < frames; at += step {
		size = max(size, x.MostClip(int(at), int(min(at+step+long, frames-1)), c.Frames))
	}
	return size
}

// frame returns the index, among the shown frames of the video, of frame j of a clip that starts at
// frame start of its part.
func (c *clipColumn) frame(r *row, x *video.Index, start int64, j int) int {
	at := min(start+int64(j)*int64(c.Stride), int64(r.n)-1)
	if c.FPS > 0 {
		return x.At(r.begin + float64(at)/c.FPS)
	}
	return int(r.begin) + int(at)
}

// start returns the first frame of a clip in an epoch, relative to its part. Clips of several
// columns get the same random start.
func (s *source) start(c *clipColumn, r *row, epoch, id int64) int64 {
	last := max(int64(r.n)-c.span(), 0)
	switch c.Start {
	case Middle:
		return last / 2
	case Random:
		return videosource.Draw(s.seed, epoch, id, last+1)
	}
	return 0
}

// plan sets the frames of the clip of a record, and the bytes to read for them.
func (s *source) plan(w *video.Plan, c *clipColumn, n int64) (v int32, err error) {
	epoch, id := s.split(n)
	if err := c.wrong[id]; err != nil {
		return 0, fmt.Errorf("column %q: %w", c.Column, err)
	}
	r := &c.rows[id]
	x := c.videos[r.video]
	start := s.start(c, r, epoch, id)
	x.Plan(w, c.Frames, func(j int) int { return c.frame(r, x, start, j) })
	if n := x.Size(w.Spans, w.Frames); n > maxClip {
		return r.video, fmt.Errorf("%s: the clip takes %d bytes, more than the limit of %d", s.pathOf(c, r.video), n, int64(maxClip))
	}
	return r.video, nil
}
