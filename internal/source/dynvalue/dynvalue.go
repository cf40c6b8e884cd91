// Package dynvalue is shared by sources whose values have their own types: features of a
// tf.train.Example, columns of MDS, values of LMDB. Such a source returns each value as a Value. On
// opening, Columns probes all values and makes the fields. Later, a Schema makes values of these
// fields.
package dynvalue

import (
	"encoding/binary"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
)

// Value is a value as a source stores it.
type Value struct {
	// Form is the form of the value. Bytes of the form column.Texts are a JSON list.
	Form column.Form
	// Bytes are the bytes, the elements (little-endian, in C order) or the pixels.
	Bytes []byte
	// Size is the length of Bytes. On opening, Bytes may have only the first column.HeadBytes or more
	// of a string of bytes. It may be empty for elements that are not probed.
	Size int64
	// Temp is set if the memory of Bytes is reused for the next value.
	Temp bool
	// DType is the type of the elements, Shape the shape of a Flat or List.
	DType driver.DType
	Shape []int
	// Steps is set if a List with one number per row has only one axis.
	Steps bool
	// Min and Max are the smallest and the largest whole number of a Flat.
	Min, Max int64
	// Width, Height and Channels are those of Pixels.
	Width, Height, Channels int32
	// Why describes an Other: "is a list of images".
	Why string
}

// Strings returns a Value of the form Bytes, Text or JSON.
func Strings(f column.Form, b []byte) Value { return Value{Form: f, Bytes: b, Size: int64(len(b))} }

// Add adds a value to its column.
func Add(c *column.Seen, v *Value) {
	switch v.Form {
	case column.Bytes, column.Text, column.JSON:
		if text := c.String(v.Form, v.Bytes, v.Size); text && c.Untyped {
			// It can become a list of one text.
			c.AsJSON.Add(textsSize(v.Bytes) + max(v.Size-int64(len(v.Bytes)), 0)*6)
		}
	case column.Texts:
		c.Count[v.Form]++
		c.AsJSON.Add(v.Size)
	case column.Number:
		c.Number(v.DType, integer(v.DType, v.Bytes))
	case column.Flat, column.List:
		if len(v.Shape) == 0 && len(v.Bytes) > 0 {
			c.Number(v.DType, integer(v.DType, v.Bytes)) // an array without axes
			return
		}
		rows, inner := 0, v.Shape
		if len(v.Shape) > 0 {
			rows, inner = v.Shape[0], v.Shape[1:]
		}
		if v.Steps && len(inner) == 1 && inner[0] == 1 {
			inner = nil
		}
		c.List(v.Form, v.DType, rows, inner, rows > 0 || !v.Steps, v.Size)
		if v.Form == column.Flat {
			c.Bounds(v.Min, v.Max)
		} else if c.Tokens && column.Whole(v.DType) {
			for b := v.Bytes; len(b) >= v.DType.Size(); b = b[v.DType.Size():] {
				n := integer(v.DType, b)
				c.Bounds(n, n)
			}
		}
	case column.Pixels:
		c.Image(v.Width, v.Height, v.Channels, v.Size)
	case column.Other:
		c.Count[v.Form]++
		c.Why = v.Why
	}
}

// integer returns the whole number at the start of b, 0 for other types.
func integer(t driver.DType, b []byte) int64 {
	switch {
	case t == driver.Int64: // the most common type
		return int64(binary.LittleEndian.Uint64(b))
	case t == driver.Bool:
		return int64(b[0])
	case !column.Whole(t):
		return 0
	}
	return t.Type().Int(b)
}
