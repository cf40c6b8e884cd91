package vocsource

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/source/driver"
)

// border is the value of the pixels around objects. They do not belong to any object.
const border = 255

// addStack adds a mask per object from SegmentationObject, whose pixels have the number of the object in the XML
// file, from 1.
func (s *source) addStack(ctx context.Context) error {
	most, err := s.More.MostPixels(ctx)
	if err != nil {
		return err
	}
	cols, err := s.MaskColumns(boxes.Stack, nil, min(max(most, 1), mask.MaxPixels))
	if err != nil {
		return err
	}
	s.addFile(cols[0], func(g *driver.Group, at, k int, id int64, f boxes.Frame, file []byte) error {
		rec := &g.Records[k]
		stack, bad := objectMasks(file, int(s.First[id+1]-s.First[id]), f)
		if bad != nil {
			rec.Err = fmt.Errorf("%s: %w", s.More.Path(int(id)), bad)
			return nil
		}
		out, err := g.Alloc(len(stack))
		if err != nil {
			return fmt.Errorf("no memory for the masks of %s: %w", s.More.Path(int(id)), err)
		}
		copy(out, stack)
		rec.Values[at].Bytes = out
		return nil
	})
	return nil
}

// objectMasks returns a stack of n masks, for the numbers 1 to n in a file.
func objectMasks(file []byte, n int, f boxes.Frame) ([]byte, error) {
	m, err := mask.FromFile(file)
	if err == nil {
		m, err = turned(m, f)
	}
	if err != nil {
		return nil, err
	}
	numbers := make([]uint16, m.Width*m.Height)
	for i := range numbers {
		if m.Size == 2 {
			numbers[i] = binary.LittleEndian.Uint16(m.Pix[2*i:])
		} else {
			numbers[i] = uint16(m.Pix[i])
		}
		if v := int(numbers[i]); v > n && v != border {
			return nil, fmt.Errorf("the pixel %d, %d has object number %d, but the XML file has only %d", i%m.Width, i/m.Width, v, n)
		}
	}
	var stack []byte
	one := &mask.Mask{Width: m.Width, Height: m.Height, Size: 1, Pix: make([]byte, len(numbers))}
	for k := range n {
		if k+1 == border { // this object would look like the border
			clear(one.Pix)
		} else {
			for i, v := range numbers {
				one.Pix[i] = 0
				if int(v) == k+1 {
					one.Pix[i] = 1
				}
			}
		}
		stack = mask.AppendToStack(stack, one)
	}
	return stack, nil
}
