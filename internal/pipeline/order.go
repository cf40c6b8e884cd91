package pipeline

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/source/driver"
)

// order tells which record comes when. At most one of buckets, mix and window is set.
type order struct {
	split sampler.Split
	why   string // if the order is automatic
	// buckets are the buckets of the batches, nil for none.
	buckets    *sampler.Buckets
	bucketInfo *BucketInfo
	align      *aligned // of aligned ranks, nil for others
	// mix is the order of a mixture, nil for another one. mixed counts the records handed out, by dataset; Pipeline.mu
	// guards it.
	mix   *mixing
	mixed []int64
	// window is the order by windows of chunks, nil for another one.
	window *window
}

// planOrder checks that the source can be read in the order that is asked for, and plans that order.
func (p *Pipeline) planOrder(ctx context.Context, info *driver.Info) error {
	if err := p.checkOrder(info); err != nil {
		return err
	}
	if err := p.chooseOrder(info); err != nil {
		return err
	}
	cfg, o := &p.cfg, &p.order
	if info.Sequential && cfg.Shuffle {
		return fmt.Errorf("%s can only be read in order, since it is compressed, and shuffle asks for another one: "+
			"make a pack of it (stoker pack) and shuffle that, or turn shuffle off", info.URL)
	}
	o.split = sampler.Split{Len: info.Len, Batch: cfg.BatchSize, Rank: cfg.Rank, World: cfg.WorldSize, DropLast: cfg.DropLast, Uneven: cfg.Uneven}
	if err := p.planMix(); err != nil {
		return err
	}
	if o.mix != nil {
		o.split.Len = o.mix.Len()
	}
	if int64(cfg.BatchSize)*int64(cfg.WorldSize) > sampler.MaxLen {
		return fmt.Errorf("batch_size x world_size is %d, the limit is %d", int64(cfg.BatchSize)*int64(cfg.WorldSize), int64(sampler.MaxLen))
	}
	o.split.InTurn = o.window != nil && !o.window.Whole()
	if err := p.planAlign(ctx, info); err != nil {
		return err
	}
	if err := p.planBuckets(ctx, info); err != nil {
		return err
	}
	return p.checkSteps(info)
}

// checkOrder checks the number of records, and whether the client may give their order.
func (p *Pipeline) checkOrder(info *driver.Info) error {
	switch {
	case info.Len == 0:
		return fmt.Errorf("%s holds no records", info.URL)
	case info.Len < 0 || info.Len > sampler.MaxLen:
		return fmt.Errorf("%s says that it holds %d records, the limit is %d", info.URL, info.Len, int64(sampler.MaxLen))
	case info.Sequential && p.cfg.Order == OrderClient:
		return fmt.Errorf("%s can only be read in order, since it is compressed, and the client is to say which records come: "+
			"make a pack of it (stoker pack)", info.URL)
	}
	return nil
}

// checkSteps checks that an epoch has at least one batch.
func (p *Pipeline) checkSteps(info *driver.Info) error {
	cfg := &p.cfg
	switch {
	case p.steps() > 0:
		return nil
	case !cfg.DropLast:
		return fmt.Errorf("%s holds %d records, less than the %d ranks, and uneven=%q leaves them out: there would be no batch; "+
			"use uneven=%q, which repeats some", info.URL, p.order.split.Len, cfg.WorldSize, cfg.Uneven, sampler.Pad)
	}
	return fmt.Errorf("%s holds %d records, less than one global batch of %d x %d, and drop_last leaves out the rest: there would be no batch; "+
		"lower batch_size or turn drop_last off", info.URL, p.order.split.Len, cfg.BatchSize, cfg.WorldSize)
}

// steps is the number of batches of an epoch.
func (p *Pipeline) steps() int64 {
	if p.order.buckets != nil {
		return p.order.buckets.Steps()
	}
	return p.order.split.Steps()
}

// epoch returns the order of an epoch.
func (p *Pipeline) epoch(n int64) *sampler.Epoch {
	switch {
	case p.order.window != nil:
		return p.order.window.epoch(n).Of(&p.order.split)
	case p.order.mix != nil:
		return p.order.mix.NewEpoch(&p.order.split, p.cfg.Shuffle, p.cfg.Seed, n, p.order.mix.turns)
	case p.order.buckets == nil:
		return sampler.NewEpoch(&p.order.split, p.cfg.Shuffle, p.cfg.Seed, n)
	}
	return p.order.buckets.NewEpoch(p.cfg.Shuffle, p.cfg.Seed, n)
}
