package columns

import (
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
)

const (
	// LookAt is how many values say what a column of bytes holds.
	LookAt = 8
	// HeadBytes is more than the header of a mask's file has: as much of a value is
	// looked at.
	HeadBytes = 64 << 10
)

// Looker finds out what a column of bytes holds: images, masks, sounds or bytes; and,
// of masks, whether they need two bytes.
type Looker struct {
	c     *Column
	field string
	kind  driver.Kind
	mask  driver.DType
}

// NewLooker looks at the values of a column, for a field of a name.
func NewLooker(c *Column, field string) *Looker {
	return &Looker{c: c, field: field, kind: driver.KindBytes, mask: driver.Uint8}
}

// Look looks at the beginning of a value.
func (l *Looker) Look(head []byte) {
	if info, err := imagefile.Probe(head); err == nil && info.Precision > 8 {
		l.mask = driver.Uint16
	}
	switch {
	case l.kind != driver.KindBytes:
	case imagefile.IsPicture(head, false):
		l.kind = filelist.KindOf(l.field, "x.png") // a mask by the field's name
	case isSound(head):
		l.kind = driver.KindAudio
	}
}

// Found is what the values are.
func (l *Looker) Found() (driver.Kind, driver.DType) {
	switch {
	case l.kind != driver.KindBytes:
	case l.c.Feature.Is("Image"):
		return driver.KindImage, l.mask
	case l.c.Feature.Is("Audio"):
		return driver.KindAudio, l.mask
	}
	return l.kind, l.mask
}

// isSound says whether bytes begin as files of sound do.
func isSound(b []byte) bool {
	has := func(at int, s string) bool { return len(b) >= at+len(s) && string(b[at:at+len(s)]) == s }
	return has(0, "RIFF") && has(8, "WAVE") || has(0, "fLaC") || has(0, "OggS") || has(0, "ID3") ||
		has(4, "ftypM4A") || has(0, "FORM") && has(8, "AIF") || len(b) > 1 && b[0] == 0xFF && b[1]&0xF6 == 0xF2
}
