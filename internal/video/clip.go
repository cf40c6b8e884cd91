package video

import (
	"errors"
	"fmt"
	"math"
)

// Clip has some frames of a video and the data to decode them: the value of a field of driver.KindFrames. Its bytes
// are, little-endian:
//
//	"SKV1"
//	32-bit numbers: width, height, rotation, matrix, range, length of the codec's name
//	(Stream.Coding), length of its configuration, number of packets, number of frames
//	64 bits that identify the video
//	the name, the configuration
//	for each packet its number in the order of decoding, and its size
//	for each frame the position of its packet
//	the packets, without gaps
//
// Packets with consecutive numbers are decoded one after the other. The first packet, and each that does not follow
// its predecessor, starts a new sequence with a key frame.
type Clip struct {
	Stream
	// Video is the same number for all clips of a video, and for no other's.
	Video   uint64
	Packets []Packet
	// Frames are the positions in Packets of the frames of the clip.
	Frames []int32
}

// Packet is an encoded frame.
type Packet struct {
	// N is its number in the order of decoding.
	N    int32
	Data []byte
}

const (
	clipMagic = "SKV1"
	clipHead  = 4 + 9*4 + 8
	// MaxClipFrames is the largest number of frames of a clip.
	MaxClipFrames = 1 << 16
)

// ClipBytes returns the size of a clip without its packets.
func (s *Stream) ClipBytes(packets, frames int) int64 {
	return clipHead + int64(len(s.Codec)) + int64(len(s.Config)) + 8*int64(packets) + 4*int64(frames)
}

// Plan describes the data that a clip needs: its frames, as positions in Index.Frames, the frames to decode for them,
// and their locations. Its memory is reused.
type Plan struct {
	Frames []int32
	Spans  []Span
	Pieces []Piece
}

// Plan computes Spans and Pieces for n of the visible frames, whose numbers shown returns.
func (x *Index) Plan(p *Plan, n int, shown func(j int) int) {
	p.Frames, p.Pieces = p.Frames[:0], p.Pieces[:0]
	for j := range n {
		p.Frames = append(p.Frames, x.Shown[shown(j)])
	}
	p.Spans = x.Spans(p.Spans[:0], p.Frames)
	for _, span := range p.Spans {
		p.Pieces = x.Pieces(p.Pieces, span)
	}
}

// Size returns the number of bytes of a clip of frames with these spans.
func (x *Index) Size(spans []Span, frames []int32) int64 {
	packets, data := 0, int64(0)
	for _, s := range spans {
		packets += int(s.Last-s.First) + 1
		data += x.before[s.Last+1] - x.before[s.First]
	}
	return x.ClipBytes(packets, len(frames)) + data
}

// Append writes a clip of frames (positions in Frames) into b, which must have the size that Size returns. pieces are
// those of the spans, one after the other, and data has their bytes.
func (x *Index) Append(b []byte, video uint64, spans []Span, frames []int32, pieces []Piece, data [][]byte) error {
	packets := 0
	for _, s := range spans {
		packets += int(s.Last-s.First) + 1
	}
	out := append(b[:0], clipMagic...)
	for _, n := range []int{x.Width, x.Height, x.turn(), int(x.Matrix), int(x.Range), len(x.Codec), len(x.Config), packets, len(frames)} {
		out = le.AppendUint32(out, uint32(n))
	}
	out = le.AppendUint64(out, video)
	out = append(append(out, x.Codec...), x.Config...)
	for _, s := range spans {
		for d := s.First; d <= s.Last; d++ {
			out = le.AppendUint32(le.AppendUint32(out, uint32(d)), x.Frames[d].Size)
		}
	}
	for _, d := range frames {
		at := 0
		for _, s := range spans {
			if d >= s.First && d <= s.Last {
				at += int(d - s.First)
				break
			}
			at += int(s.Last-s.First) + 1
		}
		out = le.AppendUint32(out, uint32(at))
	}
	for i, p := range pieces {
		for d := p.First; d <= p.Last; d++ {
			out = x.Bytes(out, d, &p, data[i])
		}
	}
	if len(out) != len(b) || len(b) > 0 && &out[0] != &b[0] {
		return fmt.Errorf("a clip of %d bytes came out with %d", len(b), len(out))
	}
	return nil
}

// mirrored is added to the rotation of a clip if its frames are also mirrored.
const mirrored = 360

// turn returns the rotation in the format of a clip.
func (s *Stream) turn() int {
	if s.Mirror {
		return s.Rotation + mirrored
	}
	return s.Rotation
}

var errClip = errors.New("it is not a clip of video, or damaged")

// Parse reads a clip. Its packets are slices of b.
func (c *Clip) Parse(b []byte) error {
	if len(b) < clipHead || string(b[:4]) != clipMagic {
		return errClip
	}
	var n [9]int64
	for i := range n {
		n[i] = int64(le.Uint32(b[4+4*i:]))
	}
	c.Video = le.Uint64(b[clipHead-8:])
	name, config, packets, frames := n[5], n[6], n[7], n[8]
	rest := b[clipHead:]
	switch {
	case n[0] < 1 || n[1] < 1 || n[0] > MaxSide || n[1] > MaxSide || n[2]%90 != 0 || n[2] >= 2*mirrored || n[3] > 255 || n[4] > 2:
		return errClip
	case name > 32 || config > maxConfigBytes || packets > MaxFrames || frames > MaxClipFrames:
		return errClip
	case name+config+8*packets+4*frames > int64(len(rest)):
		return errClip
	}
	c.Width, c.Height, c.Matrix, c.Range = int(n[0]), int(n[1]), Matrix(n[3]), Range(n[4])
	c.Rotation, c.Mirror = int(n[2]%mirrored), n[2] >= mirrored
	if string(rest[:name]) != c.Codec {
		c.Codec = string(rest[:name])
	}
	c.Config, rest = rest[name:name+config], rest[name+config:]
	heads, places, data := rest[:8*packets], rest[8*packets:][:4*frames], rest[8*packets+4*frames:]
	c.Packets, c.Frames = c.Packets[:0], c.Frames[:0]
	for ; len(heads) > 0; heads = heads[8:] {
		n, size := le.Uint32(heads), le.Uint32(heads[4:])
		if n > math.MaxInt32 || int64(size) > int64(len(data)) || size > MaxFrameBytes {
			return errClip
		}
		c.Packets = append(c.Packets, Packet{int32(n), data[:size:size]})
		data = data[size:]
	}
	for ; len(places) > 0; places = places[4:] {
		at := le.Uint32(places)
		if int64(at) >= packets {
			return errClip
		}
		c.Frames = append(c.Frames, int32(at))
	}
	return nil
}

// Forget releases the bytes of the parsed clip.
func (c *Clip) Forget() {
	clear(c.Packets)
	c.Packets, c.Frames, c.Config = c.Packets[:0], c.Frames[:0], nil
}

// Bytes returns the size of the clip in the format of AppendTo.
func (c *Clip) Bytes() int64 {
	n := c.ClipBytes(len(c.Packets), len(c.Frames))
	for i := range c.Packets {
		n += int64(len(c.Packets[i].Data))
	}
	return n
}

// AppendTo appends the clip to b.
func (c *Clip) AppendTo(b []byte) []byte {
	b = append(b, clipMagic...)
	for _, n := range []int{c.Width, c.Height, c.turn(), int(c.Matrix), int(c.Range), len(c.Codec), len(c.Config), len(c.Packets), len(c.Frames)} {
		b = le.AppendUint32(b, uint32(n))
	}
	b = le.AppendUint64(b, c.Video)
	b = append(append(b, c.Codec...), c.Config...)
	for i := range c.Packets {
		b = le.AppendUint32(le.AppendUint32(b, uint32(c.Packets[i].N)), uint32(len(c.Packets[i].Data)))
	}
	for _, at := range c.Frames {
		b = le.AppendUint32(b, uint32(at))
	}
	for i := range c.Packets {
		b = append(b, c.Packets[i].Data...)
	}
	return b
}
