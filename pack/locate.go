package pack

import (
	"fmt"
	"math"

	"github.com/stokerdata/stoker/source/driver"
)

// This file implements the Reader as a driver.Source: objects are the shards, and the head of a chunk is the index of
// its rows.

// Object implements driver.Source.
func (r *Reader) Object(n int64) driver.Object {
	return driver.Object{Store: r.st, Entry: r.entries[n], Keep: true}
}

// Locate implements driver.Source.
func (r *Reader) Locate(g *driver.Group) {
	for k, id := range g.IDs {
		if rec := &g.Records[k]; rec.Err == nil {
			if uint64(id) >= uint64(r.man.Records) {
				rec.Err = fmt.Errorf("record %d is outside of the %d records of %s", id, r.man.Records, r.opt.URL)
			} else {
				r.locate(g, k, r.gone.stored(id))
			}
		}
		g.Next()
	}
}

func (r *Reader) locate(g *driver.Group, k int, row int64) {
	c := r.find.chunk(row)
	ref := &r.chunks[c]
	if !r.loaded[c].Load() {
		size := ref.head
		if r.opt.VerifyChunks {
			size = ref.bytes
		}
		g.Missing = append(g.Missing, driver.Missing{K: k, Extent: driver.Extent{Object: int64(ref.shard), Offset: ref.offset, Size: size, Field: -1}})
		return
	}
	for i := range r.x.fields {
		x := &r.x.fields[i]
		at := c*len(r.x.fields) + i
		if x.number || !g.Wants(i) || r.x.held[at] != nil {
			continue
		}
		from, to := x.units(c, row, r.find.first[c])
		e := driver.Extent{
			Object: int64(ref.shard), Offset: ref.offset + int64(r.x.base[at]) + from*x.unit, Size: (to - from) * x.unit, Field: int32(i), Tail: x.tail,
		}
		if box, ok := x.part(g, k); ok {
			if r.locatePart(g, k, x, &box, e, row); g.Records[k].Err != nil {
				return
			}
			continue
		}
		if x.picture {
			// Decoders of files read a few bytes past the end of their input.
			e.Field, e.Tail = -1, driver.Codec(x.side[sideCodec].num.at(row)) < driver.CodecRaw
		}
		g.Extents = append(g.Extents, e)
	}
}

// units returns the location of the value of a row of chunk c, in units from the beginning of the chunk's values.
func (x *fieldIndex) units(c int, row, first int64) (from, to int64) {
	if x.varies {
		return int64(x.off[row+int64(c)]), int64(x.off[row+int64(c)+1])
	}
	return row - first, row - first + 1
}

// Sizes implements driver.Sizer.
func (r *Reader) Sizes(field int, ids, sizes []int64) bool {
	x := &r.x.fields[field]
	if x.number {
		return false
	}
	for i, id := range ids {
		row := r.gone.stored(id)
		c := r.find.chunk(row)
		if !r.loaded[c].Load() {
			return false
		}
		from, to := x.units(c, row, r.find.first[c])
		sizes[i] = (to - from) * x.unit
	}
	return true
}

// Shapes implements driver.Shaper.
func (r *Reader) Shapes(field int, ids []int64, shapes []driver.Shape) bool {
	x := &r.x.fields[field]
	if !x.picture {
		return false
	}
	for i, id := range ids {
		row := r.gone.stored(id)
		if !r.loaded[r.find.chunk(row)].Load() {
			return false
		}
		var v driver.Value
		x.describe(row, &v)
		shapes[i] = driver.Shape{Width: v.Width, Height: v.Height, Channels: v.Channels, Orientation: v.Orientation}
		if x.side[sideChannels].leaf < 0 { // a mask
			shapes[i].Channels, shapes[i].Orientation = 1, 1
		}
	}
	return true
}

// Parse implements driver.Source.
func (r *Reader) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		row, next := r.gone.stored(id), g.First[k]
		c := -1
		for i := range r.x.fields {
			x, v := &r.x.fields[i], &rec.Values[i]
			switch {
			case x.float:
				v.Float = math.Float64frombits(uint64(x.num.at(row)))
				continue
			case x.number:
				v.Int = x.num.at(row)
				continue
			case !g.Wants(i):
				continue
			}
			if c < 0 {
				c = r.find.chunk(row)
			}
			held := r.x.held[c*len(r.x.fields)+i]
			if held != nil {
				from, to := x.units(c, row, r.find.first[c])
				held = held[from*x.unit : to*x.unit]
			}
			if box, ok := x.part(g, k); ok {
				var err error
				if next, err = r.parsePart(g, k, x, &box, held, next, row); err != nil {
					return err
				}
				if rec.Err != nil {
					break
				}
				continue
			}
			if held != nil {
				v.Bytes = held
				continue
			}
			v.Bytes = g.Bytes[next]
			next++
			if !x.check(row, v.Bytes, g.Unproven) {
				rec.Err = r.mismatch(c, row-r.find.first[c], x)
				break
			}
			if x.picture {
				x.describe(row, v)
			}
		}
	}
	return nil
}

// mismatch returns the error of a value that differs from its checksum.
func (r *Reader) mismatch(c int, row int64, x *fieldIndex) error {
	name := r.sch.fields[x.field].Name
	return driver.Damaged(fmt.Errorf("%s: field %q does not match its checksum; stoker verify says what else is damaged", r.place(c, row), name))
}

// describe sets the known properties of a picture.
func (x *fieldIndex) describe(row int64, v *driver.Value) {
	v.Codec = driver.Codec(x.side[sideCodec].num.at(row))
	v.Width, v.Height = int32(x.side[sideWidth].num.at(row)), int32(x.side[sideHeight].num.at(row))
	if x.side[sideChannels].leaf >= 0 {
		v.Channels, v.Orientation = int32(x.side[sideChannels].num.at(row)), int32(x.side[sideOrientation].num.at(row))
	}
}
