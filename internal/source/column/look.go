package column

import (
	"strings"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/audio"
	"github.com/stokerdata/stoker/internal/imagefile"
)

// content is the apparent content of a string of bytes.
type content uint8

const (
	isEmpty content = iota
	isBinary
	isText
	isImage
	isSound
	contents
)

const (
	// LookAt is the number of values to probe in a source that does not read all values on opening.
	LookAt = 8
	// HeadBytes is the number of bytes of a value that are enough to detect its content.
	HeadBytes = 4 << 10
	// MaskBytes is the number of bytes of an image that are enough to read its bit depth.
	MaskBytes = 64 << 10
)

// look returns the content of a value of size bytes that begins with head.
func look(head []byte, size int64) content {
	switch {
	case size == 0:
		return isEmpty
	case imagefile.IsPicture(head, int64(len(head)) == size):
		return isImage
	case hasSound(head):
		return isSound
	case IsText(head, size):
		return isText
	}
	return isBinary
}

// hasSound reports whether b begins as a file of sound.
func hasSound(b []byte) bool {
	has := func(at int, s string) bool { return len(b) >= at+len(s) && string(b[at:at+len(s)]) == s }
	return audio.HasMagic(b) || has(0, "ID3\x03") || has(0, "ID3\x04") || has(4, "ftypM4A") || len(b) > 3 && b[0] == 0xFF && b[1]&0xF6 == 0xF2 && b[2] < 0xF0
}

// IsText reports whether a value of size bytes that begins with b is UTF-8 without the
// control characters that only other data has.
func IsText(b []byte, size int64) bool {
	if int64(len(b)) < size { // b may end within a rune
		for n := 0; n < utf8.UTFMax && len(b) > 0; n++ {
			if r, _ := utf8.DecodeLastRune(b); r != utf8.RuneError {
				break
			}
			b = b[:len(b)-1]
		}
	}
	if !utf8.Valid(b) {
		return false
	}
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' && c != '\f' && c != 0x1B {
			return false
		}
	}
	return true
}

// isMask reports whether a field has a name of masks.
func isMask(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "mask") || strings.Contains(name, "segm")
}
