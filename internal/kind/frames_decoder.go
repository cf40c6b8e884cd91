package kind

import (
	"bytes"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/internal/videodec"
	"github.com/stokerdata/stoker/source/driver"
)

// codecs is the decoder of a worker. Only the last one is kept, because it holds the memory of some frames.
type codecs struct {
	d      *videodec.Decoder
	codec  string
	config []byte
}

// open returns a decoder for a stream, ready for a key frame.
func (c *codecs) open(s *video.Stream) (*videodec.Decoder, error) {
	if c.d != nil && c.codec == s.Codec && bytes.Equal(c.config, s.Config) {
		return c.d, nil
	}
	c.close()
	d, err := videodec.New(s)
	if err != nil {
		return nil, err
	}
	c.d, c.codec, c.config = d, s.Codec, append(c.config[:0], s.Config...)
	return d, nil
}

func (c *codecs) close() {
	if c.d != nil {
		c.d.Close()
		c.d = nil
	}
}

// frame builds frame c of all outputs from a decoded frame, and converts only the needed part.
func (w *framesWorker) frame(c clipFrame, s *video.Stream, f *videodec.Frame) error {
	width, height := f.Upright(s)
	whole := func(row []byte) { f.RGB(s, 0, 0, width, height, row) }
	return w.finish(c, width, height, whole, func(g item.Geometry) (driver.Value, item.Rect) {
		box := g.Box
		pixels := w.t.scratch.take(int(box.W) * int(box.H) * item.RGB.Size())
		f.RGB(s, int(box.X), int(box.Y), int(box.W), int(box.H), pixels)
		return driver.Value{Bytes: pixels, Codec: driver.CodecRaw, Width: box.W, Height: box.H, Channels: 3}, box
	})
}
