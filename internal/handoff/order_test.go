package handoff

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
)

// TestOrder runs a session whose client sets the order of the records.
func TestOrder(t *testing.T) {
	engine, trainer := pair(t)
	sess := NewSession(engine, Options{Open: func(ctx context.Context, _ []byte) (Pipeline, error) {
		return pipeline.Open(ctx, pipeline.Config{
			BatchSize: 4, Order: pipeline.OrderClient, Memory: 64 << 20,
			OpenSource: func(context.Context, string) (driver.Source, error) { return sourcetest.Raw(9, 8, 8, 3, 5), nil },
		})
	}})
	done := make(chan error, 1)
	go func() { done <- sess.Run(t.Context()) }()
	if err := trainer.Open([]byte("{}"), time.Minute); err != nil {
		t.Fatal(err)
	}
	send := func(ms ...Message) {
		t.Helper()
		for _, m := range ms {
			if err := trainer.Send(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := trainer.Start(5, 0); err != nil {
		t.Fatal(err)
	}
	gen := trainer.gen
	// An order for an old stream is ignored, even an invalid one.
	send(Order{Gen: gen + 1, Records: []int64{99}}, Order{Gen: gen, Records: []int64{3, 3}}, Order{Gen: gen, Whole: true, Records: []int64{8}},
		Order{Gen: gen, Whole: true, Records: []int64{0}})
	var rows []uint32
	for range 2 {
		ev, err := trainer.Next(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		b := ev.(Batch)
		rows = append(rows, b.Rows)
		if err := trainer.Release(b); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(rows, []uint32{3, 1}) {
		t.Fatalf("batches of %v rows", rows)
	}
	send(Order{Gen: gen, Whole: true, Records: []int64{9}})
	if _, err := trainer.Next(time.Minute); err == nil || !strings.Contains(err.Error(), "record 9 is outside of the 9") {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Fatal("the session has ended in order")
	}
}
