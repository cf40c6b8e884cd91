package filelist

import (
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// sounds are the extensions of audio files.
var sounds = []string{".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".aif", ".aiff"}

// numeric are the extensions of files with numbers per pixel.
var numeric = []string{".pfm", ".flo"}

// MapType sets the type of an image field if the first bytes of a file are those of a map of
// numbers, for example depth.
func MapType(f *driver.Field, head []byte) {
	switch imagefile.Detect(head) {
	case driver.CodecPFM, driver.CodecFlo:
		if info, err := imagefile.Probe(head); err == nil {
			f.DType, f.Shape = driver.Float32, []int{}
			if info.Channels > 1 {
				f.Shape = []int{int(info.Channels)}
			}
		}
	}
}

// KindOf returns the kind of a field from the field's name and the name of a file. The
// extension selects images, audio, text, JSON or bytes. Images are masks if "mask" or "segm" is
// part of the field's name.
func KindOf(field, file string) driver.Kind {
	ext := strings.ToLower(path.Ext(file))
	name := strings.ToLower(field)
	switch {
	case slices.Contains(driver.ImageExtensions, ext) && (strings.Contains(name, "mask") || strings.Contains(name, "segm")):
		return driver.KindMask
	case slices.Contains(driver.ImageExtensions, ext):
		return driver.KindImage
	case slices.Contains(numeric, ext):
		return driver.KindImage
	case slices.Contains(sounds, ext):
		return driver.KindAudio
	case ext == ".txt":
		return driver.KindText
	case ext == ".json":
		return driver.KindJSON
	}
	return driver.KindBytes
}
