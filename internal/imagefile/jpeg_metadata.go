package imagefile

import "bytes"

// iccPrefix is in front of each part of a colour profile.
const iccPrefix = "ICC_PROFILE\x00"

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
			if x, ok := bytes.CutPrefix(s.payload(b), []byte(exifMark)); ok {
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
	if len(exif) > most-len(exifMark) {
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
		put(mAPP1, []byte(exifMark), exif)
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
