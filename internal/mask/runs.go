package mask

import (
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/internal/item"
)

// The runs codec: a header, the start of each strip of rows, then the rows. Each row is pairs of a class number and a
// length.
const (
	runsMagic   = "runs"
	runsVersion = 1
	runsHeader  = 16
	stripRows   = 16
)

// AppendRuns appends m as runs to dst.
func AppendRuns(dst []byte, m *Mask) []byte {
	begin := len(dst)
	dst = append(dst, runsMagic...)
	dst = append(dst, runsVersion, byte(m.Size), stripRows, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Width))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Height))
	strips := (m.Height + stripRows - 1) / stripRows
	table := len(dst)
	dst = append(dst, make([]byte, 4*strips)...)
	for y := range m.Height {
		if y%stripRows == 0 {
			binary.LittleEndian.PutUint32(dst[table+y/stripRows*4:], uint32(len(dst)-begin))
		}
		row := m.Pix[m.Size*y*m.Width : m.Size*(y+1)*m.Width]
		for x := 0; x < m.Width; {
			n := 1
			if m.Size == 1 {
				for c := row[x]; x+n < m.Width && row[x+n] == c; {
					n++
				}
				dst = append(dst, row[x])
			} else {
				for a, b := row[2*x], row[2*x+1]; x+n < m.Width && row[2*(x+n)] == a && row[2*(x+n)+1] == b; {
					n++
				}
				dst = append(dst, row[2*x], row[2*x+1])
			}
			dst = binary.AppendUvarint(dst, uint64(n-1))
			x += n
		}
	}
	return dst
}

func runsError(format string, a ...any) error {
	return fmt.Errorf("the runs of the mask are damaged: %s", fmt.Sprintf(format, a...))
}

// RunsInfo reads the header of a mask that is stored as runs.
func RunsInfo(b []byte) (width, height, size int, err error) {
	if len(b) < runsHeader || string(b[:4]) != runsMagic || b[4] != runsVersion || b[6] == 0 || b[5] != 1 && b[5] != 2 {
		return 0, 0, 0, runsError("no header")
	}
	w, h := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	if w < 1 || h < 1 || int64(w)*int64(h) > MaxPixels || w > MaxPixels || h > MaxPixels {
		return 0, 0, 0, runsError("%d x %d pixels", w, h)
	}
	return int(w), int(h), int(b[5]), nil
}

// runsBox writes a part of a mask of width x height into dst.
func runsBox(dst []byte, size int, b []byte, width, height int, box item.Rect) error {
	w, h, stored, err := RunsInfo(b)
	if err != nil {
		return err
	}
	if w != width || h != height {
		return fmt.Errorf("a mask of %d x %d where one of %d x %d is expected", w, h, width, height)
	}
	strip := int(b[6])
	if table := runsHeader + 4*((h+strip-1)/strip); table > len(b) {
		return runsError("it ends in its table")
	}
	x0, x1 := int(box.X), int(box.X+box.W)
	from := int(box.Y) / strip
	at := int64(binary.LittleEndian.Uint32(b[runsHeader+4*from:]))
	if at > int64(len(b)) {
		return runsError("strip %d begins at %d of %d bytes", from, at, len(b))
	}
	data := b[at:]
	for y := from * strip; y < int(box.Y+box.H); y++ {
		var row []byte // of dst, nil above the box
		if k := y - int(box.Y); k >= 0 {
			row = dst[size*k*int(box.W) : size*(k+1)*int(box.W)]
		}
		for x := 0; x < w; {
			if len(data) < stored+1 {
				return runsError("it ends in row %d", y)
			}
			c := uint16(data[0])
			if stored == 2 {
				c |= uint16(data[1]) << 8
			}
			n := int(data[stored])
			data = data[stored+1:]
			if n >= 0x80 {
				v, used := binary.Uvarint(data)
				if used <= 0 || v > MaxPixels {
					return runsError("a length in row %d", y)
				}
				n = n&0x7F | int(v)<<7
				data = data[used:]
			}
			if n++; n > w-x {
				return runsError("row %d is longer than %d", y, w)
			}
			if lo, hi := max(x, x0), min(x+n, x1); row != nil && lo < hi {
				if size == 1 {
					if c > 0xFF {
						return errWide(c)
					}
					fill(row[lo-x0:hi-x0], byte(c))
				} else {
					fill16(row[2*(lo-x0):2*(hi-x0)], c)
				}
			}
			x += n
		}
	}
	return nil
}

func fill(p []byte, c byte) {
	if len(p) < 32 {
		for i := range p {
			p[i] = c
		}
		return
	}
	p[0] = c
	for n := 1; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}

func fill16(p []byte, c uint16) {
	p[0], p[1] = byte(c), byte(c>>8)
	for n := 2; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}
