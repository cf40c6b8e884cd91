package imagefile

import (
	"bytes"
	"fmt"
)

// JPEG describes the structure of a JPEG file.
type JPEG struct {
	Width, Height int32
	Components    uint8
	Orientation   uint8
	// End is the number of bytes up to and with the end marker (or all of
	// them where it is missing).
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

// Markers.
const (
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

const (
	exifPrefix = "Exif\x00\x00"
	iccPrefix  = "ICC_PROFILE\x00"
)

// parseJPEG walks the markers of b. With ErrNoEOI it returns both the
// structure and the error.
func parseJPEG(b []byte) (*JPEG, error) {
	j := &JPEG{Orientation: 1}
	scans := 0
	p := 2
	for {
		if p >= len(b) {
			if scans > 0 {
				j.End = len(b)
				return j, ErrNoEOI
			}
			return nil, truncated(b, "in the header")
		}
		if b[p] != 0xFF {
			k := bytes.IndexByte(b[p:], 0xFF)
			if k < 0 {
				p = len(b)
				continue
			}
			j.Odd = true
			p += k
		}
		for p < len(b) && b[p] == 0xFF {
			p++ // fill bytes
		}
		if p >= len(b) {
			continue
		}
		m := b[p]
		start := p - 1
		p++
		switch {
		case m == 0 || m == 1 || m >= 0xD0 && m <= 0xD7:
			j.Odd = true
			continue
		case m == mSOI:
			return nil, broken("a second start marker at byte %d", start)
		case m == mEOI:
			if scans == 0 {
				return nil, broken("no picture data")
			}
			j.End = p
			return j, nil
		}
		if p+2 > len(b) {
			p = len(b)
			continue
		}
		n := int(b[p])<<8 | int(b[p+1])
		if n < 2 {
			return nil, broken("segment of %d bytes at byte %d", n, start)
		}
		if p+n > len(b) {
			return nil, truncated(b, fmt.Sprintf("inside of the segment that begins at byte %d", start))
		}
		seg := segment{m, start, p + n}
		p += n
		switch {
		case m == mSOS:
			if j.Width == 0 {
				return nil, broken("picture data without a frame header")
			}
			scans++
			p = endOfScan(b, p)
		case m >= 0xC0 && m <= 0xCF && m != 0xC4 && m != 0xC8 && m != 0xCC:
			if err := j.frame(seg.payload(b)); err != nil {
				return nil, err
			}
		case m >= mAPP0 && m <= mAPP15 || m == mCOM:
			j.segments = append(j.segments, seg)
			if x, ok := bytes.CutPrefix(seg.payload(b), []byte(exifPrefix)); ok && m == mAPP1 && j.Orientation == 1 {
				j.Orientation = Orientation(x)
			}
		}
	}
}

func (j *JPEG) frame(s []byte) error {
	if len(s) < 6 {
		return broken("frame header of %d bytes", len(s))
	}
	if j.Width != 0 {
		return broken("two frame headers")
	}
	j.Height = int32(s[1])<<8 | int32(s[2])
	j.Width = int32(s[3])<<8 | int32(s[4])
	j.Components = s[5]
	if j.Width == 0 || j.Height == 0 || j.Components == 0 || len(s) < 6+3*int(j.Components) {
		return broken("%d x %d pixels, %d components", j.Width, j.Height, j.Components)
	}
	return nil
}

// endOfScan returns the position of the next marker behind entropy-coded data
// that begins at p, or len(b).
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

// AppendStripped appends the JPEG without its metadata: all APPn and comment
// segments go except JFIF and Adobe, which say how colours are to be read, and
// whatever follows the end marker. The pixels stay the same bit for bit. A file
// with stray bytes between its markers is left as it is.
func (j *JPEG) AppendStripped(dst, b []byte) []byte {
	if j.Odd {
		return append(dst, b...)
	}
	at := 0
	for _, s := range j.segments {
		if keepSegment(s, b) {
			continue
		}
		dst = append(dst, b[at:s.start]...)
		at = s.end
	}
	return append(dst, b[at:j.End]...)
}

func keepSegment(s segment, b []byte) bool {
	switch s.marker {
	case mAPP0:
		return bytes.HasPrefix(s.payload(b), []byte("JFIF\x00"))
	case mAPP14:
		return true
	}
	return false
}

// Exif returns the EXIF data of the file (without the marker and its prefix),
// nil when there is none.
func (j *JPEG) Exif(b []byte) []byte {
	for _, s := range j.segments {
		if s.marker == mAPP1 {
			if x, ok := bytes.CutPrefix(s.payload(b), []byte(exifPrefix)); ok {
				return x
			}
		}
	}
	return nil
}

// ICC returns the colour profile of the file, put together from its segments;
// nil when there is none or a part is missing.
func (j *JPEG) ICC(b []byte) []byte {
	var parts [256][]byte
	count := 0
	for _, s := range j.segments {
		x, ok := bytes.CutPrefix(s.payload(b), []byte(iccPrefix))
		if s.marker != mAPP2 || !ok || len(x) < 2 || x[0] == 0 {
			continue
		}
		parts[x[0]] = x[2:]
		count = int(x[1])
	}
	var out []byte
	for i := 1; i <= count; i++ {
		if parts[i] == nil {
			return nil
		}
		out = append(out, parts[i]...)
	}
	return out
}

// InsertMetadata appends the JPEG b with EXIF data and a colour profile put in
// behind its start (and JFIF) marker. Empty ones are left out.
func InsertMetadata(dst, b, exif, icc []byte) ([]byte, error) {
	if len(b) < 4 || b[0] != 0xFF || b[1] != mSOI {
		return nil, broken("not a JPEG")
	}
	const most = 65533
	if len(exif) > most-len(exifPrefix) {
		return nil, broken("EXIF data of %d bytes does not fit into a segment", len(exif))
	}
	at := 2
	if b[2] == 0xFF && b[3] == mAPP0 && len(b) >= 6 {
		at = 4 + int(b[4])<<8 + int(b[5])
		if at > len(b) {
			return nil, truncated(b, "in the header")
		}
	}
	dst = append(dst, b[:at]...)
	put := func(marker byte, parts ...[]byte) {
		n := 2
		for _, p := range parts {
			n += len(p)
		}
		dst = append(dst, 0xFF, marker, byte(n>>8), byte(n))
		for _, p := range parts {
			dst = append(dst, p...)
		}
	}
	if len(exif) > 0 {
		put(mAPP1, []byte(exifPrefix), exif)
	}
	if len(icc) > 0 {
		const per = most - len(iccPrefix) - 2
		count := (len(icc) + per - 1) / per
		if count > 255 {
			return nil, broken("colour profile of %d bytes does not fit", len(icc))
		}
		for i := range count {
			put(mAPP2, []byte(iccPrefix), []byte{byte(i + 1), byte(count)}, icc[i*per:min(len(icc), (i+1)*per)])
		}
	}
	return append(dst, b[at:]...), nil
}
