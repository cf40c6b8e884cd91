package pipeline

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/store"
)

// This file decides whether a failure belongs to the record, or to the store, the network or the machine.

// RunError is a failure of the store, the network or the machine. No record is to blame, so none is replaced.
type RunError struct {
	// Cause is the failure of the last attempt.
	Cause error
	// Tries is the number of attempts to read the record, Took the time from the first to the last one.
	Tries int
	Took  time.Duration
	// Answers are the failed requests of all records in this time, by reason, "" for none.
	Answers string
}

// Error returns one line with the cause and the attempts.
func (e *RunError) Error() string {
	text := fmt.Sprintf("the data cannot be read or decoded: %s (tried %d times in %.1f s)", oneLine(e.Cause), e.Tries, e.Took.Seconds())
	if e.Answers != "" {
		text += "; failed requests: " + e.Answers
	}
	return text
}

// Unwrap returns the cause.
func (e *RunError) Unwrap() error { return e.Cause }

// runHints has advice for failures of the machine.
var runHints = map[error]string{
	syscall.ENOMEM:       "raise the memory limit of the job (ulimit -v, the container, the scheduler), or set a smaller memory",
	syscall.EMFILE:       "raise the limit of open files: ulimit -n 65536",
	syscall.ENFILE:       "the machine has too many open files: see sysctl fs.file-max",
	syscall.ENOSPC:       "free disk space: see df -h",
	syscall.EDQUOT:       "free disk space, or ask for a larger quota: see quota",
	syscall.EAGAIN:       "raise the limit of processes and threads: ulimit -u",
	store.ErrCredentials: "renew the credentials of the store, such as in ~/.aws/credentials; they are read again at each retry",
	store.ErrPermission:  "check the credentials and the permissions of the data; other records cannot be read either",
	store.ErrNotExist:    "check that the data is still there and mounted; other records are gone, too",
	syscall.EIO:          "check the disk or the network file system (dmesg); other records cannot be read either",
}

// Hint returns advice in one line.
func (e *RunError) Hint() string {
	for cause, hint := range runHints {
		if errors.Is(e.Cause, cause) {
			return hint
		}
	}
	return "check the server and the network; limits=stoker.Limits(timeout=SECONDS) sets how long the engine tries"
}

const (
	// defaultTimeout is Config.Timeout if it is not set.
	defaultTimeout = 300 * time.Second
	// mostTries is the fraction of the timeout after which a failure is final, so that the reason arrives before the
	// client gives up.
	mostTries = 0.8
	// lastingTries is the retry time for failures that seldom pass: those of the machine, and refusals.
	lastingTries = 15 * time.Second
	// firstPause and longestPause are the delays before the first and the last retries.
	firstPause   = 250 * time.Millisecond
	longestPause = 10 * time.Second
	// probes is the number of other records that are read to find out whether only one is refused.
	probes = 8
)

// patience returns the time for which a failure of the run is retried.
func (p *Pipeline) patience(cause error) time.Duration {
	d := time.Duration(p.cfg.Timeout * float64(time.Second))
	if p.cfg.Timeout == 0 {
		d = defaultTimeout
	}
	d = time.Duration(mostTries * float64(d))
	for passing := range runHints {
		if errors.Is(cause, passing) {
			return min(d, lastingTries)
		}
	}
	if refusal(cause) {
		return min(d, lastingTries)
	}
	return d
}

// refusal reports whether a server has refused one request for a reason that lasts.
func refusal(err error) bool {
	var answer interface{ Refusal() bool }
	return errors.As(err, &answer) && answer.Refusal()
}

// widespread reports whether an error can have two meanings: it concerns one object by its class, but a failed store or
// disk returns it for all objects.
func widespread(err error) bool {
	return errors.Is(err, store.ErrPermission) || errors.Is(err, store.ErrNotExist) ||
		errors.Is(err, store.ErrArchived) || errors.Is(err, syscall.EIO) || refusal(err)
}

type fault int

// Whose fault a failure is.
const (
	ofRecord fault = iota
	ofRun
	unsure // of the record if it fails again: the store works at present
)

// blame decides the cause of a record's failure at a given time. confirmed reports whether the record was read again
// after the store was found to work.
func (p *Pipeline) blame(b *batch, row int, id int64, cause error, at time.Time, confirmed bool) fault {
	switch {
	case !widespread(cause):
		if store.IsObjectError(cause) {
			return ofRecord
		}
		return ofRun
	case p.faults.outage.others(b, row): // the result of the retried row decides
		return ofRun
	case p.allFail(b, id, at):
		return ofRun
	case confirmed:
		return ofRecord
	}
	return unsure
}

// faults is what the pipeline knows about records that could not be read.
type faults struct {
	repairs     repairs
	bad         *badSet
	substitutes substitutes
	prober      prober
	uncached    uncached
	answers     answers // to requests that failed
	outage      outage
}

// prober reads other records after one has failed.
type prober struct {
	mu    sync.Mutex
	begun time.Time // of the last test
	fails bool
	read  *recordread.Direct
}

// allFail reports whether other records fail as well as record id, whose failure was seen at a given time. If there are
// several callers, one reads. The others use its result if it started after their failures.
func (p *Pipeline) allFail(b *batch, id int64, at time.Time) bool {
	t := &p.faults.prober
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun.After(at) {
		return t.fails
	}
	if t.read == nil { // a cache would answer although the store fails
		t.read = recordread.NewDirect(p.src, p.faults.uncached.get(p))
		t.read.Want = p.arrays.set.Fields()
	}
	begun, fails := time.Now(), p.probe(b, id)
	if b.stream.ctx.Err() == nil {
		t.begun, t.fails = begun, fails
	}
	if !fails {
		p.faults.outage.release()
	}
	return fails
}

func (p *Pipeline) probe(b *batch, id int64) bool {
	n, tried := p.src.Info().Len, 0
	for k := int64(1); k <= probes && k < n; k++ {
		other := (id + k*max(n/(probes+1), 1)) % n
		if other == id || p.faults.bad.has(b.epoch, other) {
			continue
		}
		tried++
		if tried == 2 {
			p.fetch.Hold(true) // the first record has failed: send no other requests meanwhile
		}
		err := p.readable(b, other)
		switch {
		case err == nil || store.IsObjectError(err) && !widespread(err):
			return false // its error does not come from the store
		case !widespread(err) || b.stream.ctx.Err() != nil:
			return true
		}
	}
	return tried > 0
}

// readable reads a record and returns why that fails.
func (p *Pipeline) readable(b *batch, id int64) error {
	ids := [1]int64{p.asked(b.epoch, id)}
	recs, err := p.faults.prober.read.Read(b.stream.ctx, ids[:])
	if err != nil {
		return err
	}
	return recs[0].Err
}

// uncached has the objects of the source without caches. They are made at the first use.
type uncached struct {
	once    sync.Once
	objects *recordread.Objects
}

func (u *uncached) get(p *Pipeline) *recordread.Objects {
	u.once.Do(func() {
		u.objects = recordread.NewObjects(p.src, nil)
		u.objects.Decorate = p.cfg.Decorate
	})
	return u.objects
}

// close closes the opened objects, after all reads have ended.
func (u *uncached) close() error {
	if u.objects == nil {
		return nil
	}
	return u.objects.Close()
}

// pause returns the delay before the next retry, given the number of retries so far.
func pause(tries int) time.Duration {
	return min(firstPause*time.Duration(math.Exp2(float64(min(tries, 16)))), longestPause)
}

// answers counts failed requests by reason, for messages.
type answers struct {
	mu sync.Mutex
	by map[string]*answer
}

type answer struct {
	n           int64
	first, last time.Time
}

const (
	// mostAnswers is the number of distinct reasons that are counted, and shownAnswers the number that is shown.
	mostAnswers  = 64
	shownAnswers = 4
	// recently is the time for which failed requests are reported.
	recently = time.Minute
)

// note counts a failed request.
func (a *answers) note(err error) {
	now, reason := time.Now(), reasonOf(err)
	a.mu.Lock()
	defer a.mu.Unlock()
	for text, s := range a.by {
		if now.Sub(s.last) > recently {
			delete(a.by, text)
		}
	}
	s := a.by[reason]
	if s == nil && len(a.by) >= mostAnswers {
		return
	}
	if s == nil {
		if a.by == nil {
			a.by = map[string]*answer{}
		}
		s = &answer{first: now}
		a.by[reason] = s
	}
	s.n++
	s.last = now
}

// since returns the reasons that were seen after a time, the most frequent first, and the time of the first one.
func (a *answers) since(at time.Time) (text string, first time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := map[string]int64{}
	for reason, s := range a.by {
		if s.last.Before(at) {
			continue
		}
		counts[reason] = s.n
		if first.IsZero() || s.first.Before(first) {
			first = s.first
		}
	}
	return byNumber(counts, shownAnswers, func(reason string, n int64) string { return fmt.Sprintf("%d times %q", n, reason) }), first
}

// reasonOf is the reason of a failure without its object.
func reasonOf(err error) string {
	var request interface{ Reason() string }
	if errors.As(err, &request) {
		return request.Reason()
	}
	return oneLine(store.Cause(err))
}
