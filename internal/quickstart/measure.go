package quickstart

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/bench"
	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/survey"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/view"
)

// A Gain is how fast records come, as they are and from a pack.
type Gain struct {
	// Records is the number of records that were measured, Cores the number of cores that were used.
	Records int64
	Cores   int
	// AsIs and Packed are records per second, after the transforms of the script. Packed is 0 if there is nothing to pack.
	AsIs, Packed float64
	// Workers is an estimate: the number of worker processes that PyTorch's DataLoader needs for AsIs. 0: not known.
	Workers float64
}

// Limits of what is packed for the measurement, and the fewest records that say something.
const (
	mostRecords  = 1000
	mostBytes    = 64 << 20
	leastRecords = 32
)

// Measure loads a part of the data for about half of the time, packs it into a temporary folder, and loads the pack for
// the other half. It calls progress now and then with the share that is done.
func (d *Data) Measure(ctx context.Context, length time.Duration, progress func(share float64)) (g *Gain, err error) {
	switch {
	case d.remote():
		return nil, errors.New("the data is remote")
	case d.Len < leastRecords:
		return nil, fmt.Errorf("%d records are too few to measure", d.Len)
	}
	url, records := d.part()
	g = &Gain{Records: records}
	asIs, err := d.load(ctx, url, length/2, func(share float64) { progress(share / 2) })
	if err != nil {
		return nil, err
	}
	g.AsIs, g.Cores = asIs.PerSecond, asIs.Cores
	g.Workers = d.workers(ctx, g)
	if d.Format == "pack" || d.Sequential {
		return g, nil
	}
	dir, remove, err := leftover.MkdirTemp("", "stoker-quickstart-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	packed := filepath.Join(dir, "pack")
	if err := write(ctx, url, packed); err != nil {
		return g, ctx.Err() // some data cannot be packed
	}
	r, err := d.load(ctx, packed, length/2, func(share float64) { progress(0.5 + share/2) })
	if err != nil {
		return g, ctx.Err()
	}
	g.Packed = r.PerSecond
	return g, nil
}

// write packs the records of a source.
func write(ctx context.Context, url, packed string) error {
	src, err := source.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	_, err = pack.WriteSource(ctx, src, packed, nil)
	return errors.Join(err, src.Close())
}

// part returns the URL of a part of the data that is packed quickly.
func (d *Data) part() (url string, records int64) {
	n := min(d.Len, mostRecords)
	if each := d.Bytes / max(d.Len, 1); each > 0 {
		n = min(n, max(mostBytes/each, leastRecords))
	}
	if n >= d.Len || d.Sequential || strings.Contains(d.URL, "#") {
		return d.URL, d.Len
	}
	return d.URL + view.Fragment(&view.Spec{Split: fmt.Sprintf("sample:%d,rest:rest", n), Part: "sample"}), n
}

// load measures the engine with the transforms of the script.
func (d *Data) load(ctx context.Context, url string, length time.Duration, progress func(share float64)) (*bench.Result, error) {
	if path, rest := cut(url); path != "" {
		if abs, err := filepath.Abs(path); err == nil && !strings.Contains(path, ":") {
			url = abs + rest
		}
	}
	return bench.Run(ctx, bench.Options{
		Config: pipeline.Config{Source: url, BatchSize: int(d.batch()), Shuffle: !d.Sequential, Outputs: d.outputs()},
		For:    length, Cached: -1, Progress: progress,
	})
}

// cut separates the path of a URL from its parameters and view.
func cut(url string) (path, rest string) {
	if i := strings.IndexAny(url, "?#"); i >= 0 {
		return url[:i], url[i:]
	}
	return url, ""
}

// workers estimates the worker processes of PyTorch's DataLoader for the measured speed.
func (d *Data) workers(ctx context.Context, g *Gain) float64 {
	s, err := survey.Look(ctx, d.URL)
	if err != nil || s.Kind != plan.KindImage || g.AsIs <= 0 {
		return 0
	}
	batch := d.batch()
	p, err := plan.Make(plan.Target{Kind: s.Kind, Batch: batch, Step: float64(batch) / g.AsIs}, s.Dataset, plan.Machine{Cores: float64(g.Cores)})
	if err != nil {
		return 0
	}
	return p.Memory.Torch.Workers
}
