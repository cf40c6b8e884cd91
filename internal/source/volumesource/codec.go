package volumesource

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zlib"
	"golang.org/x/image/tiff/lzw"

	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/imagecodec"
	"github.com/stokerdata/stoker/internal/imagelib"
	"github.com/stokerdata/stoker/internal/inflate"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// codec unpacks a block whose rows have width voxels to out, little-endian. It returns the
// number of bytes.
type codec interface {
	unpack(out, in []byte, width int) (int, error)
}

// tiffCodec is the compression of a TIFF file.
type tiffCodec struct {
	scheme    int
	predictor int
	dtype     driver.DType
	big       bool
}

// Compression schemes of TIFF.
const (
	schemeNone     = 1
	schemeLZW      = 5
	schemeDeflate  = 8
	schemePackBits = 32773
	schemeOldZip   = 32946
)

func (c *tiffCodec) unpack(out, in []byte, width int) (n int, err error) {
	switch c.scheme {
	case schemeNone:
		n = copy(out, in)
	case schemePackBits:
		n, err = imagecodec.PackBits(out, in)
	case schemeLZW:
		r := lzw.NewReader(bytes.NewReader(in), lzw.MSB, 8)
		n, err = readFull(r, out)
	default:
		if inflate.Zlib(out, in) == nil { // usually all of it
			n = len(out)
			break
		}
		r, zerr := zlib.NewReader(bytes.NewReader(in))
		if zerr != nil {
			return 0, fmt.Errorf("it is not deflated data: %w", zerr)
		}
		n, err = readFull(r, out)
	}
	if err != nil {
		return 0, fmt.Errorf("it cannot be unpacked: %w", err)
	}
	size := c.dtype.Size()
	n -= n % size
	switch c.predictor {
	case 2:
		if c.big && size > 1 {
			swap(out[:n], size)
		}
		undoDifferences(out[:n], size, width)
	case 3:
		undoFloats(out[:n], size, width)
	default:
		if c.big && size > 1 {
			swap(out[:n], size)
		}
	}
	return n, nil
}

// readFull reads until out is full or r ends. An early end is not an error, since the last
// strip of an image may be short.
func readFull(r io.Reader, out []byte) (int, error) {
	n, err := io.ReadFull(r, out)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}

// undoDifferences adds each voxel of a row to the one before it (predictor 2).
func undoDifferences(b []byte, size, width int) {
	row := width * size
	for ; len(b) >= row && row > 0; b = b[row:] {
		r := b[:row]
		switch size {
		case 1:
			for i := 1; i < row; i++ {
				r[i] += r[i-1]
			}
		case 2:
			last := uint16(0)
			for i := 0; i+2 <= row; i += 2 {
				last += binary.LittleEndian.Uint16(r[i:])
				binary.LittleEndian.PutUint16(r[i:], last)
			}
		case 4:
			last := uint32(0)
			for i := 0; i+4 <= row; i += 4 {
				last += binary.LittleEndian.Uint32(r[i:])
				binary.LittleEndian.PutUint32(r[i:], last)
			}
		case 8:
			last := uint64(0)
			for i := 0; i+8 <= row; i += 8 {
				last += binary.LittleEndian.Uint64(r[i:])
				binary.LittleEndian.PutUint64(r[i:], last)
			}
		}
	}
}

// undoFloats undoes predictor 3: a row has the highest bytes of all its floats first, stored as
// differences.
func undoFloats(b []byte, size, width int) {
	row := width * size
	temp := make([]byte, row)
	for ; len(b) >= row && row > 0; b = b[row:] {
		r := b[:row]
		for i := 1; i < row; i++ {
			r[i] += r[i-1]
		}
		copy(temp, r)
		for i := range width {
			for k := range size {
				r[i*size+size-1-k] = temp[k*width+i]
			}
		}
	}
}

// jpegCodec is JPEG Baseline in DICOM files: gray of 8 bits.
type jpegCodec struct{}

func (*jpegCodec) unpack(out, in []byte, width int) (int, error) {
	d, err := decode.New(decode.Options{})
	if err != nil {
		return 0, err
	}
	defer d.Close()
	v := driver.Value{Bytes: in, Codec: driver.CodecJPEG}
	info, err := d.Info(v)
	if err != nil {
		return 0, err
	}
	rows := len(out) / width // only the first rows may be requested
	if w, h := int(info.Width), int(info.Height); w != width || h < rows {
		return 0, errSides("JPEG", w, h, width, rows)
	}
	v.Width, v.Height = info.Width, info.Height
	whole := item.Rect{W: info.Width, H: int32(rows)}
	gray := item.PixelType{DType: item.U8, Channels: 1}
	reqs := []decode.Request{{
		Value: v, Pixels: gray, Store: gray.Plain(), Dst: out,
		Geom: item.Geometry{Box: whole, ResizeW: whole.W, ResizeH: whole.H, Window: whole, Filter: item.Bilinear},
	}}
	d.Run(reqs)
	return len(out), reqs[0].Err
}

// errSides returns the error of a frame whose size does not match the header of its file.
func errSides(what string, w, h, width, rows int) error {
	return fmt.Errorf("it is a %s of %d x %d, and a frame has %d x %d voxels or more", what, w, h, width, rows)
}

// losslessCodec is JPEG Lossless in DICOM files, for voxels of size bytes.
type losslessCodec struct{ size int }

func (c *losslessCodec) unpack(out, in []byte, width int) (int, error) {
	h, err := imagecodec.OpenLossless(in)
	if err != nil {
		return 0, err
	}
	if rows := len(out) / c.size / width; h.Width != width || h.Height < rows {
		return 0, errSides("lossless JPEG", h.Width, h.Height, width, rows)
	}
	return len(out), h.Decode(out, c.size)
}

// jpeg2000Codec is JPEG 2000 in DICOM files, for voxels of size bytes.
type jpeg2000Codec struct{ size int }

func (c *jpeg2000Codec) unpack(out, in []byte, width int) (int, error) {
	// A mapped file can be truncated while C reads it, so C reads a copy.
	return len(out), imagelib.DecodeGray(bytes.Clone(in), width, len(out)/c.size/width, c.size, out)
}

// rleCodec is RLE Lossless in DICOM files: the highest bytes of all voxels, then the next ones,
// each packed separately.
type rleCodec struct{ size int }

func (c *rleCodec) unpack(out, in []byte, _ int) (int, error) {
	if len(in) < 64 {
		return 0, errors.New("it is too short for RLE")
	}
	segments := int(binary.LittleEndian.Uint32(in))
	if segments != c.size {
		return 0, fmt.Errorf("it has %d segments of RLE, voxels of %d bytes have %d", segments, c.size, c.size)
	}
	n := len(out) / c.size
	plane := make([]byte, n)
	for k := range segments {
		from, to := int(binary.LittleEndian.Uint32(in[4+4*k:])), len(in)
		if k+1 < segments {
			to = int(binary.LittleEndian.Uint32(in[8+4*k:]))
		}
		if from < 64 || from > to || to > len(in) {
			return 0, errors.New("its segments of RLE lie outside of it")
		}
		got, err := imagecodec.PackBits(plane, in[from:to])
		if err != nil {
			return 0, err
		}
		if got < n {
			return 0, fmt.Errorf("a segment of RLE has %d bytes and not %d", got, n)
		}
		for i, b := range plane {
			out[i*c.size+c.size-1-k] = b
		}
	}
	return n * c.size, nil
}
