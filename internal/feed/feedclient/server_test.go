package feedclient

import (
	"testing"
	"time"
)

// A slow server gets a batch only if it finishes it before the batches ahead are used up, or before the other servers.
func TestSlowServerIsAskedInTime(t *testing.T) {
	fast := &server{service: 100 * time.Millisecond, trusted: true, credits: 2, inFlight: 2}
	slow := &server{service: 400 * time.Millisecond, trusted: true, credits: 2}
	c := &Client{servers: []*server{fast, slow}}
	best := func(ahead int, tried ...*server) (*server, bool) {
		w := &waiter{ahead: ahead, tried: map[*server]bool{}}
		for _, s := range tried {
			w.tried[s] = true
		}
		return c.bestLocked(w)
	}
	if s, any := best(0); s != nil || !any {
		t.Error("a batch that is due does not wait for the fast server, which finishes it first")
	}
	if s, _ := best(10); s != slow { // 10 batches take 800 ms
		t.Error("a batch with time does not go to the slow server")
	}
	fast.inFlight = 1
	if s, _ := best(10); s != fast {
		t.Error("a free credit of the fast server is not used first")
	}
	fast.inFlight = 4
	if s, _ := best(0); s != slow {
		t.Error("the slow server finishes earlier than the fast one and is not used")
	}
	if s, any := best(0, slow, fast); s != nil || any {
		t.Error("servers that were tried are asked again")
	}
	early := &waiter{order: 1, tried: map[*server]bool{}}
	late := &waiter{order: 2, ahead: 10, tried: map[*server]bool{}}
	c.waiting, fast.inFlight = []*waiter{early, late}, 2
	if !c.firstLocked(late, slow) {
		t.Error("an earlier batch that does not take the slow server keeps a later one from it")
	}
	fast.inFlight = 1
	if c.firstLocked(late, fast) {
		t.Error("a later batch gets the server that an earlier one waits for")
	}
}
