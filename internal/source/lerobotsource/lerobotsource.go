// Package lerobotsource reads robot data sets in LeRobot's layout, versions 2 and 3: a table of measurements and
// actions per moment, in Parquet files, and a video per camera. Each moment is a record. Features can be requested
// at several times around the moment (LeRobot's delta_timestamps, deltas in a URL). Times outside of the episode
// get the values of its first or last moment, and an extra field marks them.
//
// The table is held in memory, because it is small compared with the videos. From a video only the groups of
// pictures with the needed frames are read (package internal/video).
package lerobotsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/videosource"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options configure Open. Nil means the defaults.
type Options struct {
	// Deltas are the times of features, in the format of ParseDeltas. Other features have the value of the record's
	// own moment.
	Deltas string
	// Threads is the maximum number of files opened concurrently.
	Threads int
}

// maxClip is the size limit of an encoded clip.
const maxClip = 1 << 30

// output is a field of records.
type output struct {
	// The field has either a column or a camera (otherwise nil and -1). The pad of a feature and the task have
	// neither.
	column *tableColumn
	camera int
	what   what
	dtype  driver.DType
	// frames are the requested rows, relative to the record's own.
	frames []int64
}

type what uint8

const (
	values what = iota
	pad
	task
)

type source struct {
	info     driver.Info
	left     []driver.Skipped
	list     *filelist.List
	videos   []*video.Index
	ids      []uint64 // of the videos
	episodes []episode
	file     [][]int32 // by episode and camera
	outs     []output
	times    *tableColumn // of rows
	task     *tableColumn
	tasks    map[int64][]byte
	held     int64
	fps      float64
	work     sync.Pool
}

// Open reads the table, and the indexes of the videos.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	if opt == nil {
		opt = &Options{}
	}
	threads := opt.Threads
	if threads <= 0 {
		threads = 4 * runtime.GOMAXPROCS(0)
	}
	a, err := readAbout(ctx, st)
	if err != nil {
		return nil, err
	}
	deltas := Deltas{}
	if opt.Deltas != "" {
		if deltas, err = ParseDeltas(opt.Deltas, a.FPS); err != nil {
			return nil, err
		}
	}
	for name := range deltas {
		if !slices.ContainsFunc(a.features, func(f feature) bool { return f.name == name }) {
			return nil, fmt.Errorf("deltas=%s: %s has no such feature; it has %s", name, st.Path(InfoName), filelist.Quoted(names(a.features)))
		}
	}
	s := &source{
		info: driver.Info{URL: url, Format: "lerobot"}, work: sync.Pool{New: func() any { return new(video.Plan) }}, fps: a.FPS,
	}
	data, err := s.readTable(ctx, st, a, threads)
	if err != nil {
		return nil, err
	}
	var cameras []string
	for _, f := range a.features {
		if f.DType == "video" {
			cameras = append(cameras, f.name)
		}
	}
	if s.episodes, err = readEpisodes(ctx, st, a, cameras, threads); err == nil {
		err = checkEpisodes(s.episodes, s.info.Len)
	}
	if err == nil {
		s.tasks, err = readTasks(ctx, st, a, threads)
	}
	if err == nil {
		err = s.openVideos(ctx, st, threads)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", st.Path(""), err)
	}
	camera := 0
	for _, f := range a.features {
		switch at, several := deltas[f.name]; {
		case f.DType == "video":
			err = s.camera(&f, camera, at)
			camera++
		case data[f.name] != nil:
			err = s.numbers(&f, data[f.name], at, several)
		case several:
			err = fmt.Errorf("deltas=%s: features of %s are not read at several times", f.name, f.DType)
		}
		if err != nil {
			return nil, err
		}
	}
	if s.task != nil && len(s.tasks) > 0 {
		s.outs = append(s.outs, output{camera: -1, what: task})
		s.info.Fields = append(s.info.Fields, driver.Field{Name: "task", Kind: driver.KindText, MaxBytes: s.longest()})
	}
	s.info.Objects = int64(s.list.Len())
	s.info.Fingerprint = s.list.Fingerprint("lerobot", strconv.FormatInt(s.info.Len, 10), opt.Deltas, strconv.FormatUint(s.sum(), 16))
	return s, nil
}

func names(all []feature) (out []string) {
	for _, f := range all {
		out = append(out, f.name)
	}
	return out
}

// readTable reads the numbers of all rows, by feature.
func (s *source) readTable(ctx context.Context, st store.Store, a *about, threads int) (map[string]*tableColumn, error) {
	files, err := parquetFiles(ctx, st, "data")
	if err != nil {
		return nil, err
	}
	var want []column.Want
	for _, f := range a.features {
		if f.name == "index" { // batches have the record number anyway
			continue
		}
		if !f.isNumber() {
			if f.DType != "video" {
				s.left = append(s.left, driver.Skipped{Path: f.name, Reason: "features of " + f.DType + " are not read: open data/ as Parquet for them"})
			}
			continue
		}
		c := column.Want{Name: f.name, From: f.name}
		if f.DType != string(driver.Bool) && (len(f.Shape) == 0 || len(f.Shape) == 1 && f.Shape[0] == 1) {
			c.Kind = driver.KindInt
			if t := driver.DType(f.DType); t == driver.Float16 || t == driver.Float32 || t == driver.Float64 {
				c.Kind = driver.KindFloat
			}
		}
		want = append(want, c)
	}
	rows, cols, err := table(ctx, st, files, want, threads)
	if err != nil {
		return nil, err
	}
	s.info.Len = rows
	data := map[string]*tableColumn{}
	for i, c := range cols {
		data[want[i].Name] = c
		s.held += int64(len(c.data))
	}
	if s.times = data["timestamp"]; s.times == nil || s.times.dtype != driver.Float64 {
		return nil, fmt.Errorf("%s: the features have no timestamp in seconds", st.Path(InfoName))
	}
	if t := data["task_index"]; t != nil && t.field.Kind == driver.KindInt {
		s.task = t
	}
	return data, nil
}

// openVideos reads the index of each file once.
func (s *source) openVideos(ctx context.Context, st store.Store, threads int) error {
	number := map[string]int32{}
	var all []string
	for _, e := range s.episodes {
		var files []int32
		for _, p := range e.videos {
			n, ok := number[p.name]
			if !ok {
				n = int32(len(all))
				number[p.name] = n
				all = append(all, p.name)
			}
			files = append(files, n)
		}
		s.file = append(s.file, files)
	}
	var err error
	if s.list, err = filelist.NamedRecords(ctx, st, all); err != nil {
		return err
	}
	for i := range all {
		s.ids = append(s.ids, xxh3.HashString(s.list.Path(i)+s.list.Entry(i).Version))
	}
	s.videos, err = videosource.Indexes(ctx, &s.list.Bad, len(all), threads, s.list.Open)
	if err == nil {
		err = s.list.Bad.Check(len(all), s.place)
	}
	s.list.Bad.Report(&s.info, s.list.RelPath)
	return err
}

// place prefixes an error with the name of a file.
func (s *source) place(file int, err error) error {
	var se *store.Error
	if errors.As(err, &se) {
		return err // names it already
	}
	return fmt.Errorf("%s: %w", s.list.Path(file), err)
}

// add adds a field and, if it has several times, the field that marks padding.
func (s *source) add(f driver.Field, o output, at []float64) {
	for _, d := range at {
		o.frames = append(o.frames, int64(math.Round(d*s.fps)))
	}
	s.info.Fields = append(s.info.Fields, f)
	s.outs = append(s.outs, o)
	if len(at) > 0 {
		s.info.Fields = append(s.info.Fields, driver.Field{Name: f.Name + "_is_pad", Kind: driver.KindArray, DType: driver.Bool, Shape: []int{len(at)}})
		s.outs = append(s.outs, output{camera: -1, what: pad, frames: o.frames})
	}
}

// numbers adds the field of a feature in the table.
func (s *source) numbers(f *feature, c *tableColumn, at []float64, several bool) error {
	out := driver.Field{Name: f.name, Kind: c.field.Kind, DType: c.field.DType, Shape: c.field.Shape}
	o := output{column: c, camera: -1, dtype: c.dtype}
	if several {
		if out.Kind != driver.KindArray {
			if t := driver.DType(f.DType); t == driver.Float32 { // without more precision
				o.dtype = t
			}
		}
		out.Kind, out.DType, out.Shape = driver.KindArray, o.dtype, append([]int{len(at)}, c.shape...)
		if _, err := driver.ArrayBytes(out.DType, out.Shape); err != nil {
			return fmt.Errorf("deltas=%s: %w", f.name, err)
		}
	}
	s.add(out, o, at)
	return nil
}

// camera adds the field of a camera's frames.
func (s *source) camera(f *feature, camera int, at []float64) error {
	out := driver.Field{Name: f.name, Kind: driver.KindFrames, Shape: []int{max(len(at), 1)}}
	o := output{camera: camera}
	low, high := int64(0), int64(0)
	for _, d := range at {
		n := int64(math.Round(d * s.fps))
		low, high = min(low, n), max(high, n)
	}
	first, w0, h0 := true, 0, 0
	for k, e := range s.episodes {
		x := s.videos[s.file[k][camera]]
		if x == nil {
			continue
		}
		if w, h := x.Upright(); first {
			w0, h0, first = w, h, false
		} else if w != w0 || h != h0 {
			w0, h0 = 0, 0
		}
		w, h := x.Upright()
		out.MaxWidth, out.MaxHeight = max(out.MaxWidth, int32(w)), max(out.MaxHeight, int32(h))
		for row := e.from; row < e.to; row++ {
			a, b := s.frame(camera, k, max(row+low, e.from)), s.frame(camera, k, min(row+high, e.to-1))
			out.MaxBytes = max(out.MaxBytes, x.MostClip(a, b, out.Shape[0]))
		}
	}
	out.MaxBytes = min(out.MaxBytes, maxClip)
	out.Width, out.Height = int32(w0), int32(h0)
	s.add(out, o, at)
	return nil
}

func (s *source) longest() (n int64) {
	for _, t := range s.tasks {
		n = max(n, int64(len(t)))
	}
	return n
}

// sum returns a checksum of the table.
func (s *source) sum() uint64 {
	h := xxh3.New()
	for i := range s.outs {
		if c := s.outs[i].column; c != nil {
			_, _ = h.WriteString(s.info.Fields[i].Name + "\x00")
			_, _ = h.Write(c.data)
		}
	}
	for _, e := range s.episodes {
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], uint64(e.from))
		binary.LittleEndian.PutUint64(b[8:], uint64(e.to))
		_, _ = h.Write(b[:])
	}
	return h.Sum64()
}

// episode returns the episode of a row.
func (s *source) episode(row int64) int {
	return sort.Search(len(s.episodes), func(i int) bool { return s.episodes[i].to > row })
}

// frame returns the frame of a camera nearest to a row of an episode. Times are those of the file, whose first frame
// may come later than 0.
func (s *source) frame(camera, k int, row int64) int {
	x := s.videos[s.file[k][camera]]
	at := s.episodes[k].videos[camera].begin + s.times.float(row) - x.Begin()
	i := x.At(at)
	if i+1 < len(x.Shown) && x.Seconds(i+1)-at < at-x.Seconds(i) {
		i++
	}
	return i
}

// row returns the row that a delta leads to. The result is true if the row was clamped to the episode.
func (e *episode) row(id, delta int64) (int64, bool) {
	n := id + delta
	return min(max(n, e.from), e.to-1), n < e.from || n >= e.to
}

// plan sets w to the frames of a clip and the bytes to read for them.
func (s *source) plan(w *video.Plan, o *output, id int64, k int) (file int, err error) {
	file = int(s.file[k][o.camera])
	if err := s.list.Bad.Of(file); err != nil {
		return file, err
	}
	x, e := s.videos[file], &s.episodes[k]
	x.Plan(w, max(len(o.frames), 1), func(j int) int {
		row := id
		if len(o.frames) > 0 {
			row, _ = e.row(id, o.frames[j])
		}
		i := s.frame(o.camera, k, row)
		have := x.Begin() + x.Seconds(i)
		if at := e.videos[o.camera].begin + s.times.float(row); err == nil && math.Abs(have-at) > 0.5/s.fps {
			err = fmt.Errorf("no frame at %.4f s: the nearest frame is at %.4f s", at, have)
		}
		return i
	})
	if err != nil {
		return file, err
	}
	if n := x.Size(w.Spans, w.Frames); n > maxClip {
		return file, fmt.Errorf("its clip has %d bytes, the limit is %d", n, int64(maxClip))
	}
	return file, nil
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object { return s.list.Object(n, true) }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	k := s.episode(id)
	return fmt.Sprintf("%s, episode %d, frame %d", s.info.URL, k, id-s.episodes[k].from)
}

// Held implements driver.Holder.
func (s *source) Held() int64 { return s.held }

// Left implements driver.Leaver.
func (s *source) Left() []driver.Skipped { return s.left }

func (s *source) Locate(g *driver.Group) {
	w := s.work.Get().(*video.Plan)
	defer s.work.Put(w)
	filelist.Locate(g, &s.info, func(k int, id int64) {
		begin := len(g.Extents)
		for i := range s.outs {
			o := &s.outs[i]
			if o.camera < 0 || !g.Wants(i) {
				continue
			}
			file, err := s.plan(w, o, id, s.episode(id))
			if err != nil {
				g.Records[k].Err = s.place(file, fmt.Errorf("record %d: %w", id, err))
				g.Extents = g.Extents[:begin]
				return
			}
			for _, p := range w.Pieces {
				g.Extents = append(g.Extents, driver.Extent{Object: int64(file), Offset: p.Offset, Size: p.Size, Field: -1})
			}
		}
	})
}

func (s *source) Parse(g *driver.Group) error {
	w := s.work.Get().(*video.Plan)
	defer s.work.Put(w)
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		e := s.episode(id)
		_, data := g.Of(k)
		for i := range s.outs {
			if !g.Wants(i) {
				continue
			}
			o := &s.outs[i]
			v := &rec.Values[i]
			switch {
			case o.camera >= 0:
				file, err := s.plan(w, o, id, e)
				if err != nil {
					rec.Err = s.place(file, err)
					break
				}
				x := s.videos[file]
				out, err := g.Take(k, i, x.Size(w.Spans, w.Frames))
				if err != nil {
					return fmt.Errorf("no memory for a clip of %s: %w", s.list.Path(file), err)
				}
				if err := x.Append(out, s.ids[file], w.Spans, w.Frames, w.Pieces, data[:len(w.Pieces)]); err != nil {
					rec.Err = s.place(file, err)
					break
				}
				v.Bytes, data = out, data[len(w.Pieces):]
			case o.what == task:
				v.Bytes = s.tasks[s.task.int(id)]
			case o.what == pad:
				v.Bytes = make([]byte, len(o.frames))
				for j, d := range o.frames {
					if _, outside := s.episodes[e].row(id, d); outside {
						v.Bytes[j] = 1
					}
				}
			default:
				if err := s.value(g, k, i, id, &s.episodes[e]); err != nil {
					return err
				}
			}
			if rec.Err != nil {
				break
			}
		}
	}
	return nil
}

// value sets a feature of the table.
func (s *source) value(g *driver.Group, k, i int, id int64, e *episode) error {
	o, v := &s.outs[i], &g.Records[k].Values[i]
	c := o.column
	if len(o.frames) == 0 {
		switch c.field.Kind {
		case driver.KindInt:
			v.Int = c.int(id)
		case driver.KindFloat:
			v.Float = c.float(id)
		default:
			v.Bytes = c.data[id*c.size:][:c.size:c.size]
		}
		return nil
	}
	size := c.size
	if c.field.Kind != driver.KindArray {
		size = int64(o.dtype.Size())
	}
	out, err := g.Take(k, i, size*int64(len(o.frames)))
	if err != nil {
		return fmt.Errorf("no memory for %d rows of %s: %w", len(o.frames), s.info.Fields[i].Name, err)
	}
	for j, d := range o.frames {
		row, _ := e.row(id, d)
		to := out[int64(j)*size:][:size]
		switch o.dtype {
		case c.dtype:
			copy(to, c.data[row*c.size:][:size])
		case driver.Float32:
			binary.LittleEndian.PutUint32(to, math.Float32bits(float32(c.float(row))))
		}
	}
	v.Bytes = out
	return nil
}

func (s *source) Close() error { return nil }
