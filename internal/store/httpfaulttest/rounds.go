package httpfaulttest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Rounds wraps a handler: responses come late, and it counts the round trips that clients must have made one after
// the other. A request counts for the round after the last one that had a response when the request arrived.
type Rounds struct {
	Handler http.Handler
	// Latency is the delay of responses. It must be long enough for concurrent requests to arrive together.
	Latency time.Duration

	mu       sync.Mutex
	answered int
	asked    []asked
}

type asked struct {
	round int
	what  string
}

// ServeHTTP answers a request after the delay.
func (c *Rounds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	round := c.answered + 1
	c.asked = append(c.asked, asked{round, r.Method + " " + r.URL.Path + " " + r.URL.RawQuery})
	c.mu.Unlock()
	timer := time.NewTimer(c.Latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return // the client has gone
	}
	c.mu.Lock()
	c.answered = max(c.answered, round)
	c.mu.Unlock()
	c.Handler.ServeHTTP(w, r)
}

// Answered returns the number of rounds so far.
func (c *Rounds) Answered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

// Answering returns the number of matching requests in rounds that have a response.
func (c *Rounds) Answering(match func(what string) bool) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.asked {
		if a.round <= c.answered && match(a.what) {
			n++
		}
	}
	return n
}

// String lists the requests of each round, at most six per round.
func (c *Rounds) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for round := 1; ; round++ {
		var of []string
		for _, a := range c.asked {
			if a.round == round {
				of = append(of, a.what)
			}
		}
		if len(of) == 0 {
			return b.String()
		}
		slices.Sort(of)
		if n := len(of); n > 6 {
			of = append(of[:5], fmt.Sprintf("and %d more", n-5))
		}
		fmt.Fprintf(&b, "%d: %s\n", round, strings.Join(of, "; "))
	}
}
