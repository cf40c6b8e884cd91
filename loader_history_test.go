package stoker_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/drivertest"
)

// A run that is killed, resumed and moved to other numbers of ranks has the batches of a run that was left alone.

// histories is the number of histories of a run: STOKER_HISTORIES, or a few. make histories has 1,000.
func histories(t *testing.T) int {
	text := os.Getenv("STOKER_HISTORIES")
	if text == "" {
		return 27
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("STOKER_HISTORIES=%q is not a number", text)
	}
	return n
}

// historyData writes a pack of photos, one with damaged records, and one of lists of tokens.
func historyData(t *testing.T) (photos, damaged, tokens string) {
	t.Helper()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(8, 1))
	for i := range 44 {
		img := image.NewGray(image.Rect(0, 0, 100+i, 100))
		for k := range img.Pix {
			img.Pix[k] = uint8(rng.IntN(256))
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, img, nil); err != nil {
			t.Fatal(err)
		}
		drivertest.Put(t, filepath.Join(dir, "photos"), fmt.Sprintf("%c/%02d.jpg", 'a'+i%2, i), b.Bytes())
	}
	photos, damaged, tokens = filepath.Join(dir, "packed"), filepath.Join(dir, "damaged"), filepath.Join(dir, "tokens")
	opt := &pack.Options{Images: pack.ImagesKeep, ChunkBytes: 64 << 10, ShardBytes: 1 << 20}
	for _, to := range []string{photos, damaged} {
		if _, err := pack.Write(t.Context(), filepath.Join(dir, "photos"), to, opt); err != nil {
			t.Fatal(err)
		}
	}
	shards, err := filepath.Glob(filepath.Join(damaged, "*.arrow"))
	if err != nil || len(shards) == 0 {
		t.Fatal(shards, err)
	}
	b, err := os.ReadFile(shards[0])
	if err != nil {
		t.Fatal(err)
	}
	for at, n := 0, 0; n < 20; n++ {
		i := bytes.Index(b[at:], []byte{0xff, 0xd8, 0xff})
		if i < 0 {
			t.Fatal("there is no photo")
		}
		if at += i + 60; n%6 == 5 || n == 12 { // two of them are neighbours
			b[at] ^= 0xff
		}
	}
	if err := os.WriteFile(shards[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for range 60 {
		list := make([]int, 1+rng.IntN(40))
		for i := range list {
			list[i] = rng.IntN(30_000)
		}
		line, _ := json.Marshal(map[string]any{"tokens": list})
		lines.Write(append(line, '\n'))
	}
	file := filepath.Join(dir, "rows.jsonl")
	if err := os.WriteFile(file, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	src, err := source.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := pack.WriteSource(t.Context(), src, tokens, nil); err != nil {
		t.Fatal(err)
	}
	return photos, damaged, tokens
}

// history is a run of two epochs. Its rows are hashes in the order of the global batches.
type history struct {
	t     *testing.T
	path  string
	opts  stoker.Options
	rows  [][sha256.Size]byte
	state stoker.State
	begun bool
	// skipped counts replaced records, of parts of epochs.
	skipped int64
	log     []string
}

const historyEpochs = 2

// segment loads up to steps global batches on a number of ranks. With a kill, the last lost of them are forgotten: the
// run had not saved its state since then.
func (h *history) segment(world, batch, steps, lost int) {
	t := h.t
	h.log = append(h.log, fmt.Sprintf("%d ranks, batches of %d, %d steps, %d lost", world, batch, steps, lost))
	h.opts.Ranks.WorldSize, h.opts.BatchSize, h.opts.Limits.Threads, h.opts.Limits.Memory, h.opts.Limits.Prefetch, h.opts.Limits.Lookahead = world, batch, 1, 64<<20, 1, 1<<18
	loaders := make([]*stoker.Loader, world)
	for r := range loaders {
		h.opts.Ranks.Rank = r
		l, err := stoker.Open(t.Context(), h.path, &h.opts)
		if err != nil {
			t.Fatalf("%v: %v", h.log, err)
		}
		defer l.Close()
		if loaders[r] = l; h.begun {
			if err := l.Restore(saved(t, h.state)); err != nil {
				t.Fatalf("%v: %v", h.log, err)
			}
		}
	}
	h.state, h.begun = loaders[0].State(), true
	if o := loaders[0].Order(); h.opts.Window > 0 && (o.Mode != "window" || o.Window >= o.Chunks) {
		t.Fatalf("the order is %+v", o)
	}
	for step := range steps {
		from := h.state.Position
		rows := make([][][sha256.Size]byte, world)
		ends := 0
		for r, l := range loaders {
			b, err := l.Next(t.Context())
			if errors.Is(err, io.EOF) {
				ends++
				n, _ := l.Skipped()
				h.skipped += n
				continue
			}
			if err != nil {
				t.Fatalf("%v: rank %d: %v", h.log, r, err)
			}
			rows[r] = rowHashes(b)
			b.Release()
		}
		if ends != 0 && ends != world {
			t.Fatalf("%v: the epoch has ended on %d ranks", h.log, ends)
		}
		if step >= steps-lost {
			continue
		}
		h.add(rows, from, loaders[0].Order())
		h.state = loaders[0].State()
		for _, l := range loaders {
			if l.State() != h.state {
				t.Fatalf("%v: ranks have the states %+v and %+v", h.log, h.state, l.State())
			}
		}
		if h.state.Epoch == historyEpochs {
			break
		}
	}
}

// add appends the rows of a global batch in the order of their positions.
func (h *history) add(rows [][][sha256.Size]byte, from int64, order stoker.Order) {
	if order.Mode != "window" || order.Window >= order.Chunks {
		h.rows = append(h.rows, slices.Concat(rows...)...)
		return
	}
	for left := len(slices.Concat(rows...)); left > 0; left-- { // ranks take positions in turn
		r := int(from % int64(len(rows)))
		h.rows = append(h.rows, rows[r][0])
		rows[r] = rows[r][1:]
		from++
	}
}

// saved is a state after a way through a file.
func saved(t *testing.T, s stoker.State) (out stoker.State) {
	t.Helper()
	b, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil || len(b) > 256 {
		t.Fatalf("a state of %d bytes: %v", len(b), err)
	}
	return out
}

func rowHashes(b *stoker.Batch) [][sha256.Size]byte {
	out := make([][sha256.Size]byte, b.Rows)
	arrays := b.Arrays()
	for i := range out {
		h := sha256.New()
		for k := range arrays {
			_, _ = fmt.Fprint(h, arrays[k].Name)
			_, _ = h.Write(arrays[k].Row(i))
		}
		h.Sum(out[i][:0])
	}
	return out
}

func TestHistories(t *testing.T) {
	photos, damaged, tokens := historyData(t)
	pads := map[string]stoker.Pad{"tokens": {Multiple: 4}}
	shuffled := stoker.Options{Shuffle: true, Seed: 11}
	with := func(change func(o *stoker.Options)) stoker.Options {
		o := shuffled
		change(&o)
		return o
	}
	cases := []struct {
		name, path string
		opts       stoker.Options
	}{
		{"augmented", photos, with(func(o *stoker.Options) { o.Outputs = drawn })},
		{"window", photos, with(func(o *stoker.Options) { o.Outputs, o.Window = drawn, 3 })},
		{"filter", photos, with(func(o *stoker.Options) { o.Outputs, o.View.Where = drawn, "label == 1" })},
		{"bad records", damaged, with(func(o *stoker.Options) { o.Outputs, o.OnError.Skip = drawn, true })},
		{"bad records, window", damaged, with(func(o *stoker.Options) { o.Outputs, o.OnError.Skip, o.Window = drawn, true, 3 })},
		{"in order", damaged, stoker.Options{Outputs: drawn, Seed: 2, OnError: stoker.OnError{Skip: true}}},
		{"sequences", tokens, with(func(o *stoker.Options) { o.Sequence = &stoker.Sequence{Length: 16} })},
		{"best fit", tokens, with(func(o *stoker.Options) { o.Sequence = &stoker.Sequence{Length: 48, Packing: "best-fit"} })},
		{"buckets", tokens, with(func(o *stoker.Options) {
			o.Pad, o.Bucket = pads, &stoker.Bucket{By: "tokens", Boundaries: []float64{10, 25}, Ranks: 4}
		})},
	}
	n := histories(t)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := history{t: t, path: c.path, opts: c.opts}
			want.segment(1, 5, 1<<20, 0)
			if len(want.rows) == 0 || len(want.rows)%historyEpochs != 0 {
				t.Fatalf("%d rows", len(want.rows))
			}
			if (want.skipped > 0) != c.opts.OnError.Skip {
				t.Fatalf("%d records were replaced", want.skipped)
			}
			sum := sumOf(want.rows)
			for run := i; run < n; run += len(cases) {
				rng := rand.New(rand.NewPCG(uint64(run), 3))
				got := history{t: t, path: c.path, opts: c.opts}
				for !got.begun || got.state.Epoch < historyEpochs {
					batch := 1 + rng.IntN(6)
					if c.opts.Bucket != nil { // which the buckets are cut for
						batch = 5
					}
					steps := 1 + rng.IntN(8)
					got.segment(1+rng.IntN(8), batch, steps, rng.IntN(2)*rng.IntN(steps))
				}
				if sumOf(got.rows) != sum {
					t.Fatalf("history %d: %d rows, expected %d, the first difference is at %d\n%q", run, len(got.rows), len(want.rows), firstDifference(got.rows, want.rows), got.log)
				}
			}
		})
	}
}

func sumOf(rows [][sha256.Size]byte) [sha256.Size]byte {
	h := sha256.New()
	for i := range rows {
		_, _ = h.Write(rows[i][:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func firstDifference(a, b [][sha256.Size]byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
