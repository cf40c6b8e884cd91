package sink

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// A field of masks is [n, H, W], and n, H and W differ per record. It is written as two fields: the
// uint8 pixels of all masks, one mask after the other, and the shape [n, H, W].

// part reports which half of a masks field an output field holds.
type part uint8

const (
	whole  part = iota // any other kind of field
	pixels             // the pixels of masks
	shape
)

// shapeName returns the name of the field with the shapes.
func shapeName(name string) string { return name + "_shape" }

// split returns the two output fields of a masks field.
func split(f sinkdriver.Field) (values, shapes sinkdriver.Field) {
	values = sinkdriver.Field{Field: driver.Field{Name: f.Name, Kind: driver.KindRagged, DType: driver.Uint8}, Masks: true}
	shapes = sinkdriver.Field{Field: driver.Field{Name: shapeName(f.Name), Kind: driver.KindArray, DType: driver.Int64, Shape: []int{3}}}
	return values, shapes
}

// stack unpacks the masks of a record into memory of its group.
func (j *group) stack(f *sinkdriver.Field, v *driver.Value) (values, shapes []byte, err error) {
	fail := func(err error) ([]byte, []byte, error) { return nil, nil, fmt.Errorf("field %q: %w", f.Name, err) }
	masks, w, h, err := mask.Stack(v.Bytes, nil)
	if err != nil {
		return fail(err)
	}
	one := int64(w) * int64(h)
	if one > 0 && int64(len(masks)) > recordread.MaxValue/one {
		return fail(fmt.Errorf("%d masks of %d x %d pixels take more than the limit of %d bytes", len(masks), w, h, int64(recordread.MaxValue)))
	}
	if values, err = j.mem.take(int(int64(len(masks)) * one)); err != nil {
		return fail(err)
	}
	for i, runs := range masks {
		of := driver.Value{Bytes: runs, Codec: driver.CodecRuns, Width: int32(w), Height: int32(h), Channels: 1}
		if err := mask.Box(values[int64(i)*one:int64(i+1)*one], 1, &of, item.Rect{W: of.Width, H: of.Height}); err != nil {
			return fail(fmt.Errorf("mask %d: %w", i, err))
		}
	}
	if shapes, err = j.mem.take(24); err != nil {
		return fail(err)
	}
	for i, n := range []int{len(masks), h, w} {
		binary.LittleEndian.PutUint64(shapes[8*i:], uint64(n))
	}
	return values, shapes, nil
}

// mostStacked returns the most bytes that the masks of one record can take, computed from the size
// of the largest image. If the size is not known it returns the whole budget, so that one record is
// processed at a time.
func (c *conversion) mostStacked(f *driver.Field) int64 {
	if len(f.Most) != 1 {
		return math.MaxInt32
	}
	n := int64(0)
	for i := range c.info.Fields {
		if o := &c.info.Fields[i]; o.Kind == driver.KindImage {
			n = max(n, int64(max(o.Width, o.MaxWidth))*int64(max(o.Height, o.MaxHeight)))
		}
	}
	if n == 0 {
		return math.MaxInt32
	}
	return min(int64(f.Most[0])*n, math.MaxInt32)
}
