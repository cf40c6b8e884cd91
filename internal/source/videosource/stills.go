package videosource

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/source/blockcache"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/internal/videodec"
	"github.com/stokerdata/stoker/source/driver"
)

// stills is a source with one frame per record, as an image. Frames of a group of pictures are
// decoded together. They stay in the cache while other frames of the group are requested.
type stills struct {
	*source
	// groups has the first frames of each group by file, nil for MJPEG.
	groups [][]int64
	cache  *blockcache.Cache
	useful int64
}

const (
	// groupPixels is the approximate limit of the pixels of a group, in bytes.
	groupPixels = 24 << 20
	// jpegHead is more than the size of a JPEG without its pixels.
	jpegHead = 4 << 10
)

func newStills(s *source) *stills {
	t := &stills{source: s, cache: blockcache.New()}
	f := &s.info.Fields[frames]
	f.MaxBytes = 0
	for file, x := range s.videos {
		if x == nil {
			t.groups = append(t.groups, nil)
			continue
		}
		w, h := x.Upright()
		n := int64(w) * int64(h) * 3
		if x.Codec == video.MJPEG {
			for i := range x.Frames {
				f.MaxBytes = max(f.MaxBytes, int64(x.Frames[i].Size)+jpegHead)
			}
			t.groups = append(t.groups, nil)
			continue
		}
		f.MaxBytes = max(f.MaxBytes, n+jpegHead)
		t.groups = append(t.groups, t.group(file, n))
		t.useful += s.count(x) * n
	}
	return t
}

// group divides the frames of a file into groups. Each frame has n bytes. A new group begins if
// decoding a frame starts at another key frame, or if the group is too large.
func (t *stills) group(file int, n int64) (groups []int64) {
	x, before, held := t.videos[file], int32(-1), int64(0)
	for k := range t.count(x) {
		start := x.Start(x.Shown[t.still(x, k)])
		if held += n; start != before || held > groupPixels {
			groups, before, held = append(groups, k), start, n
		}
	}
	return groups
}

// still returns the index in Shown of record k of a video.
func (t *stills) still(x *video.Index, k int64) int { return t.frame(x, k*int64(t.opt.Step), 0) }

// groupOf returns the group of frame k of a file, and the first and last frame of the group.
func (t *stills) groupOf(file int, k int64) (group int, first, last int64) {
	groups := t.groups[file]
	group = sort.Search(len(groups), func(i int) bool { return groups[i] > k }) - 1
	last = t.count(t.videos[file])
	if group+1 < len(groups) {
		last = groups[group+1]
	}
	return group, groups[group], last - 1
}

// needs plans the reads for a frame: its whole group is decoded.
func (t *stills) needs(w *video.Plan, file int, k int64) {
	x := t.videos[file]
	first, last := k, k
	if t.groups[file] != nil {
		_, first, last = t.groupOf(file, k)
	}
	x.Plan(w, int(last-first)+1, func(j int) int { return t.still(x, first+int64(j)) })
}

// Held, Useful and Keep implement driver.Holder and driver.Cacher.
func (t *stills) Held() int64 {
	if t.useful == 0 {
		return 0
	}
	return t.cache.Limit()
}

func (t *stills) Useful() int64 { return t.useful }

func (t *stills) Keep(n int64) { t.cache.Keep(n) }

func (t *stills) Locate(g *driver.Group) {
	w := t.work.Get().(*video.Plan)
	defer t.work.Put(w)
	filelist.Locate(g, &t.info, func(rec int, id int64) {
		if !g.Wants(frames) {
			return
		}
		file, k := t.of(id)
		if err := t.list.Bad.Of(file); err != nil {
			g.Records[rec].Err = t.list.Place(file, err)
			return
		}
		t.needs(w, file, k)
		for _, p := range w.Pieces {
			g.Extents = append(g.Extents, driver.Extent{Object: int64(file), Offset: p.Offset, Size: p.Size, Field: -1, Tail: true})
		}
	})
}

func (t *stills) Parse(g *driver.Group) error {
	w := t.work.Get().(*video.Plan)
	defer t.work.Put(w)
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		file, n := t.of(id)
		if t.list.Classes != nil {
			rec.Values[label].Int = int64(t.list.Label(file))
		}
		if !g.Wants(frames) {
			continue
		}
		_, data := g.Of(k)
		v := &rec.Values[frames]
		var err error
		if x := t.videos[file]; t.groups[file] == nil && x.Turned() {
			err = video.ErrTurned
		} else if t.groups[file] == nil {
			var buf []byte
			*v = driver.Value{Bytes: video.JPEG(&buf, data[0]), Codec: driver.CodecJPEG, Orientation: 1}
		} else {
			t.needs(w, file, n)
			err = t.picture(g, k, w, file, n, data, v)
		}
		var none *driver.MemoryError
		switch {
		case errors.As(err, &none):
			return fmt.Errorf("no memory for a frame of %s: %w", t.list.FullPath(file), none.Err)
		case err != nil:
			rec.Err = t.list.Place(file, err)
		}
	}
	return nil
}

// picture sets the value of frame n of a file.
func (t *stills) picture(g *driver.Group, k int, w *video.Plan, file int, n int64, data [][]byte, v *driver.Value) error {
	group, first, _ := t.groupOf(file, n)
	e, err := t.cache.Get(blockcache.Key{Column: int32(file), N: int32(group)}, func(e *blockcache.Entry) error {
		return t.decode(e, t.videos[file], w, data)
	})
	if err != nil {
		return err
	}
	defer t.cache.Put(e)
	p := e.What.([]still)[n-first]
	*v = driver.Value{Codec: driver.CodecRaw, Width: p.w, Height: p.h, Channels: 3, Orientation: 1}
	pixels := p.pixels
	if t.opt.Quality > 0 {
		if pixels, err = cdec.EncodeJPEG(pixels, int(p.w), int(p.h), 3, cdec.EncodeOptions{Quality: t.opt.Quality, HSamp: 2, VSamp: 2}); err != nil {
			return err
		}
		v.Codec = driver.CodecJPEG
	}
	if v.Bytes, err = g.Take(k, frames, int64(len(pixels))); err != nil {
		return err
	}
	copy(v.Bytes, pixels)
	return nil
}

// still is a decoded frame.
type still struct {
	w, h   int32
	pixels []byte
}

func (t *stills) decode(e *blockcache.Entry, x *video.Index, w *video.Plan, data [][]byte) error {
	d, err := videodec.New(&x.Stream)
	if err != nil {
		return err
	}
	defer d.Close()
	out := make([]still, len(w.Frames))
	take := func() error {
		for {
			f, ok, err := d.Receive()
			if err != nil || !ok {
				return err
			}
			for i, n := range w.Frames {
				if int64(n) != f.PTS {
					continue
				}
				s := &out[i]
				width, height := f.Upright(&x.Stream)
				s.w, s.h = int32(width), int32(height)
				if s.pixels, err = e.Alloc(3 * width * height); err != nil {
					return err
				}
				f.RGB(&x.Stream, 0, 0, width, height, s.pixels)
			}
		}
	}
	for i, p := range w.Pieces {
		for n := p.First; n <= p.Last; n++ {
			// A mapped file can be truncated while C reads it, so C reads a copy.
			packet := x.Bytes(nil, n, &p, data[i])
			if err := d.Send(packet, int64(n), !slices.Contains(w.Frames, n)); err != nil {
				return fmt.Errorf("packet %d of the video: %w", n, err)
			}
			if err := take(); err != nil {
				return err
			}
		}
	}
	if err := d.End(); err != nil {
		return err
	}
	if err := take(); err != nil {
		return err
	}
	for i := range out {
		if out[i].pixels == nil {
			return errors.New("some frames did not come out of the decoder: the video is damaged")
		}
	}
	e.What = out
	return nil
}

func (t *stills) Close() error {
	t.cache.Close()
	return nil
}
