// Package boxes is the shared part of sources for annotated images. A record is an image file. The annotations are
// read when the source is opened, into flat memory. Images without annotations are also records.
package boxes

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// MaxFileBytes is the size limit of an image file.
const MaxFileBytes = 1 << 30

// Column is a field whose values are known after opening, or are set by Base.Make.
type Column struct {
	Field driver.Field
	// Row is the size of one annotation's value. The value of a record is Data[Row*First[i] : Row*First[i+1]].
	Row int
	// Ends are used if Row is 0: the ends in Data of the records' values. A field without Row, Ends and Ints is set
	// by Make alone.
	Ends []int64
	Data []byte
	// Ints are the values of records that are integers.
	Ints []int64
}

// Base is a driver.Source that each format embeds and extends. The first field is the image, then follow Columns.
type Base struct {
	Images  filelist.List
	First   []int64 // the first annotation of each record, and the end
	Columns []Column
	// More are objects after the images.
	More filelist.List
	Left []driver.Skipped
	// Bad are the records whose annotations or masks cannot be read.
	Bad      filelist.Bad
	unlisted map[string]error // files of List that cannot be read
	// MostStacked is an upper estimate for the masks of a record. It is set if it is known better than from the
	// number of pixels.
	MostStacked int64

	// Stated returns the size of the image of a record that its annotations state, 0 x 0 for none. It tells whether they
	// belong to the image as it is stored or as it is shown. Annotations without it belong to the image as it is shown.
	Stated func(id int64) (w, h int32)
	// Header reports whether a wanted field needs the image, even if the image itself is not wanted.
	Header func(g *driver.Group) bool
	// Also adds extents to those of a record.
	Also func(g *driver.Group, k int, id int64) error
	// Make sets the values that are not in Columns. f has no size if the image was not read. ext and bytes are for the
	// extents of Also.
	Make func(g *driver.Group, k int, id int64, f Frame, ext []driver.Extent, bytes [][]byte) error

	info  driver.Info
	shown bool // images are turned as their EXIF orientation says
}

// Init completes opening. It fails if all images are bad. info has the URL and the format. also is added to the fingerprint: all that determines
// the records besides the files.
func (s *Base) Init(info driver.Info, also ...string) error {
	_, largest := s.Images.Bytes()
	info.Len = int64(s.Images.Len())
	info.Objects = info.Len + int64(s.More.Len())
	info.Fields = []driver.Field{{Name: "image", Kind: driver.KindImage, MaxBytes: largest}}
	most := int64(0) // maximum of annotations per record
	for i := range info.Len {
		most = max(most, s.First[i+1]-s.First[i])
	}
	for i := range s.Columns {
		c := &s.Columns[i]
		f := c.Field
		f.Stored = f.Stored || f.Kind == driver.KindBoxes || f.Kind == driver.KindKeyPoints
		switch {
		case c.Row > 0:
			f.MaxBytes = int64(c.Row) * most
		case c.Ends != nil:
			at := int64(0)
			for _, end := range c.Ends {
				f.MaxBytes = max(f.MaxBytes, end-at)
				at = end
			}
		}
		if f.MaxBytes == 0 && f.Kind != driver.KindInt {
			f.MaxBytes = 1 // all values are known to be empty
		}
		info.Fields = append(info.Fields, f)
		also = append(also, f.Name, string(f.Kind), string(f.DType), string(f.Format))
		also = append(also, f.Classes...)
	}
	if s.More.Len() > 0 {
		also = append(also, s.More.Fingerprint())
	}
	info.Fingerprint = s.Images.Fingerprint(also...)
	s.Images.Bad.Report(&info, s.Images.RelPath)
	s.Bad.Report(&info, s.Images.RelPath)
	s.More.Bad.Report(&info, s.More.RelPath)
	s.info = info
	return s.Images.Bad.Check(s.Images.Len(), func(i int, err error) error { return filelist.Located(s.Images.Path(i), err) })
}

// Info implements driver.Source.
func (s *Base) Info() *driver.Info { return &s.info }

// Object implements driver.Source.
func (s *Base) Object(n int64) driver.Object {
	if n < s.info.Len {
		return s.Images.Object(n, false)
	}
	return s.More.Object(n-s.info.Len, true)
}

// Name implements driver.Source.
func (s *Base) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return s.Images.Path(int(id))
}

// Path implements driver.Pather.
func (s *Base) Path(id int64, _ int) string { return s.Images.RelPath(int(id)) }

// Skipped implements driver.Skipper.
func (s *Base) Skipped() []driver.Skipped { return s.Left }

// Locate implements driver.Source.
func (s *Base) Locate(g *driver.Group) {
	image := g.Wants(0) || s.Header != nil && s.Header(g)
	filelist.Locate(g, &s.info, func(k int, id int64) {
		begin := len(g.Extents)
		err := s.Bad.Of(int(id))
		if err == nil && image {
			size := s.Images.Size(int(id))
			if bad := s.Images.Bad.Of(int(id)); bad != nil {
				err = filelist.Located(s.Images.Path(int(id)), bad)
			} else if size > MaxFileBytes {
				err = &store.Error{Op: "read", Path: s.Images.Path(int(id)), Err: fmt.Errorf("it has %d bytes, the limit is %d", size, int64(MaxFileBytes))}
			}
			g.Extents = append(g.Extents, driver.Extent{Object: id, Size: size, Field: -1, Tail: true})
		}
		if err == nil && s.Also != nil {
			err = s.Also(g, k, id)
		}
		if err != nil {
			g.Records[k].Err, g.Extents = err, g.Extents[:begin]
		}
	})
}

// Parse implements driver.Source.
func (s *Base) Parse(g *driver.Group) error {
	image := g.Wants(0) || s.Header != nil && s.Header(g)
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		ext, read := g.Of(k)
		var f Frame
		if image {
			if f, rec.Err = s.look(g, k, read[0]); rec.Err != nil {
				continue
			}
			ext, read = ext[1:], read[1:]
		}
		for i := range s.Columns {
			if v := &rec.Values[i+1]; g.Wants(i + 1) {
				c := &s.Columns[i]
				if c.Ints != nil {
					v.Int = c.Ints[id]
				} else {
					v.Bytes = s.Value(i, id)
				}
			}
		}
		if s.Make != nil {
			if err := s.Make(g, k, id, f, ext, read); err != nil {
				return err
			}
		}
		if f.Turn > 1 && rec.Err == nil {
			if err := s.turn(g, k, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// look sets the value of an image and returns the frame of its annotations, which its header tells.
func (s *Base) look(g *driver.Group, k int, file []byte) (f Frame, err error) {
	v := &g.Records[k].Values[0]
	if g.Wants(0) {
		v.Bytes = file
	}
	info, err := imagefile.Probe(file)
	if err == nil {
		if g.Wants(0) {
			v.Codec, v.Width, v.Height, v.Orientation = info.Codec, info.Width, info.Height, int32(info.Orientation)
		}
		f, err = s.frame(g.IDs[k], &info)
	}
	if err == nil || !s.framed(g) { // who decodes the image tells what is wrong with it
		return f, nil
	}
	return f, fmt.Errorf("%s: %w", s.Images.Path(int(g.IDs[k])), err)
}

// framed reports whether a wanted field depends on the frame of the annotations.
func (s *Base) framed(g *driver.Group) bool {
	for i := range s.Columns {
		if g.Wants(i+1) && s.info.Fields[i+1].Stored {
			return true
		}
	}
	return false
}

// Value returns the value of a column, without a copy.
func (s *Base) Value(column int, id int64) []byte {
	from, to := s.span(column, id)
	return s.Columns[column].Data[from:to:to]
}

func (s *Base) span(column int, id int64) (from, to int64) {
	c := &s.Columns[column]
	switch {
	case c.Data == nil:
	case c.Row > 0:
		return int64(c.Row) * s.First[id], int64(c.Row) * s.First[id+1]
	case c.Ends != nil:
		if id > 0 {
			from = c.Ends[id-1]
		}
		to = c.Ends[id]
	}
	return from, to
}

// Sizes implements driver.Sizer.
func (s *Base) Sizes(field int, ids, sizes []int64) bool {
	if field == 0 || s.Columns[field-1].Row == 0 && s.Columns[field-1].Ends == nil {
		return false
	}
	for k, id := range ids {
		from, to := s.span(field-1, id)
		sizes[k] = to - from
	}
	return true
}

// Held implements driver.Holder.
func (s *Base) Held() int64 {
	n := int64(8 * len(s.First))
	for i := range s.Columns {
		c := &s.Columns[i]
		n += int64(len(c.Data)) + 8*int64(len(c.Ends)+len(c.Ints))
	}
	return n
}

// Close implements driver.Source.
func (s *Base) Close() error { return nil }

// Order sorts annotations by record, of which there are n. The order within a record is kept. Annotations of record
// -1 are omitted.
func Order(n int, record []int32) (first []int64, order []int32) {
	first = make([]int64, n+1)
	for _, r := range record {
		if r >= 0 {
			first[r+1]++
		}
	}
	for i := range n {
		first[i+1] += first[i]
	}
	order = make([]int32, first[n])
	next := make([]int64, n)
	copy(next, first)
	for i, r := range record {
		if r >= 0 {
			order[next[r]] = int32(i)
			next[r]++
		}
	}
	return first, order
}

// Pick returns the rows of data in this order.
func Pick(data []byte, row int, order []int32) []byte {
	out := make([]byte, 0, len(order)*row)
	for _, i := range order {
		out = append(out, data[int(i)*row:(int(i)+1)*row]...)
	}
	return out
}

// Float32 appends float32 numbers to b.
func Float32(b []byte, values ...float64) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return b
}

// Int64 appends an int64 number to b.
func Int64(b []byte, v int64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(v)) }

// The fields that all sources of boxes have.
const (
	BoxField   = "boxes"
	LabelField = "labels"
)

// Boxes returns a column of boxes.
func Boxes(format driver.BoxFormat, data []byte) Column {
	return Column{Field: driver.Field{Name: BoxField, Kind: driver.KindBoxes, DType: driver.Float32, Shape: []int{4}, Format: format}, Row: 16, Data: data}
}

// Labels returns a column of class numbers, one per box.
func Labels(classes []string, data []byte) Column {
	return Column{Field: driver.Field{Name: LabelField, Kind: driver.KindMultiLabel, Classes: classes, Boxes: BoxField}, Row: 8, Data: data}
}

// Each returns a column with a number per box.
func Each(name string, t driver.DType, data []byte) Column {
	return Column{Field: driver.Field{Name: name, Kind: driver.KindRagged, DType: t, Boxes: BoxField}, Row: t.Size(), Data: data}
}

// Masks selects what the mask of an image contains.
type Masks string

// The kinds of masks.
const (
	NoMasks Masks = ""
	// Classes: pixels have class number + 1, 0 is the background.
	Classes Masks = "classes"
	// Instances: pixels have the number of the annotation in its image, from 1. 0 is the background. The field
	// "instances" has the number of each box.
	Instances Masks = "instances"
	// Stack: a mask of 0 and 1 for each annotation, in the field "masks".
	Stack Masks = "stack"
)

// MasksParam is the parameter of a URL that adds masks.
var MasksParam = format.Param{
	Name: "masks", Type: format.Choice, Choices: []string{string(Classes), string(Instances), string(Stack)},
	Help: "Add masks: of class numbers, of instance numbers, or one per object.",
}

// MaskColumns returns the columns for masks of a kind: the mask, and the instance numbers. A mask has at most most
// pixels.
func (s *Base) MaskColumns(m Masks, classes []string, most int64) ([]Column, error) {
	if m == NoMasks {
		return nil, nil
	}
	if m == Stack {
		n := int64(0)
		for i := range len(s.First) - 1 {
			n = max(n, s.First[i+1]-s.First[i])
		}
		bytes := max(n*mask.MaxStacked(most), 1)
		if s.MostStacked > 0 {
			bytes = min(bytes, s.MostStacked)
		}
		f := driver.Field{Name: "masks", Kind: driver.KindMasks, DType: driver.Uint8, Boxes: BoxField, Stored: true, Most: []int{int(n)}, MaxBytes: bytes}
		return []Column{{Field: f}}, nil
	}
	f := driver.Field{Name: "mask", Kind: driver.KindMask, DType: driver.Uint8, Stored: true}
	if m == Classes {
		f.Classes = append([]string{"background"}, classes...)
		if len(classes) > math.MaxUint8 {
			f.DType = driver.Uint16
		}
		if len(classes) > math.MaxUint16 {
			return nil, fmt.Errorf("a mask cannot have %d classes", len(classes))
		}
		f.MaxBytes = most * int64(f.DType.Size())
		return []Column{{Field: f}}, nil
	}
	f.DType = driver.Uint16
	f.MaxBytes = most * 2
	var numbers []byte
	for i := range len(s.First) - 1 {
		n := s.First[i+1] - s.First[i]
		if n > math.MaxUint16 {
			return nil, fmt.Errorf("%s has %d annotations, but a mask of instances can have only %d", s.Images.Path(i), n, math.MaxUint16)
		}
		for k := range n {
			numbers = binary.LittleEndian.AppendUint16(numbers, uint16(k+1))
		}
	}
	return []Column{{Field: f}, Each("instances", driver.Uint16, numbers)}, nil
}
