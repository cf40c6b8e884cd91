package pack

import "encoding/binary"

// numbers is a column of whole numbers. Each is stored as its distance from the smallest, in as few bytes as the
// largest needs: none if all are equal, one or two for most labels and sizes.
type numbers struct {
	min   int64
	width uint8
	b     []byte
}

// newNumbers makes a column for numbers from min to max, of which there are n.
func newNumbers(min, max, n int64) numbers {
	c := numbers{min: min}
	switch span := uint64(max) - uint64(min); {
	case span == 0:
	case span < 1<<8:
		c.width = 1
	case span < 1<<16:
		c.width = 2
	case span < 1<<32:
		c.width = 4
	default:
		c.width = 8
	}
	c.b = make([]byte, int64(c.width)*n)
	return c
}

func (c *numbers) at(i int64) int64 {
	switch c.width {
	case 0:
		return c.min
	case 1:
		return c.min + int64(c.b[i])
	case 2:
		return c.min + int64(binary.LittleEndian.Uint16(c.b[2*i:]))
	case 4:
		return c.min + int64(binary.LittleEndian.Uint32(c.b[4*i:]))
	}
	return c.min + int64(binary.LittleEndian.Uint64(c.b[8*i:]))
}

func (c *numbers) set(i, v int64) {
	d := uint64(v) - uint64(c.min)
	switch c.width {
	case 1:
		c.b[i] = byte(d)
	case 2:
		binary.LittleEndian.PutUint16(c.b[2*i:], uint16(d))
	case 4:
		binary.LittleEndian.PutUint32(c.b[4*i:], uint32(d))
	case 8:
		binary.LittleEndian.PutUint64(c.b[8*i:], d)
	}
}

// finder finds the chunk of a record.
type finder struct {
	first []int64 // number of the first record of each chunk, and the total
	shift uint
	hint  []uint32 // the chunk of record k << shift
}

func newFinder(first []int64) finder {
	f := finder{first: first}
	chunks, total := int64(len(first)-1), first[len(first)-1]
	for total>>f.shift > 2*chunks {
		f.shift++
	}
	c := uint32(0)
	for at := int64(0); at < total; at += 1 << f.shift {
		for first[c+1] <= at {
			c++
		}
		f.hint = append(f.hint, c)
	}
	return f
}

// chunk returns the chunk of record id, which is one of the pack's.
func (f *finder) chunk(id int64) int {
	k := id >> f.shift
	lo := int(f.hint[k])
	if f.first[lo+1] > id {
		return lo
	}
	hi := len(f.first) - 2
	if int(k)+1 < len(f.hint) {
		hi = int(f.hint[k+1])
	}
	for lo++; lo < hi; {
		if mid := int(uint(lo+hi) >> 1); f.first[mid+1] > id {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
