package pack

import (
	"context"
	"math"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/source/driver"
)

// Description is what the indexes of all chunks say about a pack.
type Description struct {
	// ClassRecords is the number of records of each class.
	ClassRecords []int64 `json:"class_records,omitempty"`
	// Codecs says how many images have each codec and how many bytes they are.
	Codecs []CodecShare `json:"codecs"`
	// Sizes counts images by their shorter side in pixels, Stored by the bytes
	// they take. Only the buckets from the first to the last that is not empty
	// are listed.
	Sizes  []Bucket `json:"sizes"`
	Stored []Bucket `json:"stored"`
	// Turned is the number of images with an EXIF orientation other than 1.
	Turned int64 `json:"turned"`
	// Pixels is the number of pixels of all images.
	Pixels int64 `json:"pixels"`
}

// CodecShare is the part that one codec has of the images.
type CodecShare struct {
	Codec   string `json:"codec"`
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"`
}

// Bucket counts the images with From <= size < To.
type Bucket struct {
	From    int64 `json:"from"`
	To      int64 `json:"to"`
	Records int64 `json:"records"`
}

// The lower bounds of the buckets: for sides two per power of two, for bytes
// 1, 2 and 5 per power of ten.
var (
	sideBounds = makeBounds(func(i int) int64 { return (int64(2) + int64(i%2)) << (i / 2) }, 1<<24)
	byteBounds = makeBounds(func(i int) int64 {
		v := []int64{1, 2, 5}[i%3]
		for range i / 3 {
			v *= 10
		}
		return v
	}, 5e9)
)

func makeBounds(at func(i int) int64, limit int64) []int64 {
	bounds := []int64{0}
	for i := 0; at(i) <= limit; i++ {
		bounds = append(bounds, at(i))
	}
	return bounds
}

// bucket returns the bucket of v: the last one whose bound is not above it.
func bucket(bounds []int64, v int64) int {
	return max(0, sort.Search(len(bounds), func(i int) bool { return bounds[i] > v })-1)
}

func buckets(bounds, counts []int64) []Bucket {
	lo, hi := len(counts), -1
	for i, n := range counts {
		if n > 0 {
			lo, hi = min(lo, i), i
		}
	}
	out := []Bucket{}
	for i := lo; i <= hi; i++ {
		to := int64(math.MaxInt64)
		if i+1 < len(bounds) {
			to = bounds[i+1]
		}
		out = append(out, Bucket{bounds[i], to, counts[i]})
	}
	return out
}

// tally is the part of a description that one goroutine counts.
type tally struct {
	classes        []int64
	records, bytes [256]int64
	sides, stored  []int64
	turned, pixels int64
}

func (r *Reader) newTally() *tally {
	return &tally{
		classes: make([]int64, len(r.man.Classes())),
		sides:   make([]int64, len(sideBounds)),
		stored:  make([]int64, len(byteBounds)),
	}
}

// Describe reads the indexes of all chunks. It reads no images. Of a pack without
// images the manifest says everything: its description is empty.
func (r *Reader) Describe(ctx context.Context) (*Description, error) {
	if r.recs != nil {
		return &Description{Codecs: []CodecShare{}, Sizes: []Bucket{}, Stored: []Bucket{}}, nil
	}
	var next atomic.Int64
	var mu sync.Mutex
	sum := r.newTally()
	g, gctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			t := r.newTally()
			var head []byte
			for {
				c := int(next.Add(1) - 1)
				if c >= len(r.chunks) {
					break
				}
				if err := context.Cause(gctx); err != nil {
					return err
				}
				v, err := r.view(c, &head)
				if err != nil {
					return err
				}
				if err := t.count(v); err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sum.merge(t)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	d := &Description{Sizes: buckets(sideBounds, sum.sides), Stored: buckets(byteBounds, sum.stored), Turned: sum.turned, Pixels: sum.pixels}
	if r.col.label >= 0 {
		d.ClassRecords = sum.classes
	}
	for c := range sum.records {
		if sum.records[c] > 0 {
			d.Codecs = append(d.Codecs, CodecShare{CodecName(driver.Codec(c)), sum.records[c], sum.bytes[c]})
		}
	}
	return d, nil
}

func (t *tally) count(v *view) error {
	r := v.r
	for row := range r.chunks[v.c].rows {
		if err := v.checkRow(row); err != nil {
			return err
		}
		_, size := v.value(r.col.image, row)
		w, h := v.int32(r.col.width, row), v.int32(r.col.height, row)
		codec := v.uint8(r.col.codec, row)
		t.records[codec]++
		t.bytes[codec] += size
		t.sides[bucket(sideBounds, int64(min(w, h)))]++
		t.stored[bucket(byteBounds, size)]++
		t.pixels += int64(w) * int64(h)
		if v.uint8(r.col.orientation, row) > 1 {
			t.turned++
		}
		if r.col.label >= 0 {
			t.classes[v.int64(r.col.label, row)]++
		}
	}
	return nil
}

func (t *tally) merge(o *tally) {
	for i := range o.classes {
		t.classes[i] += o.classes[i]
	}
	for i := range o.records {
		t.records[i] += o.records[i]
		t.bytes[i] += o.bytes[i]
	}
	for i := range o.sides {
		t.sides[i] += o.sides[i]
	}
	for i := range o.stored {
		t.stored[i] += o.stored[i]
	}
	t.turned += o.turned
	t.pixels += o.pixels
}
