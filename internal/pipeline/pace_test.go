package pipeline

import (
	"testing"
	"time"
)

// The time of a local batch begins when the one before is finished, and batches are due at the trainer's recent rate.
func TestPace(t *testing.T) {
	var c pace
	at := func(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }
	if c.due(9, at(0)) != 0 {
		t.Error("a batch is due in time before the rate is known")
	}
	c.built(at(0), at(100))
	c.built(at(0), at(200)) // was queued for half of the time
	if c.service != 100*time.Millisecond || c.spread != 0 {
		t.Errorf("%v and %v per batch", c.service, c.spread)
	}
	c.built(at(200), at(700))
	if c.service != 200*time.Millisecond || c.spread != 100*time.Millisecond {
		t.Errorf("%v and %v per batch after a slow one", c.service, c.spread)
	}
	for i := range 40 {
		c.handOut(at(10 * i))
	}
	if got := c.due(3, at(400)); got != 30*time.Millisecond {
		t.Errorf("due after %v", got)
	}
}
