package pack

import (
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
)

// Clips of video are stored in the format of internal/video, with the packets from which their frames are decoded. If
// each frame is an image, the clip is stored as dct, JPEG or pixels.

// FrameSize is the size of the frames of clips: Width and Height if all clips share them, otherwise 0.
type FrameSize struct {
	Width     int32 `json:"width,omitempty"`
	Height    int32 `json:"height,omitempty"`
	MaxWidth  int32 `json:"max_width"`
	MaxHeight int32 `json:"max_height"`
}

// checkFrames checks a field of clips in a manifest.
func (f *Field) checkFrames() error {
	if len(f.Shape) != 1 || f.Shape[0] < 1 || f.Shape[0] > video.MaxClipFrames {
		return fmt.Errorf("clips of %v frames: they have 1 to %d", f.Shape, video.MaxClipFrames)
	}
	s := f.Frames
	if s == nil || s.MaxWidth < 1 || s.MaxHeight < 1 || s.MaxWidth > video.MaxSide || s.MaxHeight > video.MaxSide ||
		s.Width < 0 || s.Height < 0 || s.Width > s.MaxWidth || s.Height > s.MaxHeight {
		return errors.New("impossible sizes of frames")
	}
	return nil
}

// frameSize returns the frame size of a field of a source.
func frameSize(f *driver.Field) *FrameSize {
	return &FrameSize{Width: f.Width, Height: f.Height, MaxWidth: max(f.MaxWidth, f.Width), MaxHeight: max(f.MaxHeight, f.Height)}
}

// encodeClip stores a clip as p specifies.
func (e *encoder) encodeClip(src *driver.Value, f *Field, p *picture, v *value, buf *[]byte) error {
	c := &e.clip
	defer c.Forget()
	if err := c.Parse(src.Bytes); err != nil {
		return bad("%v", err)
	}
	if len(c.Frames) != f.Shape[0] {
		return &BadInput{Reason: fmt.Sprintf("a clip of %d frames, expected %d", len(c.Frames), f.Shape[0])}
	}
	if w, h := c.Upright(); w > int(f.Frames.MaxWidth) || h > int(f.Frames.MaxHeight) {
		return &BadInput{Reason: fmt.Sprintf("frames of %dx%d, where the largest are said to have %dx%d", w, h, f.Frames.MaxWidth, f.Frames.MaxHeight)}
	}
	jpegs := c.Codec == video.MJPEG && !c.Turned()
	switch {
	case p.how == ImagesRaw && c.Codec != video.Raw:
		return &BadInput{Reason: "its frames are not decoded: for pixels give the clips as such (package augment)"}
	case p.how == ImagesRaw, !jpegs && c.Codec != video.Raw, p.how == ImagesKeep && !p.recodes(), c.Codec == video.Raw && !p.recodes():
		return nil // as it is
	}
	return e.encodeStills(c, p, v, buf)
}

// encodeStills makes dct, or JPEGs, of the frames of a clip that are images.
func (e *encoder) encodeStills(c *video.Clip, p *picture, v *value, buf *[]byte) error {
	out := video.Clip{Stream: c.Stream, Video: c.Video, Frames: c.Frames}
	out.Codec, out.Config = video.DCT, nil
	var data []byte
	var ends []int
	for i := range c.Packets {
		jpeg := c.Packets[i].Data
		if c.Codec == video.Raw {
			if len(jpeg) != 3*c.Width*c.Height {
				return &BadInput{Reason: fmt.Sprintf("a frame of %d bytes, where %dx%d pixels have %d", len(jpeg), c.Width, c.Height, 3*c.Width*c.Height)}
			}
			var err error
			if jpeg, err = cdec.EncodeJPEG(jpeg, c.Width, c.Height, 3, cdec.EncodeOptions{Quality: p.quality, HSamp: 2, VSamp: 2, Optimize: true}); err != nil {
				return bad("%v", err)
			}
		} else {
			jpeg = video.JPEG(&e.jpeg, jpeg)
			if _, err := imagefile.Check(jpeg); err != nil {
				return bad("%v", err)
			}
		}
		if p.how == ImagesKeep {
			out.Codec = video.MJPEG
		} else {
			var err error
			if jpeg, err = e.toDCT.Encode(jpeg); err != nil {
				if not := new(cdec.NotDCT); errors.As(err, &not) && c.Codec == video.MJPEG {
					return nil // it stays unchanged
				}
				return bad("%v", err)
			}
		}
		data = append(data, jpeg...)
		ends = append(ends, len(data))
	}
	from := 0
	for i, end := range ends {
		out.Packets = append(out.Packets, video.Packet{N: c.Packets[i].N, Data: data[from:end]})
		from = end
	}
	*buf = out.AppendTo((*buf)[:0])
	v.Bytes = *buf
	return nil
}

// clipNeeds adds the memory for storing a clip to n.
func (e *encoder) clipNeeds(src *driver.Value, f *Field, p *picture, n *needs) {
	size, pixels := int64(len(src.Bytes)), int64(f.Frames.MaxWidth)*int64(f.Frames.MaxHeight)
	if e.opt.Check == CheckDecode {
		n.add(heldMemory(int64(f.Frames.MaxWidth), int64(f.Frames.MaxHeight)), 0, true)
	}
	if p.how == ImagesKeep && !p.recodes() || p.how == ImagesRaw {
		return
	}
	one := decode.CoefficientMemory(&imagefile.Info{Width: f.Frames.MaxWidth, Height: f.Frames.MaxHeight, Channels: 3})
	n.add(one+12*pixels, 4*size+1<<20, true)
}
