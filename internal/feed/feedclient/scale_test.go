package feedclient

import (
	"container/heap"
	"fmt"
	"slices"
	"testing"
	"time"
)

// reply is a request whose answer comes at a simulated time.
type reply struct {
	at, began      time.Duration
	client, server int
}

type replies []reply

func (a replies) Len() int           { return len(a) }
func (a replies) Less(i, j int) bool { return a[i].at < a[j].at }
func (a replies) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *replies) Push(x any)        { *a = append(*a, x.(reply)) }
func (a *replies) Pop() any {
	old := *a
	last := old[len(old)-1]
	*a = old[:len(old)-1]
	return last
}

// BenchmarkManyTrainers lets many clients choose among servers, in simulated time: a server builds several batches at a
// time, and each client always waits for the same number of batches. It reports how many requests a server has at most,
// as a multiple of the mean, at the start and later. bench/simulate.py runs it.
//
//	go test ./internal/feed/feedclient -run '^$' -bench ManyTrainers -benchtime 1x
func BenchmarkManyTrainers(b *testing.B) {
	const clients, servers, builds, service = 400, 40, 16, 50 * time.Millisecond
	for _, run := range []struct {
		name  string
		depth int
		own   bool // each client has an order of its own
	}{{"same-order/1", 1, false}, {"same-order/2", 2, false}, {"own-order/1", 1, true}, {"own-order/2", 2, true}} {
		b.Run(run.name, func(b *testing.B) {
			depth := run.depth
			for b.Loop() {
				all := make([]*Client, clients)
				for i := range all {
					c := &Client{}
					if run.own {
						c.salt = uint64(i)
					}
					for s := range servers {
						c.servers = append(c.servers, &server{member: member{addr: fmt.Sprintf("10.0.0.%d:7443", s)}, trusted: true, credits: firstCredits})
					}
					c.servers = c.inTurn(c.servers)
					all[i] = c
				}
				number := map[string]int{}
				for n, s := range all[0].servers {
					number[s.addr] = n
				}
				free := make([][builds]time.Duration, servers)
				load := make([]int, servers)
				var queue replies
				ask := func(i int, now time.Duration) {
					s, _ := all[i].bestLocked(&waiter{})
					if s == nil {
						return
					}
					s.inFlight++
					n := number[s.addr]
					load[n]++
					worker := 0
					for w := range free[n] {
						if free[n][w] < free[n][worker] {
							worker = w
						}
					}
					free[n][worker] = max(free[n][worker], now) + service
					heap.Push(&queue, reply{free[n][worker], now, i, n})
				}
				for i := range all {
					for range depth {
						ask(i, 0)
					}
				}
				mean := float64(clients*depth) / servers
				most, done := [2]int{slices.Max(load)}, 0
				const end = 20 * time.Second
				for {
					a := heap.Pop(&queue).(reply)
					if a.at > end {
						break
					}
					c := all[a.client]
					k := slices.IndexFunc(c.servers, func(s *server) bool { return number[s.addr] == a.server })
					s := c.servers[k]
					s.inFlight--
					load[a.server]--
					c.learnLocked(s, a.at-a.began)
					s.finishedLocked(time.Unix(1, int64(a.began)), time.Unix(1, int64(a.at)))
					ask(a.client, a.at)
					part := 0
					if a.at > end/2 {
						part, done = 1, done+1
					}
					most[part] = max(most[part], slices.Max(load))
				}
				b.ReportMetric(float64(most[0])/mean, "start-most/mean")
				b.ReportMetric(float64(most[1])/mean, "later-most/mean")
				capacity := float64(servers*builds) * float64(end/2) / float64(service)
				b.ReportMetric(float64(done)/min(capacity, float64(clients*depth)*float64(end/2)/float64(service)), "of-possible/batches")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
