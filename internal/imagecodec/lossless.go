package imagecodec

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// LosslessError is an error at a byte of a lossless JPEG.
type LosslessError struct {
	At  int
	Err error
}

// Error returns the offset and the cause.
func (e *LosslessError) Error() string { return fmt.Sprintf("byte %d: %v", e.At, e.Err) }

// Unwrap returns the cause.
func (e *LosslessError) Unwrap() error { return e.Err }

// Markers of JPEG.
const (
	mSOF0  = 0xC0
	mSOF3  = 0xC3
	mDHT   = 0xC4
	mJPG   = 0xC8
	mDAC   = 0xCC
	mRST0  = 0xD0
	mSOI   = 0xD8
	mEOI   = 0xD9
	mSOS   = 0xDA
	mDNL   = 0xDC
	mDRI   = 0xDD
	mAPP0  = 0xE0
	mAPP14 = 0xEE
)

const (
	lookup     = 9  // bits that a table is looked up with
	maxSSSS    = 16 // of differences
	maxSymbols = 256
)

// huffmanTable is a Huffman table of a lossless JPEG.
type huffmanTable struct {
	ok bool
	// fast is the length and the symbol of each code of up to lookup bits, by the bits
	// that come next; 0 for longer ones.
	fast [1 << lookup]uint16
	// most is the largest code of each length, -1 for none; first the place of its
	// smallest one among symbols, less that code.
	most    [18]int32
	first   [18]int32
	symbols [maxSymbols]byte
}

// Lossless is a lossless JPEG (process 14 of ITU-T T.81, SOF3) of one component, which DICOM files contain: 2 to 16 bits,
// any of the seven predictors.
type Lossless struct {
	Width, Height int
	// Bits is the number of bits per sample.
	Bits int

	b  []byte
	at int

	seen      bool // a frame
	component byte
	tables    [4]huffmanTable
	interval  int // of restarts, in samples
	predictor int
	shift     uint
	use       *huffmanTable

	acc  uint64 // bits that come next, the first one highest
	n    uint   // how many
	pads int    // bytes of zeros behind the data
}

func (d *Lossless) fail(format string, a ...any) error {
	return &LosslessError{d.at, fmt.Errorf(format, a...)}
}

var errCut = errors.New("it ends before the image does: it is cut off")

// segment is the content of the segment that begins at d.at, its length first.
func (d *Lossless) segment() ([]byte, error) {
	if len(d.b)-d.at < 2 {
		return nil, &LosslessError{d.at, errCut}
	}
	n := int(binary.BigEndian.Uint16(d.b[d.at:]))
	if n < 2 || n > len(d.b)-d.at {
		return nil, d.fail("a segment of %d bytes, of which there are %d: it is cut off or damaged", n, len(d.b)-d.at)
	}
	s := d.b[d.at+2 : d.at+n]
	d.at += n
	return s, nil
}

// marker finds the next marker.
func (d *Lossless) marker() (byte, error) {
	for d.at+1 < len(d.b) {
		if d.b[d.at] != 0xFF {
			return 0, d.fail("%#02x where a marker begins: it is damaged", d.b[d.at])
		}
		m := d.b[d.at+1]
		if m == 0xFF { // filled up
			d.at++
			continue
		}
		d.at += 2
		return m, nil
	}
	return 0, &LosslessError{d.at, errCut}
}

// headers reads up to the samples.
func (d *Lossless) headers() error {
	if len(d.b) < 2 || d.b[0] != 0xFF || d.b[1] != mSOI {
		return d.fail("it does not begin as a JPEG does")
	}
	d.at = 2
	for {
		m, err := d.marker()
		if err != nil {
			return err
		}
		at := d.at
		s, err := d.segment()
		if err != nil {
			return err
		}
		switch {
		case m == mSOF3:
			err = d.frame(s)
		case m >= mSOF0 && m <= 0xCF && m != mDHT && m != mJPG && m != mDAC:
			err = fmt.Errorf("it is a JPEG of the process SOF%d and no lossless one (SOF3)", m-0xC0)
		case m == mDHT:
			err = d.huffman(s)
		case m == mDRI:
			if len(s) < 2 {
				err = errCut
				break
			}
			d.interval = int(binary.BigEndian.Uint16(s))
		case m == mDNL:
			err = errors.New("its height comes after it, which is not supported")
		case m == mSOS:
			if err = d.scan(s); err == nil {
				return nil
			}
		}
		if err != nil {
			return &LosslessError{at, err}
		}
	}
}

func (d *Lossless) frame(s []byte) error {
	if len(s) < 6 || d.seen {
		return errors.New("its frame makes no sense")
	}
	d.Bits, d.Height, d.Width = int(s[0]), int(binary.BigEndian.Uint16(s[1:])), int(binary.BigEndian.Uint16(s[3:]))
	switch {
	case s[5] != 1 || len(s) < 9:
		return fmt.Errorf("it has %d components, and one is read", s[5])
	case d.Bits < 2 || d.Bits > 16:
		return fmt.Errorf("its samples have %d bits, and they have 2 to 16", d.Bits)
	case d.Width == 0 || d.Height == 0:
		return fmt.Errorf("it has %d x %d samples", d.Width, d.Height)
	}
	d.seen, d.component = true, s[6]
	return nil
}

func (d *Lossless) huffman(s []byte) error {
	for len(s) > 0 {
		if len(s) < 17 || s[0] > 3 {
			return errors.New("a Huffman table makes no sense")
		}
		t := &d.tables[s[0]]
		*t = huffmanTable{ok: true}
		counts := s[1:17]
		total := 0
		for _, n := range counts {
			total += int(n)
		}
		if s = s[17:]; total > len(s) || total > maxSymbols {
			return fmt.Errorf("a Huffman table of %d codes, of which there are %d", total, len(s))
		}
		copy(t.symbols[:], s[:total])
		s = s[total:]
		code, k := int32(0), int32(0)
		for length := 1; length <= 16; length++ {
			n := int32(counts[length-1])
			t.first[length], t.most[length] = k-code, -1
			if code+n > 1<<length {
				return fmt.Errorf("a Huffman table has more codes of %d bits than there are", length)
			}
			for range n {
				symbol := t.symbols[k]
				if symbol > maxSSSS {
					return fmt.Errorf("a Huffman table has the difference of %d bits, and they have up to %d", symbol, maxSSSS)
				}
				if length <= lookup {
					from := int(code) << (lookup - length)
					for i := range 1 << (lookup - length) {
						t.fast[from+i] = uint16(length)<<8 | uint16(symbol)
					}
				}
				t.most[length] = code
				code++
				k++
			}
			code <<= 1
		}
	}
	return nil
}

func (d *Lossless) scan(s []byte) error {
	switch {
	case !d.seen:
		return errors.New("its samples come before its frame")
	case len(s) < 6 || s[0] != 1 || s[1] != d.component:
		return errors.New("the head of its samples makes no sense")
	case s[2]>>4 > 3 || !d.tables[s[2]>>4].ok:
		return fmt.Errorf("it has no Huffman table %d", s[2]>>4)
	case s[3] < 1 || s[3] > 7:
		return fmt.Errorf("it has the predictor %d, and there are 1 to 7", s[3])
	case int(s[5]&15) >= d.Bits:
		return fmt.Errorf("its samples are shifted by %d bits, of %d", s[5]&15, d.Bits)
	case d.interval%d.Width != 0:
		return fmt.Errorf("it restarts after %d samples, in rows of %d", d.interval, d.Width)
	}
	d.use, d.predictor, d.shift = &d.tables[s[2]>>4], int(s[3]), uint(s[5]&15)
	return nil
}

// fill reads bytes until there are more bits than any code and its difference have.
// Behind the data, and at a marker, they are zeros.
func (d *Lossless) fill() {
	for d.n <= 56 {
		var x byte
		switch {
		case d.at >= len(d.b):
			d.pads++
		case d.b[d.at] != 0xFF:
			x = d.b[d.at]
			d.at++
		case d.at+1 < len(d.b) && d.b[d.at+1] == 0:
			x = 0xFF
			d.at += 2
		default:
			d.pads++
		}
		d.acc |= uint64(x) << (56 - d.n)
		d.n += 8
	}
}

// difference decodes the next one.
func (d *Lossless) difference() (int32, error) {
	if d.n < 32 {
		d.fill()
	}
	t := d.use
	entry := t.fast[d.acc>>(64-lookup)]
	length, size := uint(entry>>8), uint(entry&0xFF)
	if length == 0 {
		for length = lookup + 1; ; length++ {
			if length > 16 {
				return 0, d.fail("there is no such code: it is damaged")
			}
			if code := int32(d.acc >> (64 - length)); code <= t.most[length] {
				size = uint(t.symbols[(t.first[length]+code)&(maxSymbols-1)])
				break
			}
		}
	}
	d.acc <<= length
	d.n -= length
	switch size {
	case 0:
		return 0, nil
	case 16:
		return 1 << 15, nil
	}
	v := int32(d.acc >> (64 - size))
	d.acc <<= size
	d.n -= size
	if v < 1<<(size-1) {
		v -= 1<<size - 1
	}
	return v, nil
}

// restart reads a restart marker and resets the decoder.
func (d *Lossless) restart(number int) error {
	d.acc, d.n, d.pads = 0, 0, 0
	// Bytes that were read ahead were none of a marker, so that it is still to come.
	for d.at < len(d.b) && d.b[d.at] != 0xFF {
		d.at++
	}
	m, err := d.marker()
	if err != nil {
		return err
	}
	if m != mRST0+byte(number%8) {
		return d.fail("the marker %#02x at restart %d: it is damaged", m, number+1)
	}
	return nil
}

// OpenLossless reads the header of an image.
func OpenLossless(data []byte) (*Lossless, error) {
	d := &Lossless{b: data}
	if err := d.headers(); err != nil {
		return nil, err
	}
	return d, nil
}

// Decode decodes the first rows of the image into out, as many as fit, as samples of size bytes, 1 or 2, little-endian.
// It is called once.
func (d *Lossless) Decode(out []byte, size int) error {
	w := d.Width
	if size < (d.Bits+7)/8 || size > 2 {
		return fmt.Errorf("its samples have %d bits, and not %d bytes", d.Bits, size)
	}
	rows := min(len(out)/(w*size), d.Height)
	above, row := make([]uint16, w), make([]uint16, w)
	fresh, restarts := true, 0
	for y := range rows {
		if d.interval > 0 && y > 0 && y%(d.interval/w) == 0 {
			if err := d.restart(restarts); err != nil {
				return err
			}
			restarts++
			fresh = true
		}
		if err := d.row(row, above, fresh); err != nil {
			return err
		}
		if int(d.n) < 8*d.pads { // bits were used that are not there
			return &LosslessError{d.at, errCut}
		}
		to := out[y*w*size:]
		for x, v := range row {
			if v <<= d.shift; size == 1 {
				to[x] = byte(v)
			} else {
				binary.LittleEndian.PutUint16(to[2*x:], v)
			}
		}
		row, above, fresh = above, row, false
	}
	return nil
}

// row decodes a row. fresh reports whether there is no row above it.
func (d *Lossless) row(row, above []uint16, fresh bool) error {
	px := uint16(1) << (uint(d.Bits) - d.shift - 1)
	if !fresh {
		px = above[0]
	}
	diff, err := d.difference()
	if err != nil {
		return err
	}
	row[0] = px + uint16(diff)
	predictor := d.predictor
	if fresh {
		predictor = 1
	}
	for x := 1; x < len(row); x++ {
		if diff, err = d.difference(); err != nil {
			return err
		}
		a, b, c := int32(row[x-1]), int32(above[x]), int32(above[x-1])
		switch predictor {
		case 2:
			a = b
		case 3:
			a = c
		case 4:
			a += b - c
		case 5:
			a += (b - c) >> 1
		case 6:
			a = b + (a-c)>>1
		case 7:
			a = (a + b) >> 1
		}
		row[x] = uint16(a + diff)
	}
	return nil
}
