package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/quarantine"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

// This file tracks the records that are known to be bad, and ends the run if there are too many.

// DefaultMaxBad is the Config.MaxBad that clients send if the user gives none: 5%, but at least leastBad records.
const DefaultMaxBad = "default"

const (
	defaultShare = 0.05
	leastBad     = 10
)

// badLimit is the limit of bad records: a share of the records that this rank reads, but at least count.
type badLimit struct {
	share float64
	count int64
}

// parseMaxBad reads a number such as "20" or a share such as "5%".
func parseMaxBad(s string) (badLimit, error) {
	switch s {
	case "": // no limit
		return badLimit{share: 1}, nil
	case DefaultMaxBad:
		return badLimit{defaultShare, leastBad}, nil
	}
	if share, ok := strings.CutSuffix(s, "%"); ok {
		if v, err := strconv.ParseFloat(share, 64); err == nil && v >= 0 && v <= 100 {
			return badLimit{share: v / 100}, nil
		}
	} else if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return badLimit{count: n}, nil
	}
	return badLimit{}, fmt.Errorf(`max_bad is %q, expected a number of records such as "20" or a share such as "5%%"`, s)
}

// of returns the limit for a number of records.
func (l badLimit) of(records int64) int64 {
	return max(int64(math.Ceil(l.share*float64(records))), l.count)
}

// badSet are the records that are known to be bad. The replacement of a bad record depends only on the bad records, not
// on when they were found. A record is here only if it fails whenever it is read again.
type badSet struct {
	limit   badLimit
	maxBad  string
	len     int64 // records of the source
	part    int64 // of them, those that this rank reads in an epoch
	file    *quarantine.File
	any     atomic.Bool // there is one in always
	mu      sync.RWMutex
	first   int64 // epoch that was begun first
	began   bool
	always  map[int64]*RecordError
	once    map[int64]map[int64]*RecordError // by epoch: these may be good in others
	skip    map[int64]int64                  // from always: the next record that may be good
	own     map[int64]string                 // reasons of those at their own places in the order
	failure error
}

// begin registers the start of an epoch.
func (s *badSet) begin(epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.began {
		s.began, s.first = true, epoch
	}
	s.first = min(s.first, epoch)
	for e := range s.once {
		if e < epoch-2 {
			delete(s.once, e)
		}
	}
}

// knownAlways returns the error of a record that is bad in all epochs, nil if none is known.
func (s *badSet) knownAlways(id int64) error {
	if !s.any.Load() {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if rec := s.always[id]; rec != nil {
		return rec
	}
	return nil
}

// has reports whether a record is known to be bad in an epoch.
func (s *badSet) has(epoch, id int64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.always[id] != nil || s.once[epoch][id] != nil
}

// add registers a bad record, for all epochs or for one. own is true for a record at its own place in the order, and
// false for a replacement. An error ends the run: there are too many bad records, or their file cannot be written.
func (s *badSet) add(rec *RecordError, epoch int64, every, own bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.always[rec.ID] == nil && s.once[epoch][rec.ID] == nil {
		s.put(rec, epoch, every)
		if s.file != nil {
			line := quarantine.Record{Record: rec.ID, Name: rec.Name, Reason: rec.Reason, Epoch: epoch}
			if every {
				line.Epoch = -1
			}
			if err := s.file.Add(line); err != nil && s.failure == nil {
				s.failure = &RunError{Cause: err, Tries: 1}
			}
		}
	}
	if own {
		s.own[rec.ID] = grouped(rec)
	}
	if s.failure == nil && int64(len(s.own)) > s.limit.of(min(s.len, s.part*(epoch-s.first+1))) {
		s.failure = s.tooMany(rec)
	}
	return s.failure
}

// put is add without the file and the limit.
func (s *badSet) put(rec *RecordError, epoch int64, every bool) {
	if !every {
		if s.once[epoch] == nil {
			s.once[epoch] = map[int64]*RecordError{}
		}
		s.once[epoch][rec.ID] = rec
		return
	}
	s.always[rec.ID] = rec
	s.skip[rec.ID] = rec.ID + 1
	s.any.Store(true)
}

// end returns the first record from id on that is not known to be bad in all epochs.
func (s *badSet) end(id int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := id
	for next, ok := s.skip[at]; ok; next, ok = s.skip[at] {
		at = next
	}
	for next, ok := s.skip[id]; ok; next, ok = s.skip[id] { // so that the next search finds it immediately
		s.skip[id], id = at, next
	}
	return at
}

// BadRecordsError ends a run with more bad records than Config.MaxBad allows.
type BadRecordsError struct {
	// Bad is the number of bad records, Of the number of all records.
	Bad, Of int64
	// Reasons are the reasons with their numbers.
	Reasons string
	// Last is the record that exceeded the limit.
	Last   *RecordError
	maxBad string
}

// Error returns one line with the reasons.
func (e *BadRecordsError) Error() string {
	return fmt.Sprintf("%d of %d records are bad, more than max_bad allows (%s): %s; the last one is %v",
		e.Bad, e.Of, strings.Replace(e.maxBad, DefaultMaxBad, fmt.Sprintf("%g%%", 100*defaultShare), 1), e.Reasons, e.Last)
}

// Unwrap returns the error of the last record.
func (e *BadRecordsError) Unwrap() error { return e.Last.Cause }

// Hint returns advice in one line.
func (e *BadRecordsError) Hint() string {
	return `on_error=stoker.OnError("skip", max_bad=N, quarantine=FILE) sets how many records may be bad, and lists them`
}

func (s *badSet) tooMany(rec *RecordError) error {
	counts := map[string]int64{}
	for _, reason := range s.own {
		counts[reason]++
	}
	text := byNumber(counts, shownAnswers, func(reason string, n int64) string { return fmt.Sprintf("%d x %q", n, reason) })
	return &BadRecordsError{Bad: int64(len(s.own)), Of: s.len, Reasons: text, Last: rec, maxBad: s.maxBad}
}

var digits = regexp.MustCompile(`[0-9]+`)

// grouped is the reason of a record without its numbers, so that like reasons are counted together.
func grouped(rec *RecordError) string {
	reason := rec.Reason
	if rec.Cause != nil {
		reason = reasonOf(rec.Cause)
	}
	return digits.ReplaceAllString(strings.ReplaceAll(reason, rec.Name, "it"), "N")
}

// byNumber joins the most frequent reasons.
func byNumber(counts map[string]int64, most int, text func(reason string, n int64) string) string {
	reasons := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	rest := int64(0)
	for i, reason := range reasons {
		if i < most {
			parts = append(parts, text(reason, counts[reason]))
		} else {
			rest += counts[reason]
		}
	}
	if rest > 0 {
		parts = append(parts, fmt.Sprintf("%d others", rest))
	}
	return strings.Join(parts, ", ")
}

// openBad creates the set, with the records of the quarantine file.
func (p *Pipeline) openBad(ctx context.Context) error {
	limit, err := parseMaxBad(p.cfg.MaxBad)
	if err != nil {
		return err
	}
	n := p.src.Info().Len
	p.faults.bad = &badSet{
		limit: limit, maxBad: p.cfg.MaxBad, len: n, part: (p.order.split.Len + int64(p.cfg.WorldSize) - 1) / int64(p.cfg.WorldSize),
		always: map[int64]*RecordError{}, once: map[int64]map[int64]*RecordError{}, skip: map[int64]int64{}, own: map[int64]string{},
	}
	for _, id := range p.cfg.Crashed {
		epoch, record := int64(0), id
		if p.records.epochs {
			epoch, record = driver.OfEpoch(id)
		}
		if record >= 0 && record < n {
			p.faults.bad.put(&RecordError{ID: record, Name: p.find(ctx, id), Reason: "it crashed the engine twice"}, epoch, !p.records.epochs)
		}
	}
	if p.cfg.Quarantine == "" || p.cfg.OnError != OnErrorSkip {
		return nil
	}
	info := p.src.Info()
	p.faults.bad.file, err = quarantine.Open(p.cfg.Quarantine, info.URL, info.Fingerprint, func(r *quarantine.Record) {
		if r.Record < n {
			p.faults.bad.put(&RecordError{ID: r.Record, Name: r.Name, Reason: r.Reason}, r.Epoch, r.Epoch < 0)
		}
	})
	return err
}

// trouble is the state of a row whose record failed.
type trouble struct {
	id    int64        // the record that the order has there
	rec   *RecordError // why it is replaced, nil if it is not yet
	ahead int64        // the distance from id to the record that replaces it
	// confirmed reports whether the record was read again since the store was found to work.
	confirmed bool
}

// troubleOf returns the trouble of a row.
func (p *Pipeline) troubleOf(b *batch, row int, id int64) *trouble {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := b.trouble[row]
	if t == nil {
		if b.trouble == nil {
			b.trouble = map[int]*trouble{}
		}
		t = &trouble{id: p.number(id)}
		b.trouble[row] = t
	}
	return t
}

// anew reads and processes the record of a row again.
func (w *worker) anew(b *batch, row int, id int64) {
	if !w.p.src.Info().Sequential {
		w.p.requeue(b, row, w.order, 0)
	} else if err := w.oneAgain(b, row, id); err != nil {
		w.replace(b, row, &driver.Record{ID: id, Err: err}, err)
	}
}

// oneAgain builds a row again, one at a time, because its memory is not part of a budget.
func (w *worker) oneAgain(b *batch, row int, id int64) error {
	w.p.faults.substitutes.mu.Lock()
	defer w.p.faults.substitutes.mu.Unlock()
	return w.again(b, row, id, w.p.src, w.p.objects)
}

// skip replaces a bad record by the next good one in the order of the source: (id+1) mod N, (id+2) mod N, ... The
// result depends only on the bad records, so all ranks and resumed runs build the same batch.
func (w *worker) skip(b *batch, row int, t *trouble, rec *RecordError, every bool) {
	p := w.p
	own := t.rec == nil
	if own {
		t.rec = rec
		p.mu.Lock()
		b.skipped++
		if len(b.bad) < maxBadListed {
			b.bad = append(b.bad, *rec)
		}
		p.mu.Unlock()
	}
	if err := p.faults.bad.add(rec, b.epoch, every, own); err != nil {
		p.batchFailed(b, row, err)
		return
	}
	t.confirmed = false // the next record is another one
	if p.src.Info().Sequential {
		w.skipInOrder(b, row, t)
		return
	}
	next, ok := p.nextGood(b.epoch, t)
	if !ok {
		p.noneLeft(b, row, t)
		return
	}
	b.ids[row] = p.askedIn(b, row, next)
	p.requeue(b, row, w.order, 0)
}

// nextGood moves on to the next record that may replace a bad one.
func (p *Pipeline) nextGood(epoch int64, t *trouble) (id int64, ok bool) {
	n := p.src.Info().Len
	for t.ahead++; ; t.ahead++ {
		switch {
		case p.order.buckets != nil: // one of its like
			if id, ok = p.order.buckets.After(t.id, t.ahead); !ok {
				return 0, false
			}
		case p.order.mix != nil: // of its dataset
			if id, ok = p.order.mix.After(t.id, t.ahead); !ok {
				return 0, false
			}
		default:
			if t.ahead >= n { // a run of bad records at the end continues at the beginning
				t.ahead = n
				return 0, false
			}
			id = (t.id + t.ahead) % n
			if end := p.faults.bad.end(id); end > id {
				t.ahead += end - id - 1
				continue
			}
		}
		if !p.faults.bad.has(epoch, id) {
			return id, true
		}
	}
}

// substitutes reads the records that take the place of bad ones, from a source that is read in order.
type substitutes struct {
	mu     sync.Mutex
	reader *recordread.Direct
	mem    *arena.Bump
	bad    [2]int64 // records known to be bad
}

// skipInOrder is skip for a source that is read in order. Many records may be unreadable there, and trying each one
// means decompressing everything before it. So that is done once.
func (w *worker) skipInOrder(b *batch, row int, t *trouble) {
	p := w.p
	n := p.src.Info().Len
	p.faults.substitutes.mu.Lock()
	for t.ahead++; t.ahead < n && !b.stream.stopped.Load(); t.ahead++ {
		from := (t.id + t.ahead) % n
		if bad := &p.faults.substitutes.bad; from >= bad[0] && from < bad[1] {
			t.ahead += bad[1] - from - 1
			continue
		}
		p.faults.substitutes.mem.Reset()
		recs, err := p.faults.substitutes.reader.Good(b.stream.ctx, from, min(n-t.ahead, n-from))
		if err != nil {
			continue
		}
		last := recs[0].ID
		if last > from {
			p.faults.substitutes.bad = [2]int64{from, last}
			t.ahead += last - from
		}
		if err = w.fill(b, row, recs).Errs[0]; err == nil {
			p.faults.substitutes.mu.Unlock()
			return
		}
		if p.blame(b, row, last, err, time.Now(), true) == ofRun {
			p.faults.substitutes.mu.Unlock()
			t.ahead--
			w.retry(b, row, t.id, err)
			return
		}
	}
	p.faults.substitutes.mu.Unlock()
	p.noneLeft(b, row, t)
}

// noneLeft fails a batch in which no other record can replace a bad one.
func (p *Pipeline) noneLeft(b *batch, row int, t *trouble) {
	rec := *t.rec
	rec.Reason += fmt.Sprintf("; none of the %d records after it could be used instead", t.ahead-1)
	p.batchFailed(b, row, &rec)
}

// everyEpoch reports whether a record that failed fails in all epochs. That is unknown if only a part of an image is
// decoded or if another record comes in each epoch.
func (p *Pipeline) everyEpoch(rec *driver.Record) (every bool) {
	defer func() {
		if recover() != nil { // its memory cannot be read
			every = false
		}
	}()
	switch {
	case p.records.differ:
		return false
	case rec.Err != nil || !p.arrays.drawn:
		return true
	}
	return p.arrays.set.NoHeader(rec)
}

// knownBad returns the function that reports known bad records to the fetcher. It is nil if bad records are not
// replaced. If the same number means another record in each epoch, only records that crashed engines are known.
func (p *Pipeline) knownBad() func(id int64) error {
	if p.records.epochs && len(p.cfg.Crashed) > 0 {
		return func(id int64) error {
			if !slices.Contains(p.cfg.Crashed, id) {
				return nil
			}
			_, record := driver.OfEpoch(id)
			return &RecordError{ID: record, Name: p.find(p.ctx, id), Reason: "it crashed the engine twice"}
		}
	}
	if p.records.epochs || p.cfg.OnError != OnErrorSkip && len(p.cfg.Crashed) == 0 {
		return nil
	}
	return p.faults.bad.knownAlways
}
