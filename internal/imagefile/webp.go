package imagefile

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// webpChunks calls chunk for each chunk of the file, also for a chunk that is cut off, until chunk returns an error.
// size is the size in the chunk's header.
func webpChunks(b []byte, chunk func(kind, body []byte, size int64) error) error {
	end := min(8+int64(binary.LittleEndian.Uint32(b[4:])), int64(len(b)))
	for p := int64(12); p+8 <= end; {
		size := int64(binary.LittleEndian.Uint32(b[p+4:]))
		if err := chunk(b[p:p+4], b[p+8:min(p+8+size, end)], size); err != nil {
			return err
		}
		p += 8 + size + size&1
	}
	return nil
}

func probeWebP(b []byte, info *Info) error {
	info.Precision, info.Channels, info.Color = 8, 3, RGB
	alpha := func(yes bool) {
		if yes {
			info.Channels, info.Color = 4, RGBA
		}
	}
	found := false
	err := webpChunks(b, func(kind, body []byte, _ int64) error {
		if string(kind) == "VP8L" || string(kind) == "ALPH" && len(body) > 0 && body[0]&3 == 1 {
			info.Lossless = true
		}
		switch {
		case string(kind) == "VP8X" && !found && len(body) >= 10:
			if body[0]&^webpFlags != 0 { // libwebp's decoder of animations, which Pillow uses, refuses them
				return broken("the header has unknown flags")
			}
			info.Width = 1 + (int32(body[4]) | int32(body[5])<<8 | int32(body[6])<<16)
			info.Height = 1 + (int32(body[7]) | int32(body[8])<<8 | int32(body[9])<<16)
			alpha(body[0]&0x10 != 0)
			info.Animated = body[0]&2 != 0
			found = true
		case string(kind) == "ANMF":
			info.Lossless = true // of its frames any may be
		case string(kind) == "VP8 " && !found && len(body) >= 10:
			if body[3] != 0x9d || body[4] != 0x01 || body[5] != 0x2a {
				return broken("the frame header makes no sense")
			}
			info.Width = int32(binary.LittleEndian.Uint16(body[6:]) & 0x3fff)
			info.Height = int32(binary.LittleEndian.Uint16(body[8:]) & 0x3fff)
			found = true
		case string(kind) == "VP8L" && !found && len(body) >= 5:
			if body[0] != 0x2f {
				return broken("the header of the lossless frame makes no sense")
			}
			bits := binary.LittleEndian.Uint32(body[1:])
			info.Width, info.Height = 1+int32(bits&0x3fff), 1+int32(bits>>14&0x3fff)
			alpha(bits>>28&1 != 0)
			found = true
		case string(kind) == "EXIF":
			info.Orientation = Orientation(body)
		}
		return nil
	})
	if err == nil && !found {
		err = truncated(b, "before the frame header")
	}
	return err
}

func checkWebP(b []byte) error {
	animated, err := wholeWebP(b)
	if err == nil && animated {
		_, err = FirstWebPFrame(b)
	}
	return err
}

// wholeWebP returns an error if the file or one of its chunks is cut off.
func wholeWebP(b []byte) (animated bool, err error) {
	if n := 8 + int64(binary.LittleEndian.Uint32(b[4:])); n > int64(len(b)) {
		return false, truncated(b, fmt.Sprintf("the header says %d", n))
	}
	err = webpChunks(b, func(kind, body []byte, size int64) error {
		if int64(len(body)) < size {
			return truncated(b, fmt.Sprintf("inside of chunk %q", kind))
		}
		animated = animated || string(kind) == "ANMF"
		return nil
	})
	return animated, err
}

// WebPFrame is the first frame of an animation.
type WebPFrame struct {
	// File is the frame as a WebP file of its own.
	File []byte
	// X and Y are the position of the frame in the picture.
	X, Y, Width, Height int
	// Alpha reports whether pixels outside of the frame are transparent.
	Alpha bool
}

const (
	webpFrameHeader = 16
	webpAlphaFlag   = 0x10
	webpFlags       = 0x3e // all that a header may have
)

// errFrame ends the walk through chunks.
var errFrame = errors.New("the first frame")

// FirstWebPFrame cuts the first frame out of an animated WebP. A file that ends in a later frame is refused, as by
// libwebp.
func FirstWebPFrame(b []byte) (*WebPFrame, error) {
	if _, err := wholeWebP(b); err != nil {
		return nil, err
	}
	f := new(WebPFrame)
	width, height := 0, 0
	err := webpChunks(b, func(kind, body []byte, size int64) error {
		switch {
		case string(kind) == "VP8X" && len(body) >= 10:
			f.Alpha = body[0]&webpAlphaFlag != 0
			width, height = 1+little24(body[4:]), 1+little24(body[7:])
		case string(kind) == "ANMF" && int64(len(body)) < size:
			return truncated(b, "inside of the first frame")
		case string(kind) == "ANMF" && len(body) >= webpFrameHeader:
			f.X, f.Y, f.Width, f.Height = 2*little24(body), 2*little24(body[3:]), 1+little24(body[6:]), 1+little24(body[9:])
			f.File = frameFile(body[webpFrameHeader:], f.Width, f.Height)
			return errFrame
		}
		return nil
	})
	switch {
	case err == nil:
		return nil, truncated(b, "before the first frame")
	case !errors.Is(err, errFrame):
		return nil, err
	case f.X+f.Width > width || f.Y+f.Height > height:
		return nil, broken("a frame of %d x %d pixels at %d, %d of a picture of %d x %d", f.Width, f.Height, f.X, f.Y, width, height)
	}
	return f, nil
}

func little24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// frameFile makes a file of the chunks of a frame.
func frameFile(chunks []byte, width, height int) []byte {
	le := binary.LittleEndian
	out := append(make([]byte, 0, len(chunks)+64), "RIFF\x00\x00\x00\x00WEBP"...)
	if len(chunks) >= 4 && string(chunks[:4]) == "ALPH" {
		out = le.AppendUint32(append(out, "VP8X"...), 10)
		out = append(out, webpAlphaFlag, 0, 0, 0)
		for _, n := range []int{width - 1, height - 1} {
			out = append(out, byte(n), byte(n>>8), byte(n>>16))
		}
	}
	out = append(out, chunks...)
	le.PutUint32(out[4:], uint32(len(out)-8))
	return out
}
