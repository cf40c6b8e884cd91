package video

import (
	"errors"
	"strconv"
	"strings"
)

// ErrUnsupported is wrapped by the errors of intact files in a container or codec that this package does not read.
var ErrUnsupported = errors.New("not read")

// unsupported is an error with its own text.
type unsupported struct{ error }

func (unsupported) Is(target error) bool { return target == ErrUnsupported }

// Parts are pieces of a frame in the file: Count pieces of Size bytes, each Stride bytes after the one before.
type Parts struct {
	Offset              int64
	Size, Count, Stride uint32
}

// Found is a frame that another package has found. Parts are nil if the frame is in one piece. Held has the bytes of
// the frame if the file does not store them unchanged.
type Found struct {
	Frame
	Parts []Parts
	Held  []byte
	// Hidden is true if decoding it gives no visible frame.
	Hidden bool
}

// New returns the index of frames that another package has found in a file of size bytes.
func New(s *Stream, format string, timescale int64, found []Found, size int64) (*Index, error) {
	x := &Index{Stream: *s, Format: format, Timescale: timescale}
	for i := range found {
		f := &found[i]
		f.hidden = f.Hidden
		x.Frames = append(x.Frames, f.Frame)
		if f.Held != nil {
			if x.held == nil {
				x.held = map[int32][]byte{}
			}
			x.held[int32(i)] = f.Held
		}
		if f.Parts != nil && x.parts == nil {
			x.parts = make([][]Parts, len(found))
		}
		if f.Parts != nil {
			x.parts[i] = f.Parts
		}
	}
	return x, x.finish(size)
}

// end returns the offset after the last byte of a frame.
func (x *Index) end(d int32) int64 {
	if x.held[d] != nil {
		return x.Frames[d].Offset + 1 // a read of something
	}
	if x.parts == nil || x.parts[d] == nil {
		return x.Frames[d].Offset + int64(x.Frames[d].Size)
	}
	p := x.parts[d][len(x.parts[d])-1]
	return p.Offset + int64(p.Stride)*int64(p.Count-1) + int64(p.Size)
}

// Bytes appends the bytes of a frame to b. data are the bytes of the piece of the file that it is in.
func (x *Index) Bytes(b []byte, d int32, p *Piece, data []byte) []byte {
	if held := x.held[d]; held != nil {
		return append(b, held...)
	}
	if x.parts == nil || x.parts[d] == nil {
		f := &x.Frames[d]
		return append(b, data[f.Offset-p.Offset:][:f.Size]...)
	}
	for _, r := range x.parts[d] {
		for k := range int64(r.Count) {
			b = append(b, data[r.Offset-p.Offset+k*int64(r.Stride):][:r.Size]...)
		}
	}
	return b
}

// Coded returns the codec with the container's number for it and the bits of a pixel, which some decoders require.
// Decoders of such a codec also get the size of frames.
func Coded(codec string, tag uint32, bits int) string {
	return codec + "/" + strconv.FormatUint(uint64(tag), 16) + "/" + strconv.Itoa(bits)
}

// Coding is the inverse of Coded.
func (s *Stream) Coding() (codec string, tag uint32, bits int) {
	codec, rest, _ := strings.Cut(s.Codec, "/")
	number, depth, _ := strings.Cut(rest, "/")
	n, _ := strconv.ParseUint(number, 16, 32)
	b, _ := strconv.ParseUint(depth, 10, 8)
	return codec, uint32(n), int(b)
}
