package kind

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Tools are shared by the workers of one goroutine, which run one after another.
type Tools struct {
	// GroupRows is the largest number of records in a group.
	GroupRows int

	options decode.Options
	dec     *decode.Decoder
	// decodeMemory is the memory limit for decoding an image.
	decodeMemory int64
	budget       *arena.Budget
	scratch      scratch
}

// scratch is memory for images between two steps.
type scratch struct {
	*transform.Scratch
	// pixels has decoded images that are not rows yet; used is the number of bytes in use.
	pixels *arena.Block
	used   int
	// sound is the memory in which recordings are decoded and processed.
	sound *arena.Bump
}

// pixelBytes is the memory that a worker takes for the decoded images of a group before it processes them in parts.
const pixelBytes = 3 << 20

// Decoder returns the decoder of images.
func (t *Tools) Decoder() (*decode.Decoder, error) {
	if t.dec != nil {
		return t.dec, nil
	}
	dec, err := decode.New(t.options)
	if err != nil {
		return nil, err
	}
	dec.SetMemory(t.decodeMemory)
	t.dec, t.scratch = dec, newScratch(dec, t.budget)
	return dec, nil
}

func newScratch(dec *decode.Decoder, budget *arena.Budget) scratch {
	return scratch{Scratch: transform.NewScratch(&kernel{dec: dec}, budget), pixels: arena.NewBlock(budget, arena.PurposeScratch), sound: arena.NewBump(budget, arena.PurposeScratch)}
}

func (s *scratch) free() {
	if s.Scratch != nil {
		s.Free()
		s.pixels.Free()
		s.sound.Release()
	}
}

func (t *Tools) close() {
	if t.dec != nil {
		t.dec.Close()
	}
	t.scratch.free()
}

// fits reports whether there is memory for n more bytes of pixels.
func (s *scratch) fits(n int) bool { return s.used+n <= max(s.pixels.Cap()-arena.Tail, 0) }

// grow provides memory for n bytes of pixels when none are in use.
func (s *scratch) grow(n int) error {
	if _, err := s.pixels.Bytes(max(n, pixelBytes)); err == nil {
		return nil
	}
	if _, err := s.pixels.Bytes(n); err != nil {
		return fmt.Errorf("the image needs %d MiB of scratch: %w; raise memory", (n+1<<20-1)>>20, err)
	}
	return nil
}

// take returns n bytes for pixels, which must fit, until used is 0 again.
func (s *scratch) take(n int) []byte {
	all, _ := s.pixels.Bytes(s.pixels.Cap() - arena.Tail)
	at := s.used
	s.used += align(n)
	return all[at : at+n : at+n]
}

func align(n int) int { return (n + 63) &^ 63 }

// kernel lets transforms use the decoder's kernels on pixels in memory.
type kernel struct {
	dec *decode.Decoder
	req [1]decode.Request // here, so that a call does not allocate
}

// Resample implements transform.Kernel.
func (k *kernel) Resample(dst, src []byte, w, h int, t item.PixelType, g *item.Geometry, st *item.Store) error {
	k.req[0] = decode.Request{
		Value:  driver.Value{Bytes: src, Codec: driver.CodecRaw, Width: int32(w), Height: int32(h), Channels: t.Channels},
		Pixels: t, Raw: t.DType,
		Geom: *g, Store: *st, Dst: dst,
	}
	k.dec.Run(k.req[:])
	return k.req[0].Err
}
