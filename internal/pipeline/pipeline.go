package pipeline

import (
	"context"
	"errors"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/item"
)

// Pipeline makes batches. Next is called by one goroutine at a time; the other
// methods may be called from any.
type Pipeline struct {
	info Info
	ring *arena.Ring
}

var errNotReady = errors.New("the engine is being built")

// Open opens the source, compiles the transforms, plans the memory and makes
// the ring.
func Open(ctx context.Context, cfg Config) (*Pipeline, error) { return nil, errNotReady }

// Info describes the pipeline.
func (p *Pipeline) Info() Info { return p.info }

// Ring is the memory of the batches.
func (p *Pipeline) Ring() *arena.Ring { return p.ring }

// Start begins a new stream of batches at pos and returns its generation.
// What older streams made and Next has not returned is dropped.
func (p *Pipeline) Start(pos item.Position) (gen uint64) { return 0 }

// Next returns the next event of the current stream. It waits for Start when
// there is none yet. After a *RecordError or another error the stream is over
// until the next Start.
func (p *Pipeline) Next(ctx context.Context) (Event, error) { return Event{}, errNotReady }

// Release gives a slot back. Each batch is released once.
func (p *Pipeline) Release(slot int) {}

// Stats returns the counters.
func (p *Pipeline) Stats() Stats { return Stats{} }

// Close stops everything, waits for all goroutines and frees the memory.
func (p *Pipeline) Close() error { return nil }
