// Package members names and encodes the fields of a record in the convention of webdataset, in
// which the ending of a name gives the type of the bytes. The tar and LMDB sinks share it.
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

// Ending returns the ending of a field's names, for example "" or ".caption.txt". The extension of
// images, masks and sounds differs per value and is not included. ok is false if the field's name
// cannot be part of a file name.
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
	case driver.KindMask: // the name of the field already says that it is a mask
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

// Bytes returns the bytes of a value: head, then data. Small values are written to space.
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
