package pack

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/internal/videodec"
	"github.com/stokerdata/stoker/source/driver"
)

// heldFrames is the maximum number of frames that a video decoder holds: reference frames, and frames that wait for
// their turn.
const heldFrames = 20

// roundedUp is the maximum number by which decoders enlarge frames.
const roundedUp = 128

// heldMemory returns the maximum memory of a video decoder for frames of a size.
func heldMemory(width, height int64) int64 {
	return heldFrames * 3 / 2 * (width + roundedUp) * (height + roundedUp)
}

// noDecoder is the error of a kind of video that this machine cannot decode. The video is not damaged.
type noDecoder struct{ err error }

func (e *noDecoder) Error() string {
	return fmt.Sprintf("clips cannot be decoded here: %v", e.err)
}

func (e *noDecoder) Unwrap() error { return e.err }

// decodeClip decodes all frames of a stored clip, one after the other, and keeps none.
func (v *verifier) decodeClip(ctx context.Context, val *Value, w *worker) error {
	c := &w.enc.clip
	defer c.Forget()
	if err := c.Parse(val.Bytes); err != nil {
		return err
	}
	f := val.Field
	if len(c.Frames) != f.Shape[0] {
		return fmt.Errorf("it has %d frames, and clips of this field have %d", len(c.Frames), f.Shape[0])
	}
	if width, height := c.Upright(); width > int(f.Frames.MaxWidth) || height > int(f.Frames.MaxHeight) {
		return fmt.Errorf("its frames are %d x %d, the largest are said to have %d x %d", width, height, f.Frames.MaxWidth, f.Frames.MaxHeight)
	}
	if c.Stills() {
		for i := range c.Packets {
			if err := v.decodeStill(ctx, val, c, c.Packets[i].Data, w); err != nil {
				return fmt.Errorf("frame %d: %w", i, err)
			}
		}
		return nil
	}
	if err := videodec.Has(c.Codec); err != nil {
		return &noDecoder{err}
	}
	give, err := v.memory.toDecode(ctx, heldMemory(int64(c.Width), int64(c.Height)), false)
	if err != nil {
		return err
	}
	defer give()
	return decodePackets(c)
}

// decodeStill decodes a frame that is an image of its own.
func (v *verifier) decodeStill(ctx context.Context, val *Value, c *video.Clip, data []byte, w *worker) error {
	one := Value{Field: val.Field}
	one.Orientation = 1
	switch c.Codec {
	case video.Raw:
		if len(data) != 3*c.Width*c.Height {
			return fmt.Errorf("%d bytes, where %d x %d pixels have %d", len(data), c.Width, c.Height, 3*c.Width*c.Height)
		}
		return nil
	case video.DCT:
		d, err := cdec.DCTInfo(data)
		if err != nil {
			return err
		}
		one.Bytes, one.Codec, one.Width, one.Height, one.Channels = data, driver.CodecDCT, int32(d.Width), int32(d.Height), int32(d.Components)
	default:
		jpeg := video.JPEG(&w.enc.jpeg, data)
		info, err := imagefile.Check(jpeg)
		if err != nil {
			return err
		}
		one.Bytes, one.Codec, one.Width, one.Height, one.Channels = jpeg, driver.CodecJPEG, info.Width, info.Height, int32(info.Channels)
	}
	if v.memory == nil { // the caller has the memory
		return w.enc.tryDecode(one.Value)
	}
	need, heap := one.decoding()
	give, err := v.memory.toDecode(ctx, need, heap)
	if err != nil {
		return err
	}
	defer give()
	w.enc.allow(max(need, 1))
	defer w.enc.trim(v.memory.plan.Kept)
	return w.enc.tryDecode(one.Value)
}

// decodeSound decodes a stored recording, and keeps nothing of it.
func (v *verifier) decodeSound(ctx context.Context, val *Value, w *worker) error {
	give, err := v.memory.toDecode(ctx, soundMemory(val.Bytes), true)
	if err != nil {
		return err
	}
	defer give()
	return w.enc.trySound(val.Bytes, true)
}

// decodePackets decodes the packets of a clip. It fails if one of them is damaged or if a frame of the clip is
// missing.
func decodePackets(c *video.Clip) error {
	wanted := make(map[int64]bool, len(c.Frames))
	for _, at := range c.Frames {
		wanted[int64(c.Packets[at].N)] = true
	}
	for i := 0; i < len(c.Packets); {
		end := i + 1
		for end < len(c.Packets) && c.Packets[end].N == c.Packets[end-1].N+1 {
			end++
		}
		if err := decodeRun(&c.Stream, c.Packets[i:end], wanted); err != nil {
			return err
		}
		i = end
	}
	if n := len(wanted); n > 0 {
		return fmt.Errorf("%d of its frames did not come out of the decoder", n)
	}
	return nil
}

// decodeRun decodes consecutive packets, starting with a key frame, and removes each decoded frame from wanted.
func decodeRun(s *video.Stream, packets []video.Packet, wanted map[int64]bool) error {
	begin := videodec.NewStrict
	if !s.Clean(packets[0].Data) {
		begin = videodec.New // missing references are not damage
	}
	d, err := begin(s)
	if err != nil {
		return err
	}
	defer d.Close()
	take := func() error {
		for {
			f, ok, err := d.Receive()
			if err != nil || !ok {
				return err
			}
			delete(wanted, f.PTS)
		}
	}
	leading := true
	for i := range packets {
		p := &packets[i]
		shown := wanted[int64(p.N)]
		err := d.Send(p.Data, int64(p.N), !shown)
		if err == nil {
			err = take()
		}
		// Frames that follow a key frame but are shown before it may need frames before the key frame. They cannot be
		// decoded, and no later frame depends on them.
		if leading = leading && (i == 0 || err != nil && !shown); err != nil && (i == 0 || !leading) {
			return fmt.Errorf("packet %d of the video: %w", p.N, err)
		}
	}
	if err := d.End(); err != nil {
		return err
	}
	return take()
}
