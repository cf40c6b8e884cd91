package pipeline

import (
	"fmt"
	"slices"
	"sync"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/sampler"
)

// OrderClient is the value of Config.Order with which the client sets the records of each batch. Otherwise the sampler
// does.
const OrderClient = "client"

// MaxGiven is the limit of records that were added and whose batch has not begun.
const MaxGiven = 1 << 22

// Given is the order of one stream as its client gives it, batch by batch, ahead of the batches. It never ends: the
// client knows the number of batches.
type Given struct {
	records int64 // of the source
	rows    int   // of a batch at most

	mu   sync.Mutex
	ids  []int64 // those not dropped
	from int64   // the position of ids[0]
	open int64   // the position at which the batch begins that is not whole yet
	ends []int64 // the ends of complete batches that are not dropped
	step int64   // the number of the first of them
	wake chan struct{}
}

// list is an order that is given batch by batch: Given or Asked. Positions are those of a cursor.
type list interface {
	// at returns the batch that begins at a position, and false if it is not known yet. An epoch of -1 is that of the
	// stream.
	at(row int64) (part sampler.Part, epoch int64, ok bool)
	// fill writes the records of rows k, k+1, ... of the cursor's batch into ids.
	fill(ids []int64, c *cursor, k int)
	// drop removes everything before a position at which a batch begins.
	drop(row int64)
	// more receives a value when batches were added.
	more() <-chan struct{}
}

// NewGiven returns an empty order that begins at a position; nil if the client gives no order.
func (p *Pipeline) NewGiven(pos item.Position) *Given {
	if p.cfg.Order != OrderClient {
		return nil
	}
	return newGiven(p.src.Info().Len, p.cfg.BatchSize, max(pos.Row, 0))
}

func newGiven(records int64, rows int, at int64) *Given {
	return &Given{records: records, rows: rows, from: at, open: at, wake: make(chan struct{}, 1)}
}

// Add appends records. whole reports that the last of them ends a batch.
func (g *Given) Add(ids []int64, whole bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	end := g.from + int64(len(g.ids)+len(ids))
	switch {
	case len(g.ids)+len(ids) > MaxGiven:
		return fmt.Errorf("more than %d records were given ahead of the batches", MaxGiven)
	case end-g.open > int64(g.rows):
		return fmt.Errorf("a batch of %d records, where batch_size is %d", end-g.open, g.rows)
	case whole && end == g.open:
		return fmt.Errorf("a batch without records")
	}
	for _, id := range ids {
		if id < 0 || id >= g.records {
			return fmt.Errorf("record %d is outside of the %d that there are", id, g.records)
		}
	}
	g.ids = append(g.ids, ids...)
	if whole {
		g.ends = append(g.ends, end)
		g.open = end
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

func (g *Given) at(row int64) (sampler.Part, int64, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, found := slices.BinarySearch(g.ends, row)
	if found {
		i++
	}
	if i >= len(g.ends) {
		return sampler.Part{}, -1, false
	}
	return sampler.Part{Lo: row, Hi: g.ends[i], Next: g.ends[i], Step: g.step + int64(i)}, -1, true
}

func (g *Given) fill(ids []int64, c *cursor, k int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	copy(ids, g.ids[c.part.Lo+int64(k)-g.from:])
}

func (g *Given) more() <-chan struct{} { return g.wake }

func (g *Given) drop(pos int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := pos - g.from
	g.ids = g.ids[:copy(g.ids, g.ids[n:])]
	g.from = pos
	i, found := slices.BinarySearch(g.ends, pos)
	if found {
		i++
	}
	g.ends = g.ends[:copy(g.ends, g.ends[i:])]
	g.step += int64(i)
}
