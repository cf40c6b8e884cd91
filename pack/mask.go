package pack

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/orient"
	"github.com/stokerdata/stoker/source/driver"
)

// encodeMask stores the mask src as p specifies: the unchanged file, plain class numbers, or runs of class numbers if
// they are shorter.
func (e *encoder) encodeMask(src *driver.Value, f *Field, p *picture, v *value, buf *[]byte) error {
	m, err := mask.Open(src)
	if err != nil {
		return &BadInput{Reason: err.Error()}
	}
	turned := m.Orientation
	if size := f.DType.Size(); m.Size != size {
		if m, err = m.Resized(size); err != nil {
			return &BadInput{Reason: fmt.Sprintf("field %q has %s: %v", f.Name, f.DType, err)}
		}
	}
	from := [2]int32{int32(m.Width), int32(m.Height)}
	file := *p
	file.gray = false
	keep := p.how == ImagesKeep && file.plain() && src.Codec != driver.CodecRaw && src.Codec != driver.CodecRuns
	if turned > 1 && !keep {
		return &BadInput{Reason: fmt.Sprintf("the mask has the EXIF orientation %d, which only files have: keep them with --images %s=keep", turned, f.Name)}
	}
	if !file.plain() {
		if m, err = e.changed(m, p); err != nil {
			return err
		}
	}
	v.Width, v.Height, v.fromW, v.fromH = int32(m.Width), int32(m.Height), from[0], from[1]
	if v.classes, err = countClasses(m, f.Classes); err != nil {
		return err
	}
	switch {
	case keep:
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

// sameSizes compares the size of each mask of a record with those of its images, before resizing.
func (in *sourceInput) sameSizes(j *job) error {
	for k := range in.out {
		if in.out[k].Kind != driver.KindMask {
			continue
		}
		other := -1 // an image of another size
		for i := range in.out {
			f := &in.out[i]
			if f.Kind != driver.KindImage || f.DType != "" || variantOf(f.Name) != variantOf(in.out[k].Name) {
				continue
			}
			if other = i; hasSizeOf(&j.rec.values[i], &j.rec.values[k], in.out[k].Stored) {
				other = -1
				break
			}
		}
		if other >= 0 {
			w, h := j.rec.values[other].from()
			mw, mh := j.rec.values[k].from()
			return fmt.Errorf("the image %q has %d x %d pixels and its mask %q%s has %d x %d: images and their masks have the same size",
				in.out[other].Name, w, h, in.out[k].Name, inBrackets(j.rec.values[k].path), mw, mh)
		}
	}
	return nil
}

// hasSizeOf reports whether a mask has the size of an image, either as stored or after its orientation is applied.
func hasSizeOf(image, mask *value, stored bool) bool {
	w, h := image.from()
	mw, mh := mask.from()
	sw, sh := orient.Size(image.Orientation, w, h)
	return w == mw && h == mh || !stored && sw == mw && sh == mh
}

func variantOf(name string) int {
	_, v, _ := driver.CutVariant(name)
	return v
}

func inBrackets(path string) string {
	if path == "" {
		return ""
	}
	return " (" + path + ")"
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
