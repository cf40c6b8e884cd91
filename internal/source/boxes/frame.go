package boxes

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/orient"
	"github.com/stokerdata/stoker/source/driver"
)

// Frame is the picture that the annotations of an image belong to.
type Frame struct {
	// W and H are its size.
	W, H int32
	// Turn is the orientation that leads from it to the image as it is stored.
	Turn int32
}

// ApplyOrientation implements driver.Turned.
func (s *Base) ApplyOrientation() { s.shown = true }

// frame returns the frame of the annotations of a record. Annotations without Base.Stated belong to the image as it is
// shown.
func (s *Base) frame(id int64, info *imagefile.Info) (Frame, error) {
	o := int32(info.Orientation)
	stored := Frame{W: info.Width, H: info.Height}
	shown := Frame{Turn: orient.Inverse(o)}
	shown.W, shown.H = orient.Size(o, stored.W, stored.H)
	if s.Stated == nil {
		return shown, nil
	}
	w, h := s.Stated(id)
	none := w < 1 || h < 1
	isStored, isShown := none || w == stored.W && h == stored.H, none || w == shown.W && h == shown.H
	switch {
	case o < 2 && isStored, isStored && !isShown:
		return stored, nil
	case isShown && (!isStored || s.shown):
		return shown, nil
	case isShown:
		return stored, fmt.Errorf("the EXIF orientation %d turns the image, and its annotation does not say whether it belongs to the image before or after: "+
			orient.Ambiguous, o, "annotation")
	case o >= 5 && o <= 8:
		return stored, fmt.Errorf("the annotations are for an image of %d x %d pixels, but the file has %d x %d, and %d x %d when turned: "+
			"correct the size in the annotations, or the file", w, h, stored.W, stored.H, shown.W, shown.H)
	}
	return stored, fmt.Errorf("the annotations are for an image of %d x %d pixels, but the file has %d x %d: "+
		"correct the size in the annotations, or the file", w, h, stored.W, stored.H)
}

// turn gives the boxes and key points of record k the frame of the image as it is stored.
func (s *Base) turn(g *driver.Group, k int, f Frame) error {
	for i := range s.Columns {
		c, v := &s.Columns[i].Field, &g.Records[k].Values[i+1]
		if !g.Wants(i+1) || c.Kind != driver.KindBoxes && c.Kind != driver.KindKeyPoints {
			continue
		}
		out, err := g.Alloc(len(v.Bytes))
		if err != nil {
			return fmt.Errorf("no memory for the %d bytes of field %q: %w", len(v.Bytes), c.Name, err)
		}
		copy(out, v.Bytes)
		v.Bytes = out
		if c.Kind == driver.KindBoxes {
			f.boxes(out, c.Format)
		} else {
			f.points(out)
		}
	}
	return nil
}

func float(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

func put(b []byte, values ...float32) {
	for i, v := range values {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
}

// boxes turns boxes of a format in place.
func (f Frame) boxes(rows []byte, format driver.BoxFormat) {
	for b := rows; len(b) >= 16; b = b[16:] {
		c := [4]float32{float(b), float(b[4:]), float(b[8:]), float(b[12:])}
		switch format {
		case driver.XYXY:
			c = orient.Box(f.Turn, float32(f.W), float32(f.H), c)
		case driver.XYWH:
			c = orient.Box(f.Turn, float32(f.W), float32(f.H), [4]float32{c[0], c[1], c[0] + c[2], c[1] + c[3]})
			c[2], c[3] = c[2]-c[0], c[3]-c[1]
		default: // the middle is a box without sides
			middle := orient.Box(f.Turn, float32(f.W), float32(f.H), [4]float32{c[0], c[1], c[0], c[1]})
			c[0], c[1] = middle[0], middle[1]
			if orient.Swaps(f.Turn) {
				c[2], c[3] = c[3], c[2]
			}
		}
		put(b, c[:]...)
	}
}

// points turns key points in place. Those without a place (0, 0) have none afterwards.
func (f Frame) points(rows []byte) {
	for b := rows; len(b) >= 8; b = b[8:] {
		if p := [2]float32{float(b), float(b[4:])}; p != [2]float32{} {
			p = orient.Point(f.Turn, float32(f.W), float32(f.H), p)
			put(b, p[:]...)
		}
	}
}
