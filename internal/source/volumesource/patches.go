package volumesource

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
)

// records numbers the records.
func (s *source) records(o *Options) error {
	n := len(s.columns[0].volumes)
	for i := range n {
		if _, err := s.fault(i); err != nil {
			if err = s.bad.Note(i, err); err != nil {
				return err
			}
		}
	}
	if err := s.bad.Check(n, s.located); err != nil {
		return err
	}
	s.bad.Report(&s.info, func(i int) string {
		c, _ := s.fault(i)
		return c.list.RelPath(int(c.volumes[i].blocks[0].file))
	})
	if o.Patch == [3]int{} {
		s.info.Len = int64(n)
		return nil
	}
	for i, n := range o.Stride {
		if n == 0 {
			o.Stride[i] = o.Patch[i]
		}
	}
	s.stride = o.Stride
	for i := range n {
		s.first = append(s.first, s.info.Len)
		n := int64(1)
		if s.bad.Of(i) != nil {
			s.info.Len++
			continue
		}
		shape := s.columns[0].volumes[i].spatial()
		for a, side := range shape {
			if side < o.Patch[a] {
				return fmt.Errorf("%s has %s voxels, less than a patch of %s", s.columns[0].names[i], sides(shape[:]), sides(o.Patch[:]))
			}
			if n *= s.along(side, a); n > maxPatches {
				break
			}
		}
		if s.info.Len += n; s.info.Len > maxPatches {
			return fmt.Errorf("patch=%s cuts more than %d patches", sides(o.Patch[:]), int64(maxPatches))
		}
	}
	return nil
}

// fault returns the error of a record's volumes, nil if they are good, and the column of the
// bad volume.
func (s *source) fault(n int) (*column, error) {
	for i := range s.columns {
		if c := &s.columns[i]; c.volumes[n].err != nil {
			return c, c.volumes[n].err
		}
	}
	a := &s.columns[0]
	for i := range s.columns {
		b := &s.columns[i]
		if x, y := a.volumes[n].spatial(), b.volumes[n].spatial(); x != y {
			return a, fmt.Errorf("it has %s voxels and %s %s: volumes of a record have the same sides", sides(x[:]), b.names[n], sides(y[:]))
		}
	}
	return a, nil
}

// located adds the path of the bad file of record n to err.
func (s *source) located(n int, err error) error {
	c, _ := s.fault(n)
	return filelist.Located(c.list.Path(int(c.volumes[n].blocks[0].file)), err)
}

// maxPatches limits the number of records.
const maxPatches = 1 << 40

// along returns the number of patches along an axis of a volume.
func (s *source) along(side, axis int) int64 {
	return int64((side-s.patch[axis]+s.stride[axis]-1)/s.stride[axis]) + 1
}

// place returns the volume of a record and the record's part of it.
func (s *source) place(id int64) (n int, box driver.Box) {
	if s.first == nil {
		return int(id), driver.Box{Size: s.columns[0].volumes[id].spatial()}
	}
	box.Size = s.patch
	n = filelist.Find(s.first, id)
	at := id - s.first[n]
	shape := s.columns[0].volumes[n].spatial()
	for a := 2; a >= 0; a-- {
		count := s.along(shape[a], a)
		// The last patch ends with the volume.
		box.At[a] = min(int(at%count)*s.stride[a], shape[a]-s.patch[a])
		at /= count
	}
	return n, box
}

// part is place, reduced to Group.Box if the group requests a part of the record.
func (s *source) part(g *driver.Group, k, field int) (n int, box driver.Box, err error) {
	n, box = s.place(g.IDs[k])
	if g.Box == nil {
		return n, box, nil
	}
	b, ok := g.Box(k, field)
	if !ok {
		return n, box, nil
	}
	for a := range 3 {
		if b.At[a] < 0 || b.Size[a] < 1 || b.At[a] > box.Size[a]-b.Size[a] {
			return n, box, fmt.Errorf("internal error: the part %v of a volume of %s voxels", b, sides(box.Size[:]))
		}
		b.At[a] += box.At[a]
	}
	return n, b, nil
}

// Cuts implements driver.Cutter.
func (s *source) Cuts(field int) bool { return field < len(s.columns) }

// Sides implements driver.Cutter.
func (s *source) Sides(id int64, _ int) [3]int {
	_, box := s.place(id)
	return box.Size
}
