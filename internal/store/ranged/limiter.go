package ranged

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/store/node"
)

// limiter keeps the requests to an endpoint below the rate at which it begins to
// refuse them (pace): those of all processes of the user on this machine together, where
// they can share what they know. Each of them has its own queue, whose first takes the
// next turn of all where it comes first.
type limiter struct {
	mu sync.Mutex
	// known is the pace; of one that is shared, as it was when it was last seen.
	known pace
	name  string     // of the endpoint, "" where nothing is shared
	file  *node.File // nil until somebody was refused
	queue []chan struct{}
	timer *time.Timer

	// Of a pace that is shared: when it was last looked at without its lock, and answers
	// that are not noted in it yet, with the time of the last note.
	looked  time.Time
	pending int64
	noted   time.Time
}

const (
	// lookEvery is how often it is looked whether others have found a limit.
	lookEvery = 20 * time.Millisecond
	// noteEvery is how often answers are noted.
	noteEvery = 50 * time.Millisecond
	// lockTries is how often it is tried to lock what is shared, with lockPause between:
	// who has it may have been stopped.
	lockTries = 20
	lockPause = 50 * time.Microsecond
)

// kind is that of the files of paces. There is none of an endpoint that refuses nobody.
const kind = "pace"

// share has what is known shared from now on; without a file each process is on its own.
func (l *limiter) share(open func(kind, key string) (*node.File, error)) {
	if l.name == "" || l.file != nil {
		return
	}
	if l.file, _ = open(kind, l.name); l.file != nil {
		l.pending += l.known.Answered.sum() // which nobody else has seen yet
	}
}

// update calls f with the pace, and lets others know what it has changed. The lock of
// the limiter is held.
func (l *limiter) update(now time.Time, f func(p *pace)) {
	shared := l.file != nil && l.locked()
	if shared {
		if b := l.file.Read(); b != nil {
			l.known.parse(b)
		}
		defer l.file.Unlock()
	}
	l.known.fresh(now)
	if l.pending > 0 {
		l.known.Answered.add(now, l.pending)
		l.pending, l.noted = 0, now
	}
	f(&l.known)
	if shared {
		l.looked = now
		_ = l.file.Write(l.known.bytes()) // without it others find out for themselves
	}
}

func (l *limiter) locked() bool {
	for range lockTries {
		if l.file.TryLock() {
			return true
		}
		// By the system's clock: others wait for the mutex, for which the clock of a test
		// that has its own would stand still.
		pause := unix.NsecToTimespec(int64(lockPause))
		_ = unix.Nanosleep(&pause, nil)
	}
	return false
}

// free says whether there is no limit, as far as was seen. The lock is held.
func (l *limiter) free(now time.Time) bool {
	if l.name != "" && now.Sub(l.looked) >= lookEvery {
		l.looked = now
		l.share(node.Find)
		l.peek(now)
	}
	return l.known.Rate == 0
}

// peek looks at what is shared without its lock.
func (l *limiter) peek(now time.Time) {
	if l.file == nil {
		return
	}
	if b := l.file.Read(); b != nil { // else somebody is writing
		l.known.parse(b)
		l.known.fresh(now)
	}
}

// wait waits for its turn.
func (l *limiter) wait(ctx context.Context) error {
	l.mu.Lock()
	if len(l.queue) == 0 && l.free(time.Now()) {
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.queue = append(l.queue, turn)
	l.release()
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		if i := slices.Index(l.queue, turn); i >= 0 {
			l.queue = slices.Delete(l.queue, i, i+1)
		}
		return context.Cause(ctx)
	}
}

// release lets those go whose turn it is, and comes back when it is the next one's.
// The lock is held.
func (l *limiter) release() {
	now := time.Now()
	for l.peek(now); len(l.queue) > 0; {
		wait := l.known.wait(now)
		if l.known.due(now) || wait <= 0 {
			l.update(now, func(p *pace) {
				p.grow(now)
				if wait = p.wait(now); wait <= 0 {
					p.take(now)
				}
			})
		}
		if wait > 0 {
			l.wake(wait)
			return
		}
		close(l.queue[0])
		l.queue[0] = nil
		l.queue = l.queue[1:]
	}
}

func (l *limiter) wake(in time.Duration) {
	if l.timer != nil {
		l.timer.Reset(in)
		return
	}
	l.timer = time.AfterFunc(in, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.release()
	})
}

// done notes an answer to what was sent at a time.
func (l *limiter) done(sent time.Time, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if refused {
		l.share(node.Open)
		l.update(now, func(p *pace) {
			if p.refuse(sent, now) && len(l.queue) > 0 {
				l.wake(p.wait(now))
			}
		})
		return
	}
	l.pending++
	if l.file == nil || now.Sub(l.noted) >= noteEvery {
		l.update(now, func(*pace) {})
	}
}
