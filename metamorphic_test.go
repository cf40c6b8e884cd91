package stoker_test

import (
	"fmt"
	"hash/maphash"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/pack"
)

// One set of images in every format that promises the same pixels, under settings that must not matter: threads,
// memory, batches ahead, batch size, ranks, and restarts in the middle. The processed records and their order are the
// same in all of them.

const (
	metaRecords        = 47
	metaWide, metaTall = 53, 41 // no multiples of the blocks of a JPEG
	metaEpochs         = 2
)

// forms writes the set in every form and returns their paths by name.
func forms(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range metaRecords {
		class := filepath.Join(folder, string(rune('a'+i*4/metaRecords)))
		if err := os.MkdirAll(class, 0o755); err != nil {
			t.Fatal(err)
		}
		img := image.NewRGBA(image.Rect(0, 0, metaWide, metaTall))
		a, b := rng.IntN(9)+1, rng.IntN(9)+1
		for y := range metaTall {
			for x := range metaWide {
				img.SetRGBA(x, y, color.RGBA{uint8(a * x), uint8(b*y + i), uint8(rng.IntN(60) + x*y), 255})
			}
		}
		f, err := os.Create(filepath.Join(class, fmt.Sprintf("%03d.jpg", i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := jpeg.Encode(f, img, &jpeg.Options{Quality: 70 + i%30}); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	paths := map[string]string{"folder": folder}
	for _, images := range []string{pack.ImagesKeep, pack.ImagesDCT, pack.ImagesRaw} {
		paths[images] = filepath.Join(dir, images)
		if _, err := pack.Write(t.Context(), folder, paths[images], &pack.Options{Images: images, ChunkBytes: 1 << 16, ShardBytes: 1 << 17}); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// asArrays writes the pixels and labels of a form as arrays, and returns their
// folder.
func asArrays(t *testing.T, path string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "arrays")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := stoker.Open(t.Context(), path, &stoker.Options{BatchSize: metaRecords, Limits: stoker.Limits{Memory: 64 << 20}, Outputs: whole})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	for name, header := range map[string][]byte{
		"image": npy.AppendHeader(nil, "uint8", []int64{metaRecords, metaTall, metaWide, 3}),
		"label": npy.AppendHeader(nil, "int64", []int64{metaRecords}),
	} {
		if err := os.WriteFile(filepath.Join(out, name+".npy"), append(header, b.Bytes(name)...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// whole does not change images. drawn makes random draws for each record.
var (
	whole = []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.NewOp("CenterCrop", map[string]any{"size": []int{metaTall, metaWide}})}}}
	drawn = []stoker.Output{{Name: "image", Ops: []stoker.Op{
		stoker.NewOp("RandomResizedCrop", map[string]any{"size": []int{24, 20}, "scale": []float64{0.2, 1}}),
		stoker.RandomHorizontalFlip(0.5),
		stoker.NewOp("ColorJitter", map[string]any{"brightness": 0.4, "contrast": 0.3}),
	}}}
)

// part has the settings of a part of the training, until the next restart.
type part struct {
	threads, ahead int
	memory         int64
	batch, world   int
	steps          int // then it is restarted
}

func (p part) String() string {
	return fmt.Sprintf("%d threads, prefetch %d, %d MiB, batches of %d on %d ranks, %d steps", p.threads, p.ahead, p.memory>>20, p.batch, p.world, p.steps)
}

func anyPart(rng *rand.Rand) part {
	return part{
		threads: 1 + rng.IntN(4), ahead: rng.IntN(6), memory: int64(64+rng.IntN(100)) << 20,
		batch: 1 + rng.IntN(16), world: 1 + rng.IntN(3), steps: 1 + rng.IntN(20),
	}
}

// row is one record of the stream: of which epoch it is, which one, and a hash
// of its bytes and its label.
type row struct {
	epoch, id int64
	hash      uint64
}

var hashSeed = maphash.MakeSeed()

func rowsOf(b *stoker.Batch) []row {
	var rows []row
	images, labels := b.Bytes("image"), b.Ints("label")
	for i, id := range b.Ints("index") {
		n := len(images) / b.Rows
		var h maphash.Hash
		h.SetSeed(hashSeed)
		_, _ = h.Write(images[i*n : (i+1)*n])
		_, _ = fmt.Fprint(&h, labels[i])
		rows = append(rows, row{b.Epoch, id, h.Sum64()})
	}
	return rows
}

// train loads epochs of the set in parts and returns the rows in the order in
// which the ranks together had them.
func train(t *testing.T, path string, opts stoker.Options, nextPart func() part) []row {
	t.Helper()
	var rows []row
	var state *stoker.State
	for state == nil || state.Epoch < metaEpochs {
		p := nextPart()
		opts.Limits.Threads, opts.Limits.Prefetch, opts.Limits.Memory, opts.BatchSize, opts.Ranks.WorldSize = p.threads, p.ahead, p.memory, p.batch, p.world
		ranks := make([]*stoker.Loader, p.world)
		for r := range ranks {
			opts.Ranks.Rank = r
			l, err := stoker.Open(t.Context(), path, &opts)
			if err != nil {
				t.Fatalf("%v: %v", p, err)
			}
			defer l.Close()
			if ranks[r] = l; state != nil {
				if err := l.Restore(*state); err != nil {
					t.Fatalf("%v: %v", p, err)
				}
			}
		}
		for range p.steps {
			ends := 0
			for r, l := range ranks {
				b, err := l.Next(t.Context())
				if err == io.EOF {
					ends++
					continue
				}
				if err != nil {
					t.Fatalf("%v, rank %d: %v", p, r, err)
				}
				rows = append(rows, rowsOf(b)...)
				b.Release()
			}
			if ends != 0 && ends != p.world {
				t.Fatalf("%v: the epoch has ended on %d ranks", p, ends)
			}
			s := ranks[0].State()
			for _, l := range ranks {
				if l.State() != s {
					t.Fatalf("%v: the ranks stand at %+v and %+v", p, s, l.State())
				}
			}
			if state = &s; s.Epoch == metaEpochs {
				break
			}
		}
		for _, l := range ranks {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return rows
}

func TestRowsAreTheSameWhateverHowTheyAreLoaded(t *testing.T) {
	paths := forms(t)
	paths["arrays"] = asArrays(t, paths["folder"])
	runs := 4
	if testing.Short() {
		runs = 1
	}
	for name, opts := range map[string]stoker.Options{
		"as stored":       {Outputs: whole, Seed: 3},
		"shuffled":        {Outputs: whole, Seed: 4, Shuffle: true},
		"drawn":           {Outputs: drawn, Seed: 5, Shuffle: true},
		"drawn, in order": {Outputs: drawn, Seed: 6},
		"NCHW, as stored": {Outputs: []stoker.Output{{Name: "image", Ops: whole[0].Ops, ChannelsFirst: true}}, Seed: 7, Shuffle: true},
	} {
		t.Run(name, func(t *testing.T) {
			plain := part{threads: 1, memory: 64 << 20, batch: metaRecords, world: 1, steps: 1 << 20}
			want := train(t, paths["folder"], opts, func() part { return plain })
			if len(want) != metaEpochs*metaRecords {
				t.Fatalf("%d rows", len(want))
			}
			for epoch := range metaEpochs {
				ids := map[int64]bool{}
				for _, r := range want[epoch*metaRecords : (epoch+1)*metaRecords] {
					if ids[r.id] = true; r.epoch != int64(epoch) {
						t.Fatalf("a row of epoch %d in epoch %d", r.epoch, epoch)
					}
				}
				if len(ids) != metaRecords {
					t.Fatalf("epoch %d has %d records", epoch, len(ids))
				}
			}
			for form, path := range paths {
				opts := opts
				if form == "arrays" {
					if opts.Outputs[0].ChannelsFirst || len(opts.Outputs[0].Ops) > 1 {
						continue // arrays are not drawn, nor turned
					}
					opts.Outputs = nil
				}
				for run := range runs {
					rng := rand.New(rand.NewPCG(uint64(run), opts.Seed))
					var parts []part
					got := train(t, path, opts, func() part {
						parts = append(parts, anyPart(rng))
						return parts[len(parts)-1]
					})
					if i := slices.IndexFunc(got, func(r row) bool { return !slices.Contains(want, r) }); i >= 0 {
						t.Fatalf("%s: row %d is %+v, not as it was in the folder\n%v", form, i, got[i], parts)
					}
					if !slices.Equal(got, want) {
						t.Fatalf("%s: the rows come in another order\n%v", form, parts)
					}
				}
			}
		})
	}
}
