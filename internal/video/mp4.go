package video

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// isMP4 knows MP4 and MOV by the first box.
func isMP4(head []byte) bool {
	return slices.Contains([]string{"ftyp", "moov", "mdat", "wide", "free", "skip", "pnot"}, string(head[4:8]))
}

// maxBoxes is the maximum number of boxes at the top level of a file.
const maxBoxes = 1 << 20

// mp4 reads ISO 14496-12: the tables of moov, and the entries that fragments add to them.
func (f *file) mp4() (*Index, error) {
	var t *mp4Track
	for off, n := int64(0), 0; off < f.size; n++ {
		if n == maxBoxes {
			return nil, fmt.Errorf("it has more than %d boxes", maxBoxes)
		}
		kind, body, next, err := f.box(off)
		if err != nil {
			if t != nil && t.x != nil { // the file is truncated after the last whole fragment
				break
			}
			return nil, err
		}
		switch {
		case kind == "moov" && t == nil:
			b, err := f.copied(body, next-body)
			if err != nil {
				return nil, fmt.Errorf("its moov box: %w", err)
			}
			if t, err = moov(b, f.size); err != nil {
				return nil, err
			}
		case kind == "moof" && t != nil && t.fragments:
			b, err := f.bytes(body, next-body)
			if err != nil {
				return nil, fmt.Errorf("the moof box at byte %d: %w", off, err)
			}
			if err := t.moof(b, off); err != nil {
				return nil, fmt.Errorf("the moof box at byte %d: %w", off, err)
			}
		}
		if t != nil && !t.fragments {
			break
		}
		off = next
	}
	if t == nil {
		return nil, errors.New("it has no moov box: it was not written to its end")
	}
	t.edit()
	return t.x, nil
}

// box reads the header of a box: its body ends where the next one begins.
func (f *file) box(off int64) (kind string, body, next int64, err error) {
	b, err := f.bytes(off, min(16, f.size-off))
	if err != nil {
		return "", 0, 0, err
	}
	if len(b) < 8 {
		return "", 0, 0, fmt.Errorf("%d bytes are left at byte %d, which is not a box: the file is cut off", len(b), off)
	}
	size, head := int64(be.Uint32(b)), int64(8)
	kind = string(b[4:8])
	switch {
	case size == 0:
		size = f.size - off
	case size == 1 && len(b) == 16:
		size, head = int64(be.Uint64(b[8:])), 16
	}
	if size < head || size > f.size-off {
		return "", 0, 0, fmt.Errorf("the %q box at byte %d has %d bytes, the file has %d: it is cut off or damaged", kind, off, size, f.size)
	}
	return kind, off + head, off + size, nil
}

// boxes calls f for each box in b.
func boxes(b []byte, f func(kind string, body []byte) error) error {
	for len(b) >= 8 {
		size, head := uint64(be.Uint32(b)), uint64(8)
		kind := string(b[4:8])
		switch {
		case size == 0:
			size = uint64(len(b))
		case size == 1 && len(b) >= 16:
			size, head = be.Uint64(b[8:]), 16
		}
		if size < head || size > uint64(len(b)) {
			return fmt.Errorf("a %q box of %d bytes does not fit the %d bytes around it", kind, size, len(b))
		}
		if err := f(kind, b[head:size]); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// mp4Track is a track that is being read.
type mp4Track struct {
	x          *Index
	size       int64 // of the file
	id         uint32
	video      bool
	movieScale int64
	stbl       []byte
	edits      []edit
	extends    map[uint32]trex
	fragments  bool
	// dts is the time of the next frame of a fragment.
	dts int64
}

// edit shows a part of a track, or nothing (media < 0), for some of the movie's time.
type edit struct{ duration, media int64 }

// trex has the defaults for values that fragments omit.
type trex struct{ duration, size, flags uint32 }

// moov reads the tables of the first track of video.
func moov(b []byte, size int64) (*mp4Track, error) {
	var best *mp4Track
	scale := int64(0)
	extends := map[uint32]trex{}
	fragments := false
	err := boxes(b, func(kind string, body []byte) error {
		switch kind {
		case "mvhd":
			if len(body) >= 32 {
				scale = int64(be.Uint32(body[12:]))
				if body[0] == 1 {
					scale = int64(be.Uint32(body[20:]))
				}
			}
		case "cmov":
			return unsupported{errors.New("its index is compressed (cmov), which is not read")}
		case "mvex":
			fragments = true
			return boxes(body, func(kind string, b []byte) error {
				if kind == "trex" && len(b) >= 24 && len(extends) < 1000 {
					extends[be.Uint32(b[4:])] = trex{be.Uint32(b[12:]), be.Uint32(b[16:]), be.Uint32(b[20:])}
				}
				return nil
			})
		case "trak":
			if best != nil {
				return nil
			}
			t := &mp4Track{x: &Index{Format: "mp4"}, size: size}
			t.x.Matrix = MatrixUnknown
			if err := t.trak(body); err != nil {
				return err
			}
			if t.video {
				best = t
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case best == nil:
		return nil, errors.New("it has no track of video")
	}
	best.movieScale, best.extends, best.fragments = scale, extends, fragments
	return best, best.tables()
}

// trak reads the description of a track.
func (t *mp4Track) trak(b []byte) error {
	return boxes(b, func(kind string, b []byte) error {
		switch kind {
		case "tkhd":
			return t.tkhd(b)
		case "edts", "mdia", "minf":
			return t.trak(b)
		case "elst":
			return t.elst(b)
		case "mdhd":
			if len(b) < 20 || b[0] == 1 && len(b) < 32 {
				return errors.New("its mdhd box is too short")
			}
			t.x.Timescale = int64(be.Uint32(b[12:]))
			if b[0] == 1 {
				t.x.Timescale = int64(be.Uint32(b[20:]))
			}
		case "hdlr":
			if len(b) >= 12 && string(b[4:8]) != "dhlr" {
				t.video = string(b[8:12]) == "vide"
			}
		case "stbl":
			t.stbl = b
		}
		return nil
	})
}

// tkhd reads the number of a track and its rotation.
func (t *mp4Track) tkhd(b []byte) error {
	at := 12 // of the number
	if len(b) > 0 && b[0] == 1 {
		at = 20
	}
	matrix := at + 28
	if at == 20 {
		matrix = at + 32
	}
	if len(b) < matrix+36 {
		return errors.New("its tkhd box is too short")
	}
	t.id = be.Uint32(b[at:])
	var m [4]int32
	for i, k := range []int{0, 4, 12, 16} {
		m[i] = int32(be.Uint32(b[matrix+k:])) >> 16
	}
	if t.x.Mirror = m[0]*m[3]-m[1]*m[2] < 0; t.x.Mirror {
		m[0], m[2] = -m[0], -m[2]
	}
	t.x.Rotation = map[[4]int32]int{{0, 1, -1, 0}: 90, {-1, 0, 0, -1}: 180, {0, -1, 1, 0}: 270}[m]
	return nil
}

// elst reads an edit list.
func (t *mp4Track) elst(b []byte) error {
	if len(b) < 8 {
		return errors.New("its elst box is too short")
	}
	n, entry := int64(be.Uint32(b[4:])), int64(12)
	if b[0] == 1 {
		entry = 20
	}
	if n > int64(len(b)-8)/entry {
		return fmt.Errorf("its edit list of %d entries has %d bytes", n, len(b))
	}
	for i := range n {
		e := b[8+i*entry:]
		if b[0] == 1 {
			t.edits = append(t.edits, edit{int64(be.Uint64(e)), int64(be.Uint64(e[8:]))})
		} else {
			t.edits = append(t.edits, edit{int64(be.Uint32(e)), int64(int32(be.Uint32(e[4:])))})
		}
	}
	return nil
}

// edit moves frames to when they are shown, and hides those that are not.
func (t *mp4Track) edit() {
	const far = math.MaxInt64 / 4 // larger than any time in a file
	type part struct{ from, to, shift int64 }
	var parts []part
	now := int64(0)
	for i, e := range t.edits {
		if t.movieScale < 1 || e.duration < 0 || e.duration > far/max(t.x.Timescale, 1) {
			return
		}
		d := (e.duration*t.x.Timescale + t.movieScale/2) / t.movieScale
		if e.media >= 0 && e.media < far {
			p := part{e.media, e.media + d, now - e.media}
			if e.duration == 0 || t.fragments && i == len(t.edits)-1 { // to the end
				p.to = far
			}
			parts = append(parts, p)
		}
		if now += d; now > far {
			return
		}
	}
	if len(parts) == 0 {
		return
	}
	some := false
	for i := range t.x.Frames {
		f := &t.x.Frames[i]
		k := slices.IndexFunc(parts, func(p part) bool { return p.from <= f.PTS && f.PTS < p.to })
		f.hidden = k < 0
		if k >= 0 {
			some = true
			f.PTS += parts[k].shift
		} else {
			f.PTS += parts[0].shift // in order with those that are shown
		}
	}
	if !some { // an edit list that nothing obeys
		for i := range t.x.Frames {
			t.x.Frames[i].hidden = false
		}
	}
}
