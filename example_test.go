package stoker_test

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/stokerdata/stoker"
)

// writeImages makes a folder with two classes of small JPEGs.
func writeImages(dir string, n int) error {
	for i := range n {
		class := []string{"dark", "light"}[i%2]
		if err := os.MkdirAll(filepath.Join(dir, class), 0o755); err != nil {
			return err
		}
		img := image.NewRGBA(image.Rect(0, 0, 40+i, 50))
		for y := range 50 {
			for x := range 40 + i {
				v := uint8(x + y + 150*(i%2))
				img.SetRGBA(x, y, color.RGBA{v, v, v, 255})
			}
		}
		f, err := os.Create(filepath.Join(dir, class, fmt.Sprintf("%03d.jpg", i)))
		if err != nil {
			return err
		}
		if err := jpeg.Encode(f, img, nil); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

func Example() {
	dir, err := os.MkdirTemp("", "stoker-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := writeImages(dir, 20); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	loader, err := stoker.Open(ctx, dir, &stoker.Options{
		BatchSize: 8,
		Shuffle:   true,
		Seed:      1,
		Outputs: []stoker.Output{{
			Name: "image",
			Ops:  []stoker.Op{stoker.RandomResizedCrop(32), stoker.RandomHorizontalFlip(0.5)},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer loader.Close()

	fmt.Println(loader.Records(), "records,", loader.Len(), "batches, classes", loader.Classes("label"))
	for epoch := range 2 {
		seen := map[int64]bool{}
		for {
			batch, err := loader.Next(ctx)
			if err == io.EOF {
				break
			}
			if err != nil {
				log.Fatal(err)
			}
			for _, id := range batch.Ints("index") {
				seen[id] = true
			}
			if batch.Step == 0 {
				fmt.Println("image bytes in the first batch:", len(batch.Bytes("image")))
			}
			batch.Release()
		}
		fmt.Println("epoch", epoch, "saw", len(seen), "different records")
	}
	// Output:
	// 20 records, 3 batches, classes [dark light]
	// image bytes in the first batch: 24576
	// epoch 0 saw 20 different records
	// image bytes in the first batch: 24576
	// epoch 1 saw 20 different records
}

// A loader's state is a few numbers. A loader that restores it returns exactly the next batch.
func ExampleLoader_State() {
	dir, err := os.MkdirTemp("", "stoker-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := writeImages(dir, 20); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	open := func() *stoker.Loader {
		l, err := stoker.Open(ctx, dir, &stoker.Options{
			BatchSize: 4, Shuffle: true, Seed: 7,
			Outputs: []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.RandomResizedCrop(16)}}},
		})
		if err != nil {
			log.Fatal(err)
		}
		return l
	}
	first := open()
	defer first.Close()
	for range 2 {
		b, err := first.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		b.Release()
	}
	state := first.State()
	want, err := first.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}

	second := open()
	defer second.Close()
	if err := second.Restore(state); err != nil {
		log.Fatal(err)
	}
	got, err := second.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("row", state.Position, "same pixels:", string(got.Bytes("image")) == string(want.Bytes("image")))
	// Output:
	// row 8 same pixels: true
}
