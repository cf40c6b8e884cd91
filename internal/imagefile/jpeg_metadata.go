package imagefile

import "bytes"

// iccPrefix begins each part of a colour profile.
const iccPrefix = "ICC_PROFILE\x00"

// AppendStripped appends the JPEG without its metadata. It drops everything after the end marker, and all APPn and
// comment segments except JFIF and Adobe, which define the meaning of the colours. The pixels stay the same bit for
// bit. It appends a file with stray bytes between its markers unmodified.
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
