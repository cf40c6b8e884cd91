package pipeline

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/querycache"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/scan"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// This file sorts records into buckets when a pipeline opens. The sort keys are known without decoding: the sizes of
// values, the headers of images.

// Bucket sets how records are sorted into buckets. Each batch has records of one bucket.
type Bucket struct {
	// By is a field: values of any length are sorted by that, images by width /
	// height.
	By string `json:"by"`
	// Boundaries are the largest length or proportion of each bucket but the last.
	// When there are none, Count buckets have about as many records each.
	Boundaries []float64 `json:"boundaries"`
	Count      int       `json:"count"`
	// MaxTokens bounds rows x longest row of a batch, as rows are filled up; a batch has
	// as many rows as that allows, up to the batch size.
	MaxTokens int64 `json:"max_tokens"`
	// Ranks is the number of batches of one bucket that come together, so that as many ranks have rows of about the same
	// length. 0 is the number of ranks. The order depends on it, and not on the number of ranks: a run that continues on
	// other ranks has the number that it began with.
	Ranks int `json:"ranks"`
}

// BucketInfo describes the buckets of a pipeline.
type BucketInfo struct {
	By string `json:"by"`
	// Largest is the length or proportion of the largest record in each bucket. Records is the number of its records,
	// and Rows the number of rows of its batches on each rank. With Align, the first half of the buckets is of records
	// without a value, and the other half of records with one.
	Largest []float64 `json:"largest"`
	Records []int64   `json:"records"`
	Rows    []int     `json:"rows"`
	// Ranks is the number of batches of one bucket that come together.
	Ranks int `json:"ranks"`
}

// Limits and defaults of buckets.
const (
	maxBuckets     = 4096
	defaultBuckets = 8
	// tokenBuckets are more, since each row is counted as the longest of its bucket.
	tokenBuckets = 32
)

func (c *Bucket) check() error {
	switch {
	case c.By == "":
		return fmt.Errorf("bucket: by says which field records are sorted by, and is missing")
	case c.Count < 0 || c.Count > maxBuckets || len(c.Boundaries) >= maxBuckets:
		return fmt.Errorf("bucket: there are 1 to %d buckets", maxBuckets)
	case c.Count > 0 && len(c.Boundaries) > 0:
		return fmt.Errorf("bucket: count and boundaries exclude each other")
	case c.MaxTokens < 0:
		return fmt.Errorf("bucket: max_tokens is %d, must be at least 1", c.MaxTokens)
	case c.Ranks < 0 || c.Ranks > maxWorldSize:
		return fmt.Errorf("bucket: ranks is %d, must be between 0 (world_size) and %d", c.Ranks, maxWorldSize)
	}
	for i, b := range c.Boundaries {
		if math.IsNaN(b) || b <= 0 || i > 0 && b <= c.Boundaries[i-1] {
			return fmt.Errorf("bucket: the boundaries %v must be more than 0 and rise", c.Boundaries)
		}
	}
	return nil
}

// planBuckets sorts the records into buckets, if requested.
func (p *Pipeline) planBuckets(ctx context.Context, info *driver.Info) error {
	c := p.cfg.Bucket
	if c == nil {
		return nil
	}
	if err := c.check(); err != nil {
		return err
	}
	field := slices.IndexFunc(info.Fields, func(f driver.Field) bool { return f.Name == c.By })
	if field < 0 {
		var names []string
		for i := range info.Fields {
			names = append(names, info.Fields[i].Name)
		}
		return fmt.Errorf("bucket: %s has no field %q%s", info.URL, c.By, transform.DidYouMean(c.By, names))
	}
	switch f := &info.Fields[field]; {
	case p.records.epochs && p.records.variants < 2:
		return fmt.Errorf("bucket needs records that are the same in each epoch, and those of %s differ", info.URL)
	case driver.Varies(p.src, field) && !(f.Width > 0 && f.Height > 0):
		return fmt.Errorf("bucket: field %q of %s has variants, which differ in their length: sort by a field that is the same in all", c.By, info.URL)
	}
	if info.Sequential {
		return fmt.Errorf("bucket: batches of like records take them out of their order, and %s can only be read in order; make a pack of it (stoker pack)", info.URL)
	}
	keys, err := p.bucketKeys(ctx, info, field)
	if err != nil {
		return fmt.Errorf("bucket: %w", err)
	}
	if keys.width && c.MaxTokens > 0 {
		return fmt.Errorf("bucket: max_tokens is about lengths, and %q is sorted by its proportions", c.By)
	}
	bounds := c.Boundaries
	if bounds == nil {
		bounds = keys.quantiles(c)
	}
	count, kinds := len(bounds)+1, 1
	of := func(id int64) int {
		k, _ := slices.BinarySearch(bounds, keys.at(id))
		return k
	}
	align := p.order.align
	if align != nil { // the same buckets for records without a value and for those with one
		length := of
		of, kinds = func(id int64) int { return count*align.kind(id) + length(id) }, 2
	}
	largest, records := make([]float64, kinds*count), make([]int64, kinds*count)
	for id := range info.Len {
		k := of(id)
		largest[k] = max(largest[k], keys.at(id))
		records[k]++
	}
	rows := make([]int, len(largest))
	for k, n := range largest {
		if rows[k], err = p.bucketRows(c, n); err != nil {
			return err
		}
	}
	p.order.bucketInfo = &BucketInfo{By: c.By, Largest: largest, Records: records, Rows: rows, Ranks: cmp.Or(c.Ranks, p.cfg.WorldSize)}
	ranks := p.order.bucketInfo.Ranks
	if align != nil {
		if p.order.buckets, err = sampler.NewAligned(info.Len, of, rows, count, ranks, &p.order.split); err != nil {
			return fmt.Errorf("bucket and align by %q: %w", p.cfg.Align.By, err)
		}
	} else if p.order.buckets, err = sampler.NewBuckets(info.Len, of, rows, ranks, &p.order.split); err != nil {
		return fmt.Errorf("bucket: %w", err)
	}
	if p.balanced() {
		p.order.buckets.Balance(func(id int64) int64 { return int64(keys.at(id)) })
	}
	return nil
}

// balanced reports whether the batches of a step have about the same number of tokens.
func (p *Pipeline) balanced() bool { return p.cfg.Bucket.MaxTokens > 0 && p.order.bucketInfo.Ranks > 1 }

// bucketRows returns the number of rows of a bucket's batches, for the length of the longest row.
func (p *Pipeline) bucketRows(c *Bucket, longest float64) (int, error) {
	if c.MaxTokens == 0 {
		return p.cfg.BatchSize, nil
	}
	n := p.paddedLength(int64(longest))
	if n > c.MaxTokens {
		return 0, fmt.Errorf("bucket: a record has %d elements in %q, more than max_tokens, which is %d: leave it out (where=\"%[2]s.length <= %[3]d\"), or cut it with stoker.Padded(length=%[3]d, truncate=True)",
			n, c.By, c.MaxTokens)
	}
	return int(min(int64(p.cfg.BatchSize), c.MaxTokens/max(n, 1))), nil
}

// paddedLength returns the padded length of a row of the sort field if it is the longest.
func (p *Pipeline) paddedLength(n int64) int64 {
	pad, ok := p.cfg.Pad[p.cfg.Bucket.By]
	switch m := max(pad.Multiple, 1); {
	case !ok:
		return n
	case pad.Length > 0:
		return pad.Length
	default:
		return (n + m - 1) / m * m
	}
}

// pads returns the requested padding, with the capacity that buckets leave.
func (p *Pipeline) pads() map[string]collate.Pad {
	c := p.cfg.Bucket
	if c == nil || p.order.bucketInfo == nil {
		return p.cfg.Pad
	}
	pads := maps.Clone(p.cfg.Pad)
	if pad, ok := pads[c.By]; ok {
		for k, n := range p.order.bucketInfo.Largest {
			pad.Most = max(pad.Most, int64(p.order.bucketInfo.Rows[k])*p.paddedLength(int64(n)), 1)
		}
		pads[c.By] = pad
	}
	return pads
}

// keysOf are the sort keys: lengths, or widths and heights.
type keysOf struct {
	width bool
	raw   []uint32 // one number per record, or two
}

func (k *keysOf) at(id int64) float64 {
	if !k.width {
		return float64(k.raw[id])
	}
	w, h := k.raw[2*id], k.raw[2*id+1]
	if w == 0 || h == 0 {
		return 1
	}
	return float64(w) / float64(h)
}

// quantiles returns boundaries between which the numbers of records are about equal.
func (k *keysOf) quantiles(c *Bucket) []float64 {
	count := c.Count
	if count == 0 {
		count = defaultBuckets
		if c.MaxTokens > 0 {
			count = tokenBuckets
		}
	}
	n := len(k.raw)
	if k.width {
		n /= 2
	}
	all := make([]float64, n)
	for i := range all {
		all[i] = k.at(int64(i))
	}
	slices.Sort(all)
	var bounds []float64
	for i := 1; i < count; i++ {
		b := all[min(i*n/count, n-1)]
		if b < all[n-1] && (len(bounds) == 0 || b > bounds[len(bounds)-1]) {
			bounds = append(bounds, b)
		}
	}
	return bounds
}

// bucketKeys reads the sort keys of the records, or returns them if they are already known.
func (p *Pipeline) bucketKeys(ctx context.Context, info *driver.Info, field int) (*keysOf, error) {
	f := &info.Fields[field]
	keys := &keysOf{}
	req := &scan.Request{Lenient: true}
	element := int64(1)
	if view.HasShape(f) {
		keys.width = true
		req.Shapes = []int{field}
	} else {
		var err error
		if element, err = view.ElementBytes(f); err != nil {
			return nil, err
		}
		req.Sizes = []int{field}
	}
	keys.raw = make([]uint32, info.Len*(1+int64(bool01(keys.width))))
	question := ""
	if info.Fingerprint != "" {
		question = strings.Join([]string{"bucket", info.Fingerprint, fmt.Sprint(info.Len, keys.width, p.cfg.ApplyOrientation), f.Name}, "\x01")
	}
	if b, ok := querycache.Load(question); ok && len(b) == 4*len(keys.raw) {
		for i := range keys.raw {
			keys.raw[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
		return keys, nil
	}
	err := scan.Run(ctx, p.src, req, func(r *scan.Rows) error {
		for k := range r.N {
			id := r.First + int64(k)
			if !keys.width {
				keys.raw[id] = uint32(min(r.Sizes[0][k]/element, math.MaxUint32))
				continue
			}
			w, h := p.sizeOf(r.Shapes[0][k])
			keys.raw[2*id], keys.raw[2*id+1] = uint32(w), uint32(h)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 4*len(keys.raw))
	for _, v := range keys.raw {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	_, _ = querycache.Save(question, b)
	return keys, nil
}

func bool01(b bool) int {
	if b {
		return 1
	}
	return 0
}
