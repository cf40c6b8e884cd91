package video

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// isMatroska knows Matroska and WebM by the number of the first element.
func isMatroska(head []byte) bool { return be.Uint32(head) == 0x1a45dfa3 }

// The elements that are looked at.
const (
	mkSegment     = 0x18538067
	mkCluster     = 0x1f43b675
	mkInfo        = 0x1549a966
	mkTracks      = 0x1654ae6b
	mkTimeScale   = 0x2ad7b1
	mkTime        = 0xe7
	mkSimpleBlock = 0xa3
	mkGroup       = 0xa0
	mkBlock       = 0xa1
	mkReference   = 0xfb
	mkEntry       = 0xae
	mkNumber      = 0xd7
	mkType        = 0x83
	mkCodec       = 0x86
	mkPrivate     = 0x63a2
	mkEncodings   = 0x6d80
	mkVideo       = 0xe0
	mkWidth       = 0xb0
	mkHeight      = 0xba
	mkColour      = 0x55b0
	mkMatrix      = 0x55b1
	mkRange       = 0x55b9
	mkProjection  = 0x7670
	mkProjected   = 0x7671 // the type, 0 for a flat picture
	mkYaw         = 0x7673
	mkPitch       = 0x7674
	mkRoll        = 0x7675
)

// mkCodecs are the codecs by Matroska's names.
var mkCodecs = map[string]string{
	"V_MPEG4/ISO/AVC": H264, "V_MPEGH/ISO/HEVC": HEVC, "V_AV1": AV1, "V_VP8": VP8, "V_VP9": VP9,
	"V_MPEG4/ISO/ASP": MPEG4, "V_MPEG4/ISO/SP": MPEG4, "V_MJPEG": MJPEG,
}

// mkTrack is the video of a Matroska file that is being read.
type mkTrack struct {
	x       *Index
	number  uint64
	scale   int64 // nanoseconds of a tick
	cluster int64 // time of the cluster in ticks
	grouped bool  // the frame read last is of a group
}

// matroska reads all elements of a file, because the location of each frame is stored only directly before it.
func (f *file) matroska() (*Index, error) {
	t := &mkTrack{x: &Index{Format: "matroska", Timescale: 1e9}, scale: 1e6}
	for off := int64(0); off < f.size; {
		id, body, next, err := f.element(off)
		if err != nil {
			return nil, err
		}
		switch id {
		case mkSegment, mkCluster, mkGroup:
			next = body // read its contents
		case mkInfo, mkTracks:
			b, err := f.copied(body, next-body)
			if err != nil {
				return nil, err
			}
			if id == mkTracks {
				err = t.tracks(b)
			} else {
				err = t.info(b)
			}
			if err != nil {
				return nil, err
			}
		case mkTime:
			b, err := f.bytes(body, next-body)
			if err != nil {
				return nil, err
			}
			t.cluster = int64(min(number(b), math.MaxInt64/4))
		case mkReference:
			if n := len(t.x.Frames); n > 0 && t.grouped {
				t.x.Frames[n-1].Key = false
			}
		case mkSimpleBlock, mkBlock:
			if err := t.block(f, id, body, next); err != nil {
				return nil, fmt.Errorf("the frame at byte %d: %w", off, err)
			}
		}
		off = next
	}
	if t.x.Codec == "" {
		return nil, errors.New("it has no track of video")
	}
	return t.x, nil
}

// element reads the head of an element. An element of unknown size extends to the end.
func (f *file) element(off int64) (id uint32, body, next int64, err error) {
	b, err := f.bytes(off, min(12, f.size-off))
	if err != nil {
		return 0, 0, 0, err
	}
	id, n, size, m, ok := head(b)
	if !ok {
		return 0, 0, 0, fmt.Errorf("there is no element at byte %d: it is cut off or damaged", off)
	}
	body = off + int64(n+m)
	if size == math.MaxUint64 {
		return id, body, f.size, nil
	}
	if size > uint64(f.size-body) {
		if id == mkSegment { // an unclosed segment is read as far as possible
			return id, body, f.size, nil
		}
		return 0, 0, 0, fmt.Errorf("the element %x at byte %d has %d bytes, the file has %d: it is cut off or damaged", id, off, size, f.size)
	}
	return id, body, body + int64(size), nil
}

// head reads the number and the size of an element, of n and m bytes. An unknown size is
// the largest number.
func head(b []byte) (id uint32, n int, size uint64, m int, ok bool) {
	if len(b) == 0 || b[0] < 0x10 {
		return 0, 0, 0, 0, false
	}
	n = bits.LeadingZeros8(b[0]) + 1
	if len(b) <= n {
		return 0, 0, 0, 0, false
	}
	id = uint32(number(b[:n]))
	size, m, ok = varint(b[n:])
	return id, n, size, m, ok
}

// varint reads a number that includes its own length.
func varint(b []byte) (v uint64, n int, ok bool) {
	if len(b) == 0 || b[0] == 0 {
		return 0, 0, false
	}
	n = bits.LeadingZeros8(b[0]) + 1
	if len(b) < n {
		return 0, 0, false
	}
	v = number(b[:n]) & (1<<(7*n) - 1)
	if v == 1<<(7*n)-1 {
		v = math.MaxUint64
	}
	return v, n, true
}

// number returns a number of up to 8 bytes.
func number(b []byte) (v uint64) {
	for _, c := range b[:min(len(b), 8)] {
		v = v<<8 | uint64(c)
	}
	return v
}

// elements calls f for each element in b.
func elements(b []byte, f func(id uint32, body []byte) error) error {
	for len(b) > 0 {
		id, n, size, m, ok := head(b)
		if !ok || size > uint64(len(b)-n-m) {
			return errors.New("its description of tracks is damaged")
		}
		b = b[n+m:]
		if err := f(id, b[:size]); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

func (t *mkTrack) info(b []byte) error {
	return elements(b, func(id uint32, b []byte) error {
		if id == mkTimeScale {
			n := number(b)
			if n < 1 || n > 1e9 {
				return fmt.Errorf("it counts time in %d ns", n)
			}
			t.scale = int64(n)
		}
		return nil
	})
}

// tracks finds the first track of video.
func (t *mkTrack) tracks(b []byte) error {
	return elements(b, func(id uint32, b []byte) error {
		if id != mkEntry || t.x.Codec != "" {
			return nil
		}
		var kind, track uint64
		codec, encoded := "", false
		x := Stream{Matrix: MatrixUnknown}
		err := elements(b, func(id uint32, b []byte) error {
			switch id {
			case mkNumber:
				track = number(b)
			case mkType:
				kind = number(b)
			case mkCodec:
				codec = string(b)
			case mkPrivate:
				x.Config = b
			case mkEncodings:
				encoded = true
			case mkVideo:
				return x.mkVideo(b)
			}
			return nil
		})
		switch {
		case err != nil || kind != 1:
			return err
		case mkCodecs[codec] == "":
			return unsupported{fmt.Errorf("its video is encoded as %q; H.264, HEVC, AV1, VP9, VP8, MPEG-4 and MJPEG are read", codec)}
		case encoded:
			return unsupported{errors.New("its video is compressed once more or encrypted, which is not read")}
		}
		x.Codec = mkCodecs[codec]
		t.x.Stream, t.number = x, track
		return nil
	})
}

// mkVideo reads a track's description of its frames.
func (s *Stream) mkVideo(b []byte) error {
	return elements(b, func(id uint32, b []byte) error {
		switch id {
		case mkWidth:
			s.Width = int(min(number(b), MaxSide+1))
		case mkHeight:
			s.Height = int(min(number(b), MaxSide+1))
		case mkColour:
			return s.mkVideo(b)
		case mkProjection:
			return s.mkProjection(b)
		case mkMatrix:
			s.Matrix = Matrix(min(number(b), 255))
		case mkRange:
			if n := number(b); n <= 2 {
				s.Range = Range(n)
			}
		}
		return nil
	})
}

// mkProjection reads how a flat picture is turned, like FFmpeg: a roll against the clock, and a yaw of half a turn that
// mirrors it.
func (s *Stream) mkProjection(b []byte) error {
	kind, angles := uint64(0), map[uint32]float64{}
	err := elements(b, func(id uint32, b []byte) error {
		switch id {
		case mkProjected:
			kind = number(b)
		case mkYaw, mkPitch, mkRoll:
			angles[id] = float(b)
		}
		return nil
	})
	yaw, roll := angles[mkYaw], angles[mkRoll]
	if err != nil || kind != 0 || angles[mkPitch] != 0 || yaw != 0 && math.Abs(yaw) != 180 {
		return err
	}
	if s.Mirror = yaw != 0; !s.Mirror {
		roll = -roll
	}
	if quarters := math.Round(roll / 90); math.Abs(roll-90*quarters) < 1 && math.Abs(quarters) <= 4 {
		s.Rotation = 90 * ((int(quarters) + 4) % 4)
	}
	return nil
}

// float returns a number of floating point with 4 or 8 bytes, or 0.
func float(b []byte) float64 {
	switch len(b) {
	case 4:
		return float64(math.Float32frombits(be.Uint32(b)))
	case 8:
		return math.Float64frombits(be.Uint64(b))
	}
	return 0
}

// block adds a frame of the track.
func (t *mkTrack) block(f *file, id uint32, body, next int64) error {
	b, err := f.bytes(body, min(12, next-body))
	if err != nil {
		return err
	}
	n, size, ok := varint(b)
	if !ok || len(b) < size+3 {
		return errors.New("its head is cut off")
	}
	if t.x.Codec == "" || n != t.number {
		t.grouped = false
		return nil
	}
	flags := b[size+2]
	switch {
	case flags&0x06 != 0:
		return unsupported{errors.New("one block has several frames, which is not read")}
	case len(t.x.Frames) >= MaxFrames:
		return tooMany(int64(len(t.x.Frames)) + 1)
	}
	at := body + int64(size) + 3
	if next-at > MaxFrameBytes {
		return fmt.Errorf("it has %d bytes, more than the limit of %d", next-at, int64(MaxFrameBytes))
	}
	time := t.cluster + int64(int16(be.Uint16(b[size:])))
	if time > math.MaxInt64/4/t.scale {
		return fmt.Errorf("its time of %d is out of range", time)
	}
	t.grouped = id == mkBlock
	t.x.Frames = append(t.x.Frames, Frame{
		Offset: at, Size: uint32(next - at), PTS: time * t.scale, Key: t.grouped || flags&0x80 != 0,
	})
	return nil
}
