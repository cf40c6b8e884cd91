package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/querycache"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/scan"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// This file aligns ranks: in each step either all of them have records with a value in a field, or none has.

// Align sets the field.
type Align struct {
	By string `json:"by"`
	// Ranks is the number of batches of one kind that come together, 0 for the number of ranks. A run that continues on
	// fewer ranks has the number that it began with.
	Ranks int `json:"ranks"`
}

// aligned is the state of a pipeline with aligned ranks.
type aligned struct {
	field int
	has   []byte // a bit per record
	// without are the fields that are read of records without a value.
	without []bool
	array   int // the array that says whether rows have it
}

func (a *aligned) of(id int64) bool { return a.has[id/8]>>(id%8)&1 == 1 }

// kind returns 1 for a record with a value and 0 for one without.
func (a *aligned) kind(id int64) int { return bool01(a.of(id)) }

// planAlign sorts the records into those with a value and those without, if requested.
func (p *Pipeline) planAlign(ctx context.Context, info *driver.Info) error {
	c := p.cfg.Align
	if c == nil {
		return nil
	}
	fail := func(format string, a ...any) error { return fmt.Errorf("align: "+format, a...) }
	ranks := cmp.Or(c.Ranks, p.cfg.WorldSize)
	if p.cfg.Bucket != nil {
		ranks = cmp.Or(p.cfg.Bucket.Ranks, ranks)
	}
	i := slices.IndexFunc(info.Fields, func(f driver.Field) bool { return f.Name == c.By })
	switch {
	case i < 0:
		var names []string
		for k := range info.Fields {
			names = append(names, info.Fields[k].Name)
		}
		return fail("%s has no field %q%s", info.URL, c.By, transform.DidYouMean(c.By, names))
	case !kind.Optional(info.Fields[i].Kind):
		return fail("field %q is %s, of which each record has a value", c.By, info.Fields[i].Kind)
	case p.records.epochs || info.Sequential:
		return fail("it needs records that are the same in each epoch and can be read in any order, and those of %s are not", info.URL)
	case ranks < 1 || ranks > maxWorldSize || ranks%p.cfg.WorldSize != 0:
		return fail("the order was made for %d ranks, and %d ranks cannot share it evenly: continue on a number that divides %d", ranks, p.cfg.WorldSize, ranks)
	}
	has, err := p.present(ctx, info, i)
	if err != nil {
		return fail("%w", err)
	}
	p.order.align = &aligned{field: i, has: has}
	if p.cfg.Bucket != nil {
		return nil // planBuckets sorts by both
	}
	rows := []int{p.cfg.BatchSize, p.cfg.BatchSize}
	if p.order.buckets, err = sampler.NewAligned(info.Len, p.order.align.kind, rows, 1, ranks, &p.order.split); err != nil {
		return fail("field %q: %w", c.By, err)
	}
	p.order.bucketInfo = &BucketInfo{
		By: c.By, Largest: []float64{0, 1}, Records: []int64{p.order.buckets.Records(0), p.order.buckets.Records(1)},
		Rows: rows, Ranks: ranks,
	}
	return nil
}

// present reads which records have a value in a field, or returns the cached answer.
func (p *Pipeline) present(ctx context.Context, info *driver.Info, field int) ([]byte, error) {
	question := ""
	if info.Fingerprint != "" {
		question = strings.Join([]string{"align", info.Fingerprint, fmt.Sprint(info.Len), info.Fields[field].Name}, "\x01")
	}
	if b, ok := querycache.Load(question); ok && int64(len(b)) == (info.Len+7)/8 {
		return b, nil
	}
	has := make([]byte, (info.Len+7)/8)
	// Rows begin at a multiple of 64, so no two goroutines write the same byte.
	err := scan.Run(ctx, p.src, &scan.Request{Sizes: []int{field}, Lenient: true}, func(r *scan.Rows) error {
		for k := range r.N {
			// A record that cannot be read is a bad record, later.
			if r.Errs[k] == nil && r.Sizes[0][k] == 0 || errors.Is(r.Errs[k], column.ErrMissing) {
				continue
			}
			id := r.First + int64(k)
			has[id/8] |= 1 << (id % 8)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	_, _ = querycache.Save(question, has)
	return has, nil
}

// alignArray adds the array that says whether rows have a value.
func (p *Pipeline) alignArray(cols []collate.Column) []collate.Column {
	a := p.order.align
	if a == nil {
		return cols
	}
	a.without = slices.Clone(p.arrays.set.Fields())
	a.without[a.field] = false
	a.array = len(cols)
	return append(cols, collate.Column{Name: "has_" + p.cfg.Align.By, DType: item.Bool})
}

// fieldsOf returns the fields that are read of a record.
func (p *Pipeline) fieldsOf(id int64) []bool {
	if p.order.align != nil && !p.order.align.of(p.number(id)) {
		return p.order.align.without
	}
	return p.arrays.set.Fields()
}

// markAligned writes whether rows have a value.
func (p *Pipeline) markAligned(b *batch, first, rows int) {
	has := byte(0)
	if p.order.align.of(p.number(b.ids[first])) {
		has = 1
	}
	marks := b.rows.Span(p.order.align.array, first, first+rows)
	for k := range marks {
		marks[k] = has
	}
}
