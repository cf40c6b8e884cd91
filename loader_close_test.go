package stoker

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
)

// gated is a source whose reads wait for a gate.
type gated struct {
	*sourcetest.Memory
	gate chan struct{}
}

func (g *gated) Parse(group *driver.Group) error {
	<-g.gate
	return g.Memory.Parse(group)
}

// Close between the arrival of the engine's batch and its conversion in Next: the ring no longer exists then.
func TestCloseBehindTheEnginesBatch(t *testing.T) {
	src := &gated{sourcetest.Raw(50, 8, 8, 3, 5), make(chan struct{})}
	l, err := Open(context.Background(), "memory:", &Options{BatchSize: 8, Limits: Limits{Memory: 128 << 20}, Source: src})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := l.Next(context.Background())
		done <- err
	}()
	for l.p.Stats().ConsumerWait == 0 { // until Next waits for the engine
		runtime.Gosched()
	}
	l.mu.Lock()
	close(src.gate)
	for l.p.Held() == 0 { // until it has the batch, and waits for us
		runtime.Gosched()
	}
	l.closed = true // like Close
	if err := l.p.Close(); err != nil {
		t.Error(err)
	}
	l.mu.Unlock()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("Next returns %v", err)
	}
}
