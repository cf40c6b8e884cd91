package pack

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/source/driver"
)

// encodeMask stores the mask src as p says: the file as it is, plain class
// numbers, or runs of them, where they are not longer.
func (e *encoder) encodeMask(src *driver.Value, f *Field, p *picture, v *value, buf *[]byte) error {
	m, err := mask.Open(src)
	if err != nil {
		return &BadInput{Reason: err.Error()}
	}
	if size := f.DType.Size(); m.Size != size {
		if m, err = m.Resized(size); err != nil {
			return &BadInput{Reason: fmt.Sprintf("field %q has %s: %v", f.Name, f.DType, err)}
		}
	}
	file := *p
	if file.gray = false; !file.plain() {
		if m, err = e.changed(m, p); err != nil {
			return err
		}
	}
	v.Width, v.Height = int32(m.Width), int32(m.Height)
	if v.classes, err = countClasses(m, f.Classes); err != nil {
		return err
	}
	switch {
	case p.how == ImagesKeep && file.plain() && src.Codec != driver.CodecRaw && src.Codec != driver.CodecRuns:
		*buf, v.Codec = append((*buf)[:0], src.Bytes...), imageCodec(src)
	case p.how == ImagesRaw:
		*buf, v.Codec = append((*buf)[:0], m.Pix...), driver.CodecRaw
	default:
		if *buf, v.Codec = mask.AppendRuns((*buf)[:0], m), driver.CodecRuns; len(*buf) > len(m.Pix) {
			*buf, v.Codec = append((*buf)[:0], m.Pix...), driver.CodecRaw
		}
	}
	v.Bytes = *buf
	return nil
}

// countClasses counts the pixels of each class.
func countClasses(m *mask.Mask, names []string) (map[int64]int64, error) {
	counts := make([]int64, 1<<(8*m.Size))
	if m.Size == 1 {
		for _, c := range m.Pix {
			counts[c]++
		}
	} else {
		for i := 0; i+1 < len(m.Pix); i += 2 {
			counts[int(m.Pix[i])|int(m.Pix[i+1])<<8]++
		}
	}
	out := map[int64]int64{}
	for c, n := range counts {
		if n == 0 {
			continue
		}
		if names != nil && c >= len(names) {
			return nil, &BadInput{Reason: fmt.Sprintf("class number %d in a mask of %d classes", c, len(names))}
		}
		out[int64(c)] = n
	}
	return out, nil
}

// checkMask decodes a stored mask, to see whether that works.
func checkMask(v *driver.Value, f *Field, buf []byte) ([]byte, error) {
	size := f.DType.Size()
	buf = grow(buf, size*int(v.Width)*int(v.Height))
	return buf, mask.Box(buf, size, v, item.Rect{W: v.Width, H: v.Height})
}
