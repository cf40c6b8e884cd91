package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/faultsource"
)

// A prefetch that was asked for is what the ring has, or it is refused with the
// memory that it needs and the prefetch that fits; both then work.
func TestExplicitPrefetchHoldsOrIsRefused(t *testing.T) {
	open := func(prefetch int, memory int64) (*Pipeline, error) {
		return Open(context.Background(), Config{OpenSource: use(faultsource.Raw(400, 64, 64, 3, 5)), BatchSize: 64,
			Threads: 2, Prefetch: prefetch, Memory: memory})
	}
	holds := func(prefetch int, memory int64) {
		t.Helper()
		p, err := open(prefetch, memory)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if info := p.Info(); info.Slots != prefetch+2 || info.Memory.Ring+info.Memory.Read+info.Memory.Scratch > memory {
			t.Errorf("prefetch %d in %d bytes: %d slots, %+v", prefetch, memory, info.Slots, info.Memory)
		}
	}
	holds(4, 64<<20)

	for _, prefetch := range []int{100, 1000} {
		p, err := open(prefetch, 64<<20)
		if err == nil {
			defer p.Close()
			t.Fatalf("prefetch %d in 64 MiB gives %d slots without a word", prefetch, p.Info().Slots)
		}
		var need, fits int64
		tail := err.Error()[strings.LastIndex(err.Error(), " need "):]
		if _, scan := fmt.Sscanf(tail, " need %d MiB; set memory to that or more, or prefetch to %d or less", &need, &fits); scan != nil {
			t.Fatalf("%v: %v", err, scan)
		}
		if !strings.HasPrefix(err.Error(), fmt.Sprintf("prefetch is %d, too many for the memory budget of 64 MiB", prefetch)) {
			t.Error(err)
		}
		if prefetch == 100 {
			holds(prefetch, need<<20)
		}
		holds(int(fits), 64<<20)
		if p, err := open(int(fits)+1, 64<<20); err == nil {
			p.Close()
			t.Errorf("prefetch %d was said to be the most that fits, but %d does", fits, fits+1)
		}
	}
}
