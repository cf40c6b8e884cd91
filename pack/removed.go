package pack

import (
	"fmt"
	"sort"
)

// Records are removed by a new manifest that lists the removed rows (Chunk.Removed). Shards do not change until
// Compact. The index of a reader uses the numbers of stored rows. Record numbers are converted to stored rows when a
// record is requested.

// rowSet is the set of removed rows of all chunks: ordered runs that do not touch. The zero value is empty.
type rowSet struct {
	first  []int64 // of each run
	before []int64 // rows in the runs before it, and in all
}

// add adds a run after the existing ones.
func (s *rowSet) add(first, n int64) {
	if s.before == nil {
		s.before = []int64{0}
	}
	k := len(s.first)
	if k > 0 && s.first[k-1]+s.run(k-1) == first {
		s.before[k] += n
		return
	}
	s.first = append(s.first, first)
	s.before = append(s.before, s.before[k]+n)
}

func (s *rowSet) run(k int) int64 { return s.before[k+1] - s.before[k] }

// rows returns the number of rows.
func (s *rowSet) rows() int64 {
	if len(s.first) == 0 {
		return 0
	}
	return s.before[len(s.first)]
}

// stored returns the row of record id.
func (s *rowSet) stored(id int64) int64 {
	if len(s.first) == 0 {
		return id
	}
	k := sort.Search(len(s.first), func(k int) bool { return s.first[k]-s.before[k] > id })
	return id + s.before[k]
}

// record returns the record of a row. If the row is removed, has is false and id is the next record.
func (s *rowSet) record(row int64) (id int64, has bool) {
	if len(s.first) == 0 {
		return row, true
	}
	k := sort.Search(len(s.first), func(k int) bool { return s.first[k] > row })
	if k > 0 && row < s.first[k-1]+s.run(k-1) {
		return s.first[k-1] - s.before[k-1], false
	}
	return row - s.before[k], true
}

// removedRows returns the rows that a manifest removes, by their number in the pack.
func (m *Manifest) removedRows() rowSet {
	var s rowSet
	at := int64(0)
	for i := range m.Shards {
		for _, c := range m.Shards[i].Chunks {
			for k := 0; k+1 < len(c.Removed); k += 2 {
				s.add(at+c.Removed[k], c.Removed[k+1])
			}
			at += c.Rows
		}
	}
	return s
}

// removed returns the number of removed rows of the chunk.
func (c *Chunk) removed() (n int64) {
	for k := 1; k < len(c.Removed); k += 2 {
		n += c.Removed[k]
	}
	return n
}

// checkRemoved checks that the removed rows of a chunk are runs of its rows, in order.
func (c *Chunk) checkRemoved() error {
	at := int64(0)
	if len(c.Removed)%2 != 0 {
		return fmt.Errorf("%d numbers of removed rows: they are pairs of first and number", len(c.Removed))
	}
	for k := 0; k < len(c.Removed); k += 2 {
		first, n := c.Removed[k], c.Removed[k+1]
		if first < at || n < 1 || first >= c.Rows || n > c.Rows-first {
			return fmt.Errorf("rows %d to %d of %d are removed", first, first+n-1, c.Rows)
		}
		at = first + n
	}
	return nil
}

// Stored returns the number of rows in the shards, including removed ones.
func (m *Manifest) Stored() (n int64) {
	for i := range m.Shards {
		n += m.Shards[i].Records
	}
	return n
}

// Removed returns the number of removed records whose data is still stored.
func (m *Manifest) Removed() int64 { return m.Stored() - m.Records }
