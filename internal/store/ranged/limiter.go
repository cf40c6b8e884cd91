package ranged

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/store/node"
)

// limiter keeps the rate of requests to an endpoint below the rate at which the endpoint refuses requests (pace).
// If possible, all processes of the user on this machine share the pace. Each process has its own queue, and the
// heads of the queues compete for the next turn.
type limiter struct {
	mu sync.Mutex
	// known is the pace. If it is shared, it is the last copy.
	known pace
	name  string     // of the endpoint, "" if not shared
	file  *node.File // nil until a request was refused
	queue []chan struct{}
	timer *time.Timer

	// For a shared pace: the time of the last read without its lock, and the number of answers that are not stored
	// yet, with the time of the last store.
	looked  time.Time
	pending int64
	noted   time.Time
}

const (
	// lookEvery is the interval of checks for a limit found by another process.
	lookEvery = 20 * time.Millisecond
	// noteEvery is the interval of storing answers.
	noteEvery = 50 * time.Millisecond
	// lockTries is the number of attempts to lock the shared pace, with lockPause in between. Its owner may be
	// stopped.
	lockTries = 20
	lockPause = 50 * time.Microsecond
)

// kind is the kind of the shared files. There is no file for an endpoint that refuses no requests.
const kind = "pace"

// share starts to share the pace. Without a file each process has its own.
func (l *limiter) share(open func(kind, key string) (*node.File, error)) {
	if l.name == "" || l.file != nil {
		return
	}
	if l.file, _ = open(kind, l.name); l.file != nil {
		l.pending += l.known.Answered.sum() // other processes have not seen them yet
	}
}

// update calls f with the pace and stores the result. The limiter's lock is held.
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
		_ = l.file.Write(l.known.bytes()) // if this fails, other processes find their own pace
	}
}

func (l *limiter) locked() bool {
	for range lockTries {
		if l.file.TryLock() {
			return true
		}
		// Sleep with the system's clock: other goroutines wait for the mutex, and a test's fake clock would stand
		// still.
		pause := unix.NsecToTimespec(int64(lockPause))
		_ = unix.Nanosleep(&pause, nil)
	}
	return false
}

// free reports whether no limit is known. The lock is held.
func (l *limiter) free(now time.Time) bool {
	if l.name != "" && now.Sub(l.looked) >= lookEvery {
		l.looked = now
		l.share(node.Find)
		l.peek(now)
	}
	return l.known.Rate == 0
}

// peek reads the shared pace without its lock.
func (l *limiter) peek(now time.Time) {
	if l.file == nil {
		return
	}
	if b := l.file.Read(); b != nil { // nil while a process writes
		l.known.parse(b)
		l.known.fresh(now)
	}
}

// wait waits for a turn.
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

// release lets requests go whose turn has come, and schedules itself for the next turn. The lock is held.
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

// done notes a response to a request sent at a time.
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
