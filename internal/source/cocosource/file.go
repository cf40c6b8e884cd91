package cocosource

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/jsonread"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// file is the content of a JSON file, in the order of the file.
type file struct {
	r     *jsonread.Reader
	masks bool // whether outlines are needed

	// Images:
	imageID       []int64
	width, height []int32
	fileNames     []byte
	nameEnds      []int64
	// Categories:
	categoryID []int64
	names      []string
	// Annotations:
	image, category, id []int64
	boxes, crowd, area  []byte // boxes are nil if no annotation has one
	boxed               []bool
	points, visible     []byte
	keyPoints           int // per annotation, 0 for none
	segments            []segment
	captions            []byte // nil if there are none
	captionEnds         []int64
	some                bool // whether there are annotations
	// wrong are the first reasons why annotations cannot be used, by their number. Their images are bad records.
	wrong map[int]error
}

// cannot notes why the annotation that is being read cannot be used.
func (f *file) cannot(format string, a ...any) {
	n := len(f.image)
	if f.wrong == nil {
		f.wrong = map[int]error{}
	}
	if f.wrong[n] == nil {
		f.wrong[n] = f.r.Errorf(format, a...)
	}
}

// float reads a number of an annotation. It notes other values, and skips them.
func (f *file) float(what string) (float64, error) {
	v, err := f.r.Number()
	if err == nil && math.IsNaN(v) {
		f.cannot("%s is not a number", what)
	}
	return v, err
}

func (f *file) name(i int) []byte {
	from := int64(0)
	if i > 0 {
		from = f.nameEnds[i-1]
	}
	return f.fileNames[from:f.nameEnds[i]]
}

// caption returns the caption of an annotation, nil if it has none.
func (f *file) caption(i int) []byte {
	from := int64(0)
	if i > 0 {
		from = f.captionEnds[i-1]
	}
	if b := f.captions[from:f.captionEnds[i]]; len(b) > 0 {
		return b[1:] // after the marker byte
	}
	return nil
}

func (f *file) read() error {
	r := f.r
	r.BOM()
	images := false
	err := r.Object(func(key []byte) error {
		switch string(key) {
		case "images":
			images = true
			return r.Array(f.readImage)
		case "categories":
			return r.Array(f.readCategory)
		case "annotations":
			f.some = true
			return r.Array(f.readAnnotation)
		}
		_, _, err := r.Skip()
		return err
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return err
	}
	if !images || !f.some && len(f.imageID) == 0 {
		return fmt.Errorf("%w: it has no list of images", r.Errorf("not a file of COCO"))
	}
	if len(f.imageID) == 0 {
		return r.Errorf("the file has no images")
	}
	if n := len(f.image); n > 0 && f.boxes == nil && f.captions == nil {
		return r.Errorf("none of the %d annotations has a box: write \"bbox\": [x, y, width, height] into each, "+
			"for key points or outlines the box around them", n)
	}
	return nil
}

func (f *file) readImage() error {
	r := f.r
	if len(f.imageID) == maxImages {
		return r.Errorf("more than %d images", maxImages)
	}
	id, width, height := int64(-1), int64(0), int64(0)
	seen, name := false, false
	err := r.Object(func(key []byte) (err error) {
		switch string(key) {
		case "id":
			seen = true
			id, err = r.Int()
		case "width":
			width, err = r.Int()
		case "height":
			height, err = r.Int()
		case "file_name":
			if name {
				return r.Errorf("an image has two file names")
			}
			name = true
			var b []byte
			if b, err = r.String(); err != nil {
				return err
			}
			s := strings.TrimPrefix(string(b), "./")
			if s == "" || store.CheckName(s) != nil {
				return r.Errorf("invalid file name %.60q of an image: expected a path below the folder of images", s)
			}
			f.fileNames = append(f.fileNames, s...)
		default:
			_, _, err = r.Skip()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !seen || !name:
		return r.Errorf("an image has no id or no file_name")
	case width < 0 || height < 0 || width > math.MaxInt32 || height > math.MaxInt32:
		return r.Errorf("an image of %d x %d pixels", width, height)
	}
	f.imageID, f.nameEnds = append(f.imageID, id), append(f.nameEnds, int64(len(f.fileNames)))
	f.width, f.height = append(f.width, int32(width)), append(f.height, int32(height))
	return nil
}

func (f *file) readCategory() error {
	r := f.r
	if len(f.categoryID) == maxCategories {
		return r.Errorf("more than %d categories", maxCategories)
	}
	id, name, seen := int64(0), "", false
	err := r.Object(func(key []byte) (err error) {
		switch string(key) {
		case "id":
			seen = true
			id, err = r.Int()
		case "name":
			var b []byte
			b, err = r.String()
			name = driver.ValidName(string(b))
		default:
			_, _, err = r.Skip()
		}
		return err
	})
	if err == nil && !seen {
		err = r.Errorf("a category has no id")
	}
	if name == "" {
		name = fmt.Sprintf("category %d", id)
	}
	f.categoryID, f.names = append(f.categoryID, id), append(f.names, name)
	return err
}

func (f *file) readAnnotation() error {
	r := f.r
	n := len(f.image)
	if n == maxAnnotations {
		return r.Errorf("more than %d annotations", maxAnnotations)
	}
	var box [4]float64
	image, category, id := int64(0), int64(0), int64(-1)
	area, seg := math.NaN(), segment{}
	crowd, boxed, seen := byte(0), false, false
	points := false
	err := r.Object(func(key []byte) (err error) {
		if null, err := r.Null(); null || err != nil {
			return err
		}
		switch string(key) {
		case "image_id":
			seen = true
			image, err = r.Int()
		case "category_id":
			category, err = r.Int()
		case "id":
			id, err = r.Int()
		case "iscrowd":
			var v bool
			if v, err = r.Bool(); v {
				crowd = 1
			}
		case "area":
			area, err = f.float("its area")
		case "bbox":
			err = f.readBox(&box, &boxed)
		case "segmentation":
			seg, err = f.readSegment()
		case "keypoints":
			if points {
				return r.Errorf("an annotation has key points twice")
			}
			points = true
			err = f.readPoints(n)
		case "caption":
			var b []byte
			if b, err = r.String(); err == nil {
				f.captions = append(append(f.captions, 1), b...)
			}
		default:
			_, _, err = r.Skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if !seen {
		return r.Errorf("an annotation has no image_id")
	}
	if err := f.wrong[n]; err != nil {
		f.wrong[n] = fmt.Errorf("annotation %d: %w", id, err)
	}
	f.image, f.category, f.id = append(f.image, image), append(f.category, category), append(f.id, id)
	f.captionEnds = append(f.captionEnds, int64(len(f.captions)))
	if f.boxed = append(f.boxed, boxed); boxed && f.boxes == nil {
		f.boxes = make([]byte, 16*n) // of those before
	}
	if f.boxes != nil {
		f.boxes = boxes.Float32(f.boxes, box[:]...)
	}
	if math.IsNaN(area) {
		area = box[2] * box[3]
	}
	f.crowd, f.area = append(f.crowd, crowd), boxes.Float32(f.area, area)
	if f.masks {
		f.segments = append(f.segments, seg)
	}
	if k := f.keyPoints; k > 0 && !points {
		f.points, f.visible = append(f.points, make([]byte, 8*k)...), append(f.visible, make([]byte, k)...)
	}
	return nil
}

// readBox reads a box. It sets boxed if the box has four numbers.
func (f *file) readBox(box *[4]float64, boxed *bool) error {
	k := 0
	err := f.r.Array(func() error {
		v, err := f.float("its box")
		if k < 4 {
			box[k] = v
		}
		k++
		return err
	})
	if err == nil && k != 4 && k != 0 {
		f.cannot("its box has %d numbers, expected 4", k)
	}
	*boxed = *boxed || k == 4
	return err
}

// readSegment returns the place of an outline. Without masks it is not needed.
func (f *file) readSegment() (seg segment, err error) {
	from, to, err := f.r.Skip()
	switch {
	case err != nil || !f.masks:
		return seg, err
	case to-from > maxSegment:
		return seg, f.r.Errorf("an outline has %d bytes, the limit is %d", to-from, maxSegment)
	case to-from > 2: // more than [] or {}
		seg.size = int32(to - from)
	}
	seg.at = from
	return seg, nil
}

// readPoints reads the key points of annotation n: x, y and visibility of each.
func (f *file) readPoints(n int) error {
	r := f.r
	from, fromSeen := len(f.points), len(f.visible)
	k := 0
	var x float64
	err := r.Array(func() error {
		v, err := r.Float()
		if err != nil {
			return err
		}
		switch k++; {
		case k > 3*maxKeyPoints:
			return r.Errorf("more than %d key points", maxKeyPoints)
		case k%3 == 1:
			x = v
		case k%3 == 2:
			f.points = boxes.Float32(f.points, x, v)
		case !(v >= 0 && v <= math.MaxUint8):
			return r.Errorf("a key point has the visibility %v", v)
		default:
			f.visible = append(f.visible, byte(v))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if k%3 != 0 {
		return r.Errorf("key points have %d numbers, which is not a multiple of three", k)
	}
	k /= 3
	switch {
	case f.keyPoints == 0 && k > 0: // the annotations before have none
		f.keyPoints = k
		points, seen := f.points[from:], f.visible[fromSeen:]
		f.points = append(make([]byte, 8*k*n), points...)
		f.visible = append(make([]byte, k*n), seen...)
	case k == 0 && f.keyPoints > 0:
		f.points, f.visible = append(f.points, make([]byte, 8*f.keyPoints)...), append(f.visible, make([]byte, f.keyPoints)...)
	case k != f.keyPoints:
		return r.Errorf("an annotation has %d key points, but those before have %d", k, f.keyPoints)
	}
	return nil
}

// appendJSON appends text as a JSON string.
func appendJSON(dst, text []byte) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for len(text) > 0 {
		c := text[0]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(text)
			dst, text = utf8.AppendRune(dst, r), text[n:]
			continue
		}
		text = text[1:]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
