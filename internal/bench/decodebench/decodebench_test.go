package decodebench_test

import (
	"context"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/bench/decodebench"
)

func folder(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		f, err := os.Create(filepath.Join(dir, string(rune('a'+i))+".jpg"))
		if err != nil {
			t.Fatal(err)
		}
		if err := jpeg.Encode(f, image.NewRGBA(image.Rect(0, 0, 48, 40)), nil); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRun(t *testing.T) {
	o := decodebench.Options{
		Source: folder(t, 10), Transform: decodebench.Crop, Size: 32, Batch: 4, Threads: 1, For: 30 * time.Millisecond,
	}
	r, err := decodebench.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Records != 10 || r.Images == 0 || r.PerSecond <= 0 || r.Threads != 1 {
		t.Errorf("report %+v", r)
	}
	share := 0.0
	for _, s := range r.Stages {
		share += s.Share
	}
	if share < 0.99 || share > 1.01 {
		t.Errorf("shares of the stages sum to %v", share)
	}
}

func TestRunEnds(t *testing.T) {
	o := decodebench.Options{Source: folder(t, 3), Transform: "sideways", Size: 32, Batch: 4, For: time.Second}
	if _, err := decodebench.Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), `"sideways" is not known`) {
		t.Errorf("unknown transform: %v", err)
	}
	o.Transform = decodebench.Whole
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	o.For = time.Hour
	if _, err := decodebench.Run(ctx, o); err == nil {
		t.Error("a measurement that was called off reports no error")
	}
}
