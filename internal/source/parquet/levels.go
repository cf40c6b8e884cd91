package parquet

import (
	"encoding/binary"
	"math/bits"
)

// hybrid decodes the RLE/bit-packing hybrid encoding of levels and of dictionary indexes.
type hybrid struct {
	b     []byte
	width uint
	run   int // left of the current run
	value uint32
	pack  int // left of the current bit-packed numbers
	bit   int // position of the next packed number in b
	end   int // end of the packed numbers in b
}

// begin starts the next run if the current one is used up.
func (h *hybrid) begin() error {
	for h.run == 0 && h.pack == 0 {
		v, n := binary.Uvarint(h.b)
		if n <= 0 {
			return damaged("its runs are cut off")
		}
		h.b = h.b[n:]
		if v&1 == 0 {
			size := int(h.width+7) / 8
			if v>>1 > 1<<31 || len(h.b) < size {
				return damaged("its runs are cut off")
			}
			h.run = int(v >> 1)
			h.value = 0
			for i := range size {
				h.value |= uint32(h.b[i]) << (8 * i)
			}
			if h.width < 32 && h.value>>h.width != 0 {
				return damaged("%d in runs of %d bits", h.value, h.width)
			}
			h.b = h.b[size:]
			continue
		}
		if v>>1 > 1<<28 {
			return damaged("its runs are cut off")
		}
		count := int(v>>1) * 8
		size := count * int(h.width) / 8
		if size > len(h.b) {
			// The last group may be cut after the last number.
			if h.width == 0 {
				return damaged("its runs are cut off")
			}
			size = len(h.b)
			count = size * 8 / int(h.width)
			if count == 0 {
				return damaged("its runs are cut off")
			}
		}
		h.pack, h.bit, h.end = count, 0, size
	}
	return nil
}

// numbers decodes len(dst) numbers.
func (h *hybrid) numbers(dst []uint32) error {
	for len(dst) > 0 {
		if err := h.begin(); err != nil {
			return err
		}
		if h.run > 0 {
			n := min(h.run, len(dst))
			for i := range dst[:n] {
				dst[i] = h.value
			}
			h.run -= n
			dst = dst[n:]
			continue
		}
		n := min(h.pack, len(dst))
		h.unpack(dst[:n])
		h.took(n)
		dst = dst[n:]
	}
	return nil
}

// took consumes n packed numbers.
func (h *hybrid) took(n int) {
	h.bit += n * int(h.width)
	if h.pack -= n; h.pack == 0 {
		h.b = h.b[h.end:]
	}
}

func (h *hybrid) unpack(dst []uint32) {
	switch {
	case h.width == 8:
		src := h.b[h.bit/8:][:len(dst)]
		for i, v := range src {
			dst[i] = uint32(v)
		}
		return
	case h.width == 0:
		clear(dst)
		return
	}
	unpack(dst, h.b[:h.end], h.bit, h.width)
}

// unpack decodes numbers of width bits each, 1 to 32, from a bit of b on.
func unpack(dst []uint32, b []byte, bit int, width uint) {
	mask := uint64(1)<<width - 1
	i := 0
	for ; i < len(dst) && bit>>3+8 <= len(b); i++ {
		dst[i] = uint32(binary.LittleEndian.Uint64(b[bit>>3:]) >> (bit & 7) & mask)
		bit += int(width)
	}
	for ; i < len(dst); i++ {
		var last [8]byte
		copy(last[:], b[bit>>3:])
		dst[i] = uint32(binary.LittleEndian.Uint64(last[:]) >> (bit & 7) & mask)
		bit += int(width)
	}
}

// levels decodes n levels of at most most into dst. If all are most, it returns false and leaves dst unset.
func levels(dst []uint8, b []byte, n int, most uint8) (bool, error) {
	h := hybrid{b: b, width: uint(bits.Len8(most))}
	if err := h.begin(); n > 0 && err != nil {
		return false, err
	}
	if h.run >= n && h.value == uint32(most) {
		return false, nil
	}
	var some [256]uint32
	for at := 0; at < n; {
		if err := h.begin(); err != nil {
			return false, err
		}
		if h.run > 0 {
			if h.value > uint32(most) {
				return false, damaged("a level of %d, the highest is %d", h.value, most)
			}
			k := min(h.run, n-at)
			fill(dst[at:at+k], byte(h.value))
			h.run -= k
			at += k
			continue
		}
		part := some[:min(len(some), n-at, h.pack)]
		if err := h.numbers(part); err != nil {
			return false, err
		}
		for i, v := range part {
			if v > uint32(most) {
				return false, damaged("a level of %d, the highest is %d", v, most)
			}
			dst[at+i] = uint8(v)
		}
		at += len(part)
	}
	return true, nil
}

// packedLevels decodes levels in the deprecated encoding BIT_PACKED: from the highest bit on, without runs.
func packedLevels(dst []uint8, b []byte, n int, most uint8) (bool, error) {
	width := bits.Len8(most)
	some := false
	for i := range n {
		v := uint8(0)
		for k := i * width; k < (i+1)*width; k++ {
			v = v<<1 | b[k>>3]>>(7-k&7)&1
		}
		if v > most {
			return false, damaged("a level of %d, the highest is %d", v, most)
		}
		dst[i] = v
		some = some || v < most
	}
	return some, nil
}

func fill(b []byte, v byte) {
	if len(b) == 0 {
		return
	}
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
