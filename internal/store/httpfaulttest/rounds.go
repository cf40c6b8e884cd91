package httpfaulttest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Rounds has a handler answer late, and counts how many ways there and back were made one
// after the other, whatever each of them takes: a request is of the round behind the last
// one of which an answer was there when it came.
type Rounds struct {
	Handler http.Handler
	// Latency is how late answers are: long enough for those who ask at once to do so.
	Latency time.Duration

	mu       sync.Mutex
	answered int
	asked    []asked
}

type asked struct {
	round int
	what  string
}

// ServeHTTP answers a request.
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
		return // nobody has heard of it
	}
	c.mu.Lock()
	c.answered = max(c.answered, round)
	c.mu.Unlock()
	c.Handler.ServeHTTP(w, r)
}

// Answered is how many rounds there were so far.
func (c *Rounds) Answered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

// Answering is how many requests of those that match were made in rounds of which there is an
// answer.
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

// String says what was asked in each round; of many requests how many there were.
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
