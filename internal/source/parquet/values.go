package parquet

import (
	"encoding/binary"
	"math"
)

// narrow copies n numbers from src, with from bytes each, to dst, with to bytes each. The low bytes are the value
// of the column's type.
func narrow(dst, src []byte, n, from, to int) {
	switch {
	case from == to:
		copy(dst[:n*to], src)
	case from == 4 && to == 1:
		dst, src = dst[:n], src[:4*n]
		for i := range dst {
			dst[i] = src[4*i]
		}
	case from == 4 && to == 2:
		for i := range n {
			binary.LittleEndian.PutUint16(dst[2*i:], binary.LittleEndian.Uint16(src[4*i:]))
		}
	default:
		for i := range n {
			copy(dst[i*to:(i+1)*to], src[i*from:])
		}
	}
}

// plainBits decodes n booleans from bits to bytes.
func plainBits(dst, src []byte, n int) error {
	if len(src) < (n+7)/8 {
		return damaged("%d bytes for %d values", len(src), n)
	}
	for i := range n {
		dst[i] = src[i>>3] >> (i & 7) & 1
	}
	return nil
}

// gather copies the dictionary values of n indexes.
func gather(dst []byte, src []byte, n int, dict []byte, width, values int) error {
	h, err := numbersOf(src)
	if err != nil {
		return err
	}
	var some [1024]uint32
	for n > 0 {
		if err := h.begin(); err != nil {
			return err
		}
		if h.run >= 64 { // a long run of one value
			k := min(h.run, n)
			if int64(h.value) >= int64(values) {
				return damaged("value %d of a dictionary of %d", h.value, values)
			}
			one := dict[int(h.value)*width:][:width]
			out := dst[:k*width]
			copy(out, one)
			for done := width; done < len(out); done *= 2 {
				copy(out[done:], out[:done])
			}
			h.run -= k
			dst, n = dst[k*width:], n-k
			continue
		}
		part := some[:min(len(some), n)]
		if err := h.numbers(part); err != nil {
			return err
		}
		highest := uint32(0)
		for _, v := range part {
			highest = max(highest, v)
		}
		if int64(highest) >= int64(values) {
			return damaged("value %d of a dictionary of %d", highest, values)
		}
		out := dst[:len(part)*width]
		switch width {
		case 1:
			for i, v := range part {
				out[i] = dict[v]
			}
		case 2:
			for i, v := range part {
				binary.LittleEndian.PutUint16(out[2*i:], binary.LittleEndian.Uint16(dict[2*v:]))
			}
		case 4:
			for i, v := range part {
				binary.LittleEndian.PutUint32(out[4*i:], binary.LittleEndian.Uint32(dict[4*v:]))
			}
		case 8:
			for i, v := range part {
				binary.LittleEndian.PutUint64(out[8*i:], binary.LittleEndian.Uint64(dict[8*v:]))
			}
		}
		dst, n = dst[len(part)*width:], n-len(part)
	}
	return nil
}

// numbersOf returns a decoder for dictionary indexes, whose width comes first.
func numbersOf(src []byte) (hybrid, error) {
	if len(src) == 0 {
		return hybrid{}, damaged("its values are cut off")
	}
	if src[0] > 32 {
		return hybrid{}, damaged("numbers of %d bits", src[0])
	}
	return hybrid{b: src[1:], width: uint(src[0])}, nil
}

// delta decodes delta-encoded numbers.
type delta struct {
	b            []byte
	left         int // numbers left
	value        int64
	first        bool
	block, minis int
	per          int // numbers per miniblock
	least        int64
	widths       []byte
	n            int // numbers left of the miniblock
	bit          int
	width        uint
}

func (d *delta) uvarint() (uint64, error) {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		return 0, damaged("its differences are cut off")
	}
	d.b = d.b[n:]
	return v, nil
}

func (d *delta) varint() (int64, error) {
	v, err := d.uvarint()
	return int64(v>>1) ^ -int64(v&1), err
}

// open parses the header. There may be at most limit numbers.
func (d *delta) open(b []byte, limit int) error {
	*d = delta{b: b, first: true}
	var head [3]uint64
	for i := range head {
		var err error
		if head[i], err = d.uvarint(); err != nil {
			return err
		}
	}
	if head[0] < 8 || head[0] > 1<<20 || head[1] < 1 || head[1] > head[0]/8 || head[0]%head[1] != 0 || head[0]/head[1]%8 != 0 || head[2] > uint64(limit) {
		return damaged("differences in blocks of %d with %d parts, of %d numbers", head[0], head[1], head[2])
	}
	d.block, d.minis, d.left = int(head[0]), int(head[1]), int(head[2])
	d.per = d.block / d.minis
	var err error
	d.value, err = d.varint()
	return err
}

// next decodes len(dst) numbers.
func (d *delta) next(dst []int64) error {
	if len(dst) > d.left {
		return damaged("%d numbers, but only %d are left", len(dst), d.left)
	}
	d.left -= len(dst)
	i := 0
	if d.first && len(dst) > 0 {
		dst[0], i, d.first = d.value, 1, false
	}
	for i < len(dst) {
		if d.n == 0 {
			if err := d.mini(); err != nil {
				return err
			}
		}
		k := min(d.n, len(dst)-i)
		value := d.value
		if d.width == 0 {
			for j := range dst[i : i+k] {
				value += d.least
				dst[i+j] = value
			}
		} else {
			for j := range dst[i : i+k] {
				value += d.least + int64(bitsAt(d.b, d.bit, d.width))
				dst[i+j] = value
				d.bit += int(d.width)
			}
		}
		d.value = value
		i += k
		if d.n -= k; d.n == 0 {
			d.b = d.b[d.per*int(d.width)/8:]
		}
	}
	return nil
}

// mini starts the next miniblock.
func (d *delta) mini() error {
	if len(d.widths) == 0 {
		var err error
		if d.least, err = d.varint(); err != nil {
			return err
		}
		if len(d.b) < d.minis {
			return damaged("its differences are cut off")
		}
		d.widths, d.b = d.b[:d.minis], d.b[d.minis:]
	}
	d.width, d.widths = uint(d.widths[0]), d.widths[1:]
	d.n, d.bit = d.per, 0
	if d.width > 64 || d.per*int(d.width)/8 > len(d.b) {
		return damaged("differences of %d bits", d.width)
	}
	return nil
}

// rest returns the bytes after the numbers. All numbers must have been read.
func (d *delta) rest() []byte {
	b := d.b
	if d.n > 0 { // the last miniblock is always full-size
		b = b[d.per*int(d.width)/8:]
	}
	return b
}

// bitsAt returns the number of width bits at a bit of b.
func bitsAt(b []byte, bit int, width uint) uint64 {
	at, shift := bit>>3, uint(bit&7)
	var v uint64
	if at+8 <= len(b) {
		v = binary.LittleEndian.Uint64(b[at:]) >> shift
	} else {
		var last [8]byte
		copy(last[:], b[at:])
		v = binary.LittleEndian.Uint64(last[:]) >> shift
	}
	if shift+width > 64 && at+8 < len(b) {
		v |= uint64(b[at+8]) << (64 - shift)
	}
	if width == 64 {
		return v
	}
	return v & (1<<width - 1)
}

// deltaNumbers decodes n delta-encoded numbers of width bytes.
func deltaNumbers(dst, src []byte, n, width int) error {
	var d delta
	if err := d.open(src, math.MaxInt32); err != nil {
		return err
	}
	if d.left != n {
		return damaged("%d numbers, expected %d", d.left, n)
	}
	var some [512]int64
	for n > 0 {
		part := some[:min(len(some), n)]
		if err := d.next(part); err != nil {
			return err
		}
		switch width {
		case 1:
			for i, v := range part {
				dst[i] = byte(v)
			}
		case 2:
			for i, v := range part {
				binary.LittleEndian.PutUint16(dst[2*i:], uint16(v))
			}
		case 4:
			for i, v := range part {
				binary.LittleEndian.PutUint32(dst[4*i:], uint32(v))
			}
		case 8:
			for i, v := range part {
				binary.LittleEndian.PutUint64(dst[8*i:], uint64(v))
			}
		}
		dst, n = dst[len(part)*width:], n-len(part)
	}
	return nil
}

// joinSplit decodes n values of from bytes (BYTE_STREAM_SPLIT: all first bytes, then all second bytes, and so on)
// and keeps the low to bytes of each.
func joinSplit(dst, src []byte, n, from, to int) error {
	if len(src) < n*from {
		return damaged("%d bytes for %d values of %d", len(src), n, from)
	}
	if to == 4 && from == 4 {
		a, b, c, d := src[:n], src[n:2*n], src[2*n:3*n], src[3*n:4*n]
		for i := range n {
			binary.LittleEndian.PutUint32(dst[4*i:], uint32(a[i])|uint32(b[i])<<8|uint32(c[i])<<16|uint32(d[i])<<24)
		}
		return nil
	}
	for k := range to {
		part := src[k*n : (k+1)*n]
		for i, v := range part {
			dst[i*to+k] = v
		}
	}
	return nil
}
