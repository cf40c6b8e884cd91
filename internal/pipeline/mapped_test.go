package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/source/npysource"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// If a file becomes shorter while it is mapped, the missing records fail with their names, and the engine keeps
// running.
func TestFileBecomesShorter(t *testing.T) {
	for _, rows := range []int{4096, 256} { // rows that are copied one by one, and gathered past the caches
		for _, skip := range []bool{false, true} {
			name := filepath.Join(t.TempDir(), "x.npy")
			row := 8 << 20 / rows
			head := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }", rows, row)
			head += strings.Repeat(" ", 117-len(head)) + "\n"
			file := append([]byte("\x93NUMPY\x01\x00\x76\x00"), head...)
			file = append(file, make([]byte, rows*row)...)
			if err := os.WriteFile(name, file, 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := Config{BatchSize: 16, Threads: 2, OpenSource: func(ctx context.Context, _ string) (driver.Source, error) {
				return npysource.Open(ctx, name, localstore.New(name), nil)
			}}
			if skip {
				cfg.OnError = OnErrorSkip
			}
			p := mustOpen(t, cfg)
			// Once through, so that the file is mapped and its pages known to be there.
			p.Start(item.Position{})
			for range rows / 16 {
				take(t, p)
			}
			if ev, err := p.Next(testContext(t)); err != nil || ev.Kind != EventEpochEnd {
				t.Fatalf("%+v, %v", ev, err)
			}
			// A few records are missing: those of the last pages.
			if err := os.Truncate(name, int64(len(file)-3*row-5000)); err != nil {
				t.Fatal(err)
			}
			p.Start(item.Position{})
			var err error
			var ev Event
			for err == nil && ev.Kind != EventEpochEnd {
				if ev, err = p.Next(testContext(t)); err == nil && ev.Kind == EventBatch {
					p.Release(ev.Slot)
				}
			}
			if skip {
				if err != nil || ev.Skipped < 3 || !strings.Contains(ev.Bad[0].Name, "x.npy, row ") {
					t.Errorf("%d rows: %+v, %v", rows, ev, err)
				}
				continue
			}
			var rec *RecordError
			if !errors.As(err, &rec) || rec.ID < int64(rows-8) || !strings.Contains(err.Error(), "x.npy, row ") ||
				!strings.Contains(err.Error(), "cannot be read") && !strings.Contains(err.Error(), "ends before") && !strings.Contains(err.Error(), "changed") {
				t.Errorf("%d rows: %v", rows, err)
			}
		}
	}
}

// A file is overwritten during an epoch with the same number of bytes. Records that are read from then on are errors,
// and never have other bytes.
func TestFileIsWrittenAnew(t *testing.T) {
	const rows, row = 4096, 16 << 10
	name := filepath.Join(t.TempDir(), "x.npy")
	head := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }", rows, row)
	head += strings.Repeat(" ", 117-len(head)) + "\n"
	file := append([]byte("\x93NUMPY\x01\x00\x76\x00"), head...)
	file = append(file, make([]byte, rows*row)...)
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	p := mustOpen(t, Config{BatchSize: 16, Threads: 2, Lookahead: 1 << 20, OpenSource: func(ctx context.Context, _ string) (driver.Source, error) {
		return npysource.Open(ctx, name, localstore.New(name), nil)
	}, Decorate: func(s store.Store) store.Store { // which hides the mapping
		return faulttest.New(s, 1)
	}})
	p.Start(item.Position{})
	take(t, p)
	// Written in place: a temporarily shorter file would be detected without this check.
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{1}, rows*row), 128)
	if cerr := f.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	if err := os.Chtimes(name, time.Time{}, time.Unix(1e9, 0)); err != nil { // clocks of files are coarse
		t.Fatal(err)
	}
	for {
		ev, err := p.Next(testContext(t))
		if err != nil {
			if !errors.Is(err, store.ErrChanged) || !strings.Contains(err.Error(), "x.npy") {
				t.Errorf("error is %v", err)
			}
			return
		}
		if ev.Kind == EventEpochEnd {
			t.Fatal("the change was not noticed")
		}
		slot := p.Ring().Slot(ev.Slot)
		a := p.Info().Arrays[0]
		for i := range ev.Rows {
			if slot[a.Offset+int64(i)*a.RowBytes] != 0 {
				t.Fatal("a row is of the file that took the place")
			}
		}
		p.Release(ev.Slot)
	}
}
