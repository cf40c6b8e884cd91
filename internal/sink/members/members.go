// Package members gives the fields of a record names and bytes of their own, as
// webdataset has them: an ending that says what the bytes are. Sinks of tar files
// and of LMDB share it.
package members

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// Ending is the ending of a field's names, without the extension of images, masks
// and sounds, which differs: "", ".caption.txt". ok is false where the field's name
// cannot be a part of names.
func Ending(f *sinkdriver.Field) (end string, ok bool) {
	if f.Name != strings.ToLower(f.Name) || strings.ContainsAny(f.Name, "./\\\x00") || f.Name == "" || len(f.Name) > 60 {
		return "", false
	}
	usual, ext := "", ""
	switch f.Kind {
	case driver.KindImage:
		usual = "image"
	case driver.KindAudio:
		usual = "audio"
	case driver.KindMask: // its name says that it is one
	case driver.KindLabel:
		usual, ext = "label", ".cls"
	case driver.KindInt:
		usual, ext = "index", ".index"
	case driver.KindText:
		usual, ext = "text", ".txt"
	case driver.KindJSON:
		usual, ext = "json", ".json"
	case driver.KindBytes:
		ext = ".bin"
	default:
		ext = ".npy"
	}
	if f.Name == usual {
		return ext, true
	}
	return "." + f.Name + ext, true
}

// Bytes are those of a value: head, then data. Space is used for small ones.
func Bytes(f *sinkdriver.Field, v *sinkdriver.Value, space []byte) (head, data []byte) {
	switch f.Kind {
	case driver.KindLabel, driver.KindInt:
		return nil, strconv.AppendInt(space[:0], v.Int, 10)
	case driver.KindFloat:
		return npy.AppendHeader(nil, driver.Float64, nil), binary.LittleEndian.AppendUint64(space[:0], math.Float64bits(v.Float))
	}
	if t, shape, ragged, ok := f.Elements(); ok {
		var sides []int64
		if ragged {
			row, _ := driver.ArrayBytes(t, shape)
			sides = append(sides, int64(len(v.Bytes))/row)
		}
		for _, n := range shape {
			sides = append(sides, int64(n))
		}
		head = npy.AppendHeader(nil, t, sides)
	}
	return head, v.Bytes
}
