package video

import (
	"errors"
	"fmt"
	"math"
)

// moof adds the frames of a fragment that begins at byte off.
func (t *mp4Track) moof(b []byte, off int64) error {
	return boxes(b, func(kind string, b []byte) error {
		if kind != "traf" {
			return nil
		}
		r := fragment{t: t, base: off, next: off}
		return boxes(b, r.box)
	})
}

// fragment is a traf box that is being read.
type fragment struct {
	t        *mp4Track
	mine     bool
	base     int64
	next     int64 // offset of a run without an offset
	defaults trex
}

func (r *fragment) box(kind string, b []byte) error {
	t := r.t
	switch kind {
	case "tfhd":
		return r.head(b)
	case "tfdt":
		if r.mine && len(b) >= 8 {
			t.dts = int64(be.Uint32(b[4:]))
			if b[0] == 1 && len(b) >= 12 {
				t.dts = int64(min(be.Uint64(b[4:]), math.MaxInt64/4))
			}
		}
	case "trun":
		if r.mine {
			return r.run(b)
		}
	}
	return nil
}

func (r *fragment) head(b []byte) error {
	if len(b) < 8 {
		return errors.New("its tfhd box is too short")
	}
	flags, id := be.Uint32(b)&0xffffff, be.Uint32(b[4:])
	r.mine, r.defaults = id == r.t.id, r.t.extends[id]
	b = b[8:]
	for _, part := range []struct {
		bit  uint32
		n    int
		take func(b []byte)
	}{
		{0x1, 8, func(b []byte) { r.base = int64(min(be.Uint64(b), math.MaxInt64/4)); r.next = r.base }},
		{0x2, 4, func([]byte) {}},
		{0x8, 4, func(b []byte) { r.defaults.duration = be.Uint32(b) }},
		{0x10, 4, func(b []byte) { r.defaults.size = be.Uint32(b) }},
		{0x20, 4, func(b []byte) { r.defaults.flags = be.Uint32(b) }},
	} {
		if flags&part.bit == 0 {
			continue
		}
		if len(b) < part.n {
			return errors.New("its tfhd box is too short")
		}
		part.take(b)
		b = b[part.n:]
	}
	return nil
}

// notKey is the bit in a frame's flags for a frame at which decoding cannot start.
const notKey = 0x10000

// run adds frames that are stored one after the other.
func (r *fragment) run(b []byte) error {
	t := r.t
	if len(b) < 8 {
		return errors.New("its trun box is too short")
	}
	flags, n := be.Uint32(b)&0xffffff, int64(be.Uint32(b[4:]))
	b = b[8:]
	first := r.defaults.flags
	if flags&0x1 != 0 {
		if len(b) < 4 {
			return errors.New("its trun box is too short")
		}
		r.next = r.base + int64(int32(be.Uint32(b)))
		b = b[4:]
	}
	if flags&0x4 != 0 {
		if len(b) < 4 {
			return errors.New("its trun box is too short")
		}
		first = be.Uint32(b)
		b = b[4:]
	}
	entry := int64(0)
	for bit := uint32(0x100); bit <= 0x800; bit <<= 1 {
		if flags&bit != 0 {
			entry += 4
		}
	}
	switch {
	case n+int64(len(t.x.Frames)) > MaxFrames:
		return tooMany(n + int64(len(t.x.Frames)))
	case n*entry > int64(len(b)):
		return fmt.Errorf("its trun box says %d frames in %d bytes", n, len(b))
	case n+int64(len(t.x.Frames)) > t.size || flags&0x200 == 0 && n > t.size/max(int64(r.defaults.size), 1):
		return fmt.Errorf("its trun box says %d frames of %d bytes, the file has %d bytes", n, r.defaults.size, t.size)
	}
	for i := range n {
		duration, size, what, shift := r.defaults.duration, r.defaults.size, r.defaults.flags, int64(0)
		if i == 0 {
			what = first
		}
		for bit := uint32(0x100); bit <= 0x800; bit <<= 1 {
			if flags&bit == 0 {
				continue
			}
			v := be.Uint32(b)
			b = b[4:]
			switch bit {
			case 0x100:
				duration = v
			case 0x200:
				size = v
			case 0x400:
				what = v
			case 0x800:
				shift = int64(int32(v))
			}
		}
		if size > MaxFrameBytes || r.next < 0 || r.next > t.size-int64(size) {
			return fmt.Errorf("a frame of %d bytes at byte %d, the file has %d bytes: it is cut off", size, r.next, t.size)
		}
		t.x.Frames = append(t.x.Frames, Frame{Offset: r.next, Size: size, PTS: t.dts + shift, Key: what&notKey == 0})
		r.next += int64(size)
		t.dts += int64(duration)
		if t.dts > math.MaxInt64/2 {
			return errors.New("its times are out of range")
		}
	}
	return nil
}
