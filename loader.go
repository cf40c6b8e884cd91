package stoker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

// ErrHeld is returned by Next if all slots of the ring are in batches that were not released. Next would otherwise
// block forever.
var ErrHeld = errors.New("stoker: every batch that there is room for is still held; call Batch.Release, or raise Limits.Prefetch")

// ErrClosed is returned after Close.
var ErrClosed = errors.New("stoker: the loader is closed")

// RecordError reports the record that could not be loaded, and the reason.
type RecordError struct {
	// ID is the number of the record, Name its file, or its shard and row.
	ID   int64
	Name string
	// Reason is one line.
	Reason string

	cause error
}

// Error returns one line.
func (e *RecordError) Error() string {
	return fmt.Sprintf("stoker: record %d (%s): %s", e.ID, e.Name, e.Reason)
}

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.cause }

// Loader hands out batches. Its methods may be called from several goroutines,
// Next from one at a time.
type Loader struct {
	p    *pipeline.Pipeline
	seed uint64

	mu      sync.Mutex
	pos     item.Position // of the next batch
	running bool          // the engine's stream gen is at pos
	gen     uint64
	waiting bool // Next waits for the engine
	ended   bool // the last batch was an epoch's last; its end is to come
	failed  error
	skipped []RecordError
	nSkip   int64
	closed  bool
}

// Open opens the dataset at url, a path or a URL that package source knows. When
// it fails, Options.Source is closed too.
func Open(ctx context.Context, url string, opts *Options) (*Loader, error) {
	if opts == nil {
		opts = &Options{}
	}
	cfg, err := opts.config(url)
	// If the engine received the source, it also closes it.
	taken := opts.Source == nil
	if !taken {
		cfg.OpenSource = func(ctx context.Context, u string) (driver.Source, error) {
			if taken { // the copy of RepairFrom
				return source.Open(ctx, u, nil)
			}
			taken = true
			return opts.Source, nil
		}
	}
	var p *pipeline.Pipeline
	if err == nil {
		p, err = pipeline.Open(ctx, cfg)
	}
	if err == nil {
		return &Loader{p: p, seed: opts.Seed}, nil
	}
	if !taken {
		_ = opts.Source.Close() // the refusal is the error to return
	}
	return nil, fmt.Errorf("stoker: %w", err)
}

// Next returns the next batch, or io.EOF at the end of an epoch. The call after that returns the first batch of the
// next epoch, which is already in progress. A record that cannot be loaded gives a *RecordError. A failure of the
// store, the network or the machine is retried for Limits.Timeout and then gives another error. More bad records
// than OnError.MaxBad also give an error. Next then returns that error again until SetEpoch or Restore. If SetEpoch
// or Restore is called while Next waits, Next returns a batch from the new position. Close ends the wait with
// ErrClosed.
func (l *Loader) Next(ctx context.Context) (*Batch, error) {
	for {
		if err := l.begin(); err != nil {
			return nil, err
		}
		ev, err := l.p.Next(ctx)
		if b, err, ok := l.finish(ev, err); ok {
			return b, err
		}
	}
}

// begin starts the engine on the next batches.
func (l *Loader) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case l.failed != nil:
		return l.failed
	case !l.ended && l.p.Held() == l.p.Info().Slots: // at the end of an epoch no slot is needed
		return ErrHeld
	}
	if !l.running {
		l.startLocked()
	}
	l.waiting = true
	return nil
}

// finish converts an event to the result of Next. It returns false for an event of a stream that SetEpoch or Restore
// ended.
func (l *Loader) finish(ev pipeline.Event, err error) (*Batch, error, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = false
	if l.closed { // and the ring is gone, or about to be
		return nil, ErrClosed, true
	}
	var re *pipeline.RecordError
	bad := errors.As(err, &re)
	var run *pipeline.RunError
	var many *pipeline.BadRecordsError
	ended := errors.As(err, &run) || errors.As(err, &many)
	switch {
	case err != nil && !bad && !ended:
		return nil, err, true // ctx is done; nothing is lost
	case ev.Gen != l.gen:
		if err == nil && ev.Kind == pipeline.EventBatch {
			l.p.Release(ev.Slot)
		}
		return nil, nil, false
	case ended:
		l.failed = fmt.Errorf("stoker: %w", err)
		return nil, l.failed, true
	case bad:
		l.failed = recordError(re)
		return nil, l.failed, true
	case ev.Kind == pipeline.EventEpochEnd:
		l.ended = false
		l.pos = ev.Pos
		l.nSkip, l.skipped = ev.Skipped, nil
		for i := range ev.Bad {
			l.skipped = append(l.skipped, *recordError(&ev.Bad[i]))
		}
		return nil, io.EOF, true
	}
	l.ended = ev.Pos.Epoch != ev.Epoch
	l.pos = ev.Pos
	return &Batch{Rows: ev.Rows, Repeated: ev.Repeated, Epoch: ev.Epoch, Step: ev.Step, l: l, slot: ev.Slot, mem: l.p.Ring().Slot(ev.Slot)}, nil, true
}

func (l *Loader) startLocked() {
	l.gen = l.p.Start(l.pos)
	l.running = true
}

func recordError(e *pipeline.RecordError) *RecordError {
	return &RecordError{ID: e.ID, Name: e.Name, Reason: e.Reason, cause: e.Cause}
}

// State is the position of a loader: after the last batch that Next returned. It is small and can be saved as JSON. The
// Python package reads the same form.
type State struct {
	Version int   `json:"version"`
	Epoch   int64 `json:"epoch"`
	// Position counts records of the epoch's order, with buckets batches of all ranks.
	Position int64 `json:"position"`
	// Seed is the seed of the loader, and Order the version and the form of its order, such as "1:window:16".
	Seed  uint64 `json:"seed"`
	Order string `json:"order"`
	// Manifest identifies the records, and Pipeline the settings that change batches.
	Manifest string `json:"manifest"`
	Pipeline string `json:"pipeline"`
	// Ranks is the number of batches of a bucket that come together, 0 without buckets.
	Ranks int `json:"ranks,omitempty"`
}

// stateVersion is the version of the form of State.
const stateVersion = 2

// State returns the position of the loader.
func (l *Loader) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.p.Info().Identity
	return State{stateVersion, l.pos.Epoch, l.pos.Row, id.Seed, id.Order, id.Manifest, id.Pipeline, id.Ranks}
}

// Restore makes the next batch the one that followed when s was taken. The number of ranks, threads and, without buckets,
// the batch size may differ. A state of other data, of another pipeline or of another order is refused.
func (l *Loader) Restore(s State) error {
	if s.Version != stateVersion {
		return fmt.Errorf("stoker: a state of version %d; this build knows version %d", s.Version, stateVersion)
	}
	info := l.p.Info()
	if err := info.Identity.Check(&pipeline.Identity{Seed: s.Seed, Order: s.Order, Manifest: s.Manifest, Pipeline: s.Pipeline, Ranks: s.Ranks}); err != nil {
		return fmt.Errorf("stoker: %w", err)
	}
	if s.Epoch < 0 || s.Position < 0 || s.Ranks == 0 && s.Position > info.Len {
		return fmt.Errorf("stoker: the state is out of range: epoch %d, position %d", s.Epoch, s.Position)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moveLocked(item.Position{Epoch: s.Epoch, Row: s.Position})
	return nil
}

// SetEpoch makes the next batch the first one of an epoch.
func (l *Loader) SetEpoch(epoch int64) {
	pos := item.Position{Epoch: epoch}
	l.mu.Lock()
	defer l.mu.Unlock()
	if there := l.running && l.failed == nil && !l.ended && l.pos == pos; !there {
		l.moveLocked(pos)
	}
}

// moveLocked makes the next batch the one at pos, also for a Next that waits.
func (l *Loader) moveLocked(pos item.Position) {
	l.pos, l.running, l.failed, l.ended = pos, false, nil, false
	if l.waiting && !l.closed {
		l.startLocked()
	}
}

// Len returns the number of batches in an epoch.
func (l *Loader) Len() int64 { return l.p.Info().Steps }

// Records returns the number of records in the dataset.
func (l *Loader) Records() int64 { return l.p.Info().Len }

// Order is the order of the records.
type Order struct {
	// Mode is "source", "full" or "window".
	Mode string
	// Window is the number of chunks in use at a time, Chunks the number of all chunks. This rank uses InUse chunks of
	// a window, with WindowBytes bytes.
	Window, Chunks, InUse int
	WindowBytes           int64
	// Why is the reason for the choice, if the loader chose the order (WindowAuto).
	Why string
}

// Order returns the order in which records come.
func (l *Loader) Order() Order { return Order(l.p.Info().Order) }

// Classes returns the class names of a label field, nil when it has none.
func (l *Loader) Classes(field string) []string { return l.p.Info().Classes[field] }

// Skipped returns the number of replaced records in the last finished epoch, and the first of them.
func (l *Loader) Skipped() (n int64, first []RecordError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nSkip, l.skipped
}

// Close stops the engine and frees the memory; batches that were not released
// become invalid. It may be called again.
func (l *Loader) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	return l.p.Close()
}
