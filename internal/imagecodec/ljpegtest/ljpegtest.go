// Package ljpegtest writes lossless JPEGs for tests.
package ljpegtest

import (
	"encoding/binary"
	"math/bits"
)

// Image is a picture of Width x Height samples of some bits.
type Image struct {
	Width, Height, Bits, Predictor, Shift int
	// Interval is the number of rows between restarts, 0 for none. Long uses codes of up to 16 bits.
	Interval int
	Long     bool
	Samples  []uint16
}

// lengths are those of the codes of the 17 differences.
func (m *Image) lengths() (out [17]int) {
	for i := range out {
		if out[i] = 5; m.Long {
			out[i] = min(i+1, 16)
		}
	}
	return out
}

type bitWriter struct {
	b   []byte
	acc uint32
	n   int
}

func (w *bitWriter) put(v uint32, n int) {
	for n--; n >= 0; n-- {
		w.acc = w.acc<<1 | v>>n&1
		if w.n++; w.n == 8 {
			if w.b = append(w.b, byte(w.acc)); byte(w.acc) == 0xFF {
				w.b = append(w.b, 0)
			}
			w.n, w.acc = 0, 0
		}
	}
}

func (w *bitWriter) flush() {
	for w.n > 0 {
		w.put(1, 1)
	}
}

// Encode is written from the standard, with no thought of speed.
func Encode(m *Image) []byte {
	segment := func(b []byte, mark byte, s ...byte) []byte {
		b = append(b, 0xFF, mark)
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)+2))
		return append(b, s...)
	}
	b := []byte{0xFF, 0xD8}
	b = segment(b, 0xE0, 1, 2, 3)
	lengths := m.lengths()
	table := make([]byte, 17)
	codes := [17]uint32{}
	code := uint32(0)
	for length := 1; length <= 16; length++ {
		for s, l := range lengths {
			if l == length {
				table[length]++
				table = append(table, byte(s))
				codes[s] = code
				code++
			}
		}
		code <<= 1
	}
	b = segment(b, 0xC4, table...)
	b = segment(b, 0xC3, byte(m.Bits), byte(m.Height>>8), byte(m.Height), byte(m.Width>>8), byte(m.Width), 1, 7, 0x11, 0)
	if m.Interval > 0 {
		b = segment(b, 0xDD, byte(m.Interval*m.Width>>8), byte(m.Interval*m.Width))
	}
	b = segment(b, 0xDA, 1, 7, 0, byte(m.Predictor), 0, byte(m.Shift))
	w := &bitWriter{b: b}
	at := func(x, y int) int { return int(m.Samples[y*m.Width+x]) >> m.Shift }
	for y := range m.Height {
		fresh := y == 0
		if m.Interval > 0 && y > 0 && y%m.Interval == 0 {
			w.flush()
			w.b = append(w.b, 0xFF, 0xD0+byte((y/m.Interval-1)%8))
			fresh = true
		}
		for x := range m.Width {
			px := 0
			switch {
			case x == 0 && fresh:
				px = 1 << (m.Bits - m.Shift - 1)
			case x == 0:
				px = at(0, y-1)
			case fresh || m.Predictor == 1:
				px = at(x-1, y)
			default:
				ra, rb, rc := at(x-1, y), at(x, y-1), at(x-1, y-1)
				px = []int{0, ra, rb, rc, ra + rb - rc, ra + (rb-rc)>>1, rb + (ra-rc)>>1, (ra + rb) >> 1}[m.Predictor]
			}
			diff := int32(int16(uint16(at(x, y) - px)))
			if diff == -1<<15 {
				w.put(codes[16], lengths[16])
				continue
			}
			size := bits.Len32(uint32(max(diff, -diff)))
			w.put(codes[size], lengths[size])
			if diff < 0 {
				diff += 1<<size - 1
			}
			w.put(uint32(diff), size)
		}
	}
	w.flush()
	return append(w.b, 0xFF, 0xD9)
}
