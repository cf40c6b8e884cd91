package kind

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/orient"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// guide is the field of boxes that the operations of an image use.
type guide struct {
	field  int
	name   string
	format transform.BoxFormat
	stored bool // driver.Field.Stored
}

// guide returns the boxes that follow an output and that its operations use, nil if there are none.
func (p *Planner) guide(prog *transform.Program, output string) (*guide, error) {
	if !prog.Guided() {
		return nil, nil
	}
	for i := range p.Wants {
		w := &p.Wants[i]
		if w.F.Kind != driver.KindBoxes || w.Out.Follow != output && (w.Out.Follow != "" || firstImage(p) != output) {
			continue
		}
		format, err := transform.ParseBoxFormat(string(w.F.Format))
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", w.F.Name, err)
		}
		return &guide{w.Field, w.F.Name, format, w.F.Stored}, nil
	}
	return nil, fmt.Errorf("output %q: RandomIoUCrop crops around the boxes of the image, and the batch has none; also name their field in fields", output)
}

// boxes returns the boxes of a record as corners in its image, which info describes.
func (g *guide) boxes(rec *driver.Record, info decode.Info) ([][4]float32, error) {
	v := rec.Values[g.field].Bytes
	if len(v)%16 != 0 {
		return nil, fmt.Errorf("field %q has %d bytes, which is not a number of rows of 16 bytes each", g.name, len(v))
	}
	out := make([][4]float32, len(v)/16)
	for i := range out {
		var b [4]float32
		for j := range b {
			b[j] = float(v[(4*i+j)*4:])
		}
		out[i] = g.format.ToXYXY(b)
	}
	if g.stored {
		turnBoxes(out, info)
	}
	return out, nil
}

// turnBoxes turns the corners of boxes of a stored image as the image is turned that info describes.
func turnBoxes(boxes [][4]float32, info decode.Info) {
	w, h := orient.Size(info.Orientation, info.Width, info.Height)
	for i, b := range boxes {
		boxes[i] = orient.Box(info.Orientation, float32(w), float32(h), b)
	}
}

// turnPoints rotates key points like turnBoxes rotates boxes. Points without a position (0, 0) stay without one.
func turnPoints(points [][2]float32, info decode.Info) {
	w, h := orient.Size(info.Orientation, info.Width, info.Height)
	for i, p := range points {
		if p != [2]float32{} {
			points[i] = orient.Point(info.Orientation, float32(w), float32(h), p)
		}
	}
}
