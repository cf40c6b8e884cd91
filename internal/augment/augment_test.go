package augment_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/augment"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/survey"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/source/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	records  = 60
	variants = 3
	seed     = 11
)

// detection is a source of images of different sizes with masks, boxes, their classes
// and a label.
func detection() *sourcetest.Memory {
	fields := []driver.Field{
		{Name: "image", Kind: driver.KindImage, MaxBytes: 3 * 60 * 70},
		{Name: "mask", Kind: driver.KindMask, DType: driver.Uint8, MaxBytes: 60 * 70, Classes: []string{"a", "b"}},
		{Name: "boxes", Kind: driver.KindBoxes, DType: driver.Float32, Shape: []int{4}, Format: driver.XYXY, MaxBytes: 5 * 16},
		{Name: "kinds", Kind: driver.KindMultiLabel, Boxes: "boxes", MaxBytes: 5 * 8},
		{Name: "label", Kind: driver.KindLabel, Classes: []string{"x", "y", "z"}},
		{Name: "text", Kind: driver.KindText, MaxBytes: 20},
	}
	return sourcetest.NewMemory(records, fields, func(id int64, v []driver.Value) error {
		w, h := 40+int(id%20), 50+int(id%13)
		pix, mask := make([]byte, 3*w*h), make([]byte, w*h)
		for i := range pix {
			pix[i] = byte(i*7 + int(id)*31 + i/w)
		}
		for i := range mask {
			mask[i] = byte((i / 9) % 2)
		}
		var boxes, kinds []byte
		for b := range int(id % 4) {
			for _, c := range []float32{float32(2 * b), float32(3 * b), float32(20 + 2*b), float32(30 + 3*b)} {
				boxes = binary.LittleEndian.AppendUint32(boxes, math.Float32bits(c))
			}
			kinds = binary.LittleEndian.AppendUint64(kinds, uint64(b))
		}
		v[0] = driver.Value{Bytes: pix, Codec: driver.CodecRaw, Width: int32(w), Height: int32(h), Channels: 3, Orientation: 1}
		v[1] = driver.Value{Bytes: mask, Codec: driver.CodecRaw, Width: int32(w), Height: int32(h), Channels: 1}
		v[2], v[3] = driver.Value{Bytes: boxes}, driver.Value{Bytes: kinds}
		v[4] = driver.Value{Int: id % 3}
		v[5] = driver.Value{Bytes: fmt.Appendf(nil, "record %d", id)}
		return nil
	})
}

func ops(list ...string) (raw []json.RawMessage) {
	for _, s := range list {
		raw = append(raw, json.RawMessage(s))
	}
	return raw
}

// outputs crop and flip, mix colours in images alone, and drop boxes that are left with
// nothing.
func outputs() []transform.Output {
	crop, flip := `{"op":"RandomResizedCrop","size":[24,20],"scale":[0.2,0.9]}`, `{"op":"RandomHorizontalFlip"}`
	return []transform.Output{
		{Name: "image", Field: "image", Ops: ops(crop, flip, `{"op":"ColorJitter","brightness":0.4}`)},
		{Name: "mask", Field: "mask", Ops: ops(crop, flip), Follow: "image"},
		{Name: "boxes", Field: "boxes", Ops: ops(`{"op":"SanitizeBoundingBoxes"}`)},
	}
}

func open(t testing.TB, n int) driver.Source {
	t.Helper()
	s, err := augment.Open(detection(), &augment.Options{Outputs: outputs(), Variants: n, Seed: seed, Threads: 2, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// packed is a pack of the variants.
func packed(t testing.TB, n int) string {
	t.Helper()
	src := open(t, n)
	defer src.Close()
	dir := filepath.Join(t.TempDir(), "pack")
	text, err := json.Marshal(outputs())
	if err != nil {
		t.Fatal(err)
	}
	opt := &pack.Options{Images: pack.ImagesRaw, Transforms: string(text), Augment: n, Seed: seed, ChunkBytes: 64 << 10, ShardBytes: 128 << 10, Memory: 256 << 20}
	if _, err := pack.WriteSource(t.Context(), src, dir, opt); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The suite of sources passes, for the packed data and for the pack, also for a part of the records and fields.
func TestConformance(t *testing.T) {
	t.Run("made", func(t *testing.T) {
		drivertest.Run(t, func(t testing.TB) driver.Source { return open(t, variants) })
	})
	dir := packed(t, variants)
	for name, spec := range map[string]*view.Spec{"pack": nil, "view": {Where: "label != 1", Rename: map[string]string{"image": "picture"}, Drop: []string{"text"}}} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
				return source.Open(ctx, dir, &source.Options{View: spec})
			}))
		})
	}
}

// row returns the values of a record in a batch.
type row map[string]string

// loaded are the batches of some epochs, by epoch and record, each record once.
func loaded(t *testing.T, cfg pipeline.Config, from item.Position, epochs int) map[int64]map[int64]row {
	t.Helper()
	cfg.Memory, cfg.BatchSize, cfg.Threads = 128<<20, 7, 2
	p, err := pipeline.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Info().Len != records {
		t.Fatalf("%d records", p.Info().Len)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p.Start(from)
	all := map[int64]map[int64]row{}
	for ended := 0; ended < epochs; {
		ev, err := p.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == pipeline.EventEpochEnd {
			ended++
			continue
		}
		slot := p.Ring().Slot(ev.Slot)
		var index []byte
		rows := make([]row, ev.Rows)
		for i := range rows {
			rows[i] = row{}
		}
		for _, a := range p.Info().Arrays {
			for i := range rows {
				lo, hi := a.Offset+int64(i)*a.RowBytes, a.Offset+int64(i+1)*a.RowBytes
				if a.Ragged {
					at := func(k int) int64 {
						return a.Offset + a.ElementBytes()*int64(binary.LittleEndian.Uint64(slot[a.Offsets+8*int64(k):]))
					}
					lo, hi = at(i), at(i+1)
				}
				rows[i][a.Name] = string(slot[lo:hi])
			}
			if a.Name == "index" {
				index = bytes.Clone(slot[a.Offset : a.Offset+8*int64(ev.Rows)])
			}
		}
		p.Release(ev.Slot)
		if all[ev.Epoch] == nil {
			all[ev.Epoch] = map[int64]row{}
		}
		for i := range rows {
			id := int64(binary.LittleEndian.Uint64(index[8*i:]))
			if all[ev.Epoch][id] != nil {
				t.Fatalf("record %d comes twice in epoch %d", id, ev.Epoch)
			}
			all[ev.Epoch][id] = rows[i]
		}
	}
	return all
}

func use(src driver.Source) func(context.Context, string) (driver.Source, error) {
	return func(context.Context, string) (driver.Source, error) { return src, nil }
}

// Variant v equals the record that a loader returns in epoch v. An epoch of the pack has every
// record once, in the variant that the sampler chooses.
func TestVariantsAreEpochs(t *testing.T) {
	want := loaded(t, pipeline.Config{OpenSource: use(detection()), Seed: seed, Outputs: outputs(), Fields: []string{"kinds", "label", "text"}}, item.Position{}, variants)
	dir := packed(t, variants)
	fields := []transform.Output{{Name: "image"}, {Name: "mask"}}
	for _, of := range []uint64{seed, 5} {
		got := loaded(t, pipeline.Config{Source: dir, Seed: of, Shuffle: true, Outputs: fields}, item.Position{}, 2*variants)
		seen := map[string]int{}
		for epoch := range int64(2 * variants) {
			if len(got[epoch]) != records {
				t.Fatalf("epoch %d has %d records", epoch, len(got[epoch]))
			}
			for id, r := range got[epoch] {
				v := int64(sampler.Variant(of, epoch, id, variants))
				seen[fmt.Sprint(id, " ", v)]++
				for _, name := range []string{"image", "mask", "boxes", "kinds", "label", "text"} {
					if r[name] != want[v][id][name] {
						t.Fatalf("seed %d, epoch %d, record %d, variant %d: %s differs", of, epoch, id, v, name)
					}
				}
			}
		}
		if len(seen) != variants*records {
			t.Errorf("%d of %d variants in %d epochs", len(seen), variants*records, 2*variants)
		}
	}
}

// Restarts, ranks and orders change nothing about which variant an epoch has.
func TestVariantsAreAFunctionOfTheEpoch(t *testing.T) {
	dir := packed(t, variants)
	fields := []transform.Output{{Name: "image"}, {Name: "mask"}}
	base := pipeline.Config{Source: dir, Seed: 3, Shuffle: true, Outputs: fields}
	want := loaded(t, base, item.Position{}, 3)
	same := func(what string, got map[int64]map[int64]row, least int) {
		t.Helper()
		n := 0
		for epoch, rows := range got {
			for id, r := range rows {
				n++
				if ref := want[epoch][id]; r["image"] != ref["image"] || r["boxes"] != ref["boxes"] {
					t.Fatalf("%s: record %d of epoch %d differs", what, id, epoch)
				}
			}
		}
		if n < least {
			t.Errorf("%s: %d records", what, n)
		}
	}
	same("resumed", loaded(t, base, item.Position{Epoch: 1, Row: 14}, 2), 2*records-14)
	both := 0
	for rank := range 2 {
		cfg := base
		cfg.Rank, cfg.WorldSize = rank, 2
		got := loaded(t, cfg, item.Position{}, 3)
		same("ranks", got, records)
		both += len(got[0])
	}
	if both != records {
		t.Errorf("two ranks have %d records of epoch 0", both)
	}
	plain := base
	plain.Shuffle = false
	same("in order", loaded(t, plain, item.Position{}, 2), 2*records)
	for _, window := range []int{1, 3, 100} {
		cfg := base
		cfg.Window = window
		same(fmt.Sprint("window ", window), loaded(t, cfg, item.Position{}, 3), 3*records)
		same("resumed window", loaded(t, cfg, item.Position{Epoch: 1, Row: 14}, 2), 2*records-14)
		// The random numbers and the order do not depend on whether all of a chunk is read.
		cfg.Outputs = fields[:1]
		cfg.Fields = []string{"label"}
		for epoch, rows := range loaded(t, cfg, item.Position{}, 2) {
			for id, r := range rows {
				if ref := want[epoch][id]; r["image"] != ref["image"] || r["label"] != ref["label"] {
					t.Fatalf("window %d: record %d of epoch %d differs", window, id, epoch)
				}
			}
		}
	}
	for _, by := range []string{"text", "image"} {
		cfg := base
		cfg.Bucket = &pipeline.Bucket{By: by, Count: 3}
		same("buckets of "+by, loaded(t, cfg, item.Position{}, 3), 3*records)
	}
	bad := base
	bad.Bucket = &pipeline.Bucket{By: "boxes", Count: 3}
	bad.Memory, bad.BatchSize = 128<<20, 7
	if _, err := pipeline.Open(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "has variants, which differ in their length") {
		t.Error(err)
	}
}

// A single variant keeps the names of its fields.
func TestOne(t *testing.T) {
	dir := packed(t, 1)
	want := loaded(t, pipeline.Config{OpenSource: use(detection()), Seed: seed, Outputs: outputs(), Fields: []string{"kinds", "label", "text"}}, item.Position{}, 1)
	got := loaded(t, pipeline.Config{Source: dir, Seed: 9, Shuffle: true, Outputs: []transform.Output{{Name: "image"}, {Name: "mask"}}}, item.Position{}, 2)
	for epoch := range int64(2) {
		for id, r := range got[epoch] {
			if r["image"] != want[0][id]["image"] || r["boxes"] != want[0][id]["boxes"] {
				t.Fatalf("record %d of epoch %d differs", id, epoch)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	image := outputs()[0]
	with := func(list ...string) []transform.Output {
		all := outputs()
		all[0].Ops = ops(list...)
		return all
	}
	for _, c := range []struct {
		outputs []transform.Output
		n       int
		want    string
	}{
		{nil, 2, "there are none"},
		{outputs(), 0, "give 1 to 32"},
		{outputs(), 33, "give 1 to 32"},
		{[]transform.Output{image}, 2, `field "mask" of`},
		{with(`{"op":"RandomHorizontalFlip"}`), 2, "size"},
		{with(`{"op":"CenterCrop","size":20}`, `{"op":"ToDtype","dtype":"float32","scale":true}`), 2, "packed as uint8"},
		{append(outputs(), transform.Output{Name: "text", Ops: ops(`{"op":"CenterCrop","size":20}`)}), 2, "takes no operations"},
		{append(outputs(), transform.Output{Name: "picture"}), 2, `no field "picture"`},
	} {
		src := detection()
		_, err := augment.Open(src, &augment.Options{Outputs: c.outputs, Variants: c.n, Threads: 1, Memory: 64 << 20})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		src.Close()
	}
}

// A manifest is refused if variants are missing.
func TestDamaged(t *testing.T) {
	dir := packed(t, variants)
	name := filepath.Join(dir, pack.ManifestName)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2, 4, 33, -1} {
		other := bytes.Replace(b, fmt.Appendf(nil, `"augment":%d`, variants), fmt.Appendf(nil, `"augment":%d`, n), 1)
		if bytes.Equal(other, b) {
			t.Fatal("the manifest does not say how many variants there are")
		}
		if err := os.WriteFile(name, other, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := pack.ReadManifest(dir); err == nil || !strings.Contains(err.Error(), "variants") {
			t.Errorf("%d variants, want %d: %v", n, variants, err)
		}
	}
}

// A plan is for one variant of each record, and room for all of them.
func TestPlannedFor(t *testing.T) {
	dir := packed(t, variants)
	s, err := survey.Look(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := pack.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	const pixels = 3*24*20 + 24*20
	if d := s.Dataset; d.Records != records || d.Bytes != m.Bytes || d.RecordBytes < pixels || d.RecordBytes > pixels+200 {
		t.Errorf("%d records of %.0f bytes, %d in all", d.Records, d.RecordBytes, d.Bytes)
	}
}

func TestWrapped(t *testing.T) {
	drivertest.Wrapped(t, drivertest.Wrapping{
		Open: func(testing.TB) driver.Source { return detection().Copied() },
		Wrap: func(t testing.TB, base driver.Source) driver.Source {
			s, err := augment.Open(base, &augment.Options{Outputs: outputs(), Variants: 2, Seed: seed, Threads: 2, Memory: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Lacks: map[string]string{"Cutter": "transforms get whole volumes"},
	})
}
