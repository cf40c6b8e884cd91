package stoker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/internal/cache/cachetest"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
)

func TestMain(m *testing.M) { cachetest.Main(m) }

func open(t *testing.T, opts stoker.Options) *stoker.Loader {
	t.Helper()
	if opts.Source == nil {
		opts.Source = sourcetest.Raw(50, 8, 8, 3, 5)
	}
	opts.Limits.Memory = 128 << 20
	l, err := stoker.Open(context.Background(), "memory:", &opts)
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

func next(t *testing.T, l *stoker.Loader) []int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	b, err := l.Next(ctx)
	if err == io.EOF {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	return b.Ints("index")
}

func TestEpochsAndSetEpoch(t *testing.T) {
	l := open(t, stoker.Options{BatchSize: 20, Shuffle: true, Seed: 1})
	var first [3][]int64
	for e := range first {
		l.SetEpoch(int64(e))
		first[e] = next(t, l)
		for range 2 {
			if next(t, l) == nil {
				t.Fatal("the epoch is too short")
			}
		}
		if next(t, l) != nil {
			t.Fatal("the epoch is too long")
		}
		if s := l.State(); s.Epoch != int64(e+1) || s.Position != 0 {
			t.Fatalf("state after epoch %d is %+v", e, s)
		}
	}
	// Leaving an epoch early and going back.
	l.SetEpoch(1)
	if got := next(t, l); !same(got, first[1]) {
		t.Fatalf("epoch 1 begins with %v, then with %v", first[1], got)
	}
	l.SetEpoch(1)
	if got := next(t, l); !same(got, first[1]) {
		t.Fatalf("epoch 1 begins with %v, then with %v", first[1], got)
	}
	if same(first[0], first[1]) {
		t.Fatal("two epochs have the same order")
	}
}

func same(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestStateGoesThroughJSON(t *testing.T) {
	l := open(t, stoker.Options{BatchSize: 8, Shuffle: true, Seed: 5})
	next(t, l)
	next(t, l)
	data, err := json.Marshal(l.State())
	if err != nil || len(data) > 300 {
		t.Fatalf("%s %v", data, err)
	}
	want := next(t, l)
	var s stoker.State
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	other := open(t, stoker.Options{BatchSize: 8, Shuffle: true, Seed: 5, Limits: stoker.Limits{Threads: 1}})
	if err := other.Restore(s); err != nil {
		t.Fatal(err)
	}
	if got := next(t, other); !same(got, want) {
		t.Fatalf("%v after Restore, want %v", got, want)
	}
	for text, change := range map[string]func(s *stoker.State){
		"version 1":                   func(s *stoker.State) { s.Version = 1 },
		"another manifest":            func(s *stoker.State) { s.Manifest = "x" },
		"order version \"9\"":         func(s *stoker.State) { s.Order = "9:full" },
		"saved with seed 6":           func(s *stoker.State) { s.Seed = 6 },
		"in the order \"window:4\"":   func(s *stoker.State) { s.Order = "1:window:4" },
		"other settings of transform": func(s *stoker.State) { s.Pipeline = s.Pipeline[:9] + "01234567" },
		"settings of bucket":          func(s *stoker.State) { s.Pipeline = "01234567" + s.Pipeline[8:] },
		"batch_map or device":         func(s *stoker.State) { s.Pipeline += "-01234567" },
		"set Bucket.Ranks to 3":       func(s *stoker.State) { s.Ranks = 3 },
		"position 51":                 func(s *stoker.State) { s.Position = 51 },
	} {
		bad := s
		change(&bad)
		if err := other.Restore(bad); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %v, should say %s", err, text)
		}
	}
}

func TestHoldingAllBatchesIsAnError(t *testing.T) {
	l := open(t, stoker.Options{BatchSize: 2, Limits: stoker.Limits{Prefetch: 1}})
	ctx := context.Background()
	var held []*stoker.Batch
	for {
		b, err := l.Next(ctx)
		if errors.Is(err, stoker.ErrHeld) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	if len(held) < 2 {
		t.Fatalf("only %d batches could be held", len(held))
	}
	held[0].Release()
	held[0].Release()
	if held[0].Bytes("image") != nil || held[0].Ints("index") != nil {
		t.Fatal("a released batch still has bytes")
	}
	b, err := l.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	for _, b := range held[1:] {
		b.Release()
	}
}

func TestBatchArrays(t *testing.T) {
	l := open(t, stoker.Options{BatchSize: 4, Outputs: []stoker.Output{
		{Name: "x", Field: "image", ChannelsFirst: true, Ops: []stoker.Op{stoker.CenterCrop(6), stoker.ToDtype("float32", true), stoker.Normalize([]float64{0.5}, []float64{0.5})}},
	}})
	b, err := l.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	a := b.Arrays()
	if len(a) != 3 || a[0].Name != "x" || a[0].DType != "float32" || len(a[0].Bytes) != 4*3*6*6*4 || a[1].Name != "label" || a[2].Name != "index" {
		t.Fatalf("%+v", a)
	}
	if a[0].Shape[0] != 3 || a[0].Shape[1] != 6 || b.Rows != 4 || b.Epoch != 0 || b.Step != 0 {
		t.Fatalf("%+v %+v", a[0].Shape, b)
	}
	if b.Bytes("y") != nil || b.Ints("y") != nil {
		t.Fatal("an array that is not there")
	}
	if c := l.Classes("label"); len(c) != 5 || l.Records() != 50 || l.Len() != 13 {
		t.Fatalf("%v %d %d", c, l.Records(), l.Len())
	}
}

func TestErrorsNameFileAndReason(t *testing.T) {
	dir := t.TempDir()
	if err := writeImages(dir, 6); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "dark", "002.jpg")
	if err := os.WriteFile(bad, []byte("not an image"), 0o644); err != nil {
		t.Fatal(err)
	}
	opts := &stoker.Options{BatchSize: 6, Limits: stoker.Limits{Memory: 128 << 20}, Outputs: []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.RandomResizedCrop(8)}}}}
	l, err := stoker.Open(context.Background(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 { // the error stays
		_, err = l.Next(context.Background())
		var re *stoker.RecordError
		if !errors.As(err, &re) || !strings.Contains(re.Name, "002.jpg") || !strings.Contains(re.Reason, "not an image") {
			t.Fatalf("error is %v", err)
		}
	}
	opts.OnError.Skip = true
	l2, err := stoker.Open(context.Background(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer l2.Close()
	if got := next(t, l2); len(got) != 6 || next(t, l2) != nil {
		t.Fatalf("%v", got)
	}
	if n, first := l2.Skipped(); n != 1 || len(first) != 1 || !strings.Contains(first[0].Error(), "002.jpg") {
		t.Fatalf("%d skipped: %v", n, first)
	}
}

func TestCancelAndClose(t *testing.T) {
	l := open(t, stoker.Options{BatchSize: 4, Source: sourcetest.Wrap(sourcetest.Raw(50, 8, 8, 3, 5), func(id int64) *sourcetest.Fault {
		if id == 9 {
			return &sourcetest.Fault{Delay: 100 * time.Millisecond, Times: 1}
		}
		return nil
	})})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	var order []int64
	for {
		b, err := l.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, b.Ints("index")...)
		b.Release()
	}
	order = append(order, next(t, l)...) // nothing was lost
	for i, id := range order {
		if int64(i) != id {
			t.Fatalf("%v", order)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Next(context.Background()); !errors.Is(err, stoker.ErrClosed) {
		t.Fatalf("error is %v", err)
	}
}

func TestOpenRefusesWithAHint(t *testing.T) {
	for name, opts := range map[string]*stoker.Options{
		"batch_size must be":            nil,
		`did you mean "CenterCrop"?`:    {BatchSize: 1, Outputs: []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.NewOp("CentreCrop", nil)}}}},
		"json: unsupported type":        {BatchSize: 1, Outputs: []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.NewOp("CenterCrop", map[string]any{"size": make(chan int)})}}}},
		"must be between 0 and world_s": {BatchSize: 1, Ranks: stoker.Ranks{Rank: 3}},
	} {
		if opts == nil && !strings.HasPrefix(name, "batch") {
			continue
		}
		if opts != nil {
			opts.Source = sourcetest.Raw(5, 8, 8, 3, 5)
			opts.Limits.Memory = 64 << 20
		}
		dir := t.TempDir()
		if err := writeImages(dir, 2); err != nil {
			t.Fatal(err)
		}
		l, err := stoker.Open(context.Background(), dir, opts)
		if err == nil {
			l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), name) || !strings.HasPrefix(err.Error(), "stoker: ") {
			t.Errorf("error is %v, want %q", err, name)
		}
	}
}

// A Go program reads fields of any kind.
func TestKindsInBatches(t *testing.T) {
	fields := []driver.Field{
		{Name: "caption", Kind: driver.KindText, MaxBytes: 20},
		{Name: "boxes", Kind: driver.KindRagged, DType: driver.Uint16, Shape: []int{2}, MaxBytes: 40},
		{Name: "tags", Kind: driver.KindMultiLabel, MaxBytes: 40, Classes: []string{"a", "b"}},
		{Name: "score", Kind: driver.KindFloat},
	}
	src := sourcetest.NewMemory(10, fields, func(id int64, v []driver.Value) error {
		v[0].Bytes = []byte(strings.Repeat("é", int(id)))
		v[1].Bytes = bytes.Repeat([]byte{byte(id), 0, 1, 0}, int(id%4))
		v[2].Bytes = binary.LittleEndian.AppendUint64(nil, uint64(id%2))
		v[3].Float = float64(id) / 2
		return nil
	})
	l, err := stoker.Open(t.Context(), "memory", &stoker.Options{BatchSize: 4, Source: src, Limits: stoker.Limits{Memory: 64 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.Strings("caption"), []string{"", "é", "éé", "ééé"}; !slices.Equal(got, want) {
		t.Errorf("captions are %q", got)
	}
	if got, want := b.Floats("score"), []float64{0, 0.5, 1, 1.5}; !slices.Equal(got, want) {
		t.Errorf("scores are %v", got)
	}
	if got, want := b.Ints("tags"), []int64{0, 1, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("tags are %v", got)
	}
	boxes, ok := b.Array("boxes")
	if !ok || boxes.Kind != "ragged" || boxes.DType != "uint16" || !slices.Equal(boxes.Shape, []int{2}) || !slices.Equal(boxes.Offsets, []int64{0, 0, 1, 3, 6}) {
		t.Fatalf("%+v", boxes)
	}
	if got := boxes.Row(2); !bytes.Equal(got, []byte{2, 0, 1, 0, 2, 0, 1, 0}) {
		t.Errorf("row 2 is %v", got)
	}
	index, _ := b.Array("index")
	if got := index.Row(3); index.Offsets != nil || binary.LittleEndian.Uint64(got) != 3 {
		t.Errorf("row 3 of index is %v", got)
	}
	if b.Ints("score") != nil || b.Floats("tags") != nil || b.Strings("boxes") != nil || b.Strings("score") != nil {
		t.Error("an array of another type was read")
	}
	if _, ok := b.Array("none"); ok {
		t.Error("there is an array of no name")
	}
	b.Release()
	if a, ok := b.Array("caption"); !ok || a.Bytes != nil || a.Offsets != nil || b.Strings("caption") != nil {
		t.Error("a released batch can be read")
	}
}

// Sequences are the records: each token is delivered once per epoch, in a different order in the next epoch.
func TestSequences(t *testing.T) {
	name := filepath.Join(t.TempDir(), "train.bin")
	var file []byte
	for i := range 1000 {
		file = binary.LittleEndian.AppendUint16(file, uint16(i))
	}
	if err := os.WriteFile(name, file, 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := stoker.Open(t.Context(), name, &stoker.Options{
		BatchSize: 10, Shuffle: true, Seed: 1, Limits: stoker.Limits{Memory: 128 << 20}, Sequence: &stoker.Sequence{Length: 50, NoShift: true, DType: "int64"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var epochs [2][]int64
	for e := range epochs {
		for {
			b, err := l.Next(t.Context())
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			epochs[e] = append(epochs[e], b.Ints("tokens")...)
			b.Release()
		}
	}
	if slices.Equal(epochs[0], epochs[1]) {
		t.Error("both epochs have the same order")
	}
	for e := range epochs {
		slices.Sort(epochs[e])
		for i, v := range epochs[e] {
			if v != int64(i) || len(epochs[e]) != 1000 {
				t.Fatalf("epoch %d: token %d is %d of %d", e, i, v, len(epochs[e]))
			}
		}
	}
}
