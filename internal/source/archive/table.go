package archive

import (
	"errors"
	"math"
)

// MaxFileBytes is the largest member that is read.
const MaxFileBytes = 1 << 30

// Member is a file in an archive.
type Member struct {
	Name string
	// At is where it begins in the archive and Extent how many bytes are read
	// from there.
	At, Extent int64
	// Size is the size of its content.
	Size int64
	// Packed, CRC and Deflated are for formats that have Unpack: how many bytes the
	// content takes in the archive, its checksum, and whether it is deflated.
	Packed   int64
	CRC      uint32
	Deflated bool
}

// Table are the members of one archive, in its order, without a pointer for each.
type Table struct {
	names  []byte
	ends   []uint32 // where each name ends
	at     []int64
	size   []int64
	packed []packed // only of formats that have Unpack
}

type packed struct {
	extent, size int64
	crc          uint32
	deflated     bool
}

// add appends a member.
func (t *Table) add(m *Member, unpack bool) error {
	if len(t.names)+len(m.Name) > math.MaxUint32 || len(t.at) >= math.MaxInt32 {
		return errors.New("it has more members than can be listed, or their names are too long")
	}
	t.names = append(t.names, m.Name...)
	t.ends = append(t.ends, uint32(len(t.names)))
	t.at = append(t.at, m.At)
	t.size = append(t.size, m.Size)
	if unpack {
		t.packed = append(t.packed, packed{m.Extent, m.Packed, m.CRC, m.Deflated})
	}
	return nil
}

func (t *Table) len() int { return len(t.at) }

func (t *Table) name(i int) string {
	from := uint32(0)
	if i > 0 {
		from = t.ends[i-1]
	}
	return string(t.names[from:t.ends[i]])
}

// member is member i.
func (t *Table) member(i int) Member {
	m := Member{Name: t.name(i), At: t.at[i], Size: t.size[i], Extent: t.size[i]}
	if t.packed != nil {
		p := &t.packed[i]
		m.Extent, m.Packed, m.CRC, m.Deflated = p.extent, p.size, p.crc, p.deflated
	}
	return m
}

// extent says what is read of member i.
func (t *Table) extent(i int) (at, size int64) {
	if t.packed != nil {
		return t.at[i], t.packed[i].extent
	}
	return t.at[i], t.size[i]
}
