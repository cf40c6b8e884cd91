package stoker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker"
)

// A state belongs to one order: a loader with another order refuses it with a clear error.
func TestStatesAreOfAnOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npy")
	head := "{'descr': '|u1', 'fortran_order': False, 'shape': (100, 10), }"
	head += strings.Repeat(" ", 117-len(head)) + "\n"
	if err := os.WriteFile(path, append([]byte("\x93NUMPY\x01\x00\x76\x00"+head), make([]byte, 1000)...), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(opts stoker.Options) *stoker.Loader {
		opts.BatchSize, opts.Limits.Memory = 10, 64<<20
		l, err := stoker.Open(t.Context(), path, &opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		return l
	}
	state := open(stoker.Options{Shuffle: true, Window: 4}).State()
	if state.Order != "1:window:4" {
		t.Errorf("%+v", state)
	}
	if err := open(stoker.Options{Shuffle: true, Window: 4}).Restore(state); err != nil {
		t.Error(err)
	}
	for _, other := range []stoker.Options{{}, {Shuffle: true}, {Shuffle: true, Window: 5}} {
		if err := open(other).Restore(state); err == nil || !strings.Contains(err.Error(), `in the order "window:4"`) {
			t.Errorf("%+v: %v", other, err)
		}
	}
	auto := open(stoker.Options{Shuffle: true, Window: stoker.WindowAuto})
	if o := auto.Order(); o.Mode != "full" || o.Why == "" {
		t.Errorf("%+v", o)
	}
}
