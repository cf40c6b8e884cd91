package imagecodec

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// CCITT compression: T.4 (modified Huffman, Group 3 of one and two dimensions) and T.6
// (Group 4). Rows become bits, in which 0 is white.

// Codes of runs, the shortest run first: those of 0 to 63 pixels, then those of 64, 128
// and so on up to 1728, then the extended ones up to 2560, which both colours share.
const (
	whiteCodes = `00110101 000111 0111 1000 1011 1100 1110 1111 10011 10100 00111 01000 001000 000011 110100 110101
		101010 101011 0100111 0001100 0001000 0010111 0000011 0000100 0101000 0101011 0010011 0100100 0011000 00000010
		00000011 00011010 00011011 00010010 00010011 00010100 00010101 00010110 00010111 00101000 00101001 00101010
		00101011 00101100 00101101 00000100 00000101 00001010 00001011 01010010 01010011 01010100 01010101 00100100
		00100101 01011000 01011001 01011010 01011011 01001010 01001011 00110010 00110011 00110100
		11011 10010 010111 0110111 00110110 00110111 01100100 01100101 01101000 01100111 011001100 011001101 011010010
		011010011 011010100 011010101 011010110 011010111 011011000 011011001 011011010 011011011 010011000 010011001
		010011010 011000 010011011`
	blackCodes = `0000110111 010 11 10 011 0011 0010 00011 000101 000100 0000100 0000101 0000111 00000100 00000111
		000011000 0000010111 0000011000 0000001000 00001100111 00001101000 00001101100 00000110111 00000101000
		00000010111 00000011000 000011001010 000011001011 000011001100 000011001101 000001101000 000001101001
		000001101010 000001101011 000011010010 000011010011 000011010100 000011010101 000011010110 000011010111
		000001101100 000001101101 000011011010 000011011011 000001010100 000001010101 000001010110 000001010111
		000001100100 000001100101 000001010010 000001010011 000000100100 000000110111 000000111000 000000100111
		000000101000 000001011000 000001011001 000000101011 000000101100 000001011010 000001100110 000001100111
		0000001111 000011001000 000011001001 000001011011 000000110011 000000110100 000000110101 0000001101100
		0000001101101 0000001001010 0000001001011 0000001001100 0000001001101 0000001110010 0000001110011 0000001110100
		0000001110101 0000001110110 0000001110111 0000001010010 0000001010011 0000001010100 0000001010101 0000001011010
		0000001011011 0000001100100 0000001100101`
	longCodes = `00000001000 00000001100 00000001101 000000010010 000000010011 000000010100 000000010101 000000010110
		000000010111 000000011100 000000011101 000000011110 000000011111`
)

// Modes of T.6, by the code of each: pass, horizontal, and the vertical ones, which are
// offsets.
const (
	modePass       = 100
	modeHorizontal = 101
)

var modeCodes = map[string]int16{
	"0001": modePass, "001": modeHorizontal, "1": 0, "011": 1, "000011": 2, "0000011": 3, "010": -1, "000010": -2, "0000010": -3,
}

// faxBits is the length of the longest code.
const faxBits = 13

// faxCode is the meaning of the next bits: a value and the length of its code, 0 for none.
type faxCode struct {
	value int16
	bits  uint8
}

type faxTable [1 << faxBits]faxCode

func (t *faxTable) add(code string, value int16) {
	at := 0
	for _, c := range code {
		at = at<<1 | int(c-'0')
	}
	free := faxBits - len(code)
	for i := range 1 << free {
		t[at<<free|i] = faxCode{value, uint8(len(code))}
	}
}

// faxTables returns those of white and black runs, and that of modes.
var faxTables = sync.OnceValue(func() *[3]faxTable {
	t := new([3]faxTable)
	for color, codes := range []string{whiteCodes, blackCodes} {
		for i, code := range strings.Fields(codes) {
			run := i
			if i >= 64 {
				run = (i - 63) * 64
			}
			t[color].add(code, int16(run))
		}
		for i, code := range strings.Fields(longCodes) {
			t[color].add(code, int16(1792+64*i))
		}
	}
	for code, mode := range modeCodes {
		t[2].add(code, mode)
	}
	return t
})

var errFaxCode = errors.New("a code that does not exist")

// fax decodes rows.
type fax struct {
	src   []byte
	at    int // bit
	width int
	// edges are the columns at which a row and the one above it change their colour,
	// ended by the width twice.
	edges, above []int
	tables       *[3]faxTable
}

// peek returns the next bits. Behind the data they are zero.
func (f *fax) peek() int {
	v := 0
	for i := range 3 {
		if at := f.at/8 + i; at < len(f.src) {
			v |= int(f.src[at]) << (16 - 8*i)
		}
	}
	return v >> (24 - faxBits - f.at%8) & (1<<faxBits - 1)
}

func (f *fax) next(table int) (int, error) {
	c := f.tables[table][f.peek()]
	if c.bits == 0 || f.at+int(c.bits) > 8*len(f.src) {
		if f.at+faxBits >= 8*len(f.src) {
			return 0, io.ErrUnexpectedEOF
		}
		return 0, errFaxCode
	}
	f.at += int(c.bits)
	return int(c.value), nil
}

// run reads the length of a run.
func (f *fax) run(color int) (int, error) {
	for n := 0; ; {
		v, err := f.next(color)
		if err != nil {
			return 0, err
		}
		if n += v; v < 64 {
			return n, nil
		}
		if n > f.width {
			return 0, fmt.Errorf("a run of %d pixels in a row of %d", n, f.width)
		}
	}
}

// oneDimension reads a row of runs.
func (f *fax) oneDimension() error {
	f.edges = f.edges[:0]
	for at, color := 0, 0; at < f.width; color ^= 1 {
		n, err := f.run(color)
		if err != nil {
			return err
		}
		if at += n; at > f.width {
			return fmt.Errorf("a row of %d pixels instead of %d", at, f.width)
		}
		f.edges = append(f.edges, at)
	}
	return nil
}

// changes returns the edges of the row above that count at a column. They are the first edge to the right of it at
// which the colour changes away from color, and the edge after that. The search begins at edge i. Only an edge of a row
// that has begun can be at its column.
func (f *fax) changes(i, at, color int, begun bool) (k, b1, b2 int) {
	for i > 0 && i > len(f.above)-1 {
		i--
	}
	for i > 0 && f.above[i-1] > at {
		i--
	}
	for i < len(f.above) && (f.above[i] < at || f.above[i] == at && begun || i%2 != color) && f.above[i] < f.width {
		i++
	}
	b1, b2 = f.width, f.width
	if i < len(f.above) {
		b1 = f.above[i]
	}
	if i+1 < len(f.above) {
		b2 = f.above[i+1]
	}
	return i, b1, b2
}

// twoDimensions reads a row that is coded as differences from the row above.
func (f *fax) twoDimensions() error {
	f.edges = f.edges[:0]
	at, color, i, b1, b2 := 0, 0, 0, 0, 0
	for begun := false; at < f.width; begun = true {
		mode, err := f.next(2)
		if err != nil {
			return err
		}
		i, b1, b2 = f.changes(i, at, color, begun)
		switch mode {
		case modePass:
			at = b2
			continue
		case modeHorizontal:
			for k := range 2 {
				n, err := f.run(color ^ k)
				if err != nil {
					return err
				}
				if at += n; at > f.width {
					return fmt.Errorf("a row of %d pixels instead of %d", at, f.width)
				}
				f.edges = append(f.edges, at)
			}
		default:
			to := b1 + mode
			if to < at || to > f.width {
				return fmt.Errorf("an edge at column %d of %d, after column %d", to, f.width, at)
			}
			at, color = to, color^1
			f.edges = append(f.edges, at)
		}
	}
	return nil
}

// write writes the row as bits.
func (f *fax) write(row []byte) {
	clear(row)
	for i := 0; i < len(f.edges); i += 2 {
		end := f.width
		if i+1 < len(f.edges) {
			end = f.edges[i+1]
		}
		setBits(row, f.edges[i], end)
	}
}

func setBits(row []byte, from, to int) {
	for ; from < to && from%8 != 0; from++ {
		row[from/8] |= 0x80 >> (from % 8)
	}
	for ; from+8 <= to; from += 8 {
		row[from/8] = 0xff
	}
	for ; from < to; from++ {
		row[from/8] |= 0x80 >> (from % 8)
	}
}

// endOfLine skips an end-of-row mark and the zeros before it, and reports whether there is one.
func (f *fax) endOfLine() bool {
	at, zeros := f.at, 0
	for ; at < 8*len(f.src); at++ {
		if f.src[at/8]>>(7-at%8)&1 != 0 {
			break
		}
		zeros++
	}
	if zeros < 11 || at >= 8*len(f.src) {
		return false
	}
	f.at = at + 1
	return true
}

// bit reads one bit.
func (f *fax) bit() int {
	v := f.peek() >> (faxBits - 1)
	f.at++
	return v
}

// How rows are coded.
type faxKind struct {
	group4, marks, twoDimensions bool
	align                        int // bits that rows begin at a multiple of, 0 for any
}

// unpackFax fills dst with rows of width pixels.
func unpackFax(dst, src []byte, width int, kind faxKind) error {
	f := &fax{src: src, width: width, tables: faxTables()}
	size := (width + 7) / 8
	for row := range len(dst) / size {
		if err := f.row(kind); err != nil {
			return fmt.Errorf("row %d of %d: %w", row+1, len(dst)/size, err)
		}
		f.write(dst[row*size : (row+1)*size])
		f.edges, f.above = f.above, f.edges
	}
	return nil
}

// row reads the next row. It skips a mark before the row.
func (f *fax) row(kind faxKind) error {
	if kind.align > 0 {
		f.at = (f.at + kind.align - 1) / kind.align * kind.align
	}
	if kind.group4 {
		return f.twoDimensions()
	}
	two := false
	if kind.marks {
		mark := f.endOfLine()
		two = kind.twoDimensions && mark && f.bit() == 0
	}
	if two {
		return f.twoDimensions()
	}
	return f.oneDimension()
}
