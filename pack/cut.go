package pack

import (
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
)

// Parts of volumes are read without the rest, because a chunk stores their voxels unencoded. One pack therefore
// serves crops of any size.

// leastCut is the minimum size of volumes of which a part is read alone. Reading a smaller one completely takes no
// longer.
const leastCut = 1 << 20

// wholeOnce is the maximum size of volumes that are read completely on the first read of any part. Their checksum can
// then be compared, and the memory is available for a record of any size.
const wholeOnce = 256 << 10

// Cuts implements driver.Cutter.
func (r *Reader) Cuts(field int) bool {
	x := &r.x.fields[field]
	return x.volume && x.unit >= leastCut
}

// Sides implements driver.Cutter.
func (r *Reader) Sides(_ int64, field int) [3]int { return r.x.fields[field].voxels.Sides }

// part returns the requested part of the volume of record k, false for the whole volume.
func (x *fieldIndex) part(g *driver.Group, k int) (driver.Box, bool) {
	if !x.volume || g.Box == nil {
		return driver.Box{}, false
	}
	return g.Box(k, x.field)
}

// locatePart appends the location of a part of a volume that begins at an offset of an object.
func (r *Reader) locatePart(g *driver.Group, k int, x *fieldIndex, box *driver.Box, e driver.Extent, row int64) {
	if !x.voxels.Inside(box) {
		g.Records[k].Err = fmt.Errorf("internal error: the part %v of a volume of %v voxels", *box, x.voxels.Sides)
		return
	}
	from, begin := e.Offset, len(g.Extents)
	e.Field = -1
	if x.unit <= wholeOnce && (g.Unproven || !x.known(row)) {
		g.Extents = append(g.Extents, e)
		return
	}
	x.voxels.Runs(box, func(offset, size int64) {
		e.Offset, e.Size = from+offset, size
		g.Extents = append(g.Extents, e)
	})
	if len(g.Extents) == begin+1 && e.Size == x.voxels.Bytes(box) {
		g.Extents[begin].Field = int32(x.field)
	}
}

// parsePart builds the value of a part from the bytes at position next, and returns the position after them.
func (r *Reader) parsePart(g *driver.Group, k int, x *fieldIndex, box *driver.Box, held []byte, next int32, row int64) (int32, error) {
	v := &g.Records[k].Values[x.field]
	if held == nil && int64(len(g.Bytes[next])) == x.unit { // all of it
		held = g.Bytes[next]
		next++
		if !x.check(row, held, g.Unproven) {
			c := r.find.chunk(row)
			g.Records[k].Err = r.mismatch(c, row-r.find.first[c], x)
			return next, nil
		}
	}
	v.Depth, v.Height, v.Width = int32(box.Size[0]), int32(box.Size[1]), int32(box.Size[2])
	var runs [][]byte
	x.voxels.Runs(box, func(offset, size int64) {
		if held != nil {
			runs = append(runs, held[offset:offset+size])
		} else {
			runs = append(runs, g.Bytes[next])
			next++
		}
	})
	bytes := x.voxels.Bytes(box)
	if len(runs) == 1 && int64(len(runs[0])) == bytes {
		v.Bytes = runs[0]
		return next, nil
	}
	to, err := g.Take(k, x.field, bytes)
	if err != nil {
		return next, fmt.Errorf("no memory for the %d bytes of %s: %w", bytes, r.Name(g.IDs[k]), err)
	}
	v.Bytes = to
	return next, x.voxels.Cut(to, box, runs)
}
