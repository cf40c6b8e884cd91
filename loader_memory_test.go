package stoker_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/racetest"
)

// TestMemoryOverEpochs reads short recordings again and again. Readahead and decoding stay within their memory
// limits, and no memory of a record leaks.
func TestMemoryOverEpochs(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector's own memory grows with what it has seen")
	}
	const files, samples, epochs = 400, 1000, 60
	dir := t.TempDir()
	for i := range files {
		class := filepath.Join(dir, fmt.Sprint(i%4))
		if err := os.MkdirAll(class, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(class, fmt.Sprintf("%d.wav", i)), wav(samples, i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := stoker.Open(context.Background(), dir, &stoker.Options{
		BatchSize: 50, Shuffle: true, Limits: stoker.Limits{Memory: 96 << 20, Lookahead: 1 << 20},
		Outputs: []stoker.Output{{Name: "audio", Ops: []stoker.Op{stoker.NewOp("audio.PadOrTrim", map[string]any{"samples": samples})}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	through := func(n int) int64 {
		for range n {
			rows := 0
			for got := next(t, l); got != nil; got = next(t, l) {
				rows += len(got)
			}
			if rows != files {
				t.Fatalf("an epoch of %d rows", rows)
			}
		}
		debug.FreeOSMemory()
		_, private := proc.Resident()
		return private
	}
	before := through(10)
	// A kilobyte that is left of each record would make 24 MB.
	if more := through(epochs) - before; more > 12<<20 {
		t.Errorf("%d epochs of %d recordings took %d KiB more", epochs, files, more>>10)
	}
}

// wav returns a recording of 16 bits.
func wav(samples, seed int) []byte {
	b := []byte("RIFF....WAVEfmt ")
	le := binary.LittleEndian
	b = le.AppendUint32(b, 16)
	b = le.AppendUint32(b, 1|1<<16) // PCM, one channel
	b = le.AppendUint32(b, 16000)
	b = le.AppendUint32(b, 32000)
	b = le.AppendUint32(b, 2|16<<16)
	b = append(b, "data"...)
	b = le.AppendUint32(b, uint32(2*samples))
	for k := range samples {
		b = le.AppendUint16(b, uint16(k*seed))
	}
	le.PutUint32(b[4:], uint32(len(b)-8))
	return b
}
