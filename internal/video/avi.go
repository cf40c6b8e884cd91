package video

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// isAVI knows AVI files by their beginning.
func isAVI(head []byte) bool {
	return string(head[:4]) == "RIFF" && string(head[8:12]) == "AVI "
}

// aviCodecs are the codecs by their four-character codes, in capitals. Files have no display times of frames, so only
// codecs whose frames are shown in decoding order are supported.
var aviCodecs = map[string]string{"MJPG": MJPEG, "JPEG": MJPEG, "AVRN": MJPEG, "IJPG": MJPEG}

// aviTrack is the video of an AVI file that is being read.
type aviTrack struct {
	x      *Index
	stream int // its number
	super  []superEntry
	movi   int64 // offset of the list of frames: its four letters
	frames int64 // time in frames
}

// superEntry is the location of an OpenDML index.
type superEntry struct{ offset, size int64 }

// avi reads RIFF AVI with idx1 or OpenDML's indexes, or without any.
func (f *file) avi() (*Index, error) {
	t := &aviTrack{x: &Index{Format: "avi"}, stream: -1}
	t.x.Matrix = MatrixUnknown
	var idx1 []byte
	// The first RIFF part has the headers, and all that there is in small files.
	_, _, end, err := f.chunk(0, f.size)
	if err != nil {
		return nil, err
	}
	moviEnd := int64(0)
	for off := int64(12); off+8 <= end; {
		kind, body, next, err := f.chunk(off, end)
		if err != nil {
			if t.movi > 0 {
				break
			}
			return nil, err
		}
		if kind == "LIST" && next-body >= 4 {
			b, err := f.bytes(body, 4)
			if err != nil {
				return nil, err
			}
			switch string(b) {
			case "hdrl":
				if b, err = f.copied(body+4, next-body-4); err != nil {
					return nil, err
				}
				if err := t.header(b); err != nil {
					return nil, err
				}
			case "movi":
				t.movi, moviEnd = body, next
			}
		}
		if kind == "idx1" {
			if idx1, err = f.copied(body, next-body); err != nil {
				return nil, err
			}
		}
		off = next + next&1
	}
	switch {
	case t.stream < 0:
		return nil, errors.New("it has no stream of video")
	case t.movi == 0:
		return nil, errors.New("it has no frames (movi)")
	}
	switch {
	case len(t.super) > 0:
		err = t.openDML(f)
	case idx1 != nil:
		err = t.idx1(f, idx1)
	default:
		err = t.walk(f, t.movi+4, moviEnd)
	}
	return t.x, err
}

// chunk reads the header of a chunk that may extend to end. A chunk that would extend past the end of the file ends
// there, so an unclosed file is read as far as possible.
func (f *file) chunk(off, end int64) (kind string, body, next int64, err error) {
	b, err := f.bytes(off, 8)
	if err != nil {
		return "", 0, 0, err
	}
	kind = string(b[:4])
	next = off + 8 + int64(le.Uint32(b[4:]))
	if next > end {
		if kind != "LIST" && kind != "RIFF" {
			return "", 0, 0, fmt.Errorf("the chunk %q at byte %d ends at byte %d of %d: it is cut off or damaged", kind, off, next, end)
		}
		next = end
	}
	return kind, off + 8, next, nil
}

// chunks calls f for each chunk in b.
func chunks(b []byte, f func(kind string, body []byte) error) error {
	for len(b) >= 8 {
		n := int64(le.Uint32(b[4:]))
		if n > int64(len(b)-8) {
			return fmt.Errorf("a chunk %q of %d bytes does not fit the %d bytes around it", b[:4], n, len(b))
		}
		if err := f(string(b[:4]), b[8:8+n]); err != nil {
			return err
		}
		b = b[min(8+n+n&1, int64(len(b))):]
	}
	return nil
}

// header reads the lists of the streams.
func (t *aviTrack) header(b []byte) error {
	stream := -1
	return chunks(b, func(kind string, b []byte) error {
		if kind != "LIST" || len(b) < 4 || string(b[:4]) != "strl" {
			return nil
		}
		if stream++; t.stream >= 0 {
			return nil
		}
		video := false
		return chunks(b[4:], func(kind string, b []byte) error {
			switch {
			case kind == "strh" && len(b) >= 36 && string(b[:4]) == "vids":
				video, t.stream = true, stream
				// rate/scale frames in a second
				scale, rate := int64(le.Uint32(b[20:])), int64(le.Uint32(b[24:]))
				if scale < 1 || rate < 1 {
					return fmt.Errorf("its video has %d/%d frames a second", rate, scale)
				}
				for rate > math.MaxInt32 { // no writer is so exact
					rate, scale = rate/2, max(scale/2, 1)
				}
				t.x.Timescale, t.frames = rate, scale
			case kind == "strf" && video && len(b) >= 40:
				name := strings.ToUpper(string(b[16:20]))
				codec, ok := aviCodecs[name]
				if !ok {
					return unsupported{fmt.Errorf("its video is encoded as %q, and of AVI files only MJPEG is read", name)}
				}
				t.x.Codec = codec
				height := int64(int32(le.Uint32(b[8:])))
				t.x.Width, t.x.Height = int(int32(le.Uint32(b[4:]))), int(max(height, -height))
			case kind == "indx" && video && len(b) >= 24 && b[3] == 0:
				return t.superIndex(b)
			}
			return nil
		})
	})
}

// superIndex lists the locations of OpenDML's indexes.
func (t *aviTrack) superIndex(b []byte) error {
	n := int64(le.Uint32(b[4:]))
	if le.Uint16(b) != 4 || n > int64(len(b)-24)/16 {
		return fmt.Errorf("its OpenDML index says %d entries in %d bytes", n, len(b))
	}
	for i := range n {
		e := b[24+16*i:]
		t.super = append(t.super, superEntry{int64(min(le.Uint64(e), math.MaxInt64/2)), int64(le.Uint32(e[8:]))})
	}
	return nil
}

// add appends a frame. An empty one repeats the previous frame.
func (t *aviTrack) add(f *file, off, size int64) error {
	if len(t.x.Frames) >= MaxFrames {
		return tooMany(int64(len(t.x.Frames)) + 1)
	}
	n := int64(len(t.x.Frames))
	if size == 0 {
		if n == 0 {
			return nil
		}
		before := t.x.Frames[n-1]
		before.PTS = n * t.frames
		t.x.Frames = append(t.x.Frames, before)
		return nil
	}
	if off < 0 || off > f.size-size {
		return fmt.Errorf("frame %d has %d bytes at byte %d, the file has %d bytes: it is cut off", n, size, off, f.size)
	}
	t.x.Frames = append(t.x.Frames, Frame{Offset: off, Size: uint32(size), PTS: n * t.frames, Key: true})
	return nil
}

// openDML reads the indexes of the parts of a file.
func (t *aviTrack) openDML(f *file) error {
	for _, s := range t.super {
		if s.size < 8 {
			continue
		}
		b, err := f.bytes(s.offset, s.size)
		if err != nil {
			return fmt.Errorf("the OpenDML index at byte %d: %w", s.offset, err)
		}
		if len(b) < 32 || b[11] != 1 || le.Uint16(b[8:]) != 2 {
			return fmt.Errorf("the OpenDML index at byte %d is of a kind that is not read", s.offset)
		}
		n, base := int64(le.Uint32(b[12:])), int64(min(le.Uint64(b[20:]), math.MaxInt64/2))
		if n > int64(len(b)-32)/8 {
			return fmt.Errorf("the OpenDML index at byte %d says %d entries in %d bytes", s.offset, n, len(b))
		}
		entries := append([]byte(nil), b[32:32+8*n]...)
		for i := range n {
			off, size := int64(le.Uint32(entries[8*i:])), int64(le.Uint32(entries[8*i+4:])&0x7fffffff)
			if err := t.add(f, base+off, size); err != nil {
				return err
			}
		}
	}
	return nil
}

// isFrame reports whether a chunk's name is that of a frame of the stream: its number in two digits and dc or db.
func (t *aviTrack) isFrame(name []byte) bool {
	return string(name[:2]) == fmt.Sprintf("%02d", t.stream) && (name[2] == 'd' && (name[3] == 'c' || name[3] == 'b'))
}

// idx1 reads the old index. Its offsets count from the list of frames or from the
// beginning of the file: the first frame shows which.
func (t *aviTrack) idx1(f *file, b []byte) error {
	base, known := int64(0), false
	for ; len(b) >= 16; b = b[16:] {
		if !t.isFrame(b) {
			continue
		}
		off, size := int64(le.Uint32(b[8:])), int64(le.Uint32(b[12:]))
		if !known {
			known = true
			if head, err := f.bytes(t.movi+off, 4); err == nil && t.isFrame(head) {
				base = t.movi
			}
		}
		if err := t.add(f, base+off+8, size); err != nil {
			return err
		}
	}
	return nil
}

// walk goes through the frames of a file without an index.
func (t *aviTrack) walk(f *file, off, end int64) error {
	for off+8 <= end {
		kind, body, next, err := f.chunk(off, end)
		if err != nil {
			break // it was not written to its end
		}
		switch {
		case kind == "LIST":
			off = body + 4 // rec: frames in it
			continue
		case t.isFrame([]byte(kind)):
			if err := t.add(f, body, next-body); err != nil {
				return err
			}
		}
		off = next + next&1
	}
	return nil
}
