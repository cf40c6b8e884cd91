package sink

import (
	"bytes"
	"path"
	"strings"
)

// soundExt returns the extension for an audio file: by its content if that is known, else by its
// path.
func soundExt(b []byte, name string) string {
	switch {
	case bytes.HasPrefix(b, []byte("RIFF")):
		return ".wav"
	case bytes.HasPrefix(b, []byte("fLaC")):
		return ".flac"
	case bytes.HasPrefix(b, []byte("OggS")):
		if bytes.Contains(b[:min(len(b), 64)], []byte("OpusHead")) {
			return ".opus"
		}
		return ".ogg"
	case bytes.HasPrefix(b, []byte("ID3")), len(b) > 1 && b[0] == 0xFF && b[1]&0xE0 == 0xE0:
		return ".mp3"
	}
	if ext := strings.ToLower(path.Ext(name)); len(ext) > 1 && len(ext) < 8 {
		return ext
	}
	return ".audio"
}
