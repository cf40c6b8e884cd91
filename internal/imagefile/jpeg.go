package imagefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Markers.
const (
	mDHT   = 0xC4
	mSOF55 = 0xF7 // of JPEG-LS
	mJPG   = 0xC8
	mDAC   = 0xCC
	mSOI   = 0xD8
	mEOI   = 0xD9
	mSOS   = 0xDA
	mAPP0  = 0xE0
	mAPP1  = 0xE1
	mAPP2  = 0xE2
	mAPP14 = 0xEE
	mAPP15 = 0xEF
	mCOM   = 0xFE
)

// JPEG describes the structure of a JPEG file.
type JPEG struct {
	// End is the number of bytes up to and including the end marker, or of all bytes if there is no end marker.
	End int
	// Odd means stray bytes between markers, which decoders skip.
	Odd bool

	segments []segment // APPn and COM
}

type segment struct {
	marker     byte
	start, end int // with marker and length
}

func (s segment) payload(b []byte) []byte { return b[s.start+4 : s.end] }

// frame reports whether the segment is a frame header.
func (s segment) frame() bool {
	return s.marker >= 0xC0 && s.marker <= 0xCF && s.marker != mDHT && s.marker != mJPG && s.marker != mDAC
}

// errEnds means that the bytes end where a marker is expected.
var errEnds = errors.New("no more markers")

// nextSegment finds the segment at byte p, as tolerantly as libjpeg: it skips stray bytes before the segment and then
// sets odd. The end marker is a segment without a payload.
func nextSegment(b []byte, p int) (seg segment, odd bool, err error) {
	for {
		if p < len(b) && b[p] != 0xFF {
			odd = true
			k := bytes.IndexByte(b[p:], 0xFF)
			if k < 0 {
				return seg, odd, errEnds
			}
			p += k
		}
		for p < len(b) && b[p] == 0xFF {
			p++ // fill bytes
		}
		if p >= len(b) {
			return seg, odd, errEnds
		}
		seg.marker, seg.start = b[p], p-1
		p++
		switch m := seg.marker; {
		case m == 0 || m == 1 || m >= 0xD0 && m <= 0xD7:
			odd = true // a marker without a segment
			continue
		case m == mSOI:
			return seg, odd, broken("a second start marker at byte %d", seg.start)
		case m == mEOI:
			seg.end = p
			return seg, odd, nil
		}
		if p+2 > len(b) {
			return seg, odd, errEnds
		}
		n := int(binary.BigEndian.Uint16(b[p:]))
		if n < 2 {
			return seg, odd, broken("segment of %d bytes at byte %d", n, seg.start)
		}
		if seg.end = p + n; seg.end > len(b) {
			return seg, odd, truncated(b, fmt.Sprintf("inside of the segment that begins at byte %d", seg.start))
		}
		return seg, odd, nil
	}
}

// probeJPEG reads the segments up to the first scan.
func probeJPEG(b []byte, info *Info) error {
	var c jpegColors
	turned := false
	for p := 2; ; {
		seg, _, err := nextSegment(b, p)
		switch {
		case errors.Is(err, errEnds):
			return truncated(b, "in the header")
		case err != nil:
			return err
		case seg.marker == mEOI:
			return broken("no picture data")
		case seg.marker == mSOF55:
			return fmt.Errorf("%w: JPEG-LS; save it as PNG", ErrUnsupported)
		case seg.marker == mSOS && info.Width == 0:
			return broken("picture data without a frame header")
		case seg.marker == mSOS:
			scan := seg.payload(b)
			info.Buffered = info.Progressive || len(scan) > 0 && int32(scan[0]) < info.Channels
			info.Color, info.Sampling = c.space(info.Channels), c.sampling(info.Channels)
			return nil
		}
		p = seg.end
		body := seg.payload(b)
		switch {
		case seg.marker == mAPP0 && bytes.HasPrefix(body, []byte("JFIF\x00")):
			c.jfif = true
		case seg.marker == mAPP1 && !turned && bytes.HasPrefix(body, []byte(exifMark)):
			info.Orientation, turned = orientation(body)
		case seg.marker == mAPP14 && len(body) >= 12 && bytes.HasPrefix(body, []byte("Adobe")):
			c.adobe, c.transform = true, body[11]
		case seg.frame():
			if info.Width != 0 {
				return broken("two frame headers")
			}
			if len(body) < 6 {
				return broken("frame header of %d bytes", len(body))
			}
			info.Progressive = seg.marker == 0xC2 || seg.marker == 0xCA
			info.Precision = int32(body[0])
			info.Rare = info.Precision != 8 || seg.marker > 0xC2
			info.Height = int32(binary.BigEndian.Uint16(body[1:]))
			info.Width = int32(binary.BigEndian.Uint16(body[3:]))
			info.Channels = int32(body[5])
			if info.Width == 0 || info.Height == 0 || info.Channels == 0 || len(body) < 6+3*int(info.Channels) {
				return broken("%d x %d pixels, %d components", info.Width, info.Height, info.Channels)
			}
			for i := range min(int(info.Channels), 4) {
				c.ids[i], c.factors[i] = body[6+3*i], body[7+3*i]
			}
		}
	}
}

// parseJPEG walks all of the markers of b. probeJPEG has read its header. With ErrNoEOI it returns both the structure
// and the error.
func parseJPEG(b []byte) (*JPEG, error) {
	j := &JPEG{}
	frames, scans := 0, 0
	for p := 2; ; {
		seg, odd, err := nextSegment(b, p)
		j.Odd = j.Odd || odd
		switch {
		case errors.Is(err, errEnds) && scans > 0:
			j.End = len(b)
			return j, ErrNoEOI
		case errors.Is(err, errEnds):
			return nil, truncated(b, "in the header")
		case err != nil:
			return nil, err
		case seg.marker == mEOI:
			j.End = seg.end
			return j, nil
		}
		p = seg.end
		switch {
		case seg.marker == mSOS:
			scans++
			p = endOfScan(b, p)
		case seg.frame():
			if frames++; frames > 1 {
				return nil, broken("two frame headers")
			}
			if err := jpegProblem(seg.marker, seg.payload(b)); err != nil {
				return nil, err
			}
		case seg.marker >= mAPP0 && seg.marker <= mAPP15 || seg.marker == mCOM:
			j.segments = append(j.segments, seg)
		}
	}
}

// jpegProblem reports which kinds of JPEG are not read.
func jpegProblem(marker byte, frame []byte) error {
	what := ""
	switch {
	case marker == 0xC3:
		what = "lossless coding"
	case marker >= 0xC9:
		what = "arithmetic coding"
	case marker > 0xC3:
		what = "frames that refine each other"
	case len(frame) > 0 && frame[0] != 8:
		what = fmt.Sprintf("%d bits per sample", frame[0])
	default:
		return nil
	}
	return fmt.Errorf("%w: a JPEG with %s; save it as a baseline or progressive JPEG of 8 bits, or as PNG", ErrUnsupported, what)
}

// endOfScan returns the position of the next marker after entropy-coded data that begins at p, or len(b).
func endOfScan(b []byte, p int) int {
	for {
		k := bytes.IndexByte(b[p:], 0xFF)
		if k < 0 || p+k+1 >= len(b) {
			return len(b)
		}
		p += k
		switch c := b[p+1]; {
		case c == 0 || c >= 0xD0 && c <= 0xD7:
			p += 2
		case c == 0xFF:
			p++
		default:
			return p
		}
	}
}

// jpegColors holds the information on components from the segments.
type jpegColors struct {
	jfif, adobe  bool
	transform    byte
	ids, factors [4]byte
}

// space guesses the colour space as libjpeg does.
func (c *jpegColors) space(channels int32) Color {
	switch channels {
	case 1:
		return Gray
	case 3:
		switch {
		case c.jfif:
		case c.adobe && c.transform == 0:
			return RGB
		case !c.adobe && c.ids[0] == 'R' && c.ids[1] == 'G' && c.ids[2] == 'B':
			return RGB
		}
		return YCbCr
	case 4:
		if c.adobe && c.transform != 0 {
			return YCCK
		}
		return CMYK
	}
	return Other
}

// sampling names the subsampling of the second and third component against the
// first.
func (c *jpegColors) sampling(channels int32) string {
	s := c.factors
	if channels < 3 || s[1] != s[2] {
		return ""
	}
	h0, v0, h, v := int(s[0]>>4), int(s[0]&15), int(s[1]>>4), int(s[1]&15)
	if h == 0 || v == 0 || h0%h != 0 || v0%v != 0 {
		return ""
	}
	switch [2]int{h0 / h, v0 / v} {
	case [2]int{1, 1}:
		return "4:4:4"
	case [2]int{2, 1}:
		return "4:2:2"
	case [2]int{2, 2}:
		return "4:2:0"
	case [2]int{1, 2}:
		return "4:4:0"
	case [2]int{4, 1}:
		return "4:1:1"
	case [2]int{4, 2}:
		return "4:1:0"
	}
	return ""
}
