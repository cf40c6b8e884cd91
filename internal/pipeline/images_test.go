package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/racetest"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// encoded returns a source of n encoded images of different sizes, JPEGs but
// for pngs in five.
func encoded(t testing.TB, n int64, pngs int) *sourcetest.Memory {
	t.Helper()
	const different = 40
	block := arena.NewBlock(arena.NewBudget(64<<20), arena.PurposeRead)
	mem, err := block.Bytes(32 << 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(block.Free)
	var files [different][]byte
	var codecs [different]driver.Codec
	for i := range files {
		w, h := 60+i*3, 90+i*5%70
		img := image.NewRGBA(image.Rect(0, 0, w, h))
		for y := range h {
			for x := range w {
				img.SetRGBA(x, y, color.RGBA{uint8(x*3 + i), uint8(y * 2), uint8((x ^ y) * i), 255})
			}
		}
		var buf bytes.Buffer
		codecs[i] = driver.CodecJPEG
		if i%5 < pngs {
			codecs[i] = driver.CodecPNG
			err = png.Encode(&buf, img)
		} else {
			err = jpeg.Encode(&buf, img, &jpeg.Options{Quality: 90})
		}
		if err != nil {
			t.Fatal(err)
		}
		files[i] = mem[:buf.Len():buf.Len()]
		copy(files[i], buf.Bytes())
		mem = mem[(buf.Len()+127)&^63:]
	}
	m := sourcetest.NewMemory(n, []driver.Field{{Name: "image", Kind: driver.KindImage}, {Name: "label", Kind: driver.KindLabel}},
		func(id int64, v []driver.Value) error {
			i := id % different
			v[0] = driver.Value{Bytes: files[i], Codec: codecs[i]}
			v[1] = driver.Value{Int: id % 7}
			return nil
		})
	return m
}

// Two outputs of one field are the same as each alone, however much of their decoding is shared.
func TestTwoViewsOfOneField(t *testing.T) {
	global := transform.Output{Name: "global", Field: "image", Ops: ops(`{"op":"RandomResizedCrop","size":[40,32],"scale":[0.5,1]}`, opFlip)}
	local := transform.Output{Name: "local", Field: "image", Ops: ops(`{"op":"RandomResizedCrop","size":16,"scale":[0.05,0.4]}`, `{"op":"ColorJitter","brightness":0.4}`), Layout: "NCHW"}
	padded := transform.Output{Name: "padded", Field: "image", Ops: ops(`{"op":"CenterCrop","size":130}`)}
	run := func(outs ...transform.Output) map[string][]byte {
		p := mustOpen(t, Config{OpenSource: use(encoded(t, 100, 1)), BatchSize: 40, Shuffle: true, Seed: 8, Outputs: outs})
		p.Start(item.Position{})
		all := map[string][]byte{}
		for range 3 {
			ev, err := p.Next(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			b := transform.Batch{Arrays: p.Info().Arrays, Slot: p.Ring().Slot(ev.Slot), Rows: ev.Rows}
			for _, a := range b.Arrays {
				_, rows := b.Array(a.Name)
				all[a.Name] = append(all[a.Name], rows...)
			}
			p.Release(ev.Slot)
		}
		return all
	}
	together := run(global, local, padded)
	for _, out := range []transform.Output{global, local, padded} {
		if alone := run(out); !bytes.Equal(alone[out.Name], together[out.Name]) {
			t.Errorf("%s differs when it is made together with the others", out.Name)
		}
	}
}

// A mask that follows its image gets the same geometry.
func TestMaskFollowsItsImage(t *testing.T) {
	list := ops(`{"op":"RandomCrop","size":9,"padding":3}`, opFlip, `{"op":"ColorJitter","brightness":0.5}`, `{"op":"RandomVerticalFlip"}`)
	gray := sourcetest.Raw(64, 14, 11, 1, 5)
	p := mustOpen(t, Config{OpenSource: use(gray), BatchSize: 64, Seed: 1, Outputs: []transform.Output{
		{Name: "a", Field: "image", Mask: true, Ops: list},
		{Name: "b", Field: "image", Mask: true, Follow: "a", Ops: append(list[:2:2], list[3])},
		{Name: "c", Field: "image", Mask: true, Follow: "a", Ops: list},
	}})
	p.Start(item.Position{})
	ev, err := p.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	b := transform.Batch{Arrays: p.Info().Arrays, Slot: p.Ring().Slot(ev.Slot), Rows: ev.Rows}
	_, rowsA := b.Array("a")
	_, rowsC := b.Array("c")
	if !bytes.Equal(rowsA, rowsC) {
		t.Error("a mask that follows another differs from it")
	}
	p.Release(ev.Slot)
}

func TestBatchesOfImagesWhateverTheThreads(t *testing.T) {
	var want []uint64
	for _, threads := range []int{1, 4} {
		p := mustOpen(t, Config{OpenSource: use(encoded(t, 150, 1)), BatchSize: 32, Shuffle: true, Seed: 3, Threads: threads,
			Outputs: imageOps(opRRC, `{"op":"RandAugment"}`, opFlip, `{"op":"ToDtype","dtype":"float16","scale":true}`)})
		p.Start(item.Position{})
		batches, _ := epochs(t, p, 2)
		if want == nil {
			want = sums(batches)
		}
		equal(t, fmt.Sprintf("threads %d", threads), sums(batches), want)
	}
}

// An image that does not fit a worker's scratch uses the large one. If it does not fit that either, the error names the
// reason.
func TestLargeImages(t *testing.T) {
	src := sourcetest.Raw(12, 2600, 1000, 3, 5) // 7.8 MB each
	jitter := `{"op":"ColorJitter","brightness":0.3}`
	var want []uint64
	for _, threads := range []int{1, 3} {
		p := mustOpen(t, Config{OpenSource: use(sourcetest.Raw(12, 2600, 1000, 3, 5)), BatchSize: 4, Threads: threads,
			Outputs: imageOps(jitter, opRRC), Memory: 512 << 20})
		p.Start(item.Position{})
		batches, _ := epochs(t, p, 1)
		if want == nil {
			want = sums(batches)
		}
		equal(t, fmt.Sprintf("threads %d", threads), sums(batches), want)
	}
	p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 4, Threads: 2, Outputs: imageOps(jitter, opRRC), Memory: 52 << 20})
	p.Start(item.Position{})
	_, err := p.Next(testContext(t))
	if err == nil || !strings.Contains(err.Error(), "raise memory") || !strings.Contains(err.Error(), "record 0") {
		t.Fatalf("error is %v", err)
	}
}

// Reads that do not fit the budget together run one after the other. A record that does not fit at all is an error that
// names the reason.
func TestReadsWithinTheBudget(t *testing.T) {
	src := sourcetest.NewMemory(64, []driver.Field{{Name: "image", Kind: driver.KindImage}}, func(id int64, v []driver.Value) error {
		size := int64(3 * 400 * 400)
		if id == 50 {
			size = 3 * 4000 * 4000
		}
		v[0] = driver.Value{Bytes: make([]byte, size), Codec: driver.CodecRaw, Width: int32(400), Height: int32(400), Channels: 3}
		if id == 50 {
			v[0].Width, v[0].Height = 4000, 4000
		}
		return nil
	})
	src.Copied()
	p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 16, Threads: 4, Outputs: imageOps(opRRC), Memory: 30 << 20})
	read := p.Info().Memory.Read
	p.Start(item.Position{})
	for range 3 {
		take(t, p)
	}
	_, err := p.Next(testContext(t))
	if err == nil || !strings.Contains(err.Error(), "record 50") || !strings.Contains(err.Error(), "raise memory") {
		t.Fatalf("error is %v", err)
	}
	if peak := p.fetch.Counters().Peak; peak > read+p.Info().Memory.Lookahead {
		t.Fatalf("reads used %d of %d bytes", peak, read)
	}
}

// A steady epoch neither allocates nor collects garbage.
func TestNoGarbageInASteadyEpoch(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	// PNGs are decoded by a Go library, which allocates memory.
	jpegs := encoded(t, 40*400, 0)
	p := mustOpen(t, Config{OpenSource: use(jpegs), BatchSize: 64, Shuffle: true, Outputs: imageOps(opRRC, opFlip)})
	p.Start(item.Position{})
	batch := func() {
		for {
			ev, err := p.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == EventBatch {
				p.Release(ev.Slot)
				return
			}
		}
	}
	for range 20 {
		batch()
	}
	// Timers in the background also allocate. On a busy machine these are more allocations per batch, so the least counts.
	allocations := math.MaxFloat64
	for range 3 {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		steps := p.Info().Steps
		for range steps { // over the boundary of an epoch
			batch()
		}
		runtime.ReadMemStats(&after)
		if n := after.NumGC - before.NumGC; n != 0 {
			t.Errorf("%d garbage collections in an epoch", n)
		}
		allocations = min(allocations, float64(after.Mallocs-before.Mallocs)/float64(steps))
	}
	if allocations > 1 {
		t.Errorf("%.1f allocations per batch", allocations)
	}
}

// The EXIF orientation is left alone unless the configuration asks for it.
func TestApplyOrientation(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 32, 16))
	for i := range img.Pix {
		img.Pix[i] = uint8(i % 32 * 8)
	}
	var buf bytes.Buffer
	if err := jpeg.Encode(&buf, img, &jpeg.Options{Quality: 100}); err != nil {
		t.Fatal(err)
	}
	// Orientation 3: turned by 180 degrees.
	exif := append([]byte{0xff, 0xe1, 0, 34}, "Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x03\x00\x00\x00\x00\x00\x00"...)
	data := append(append([]byte{0xff, 0xd8}, exif...), buf.Bytes()[2:]...)
	for _, apply := range []bool{false, true} {
		src := sourcetest.NewMemory(4, []driver.Field{{Name: "image", Kind: driver.KindImage}}, func(id int64, v []driver.Value) error {
			v[0] = driver.Value{Bytes: data, Codec: driver.CodecJPEG, Width: 32, Height: 16}
			return nil
		})
		p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 1, Outputs: imageOps(`{"op":"CenterCrop","size":[16,32]}`), ApplyOrientation: apply})
		p.Start(item.Position{})
		ev, err := p.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		row := p.Ring().Slot(ev.Slot)
		if rising := row[0] < row[31*3]; rising == apply {
			t.Errorf("ApplyOrientation %v: the first line runs from %d to %d", apply, row[0], row[31*3])
		}
		p.Release(ev.Slot)
	}
}
