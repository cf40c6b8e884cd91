//go:build invariants

package fetch

import (
	"fmt"
	"strings"
	"testing"
)

// Each counter that is kept by hand is compared. The message has the counter and what was counted.
func TestCheckFindsWrongCounters(t *testing.T) {
	broken := map[string]func(f *Fetcher){
		"account.used is 7, counted 0":     func(f *Fetcher) { f.account.used = 7 },
		"account.urgent is 7, counted 0":   func(f *Fetcher) { f.account.urgent = 7 },
		"account.attached is 7, counted 0": func(f *Fetcher) { f.account.attached = 7 },
		"account.ahead is 7, counted 0":    func(f *Fetcher) { f.account.ahead = 7 },
		"account.transit is 7, counted 0":  func(f *Fetcher) { f.account.transit = 7 },
		"account.units is 7, counted 0":    func(f *Fetcher) { f.account.units = 7 },
		"candidates.n is 7, counted 0":     func(f *Fetcher) { f.candidates.n = 7 },
		"queues.records.n is 7, counted 0": func(f *Fetcher) { f.queues.records.n = 7 },
		"queues.index.n is 7, counted 0":   func(f *Fetcher) { f.queues.index.n = 7 },
		"queues.urgent.n is 7, counted 0":  func(f *Fetcher) { f.queues.urgent.n = 7 },
		"running.second is 7, counted 0":   func(f *Fetcher) { f.running.second = 7 },
		"running.stuck is 7, counted 0":    func(f *Fetcher) { f.running.stuck = 7 },
		"running.load is 7, counted 0":     func(f *Fetcher) { f.running.load = 7 },
		"running.learning is 7, counted 0": func(f *Fetcher) { f.running.learning = 7 },
		"ready.n is 7, counted 0":          func(f *Fetcher) { f.ready.n.Store(7) },
		"7 of 0 readers are parked":        func(f *Fetcher) { f.readers.parked = 7 },
		"Unit.left is 7, counted 0": func(f *Fetcher) {
			u := &Unit{left: 7}
			f.account.admit(u)
			f.ledger.admit(u)
		},
		"Unit.missing is 0, counted 1": func(f *Fetcher) {
			f.queues.pieces[[2]int64{0, 0}] = &indexRead{waiters: []waiter{{u: &Unit{}}}}
		},
		"request.out is 0, counted 1": func(f *Fetcher) {
			f.ledger.begin(&attempt{request: &request{done: true}})
		},
	}
	for want, damage := range broken {
		f := open(newDisk(10, 100, 10), 8<<20, 1<<20)
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("%s: %s", want, got)
				}
			}()
			f.mu.Lock()
			damage(f)
			f.mu.Unlock()
		}()
	}
}
