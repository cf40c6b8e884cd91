package archive

import (
	"errors"
	"math"

	"github.com/zeebo/xxh3"
)

// MaxFileBytes is the size limit of a member.
const MaxFileBytes = 1 << 30

// Member describes a file in an archive.
type Member struct {
	Name string
	// At is the offset in the archive from which Extent bytes are read.
	At, Extent int64
	// Size is the size of the content.
	Size int64
	// Packed, CRC and Deflated are for formats with Unpack: the size of the content in the archive, its checksum,
	// and whether it is deflated.
	Packed   int64
	CRC      uint32
	Deflated bool
	// NameSum is NameSum of the name in the directory, as the archive has it.
	NameSum uint16
}

// NameSum returns a checksum of the name of a member, for formats that have the name in two places.
func NameSum(name []byte) uint16 { return uint16(xxh3.Hash(name)) }

// Table lists the members of one archive in their order. Its arrays avoid a pointer per member.
type Table struct {
	names  []byte
	ends   []uint32 // end of each name in names
	at     []int64
	size   []int64
	packed []packed // only if the format has Unpack
}

type packed struct {
	extent, size int64
	crc          uint32
	name         uint16
	deflated     bool
}

// add appends a member.
func (t *Table) add(m *Member, unpack bool) error {
	if len(t.names)+len(m.Name) > math.MaxUint32 || len(t.at) >= math.MaxInt32 {
		return errors.New("too many members, or their names are too long")
	}
	t.addName(m.Name)
	t.at = append(t.at, m.At)
	t.size = append(t.size, m.Size)
	if unpack {
		t.packed = append(t.packed, packed{m.Extent, m.Packed, m.CRC, m.NameSum, m.Deflated})
	}
	return nil
}

func (t *Table) addName(name string) {
	t.names = append(t.names, name...)
	t.ends = append(t.ends, uint32(len(t.names)))
}

// renamed returns a table of the same members with the names of the first n of them. The others follow with addName.
func (t *Table) renamed(n int) *Table {
	out := *t
	out.names, out.ends = nil, nil
	for i := range n {
		out.addName(t.name(i))
	}
	return &out
}

func (t *Table) len() int { return len(t.at) }

func (t *Table) name(i int) string {
	from := uint32(0)
	if i > 0 {
		from = t.ends[i-1]
	}
	return string(t.names[from:t.ends[i]])
}

// member returns member i.
func (t *Table) member(i int) Member {
	m := Member{Name: t.name(i), At: t.at[i], Size: t.size[i], Extent: t.size[i]}
	if t.packed != nil {
		p := &t.packed[i]
		m.Extent, m.Packed, m.CRC, m.NameSum, m.Deflated = p.extent, p.size, p.crc, p.name, p.deflated
	}
	return m
}

// extent returns the byte range to read for member i.
func (t *Table) extent(i int) (at, size int64) {
	if t.packed != nil {
		return t.at[i], t.packed[i].extent
	}
	return t.at[i], t.size[i]
}
