package probe

import (
	"context"
	"encoding/json"
	"time"

	"github.com/stokerdata/stoker/internal/handoff"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/source/driver"
)

// handoff measures the hand-off cost: the time from batch to batch for batches of one tiny record, through the
// engine's own protocol over a socket. The bytes of a batch are not copied, so its size does not matter.
func (p *probe) handoff(ctx context.Context, d time.Duration) {
	per, err := perBatch(ctx, d)
	if err != nil {
		if ctx.Err() == nil {
			p.note("hand-off: %v", err)
		}
		return
	}
	p.m.Handoff = &plan.Handoff{PerBatch: per}
}

func perBatch(ctx context.Context, d time.Duration) (seconds float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ours, fd, err := handoff.Pair()
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	theirs, err := handoff.FromFD(fd)
	if err != nil {
		return 0, err
	}
	session := handoff.NewSession(theirs, handoff.Options{
		Open: func(ctx context.Context, config []byte) (handoff.Pipeline, error) {
			cfg, err := pipeline.ParseConfig(config)
			if err != nil {
				return nil, err
			}
			cfg.OpenSource = func(context.Context, string) (driver.Source, error) { return tiny{}, nil }
			return pipeline.Open(ctx, cfg)
		},
	})
	done := make(chan error, 1)
	go func() { done <- session.Run(ctx) }()
	defer func() {
		ours.Interrupt()
		if serr := <-done; err == nil {
			err = serr
		}
	}()
	stop := context.AfterFunc(ctx, ours.Interrupt)
	defer stop()
	return receive(ours, d)
}

// patience is the maximum time for the engine, which has nothing to wait for.
const patience = 30 * time.Second

// receive is the trainer's side: it takes batches and releases their slots.
func receive(c *handoff.Client, d time.Duration) (float64, error) {
	config, err := json.Marshal(map[string]any{"source": "probe", "batch_size": 1, "threads": 1, "memory": 64 << 20})
	if err != nil {
		return 0, err
	}
	if err := c.Open(config, patience); err != nil {
		return 0, err
	}
	if err := c.Start(0, 0); err != nil {
		return 0, err
	}
	const warmup = 64
	var start time.Time
	for batches := 0; ; {
		m, err := c.Next(patience)
		if err != nil {
			return 0, err
		}
		if b, ok := m.(handoff.Batch); ok {
			if err := c.Release(b); err != nil {
				return 0, err
			}
			if batches++; batches == warmup {
				start = time.Now()
			}
		}
		if batches > warmup && time.Since(start) > d {
			return time.Since(start).Seconds() / float64(batches-warmup), nil
		}
	}
}

// tiny is a source of 1 x 1 images.
type tiny struct{ driver.InMemory }

var tinyInfo = driver.Info{URL: "probe", Format: "probe", Len: 1 << 20, Fields: []driver.Field{
	{Name: "image", Kind: driver.KindImage, MaxBytes: 3, Width: 1, Height: 1, Channels: 3, MaxWidth: 1, MaxHeight: 1},
}}

func (tiny) Info() *driver.Info { return &tinyInfo }
func (tiny) Name(int64) string  { return "probe" }
func (tiny) Close() error       { return nil }

func (tiny) Parse(g *driver.Group) error {
	for k := range g.IDs {
		b, err := g.Alloc(3)
		if err != nil {
			return err
		}
		clear(b)
		g.Records[k].Values[0] = driver.Value{Bytes: b, Codec: driver.CodecRaw, Width: 1, Height: 1, Channels: 3}
	}
	return nil
}
