// Package inflate decompresses deflate data (RFC 1951), bare or in the frames of zlib
// (RFC 1950) and gzip (RFC 1952), of which all bytes are in memory and whose size is
// known: two to three times as fast as a reader that takes it piece by piece.
package inflate

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/bits"
	"sync"
)

// Errors of data that is damaged.
var (
	ErrData     = errors.New("deflate data is damaged")
	ErrShort    = errors.New("deflate data is cut off")
	ErrSize     = errors.New("deflate data has another size than it should have")
	ErrChecksum = errors.New("the checksum of deflate data is wrong")
)

// Zlib fills dst with the data in a zlib frame, which must have that size.
func Zlib(dst, src []byte) error {
	if len(src) < 6 {
		return ErrShort
	}
	if src[0]&15 != 8 || (uint(src[0])<<8|uint(src[1]))%31 != 0 || src[1]&32 != 0 {
		return ErrData
	}
	n, used, err := Raw(dst, src[2:])
	if err != nil {
		return err
	}
	if n != len(dst) {
		return ErrSize
	}
	if used+6 > len(src) {
		return ErrShort
	}
	if Adler32(dst) != binary.BigEndian.Uint32(src[2+used:]) {
		return ErrChecksum
	}
	return nil
}

// Gzip fills dst with the data in the members of a gzip file, which must have that
// size together.
func Gzip(dst, src []byte) error {
	for first := true; first || len(src) > 0; first = false {
		head, err := gzipHead(src)
		if err != nil {
			return err
		}
		n, used, err := Raw(dst, src[head:])
		if err != nil {
			return err
		}
		src = src[head+used:]
		if len(src) < 8 {
			return ErrShort
		}
		if crc32.ChecksumIEEE(dst[:n]) != binary.LittleEndian.Uint32(src) || uint32(n) != binary.LittleEndian.Uint32(src[4:]) {
			return ErrChecksum
		}
		dst, src = dst[n:], src[8:]
	}
	if len(dst) != 0 {
		return ErrSize
	}
	return nil
}

// gzipHead is the size of the header of a gzip member.
func gzipHead(b []byte) (int, error) {
	if len(b) < 18 {
		return 0, ErrShort
	}
	if b[0] != 0x1F || b[1] != 0x8B || b[2] != 8 || b[3]&0xE0 != 0 {
		return 0, ErrData
	}
	at := 10
	if b[3]&4 != 0 {
		at += 2 + int(binary.LittleEndian.Uint16(b[10:]))
	}
	for _, flag := range []byte{8, 16} { // a name, a comment
		if b[3]&flag == 0 {
			continue
		}
		for at < len(b) && b[at] != 0 {
			at++
		}
		at++
	}
	if b[3]&2 != 0 {
		at += 2
	}
	if at > len(b) {
		return 0, ErrShort
	}
	return at, nil
}

// Entries of the tables have in
//
//	bits 0-5    how many bits code and extra bits have together
//	bits 8-11   how many the code has
//	bit  12     what is none of the common things: special, with one of
//	bit  13     a further table: bits 8-11 are those of its index
//	bit  14     the end of the block
//	bit  15     a literal
//	bits 16-31  the literal, the base of a length or distance, or where a table is
const (
	special = 1 << 12
	further = 1 << 13
	final   = 1 << 14
	literal = 1 << 15
)

const (
	litBits  = 11
	distBits = 8
	// Tables and further tables of the longest codes have at most 2342 and 402
	// entries.
	litSize  = 4096
	distSize = 1024
)

type tables struct {
	lit  [litSize]uint32
	dist [distSize]uint32
}

var pool = sync.Pool{New: func() any { return new(tables) }}

var fixed = sync.OnceValue(func() *tables {
	var lens [288 + 32]uint8
	for i := range lens {
		switch {
		case i < 144:
			lens[i] = 8
		case i < 256:
			lens[i] = 9
		case i < 280:
			lens[i] = 7
		case i < 288:
			lens[i] = 8
		default:
			lens[i] = 5
		}
	}
	t := new(tables)
	_ = build(t.lit[:], litBits, lens[:288], lit)
	_ = build(t.dist[:], distBits, lens[288:], dist)
	return t
})

// lit is the entry of a literal or a length, without its code's size.
func lit(sym int) uint32 {
	switch {
	case sym < 256:
		return literal | uint32(sym)<<16
	case sym == 256:
		return special | final
	case sym < 265:
		return uint32(sym-254) << 16
	case sym < 285:
		extra := uint32(sym-261) / 4
		return (3+(4+uint32(sym-261)%4)<<extra)<<16 | extra
	case sym == 285:
		return 258 << 16
	}
	return special
}

// dist is the entry of a distance.
func dist(sym int) uint32 {
	switch {
	case sym < 4:
		return uint32(sym+1) << 16
	case sym < 30:
		extra := uint32(sym-2) / 2
		return (1+(2+uint32(sym)%2)<<extra)<<16 | extra
	}
	return special
}

// build makes a table of codes by their lengths. It says false of lengths that are
// none of a code.
func build(table []uint32, main uint, lens []uint8, entry func(sym int) uint32) bool {
	var count [16]int
	most := uint(0)
	for _, n := range lens {
		count[n]++
		most = max(most, uint(n))
	}
	used := len(lens) - count[0]
	count[0] = 0
	var next [16]uint32
	code, left := uint32(0), 1
	for n := 1; n < 16; n++ {
		left = left<<1 - count[n]
		if left < 0 {
			return false
		}
		code = (code + uint32(count[n-1])) << 1
		next[n] = code
	}
	// One code of one bit may leave the other one open, as may none at all.
	if left > 0 && used > 0 && (used > 1 || most > 1) {
		return false
	}
	size := 1 << main
	clear(table[:size])
	if left > 0 {
		for i := range table[:size] {
			table[i] = special
		}
	}
	// How far codes go behind each beginning of main bits.
	var deep [1 << litBits]uint8
	if most > main {
		at := next
		for _, n := range lens {
			if n == 0 {
				continue
			}
			c := at[n]
			at[n]++
			if uint(n) > main {
				p := bits.Reverse32(c) >> (32 - uint(n)) & (1<<main - 1)
				deep[p] = max(deep[p], n-uint8(main))
			}
		}
	}
	end := size
	for sym, n := range lens {
		if n == 0 {
			continue
		}
		c := next[n]
		next[n]++
		rev := int(bits.Reverse32(c) >> (32 - uint(n)))
		e := entry(sym)
		if uint(n) <= main {
			e += uint32(n)<<8 | uint32(n)
			for i := rev; i < size; i += 1 << n {
				table[i] = e
			}
			continue
		}
		p := rev & (size - 1)
		sub := int(deep[p])
		if table[p]&further == 0 {
			if end+1<<sub > len(table) {
				return false
			}
			table[p] = special | further | uint32(end)<<16 | uint32(sub)<<8 | uint32(main)
			end += 1 << sub
		}
		rest := uint32(n) - uint32(main)
		e += rest<<8 | rest
		from := int(table[p] >> 16)
		for i := rev >> main; i < 1<<sub; i += 1 << rest {
			table[from+i] = e
		}
	}
	return true
}

// order is that of the lengths of the code of lengths.
var order = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// state is where decompressing is.
type state struct {
	src  []byte
	at   int
	hold uint64
	have uint // valid bits of hold
}

// need makes at least n bits valid, n <= 32. It says false at the end of src.
func (s *state) need(n uint) bool {
	for s.have < n {
		if s.at == len(s.src) {
			return false
		}
		s.hold |= uint64(s.src[s.at]) << s.have
		s.at++
		s.have += 8
	}
	return true
}

func (s *state) take(n uint) uint {
	v := uint(s.hold & (1<<n - 1))
	s.hold >>= n
	s.have -= n
	return v
}

// Raw writes deflate data to dst. It returns how many bytes that were and how many
// of src it used. What does not fit is ErrSize.
func Raw(dst, src []byte) (n, used int, err error) {
	s := &state{src: src}
	var t *tables
	defer func() {
		if t != nil {
			pool.Put(t)
		}
	}()
	for last := false; !last; {
		if !s.need(3) {
			return n, 0, ErrShort
		}
		last = s.take(1) == 1
		switch s.take(2) {
		case 0:
			n, err = s.stored(dst, n)
		case 1:
			n, err = s.block(dst, n, fixed())
		case 2:
			if t == nil {
				t = pool.Get().(*tables)
			}
			if err = s.header(t); err == nil {
				n, err = s.block(dst, n, t)
			}
		default:
			err = ErrData
		}
		if err != nil {
			return n, 0, err
		}
	}
	return n, s.at - int(s.have/8), nil
}

// stored copies a block that is not compressed.
func (s *state) stored(dst []byte, n int) (int, error) {
	s.take(s.have % 8)
	s.at -= int(s.have / 8)
	s.hold, s.have = 0, 0
	if len(s.src)-s.at < 4 {
		return n, ErrShort
	}
	size := int(binary.LittleEndian.Uint16(s.src[s.at:]))
	if size != int(^binary.LittleEndian.Uint16(s.src[s.at+2:])) {
		return n, ErrData
	}
	s.at += 4
	switch {
	case size > len(s.src)-s.at:
		return n, ErrShort
	case size > len(dst)-n:
		return n, ErrSize
	}
	copy(dst[n:], s.src[s.at:s.at+size])
	s.at += size
	return n + size, nil
}

// header reads the codes of a block.
func (s *state) header(t *tables) error {
	if !s.need(14) {
		return ErrShort
	}
	nlit, ndist, ncode := int(s.take(5))+257, int(s.take(5))+1, int(s.take(4))+4
	if nlit > 286 || ndist > 30 {
		return ErrData
	}
	var lens [320]uint8
	for _, k := range order[:ncode] {
		if !s.need(3) {
			return ErrShort
		}
		lens[k] = uint8(s.take(3))
	}
	var codes [128]uint32
	if !build(codes[:], 7, lens[:19], func(sym int) uint32 { return uint32(sym) << 16 }) {
		return ErrData
	}
	clear(lens[:19])
	for i := 0; i < nlit+ndist; {
		// Behind the end zeros are read: a code may be shorter than 7 bits.
		s.need(14)
		e := codes[s.hold&127]
		bits := uint(e & 63)
		if e&special != 0 || bits == 0 {
			return ErrData
		}
		sym := e >> 16
		more := uint(0)
		switch sym {
		case 16:
			more = 2
		case 17:
			more = 3
		case 18:
			more = 7
		}
		if s.have < bits+more {
			return ErrShort
		}
		s.take(bits)
		if sym < 16 {
			lens[i] = uint8(sym)
			i++
			continue
		}
		value, count := uint8(0), 3+int(s.take(more))
		if sym == 16 {
			if i == 0 {
				return ErrData
			}
			value = lens[i-1]
		} else if sym == 18 {
			count += 8
		}
		if count > nlit+ndist-i {
			return ErrData
		}
		for range count {
			lens[i] = value
			i++
		}
	}
	if lens[256] == 0 || !build(t.lit[:], litBits, lens[:nlit], lit) || !build(t.dist[:], distBits, lens[nlit:nlit+ndist], dist) {
		return ErrData
	}
	return nil
}

// reach is how far a match and what is copied behind it may go.
const reach = 258 + 32

// block decodes a block with its codes.
func (s *state) block(dst []byte, n int, t *tables) (int, error) {
	src, at, hold, have := s.src, s.at, s.hold, s.have
	litTable, distTable := &t.lit, &t.dist
	for at+16 <= len(src) && n+reach+3 <= len(dst) {
		// hold has 56 valid bits or more. Those above have may be set already: they
		// are of the bytes that come next.
		hold |= binary.LittleEndian.Uint64(src[at:]) << (have & 63)
		at += int((63 - have) >> 3)
		have |= 56
		e := litTable[hold&(1<<litBits-1)]
		if e&literal != 0 {
			hold >>= e & 63
			have -= uint(e & 63)
			dst[n] = byte(e >> 16)
			n++
			e = litTable[hold&(1<<litBits-1)]
			if e&literal != 0 {
				hold >>= e & 63
				have -= uint(e & 63)
				dst[n] = byte(e >> 16)
				n++
				e = litTable[hold&(1<<litBits-1)]
				if e&literal != 0 {
					hold >>= e & 63
					have -= uint(e & 63)
					dst[n] = byte(e >> 16)
					n++
					continue
				}
			}
			hold |= binary.LittleEndian.Uint64(src[at:]) << (have & 63)
			at += int((63 - have) >> 3)
			have |= 56
		}
		if e&special != 0 {
			if e&further != 0 {
				hold >>= litBits
				have -= litBits
				e = litTable[(e>>16+uint32(hold)&(1<<(e>>8&15)-1))&(litSize-1)]
				if e&literal != 0 {
					hold >>= e & 63
					have -= uint(e & 63)
					dst[n] = byte(e >> 16)
					n++
					continue
				}
			}
			if e&special != 0 {
				if e&final == 0 {
					return n, ErrData
				}
				hold >>= e & 63
				have -= uint(e & 63)
				s.at, s.hold, s.have = at, hold&(1<<(have&63)-1), have
				return n, nil
			}
		}
		if e&63 == 0 {
			return n, ErrData
		}
		length := int(e>>16) + int(hold&(1<<(e&63)-1)>>(e>>8&15))
		hold >>= e & 63
		have -= uint(e & 63)
		e = distTable[hold&(1<<distBits-1)]
		if e&special != 0 {
			if e&further == 0 {
				return n, ErrData
			}
			hold >>= distBits
			have -= distBits
			e = distTable[(e>>16+uint32(hold)&(1<<(e>>8&15)-1))&(distSize-1)]
		}
		if e&special != 0 || e&63 == 0 {
			return n, ErrData
		}
		back := int(e>>16) + int(hold&(1<<(e&63)-1)>>(e>>8&15))
		hold >>= e & 63
		have -= uint(e & 63)
		if back > n {
			return n, ErrData
		}
		from := n - back
		switch {
		case length >= 48 && back >= length:
			copy(dst[n:n+length], dst[from:from+length])
		case back >= 16:
			d, p := dst[n:n+length+16], dst[from:from+length+16]
			for k := 0; k < length; k += 16 {
				a, b := binary.LittleEndian.Uint64(p[k:]), binary.LittleEndian.Uint64(p[k+8:])
				binary.LittleEndian.PutUint64(d[k:], a)
				binary.LittleEndian.PutUint64(d[k+8:], b)
			}
		case back >= 8:
			d, p := dst[n:n+length+8], dst[from:from+length+8]
			for k := 0; k < length; k += 8 {
				binary.LittleEndian.PutUint64(d[k:], binary.LittleEndian.Uint64(p[k:]))
			}
		case back == 1:
			v := uint64(dst[from]) * 0x0101010101010101
			d := dst[n : n+length+8]
			for k := 0; k < length; k += 8 {
				binary.LittleEndian.PutUint64(d[k:], v)
			}
		default:
			d, p := dst[n:n+length], dst[from:]
			for k := range d {
				d[k] = p[k]
			}
		}
		n += length
	}
	s.at, s.hold, s.have = at, hold&(1<<(have&63)-1), have
	return s.careful(dst, n, t)
}

// careful goes on where src or dst nearly end.
func (s *state) careful(dst []byte, n int, t *tables) (int, error) {
	// One code of a table, and what it stands for.
	code := func(table []uint32, main uint) (uint32, uint, error) {
		s.need(main) // fewer bits may be enough
		e := table[s.hold&(1<<main-1)]
		if e&further != 0 {
			if s.have < main {
				return 0, 0, ErrShort
			}
			s.take(main)
			s.need(15)
			e = table[e>>16+uint32(s.hold)&(1<<(e>>8&15)-1)]
		}
		if size := uint(e >> 8 & 15); s.have < size {
			return 0, 0, ErrShort
		} else if size == 0 {
			return 0, 0, ErrData
		} else {
			s.take(size)
		}
		extra := uint(e&63) - uint(e>>8&15)
		if !s.need(extra) {
			return 0, 0, ErrShort
		}
		return e, s.take(extra), nil
	}
	for {
		e, extra, err := code(t.lit[:], litBits)
		if err != nil {
			return n, err
		}
		if e&literal != 0 {
			if n == len(dst) {
				return n, ErrSize
			}
			dst[n] = byte(e >> 16)
			n++
			continue
		}
		if e&special != 0 {
			if e&final == 0 {
				return n, ErrData
			}
			return n, nil
		}
		length := int(e>>16) + int(extra)
		if e, extra, err = code(t.dist[:], distBits); err != nil {
			return n, err
		}
		back := int(e>>16) + int(extra)
		switch {
		case e&special != 0 || back > n:
			return n, ErrData
		case length > len(dst)-n:
			return n, ErrSize
		}
		for range length {
			dst[n] = dst[n-back]
			n++
		}
	}
}

// Adler32 is the checksum of zlib.
func Adler32(p []byte) uint32 {
	const mod, most = 65521, 5552
	a, b := uint32(1), uint32(0)
	for len(p) > 0 {
		q := p[:min(len(p), most)]
		p = p[len(q):]
		for len(q) >= 16 {
			x := q[:16:16]
			// Sixteen steps at once: b grows by a as it was, and by each byte as often
			// as it is in a.
			s0 := uint32(x[0]) + uint32(x[1]) + uint32(x[2]) + uint32(x[3])
			s1 := uint32(x[4]) + uint32(x[5]) + uint32(x[6]) + uint32(x[7])
			s2 := uint32(x[8]) + uint32(x[9]) + uint32(x[10]) + uint32(x[11])
			s3 := uint32(x[12]) + uint32(x[13]) + uint32(x[14]) + uint32(x[15])
			w := 4*uint32(x[0]) + 3*uint32(x[1]) + 2*uint32(x[2]) + uint32(x[3]) +
				4*uint32(x[4]) + 3*uint32(x[5]) + 2*uint32(x[6]) + uint32(x[7]) +
				4*uint32(x[8]) + 3*uint32(x[9]) + 2*uint32(x[10]) + uint32(x[11]) +
				4*uint32(x[12]) + 3*uint32(x[13]) + 2*uint32(x[14]) + uint32(x[15])
			b += 16*a + 12*s0 + 8*s1 + 4*s2 + w
			a += s0 + s1 + s2 + s3
			q = q[16:]
		}
		for _, v := range q {
			a += uint32(v)
			b += a
		}
		a, b = a%mod, b%mod
	}
	return b<<16 | a
}
