package phash

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/scan"
	"github.com/stokerdata/stoker/source/driver"
)

// Request selects the images to compare.
type Request struct {
	// Field is the index of a field of images.
	Field int
	// Within selects the records, nil for all.
	Within func(id int64) bool
	// Threads is the number of images decoded concurrently, 0 for one per core.
	Threads  int
	Progress func(done, total int64)
}

// Hashes returns the hashes of the images of a source, and the numbers of their records, ascending. Images that cannot
// be decoded have no hash. A caller that reads them gets the error.
func Hashes(ctx context.Context, src driver.Source, req *Request) (ids []int64, hashes []uint64, err error) {
	info := src.Info()
	threads := req.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	all := make([]uint64, info.Len)
	good := make([]bool, info.Len)
	var mu sync.Mutex
	var idle []*thumbnails
	defer func() {
		for _, t := range idle {
			t.dec.Close()
		}
	}()
	take := func() (*thumbnails, error) {
		mu.Lock()
		defer mu.Unlock()
		if n := len(idle); n > 0 {
			t := idle[n-1]
			idle = idle[:n-1]
			return t, nil
		}
		dec, err := decode.New(decode.Options{})
		return &thumbnails{dec: dec}, err
	}
	err = scan.Run(ctx, src, &scan.Request{Values: []int{req.Field}, Lenient: true, Threads: threads, Progress: req.Progress}, func(rows *scan.Rows) error {
		t, err := take()
		if err != nil {
			return err
		}
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			idle = append(idle, t)
		}()
		for k := range rows.N {
			id := rows.First + int64(k)
			if rows.Errs[k] != nil || req.Within != nil && !req.Within(id) {
				continue
			}
			all[id], good[id] = t.hash(rows.Records[k].Values[req.Field])
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	n := 0
	for id, ok := range good {
		if ok {
			ids = append(ids, int64(id))
			all[n] = all[id]
			n++
		}
	}
	return ids, all[:n], nil
}

// thumbnails makes them, in one goroutine.
type thumbnails struct {
	dec *decode.Decoder
	pix [Side * Side]byte
	req [1]decode.Request
}

func (t *thumbnails) hash(v driver.Value) (h uint64, ok bool) {
	info, err := t.dec.Info(v)
	if err != nil {
		return 0, false
	}
	if v.Codec != driver.CodecRaw {
		v.Width, v.Height = info.Width, info.Height
	}
	gray := item.PixelType{DType: item.U8, Channels: 1}
	t.req[0] = decode.Request{
		Value: v, Pixels: gray, Store: gray.Plain(), Dst: t.pix[:],
		Geom: item.Geometry{
			Box: item.Rect{W: v.Width, H: v.Height}, ResizeW: Side, ResizeH: Side, Window: item.Rect{W: Side, H: Side}, Filter: item.Bilinear,
		},
	}
	t.dec.Run(t.req[:])
	err = t.req[0].Err
	t.req[0] = decode.Request{} // keeps no record's bytes alive
	if err != nil {
		return 0, false
	}
	return Hash(t.pix[:]), true
}

// Parse reads a request: "image:6", "image", "6" or "". The default field is the first one of images, and the default
// distance DefaultDistance.
func Parse(text string, info *driver.Info) (field, distance int, err error) {
	name, digits, both := strings.Cut(text, ":")
	if !both {
		if _, err := strconv.Atoi(text); err == nil {
			name, digits = "", text
		}
	}
	distance = DefaultDistance
	if digits != "" || both {
		if distance, err = strconv.Atoi(digits); err != nil {
			return 0, 0, fmt.Errorf("similar %q: write FIELD:DISTANCE, such as image:%d", text, DefaultDistance)
		}
	}
	if err := CheckDistance(distance); err != nil {
		return 0, 0, fmt.Errorf("similar %q: %w", text, err)
	}
	var images []string
	for i := range info.Fields {
		f := &info.Fields[i]
		if f.Kind != driver.KindImage || f.DType != "" {
			continue
		}
		if name == "" || f.Name == name {
			return i, distance, nil
		}
		images = append(images, f.Name)
	}
	if len(images) == 0 {
		return 0, 0, fmt.Errorf("similar: %s has no images, and it is these that are compared", info.URL)
	}
	return 0, 0, fmt.Errorf("similar %q: %s has no field %q of images: there is %s", text, info.URL, name, strings.Join(images, ", "))
}
