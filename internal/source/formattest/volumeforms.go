package formattest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stokerdata/stoker/internal/imagecodec/ljpegtest"
	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// Numbers of TIFF and DICOM.
const (
	schemeNone, schemeDeflate                                     = 1, 8
	tagWidth, tagHeight, tagBits, tagScheme, tagSamples           = 256, 257, 258, 259, 277
	tagTileWidth, tagTileHeight, tagTileOffsets, tagTileCounts    = 322, 323, 324, 325
	tagOffsets, tagRows, tagCounts                                = 273, 278, 279
	elemSyntax, elemSeries, elemPosition, elemOrientation         = 0x00020010, 0x0020000E, 0x00200032, 0x00200037
	elemRows, elemColumns, elemSpacing, elemAllocated, elemStored = 0x00280010, 0x00280011, 0x00280030, 0x00280100, 0x00280101
	elemHighBit, elemSigned, elemPixels                           = 0x00280102, 0x00280103, 0x7FE00010
)

// The transfer syntaxes of DICOM that DICOM writes.
const (
	ImplicitLittle    = "1.2.840.10008.1.2"
	ExplicitLittle    = "1.2.840.10008.1.2.1"
	RLELossless       = "1.2.840.10008.1.2.5"
	JPEGLossless      = "1.2.840.10008.1.2.4.57"
	JPEGLosslessFirst = "1.2.840.10008.1.2.4.70"
)

// Voxel returns the value of a voxel in the files of these tests.
func Voxel(z, y, x, plus int) uint16 { return uint16(z*1000 + y*100 + x + plus) }

// voxelRows returns the voxels in some rows of a slice.
func voxelRows(order binary.AppendByteOrder, z, y0, y1, x0, x1, plus int) (b []byte) {
	for y := y0; y < y1; y++ {
		for x := x0; x < x1; x++ {
			b = order.AppendUint16(b, Voxel(z, y, x, plus))
		}
	}
	return b
}

// TIFF returns a TIFF file of slices of uint16.
func TIFF(order binary.AppendByteOrder, depth, height, width, rows int, tiled, packed bool, plus int) []byte {
	b := []byte("II*\x00")
	if fmt.Sprint(order) == "BigEndian" {
		b = []byte("MM\x00*")
	}
	put := order.(binary.ByteOrder)
	b = order.AppendUint32(b, 0)
	link := 4
	for z := range depth {
		var offsets, counts []uint32
		blockWidth := width
		if tiled {
			blockWidth = 16
		}
		for y := 0; y < height; y += rows {
			for x := 0; x < width; x += blockWidth {
				y1, x1 := min(y+rows, height), x+blockWidth
				if tiled {
					y1 = y + rows
				}
				part := voxelRows(order, z, y, y1, x, x1, plus)
				if packed {
					var out bytes.Buffer
					w := zlib.NewWriter(&out)
					_, _ = w.Write(part)
					_ = w.Close()
					part = out.Bytes()
				}
				offsets, counts = append(offsets, uint32(len(b))), append(counts, uint32(len(part)))
				b = append(b, part...)
			}
		}
		at := len(b)
		for _, n := range slices.Concat(offsets, counts) {
			b = order.AppendUint32(b, n)
		}
		put.PutUint32(b[link:], uint32(len(b)))
		scheme := uint32(schemeNone)
		if packed {
			scheme = schemeDeflate
		}
		tags := [][3]uint32{{tagWidth, 1, uint32(width)}, {tagHeight, 1, uint32(height)}, {tagBits, 1, 16}, {tagScheme, 1, scheme}, {tagSamples, 1, 1}}
		n := uint32(len(offsets))
		first, second := uint32(at), uint32(at)+4*n
		if n == 1 {
			first, second = offsets[0], counts[0]
		}
		if tiled {
			tags = append(tags, [3]uint32{tagTileWidth, 1, 16}, [3]uint32{tagTileHeight, 1, uint32(rows)}, [3]uint32{tagTileOffsets, n, first}, [3]uint32{tagTileCounts, n, second})
		} else {
			tags = append(tags, [3]uint32{tagOffsets, n, first}, [3]uint32{tagRows, 1, uint32(rows)}, [3]uint32{tagCounts, n, second})
		}
		b = order.AppendUint16(b, uint16(len(tags)))
		for _, t := range tags {
			b = order.AppendUint32(order.AppendUint32(order.AppendUint16(order.AppendUint16(b, uint16(t[0])), 4), t[1]), t[2])
		}
		link = len(b)
		b = order.AppendUint32(b, 0)
	}
	return b
}

// DICOM returns a slice of a series.
func DICOM(syntax string, z, height, width, plus int) []byte {
	b := append(make([]byte, 128), "DICM"...)
	little := binary.LittleEndian
	implicit := syntax == ImplicitLittle
	add := func(tag uint32, vr string, value []byte) {
		if len(value)%2 == 1 {
			value = append(value, ' ')
		}
		b = little.AppendUint16(little.AppendUint16(b, uint16(tag>>16)), uint16(tag))
		switch {
		case implicit && tag>>16 != 2:
			b = little.AppendUint32(b, uint32(len(value)))
		case vr == "OW":
			b = little.AppendUint32(append(b, vr[0], vr[1], 0, 0), uint32(len(value)))
		default:
			b = little.AppendUint16(append(b, vr...), uint16(len(value)))
		}
		b = append(b, value...)
	}
	short := func(n int) []byte { return little.AppendUint16(nil, uint16(n)) }
	add(elemSyntax, "UI", []byte(syntax))
	add(elemSeries, "UI", []byte("1.2.3"))
	add(elemPosition, "DS", fmt.Appendf(nil, "1\\2\\%d", z))
	add(elemOrientation, "DS", []byte("1\\0\\0\\0\\1\\0"))
	add(elemRows, "US", short(height))
	add(elemColumns, "US", short(width))
	add(elemSpacing, "DS", []byte("0.5\\0.5"))
	add(elemAllocated, "US", short(16))
	add(elemStored, "US", short(16))
	add(elemHighBit, "US", short(15))
	add(elemSigned, "US", short(0))
	voxels := voxelRows(little, z, 0, height, 0, width, plus)
	var items [][]byte
	switch syntax {
	case RLELossless:
		frame := make([]byte, 64)
		little.PutUint32(frame, 2)
		for k := 1; k >= 0; k-- {
			little.PutUint32(frame[8-4*k:], uint32(len(frame)))
			for i := k; i < len(voxels); i += 2 {
				frame = append(frame, 0, voxels[i])
			}
		}
		items = [][]byte{frame}
	case JPEGLossless, JPEGLosslessFirst:
		m := &ljpegtest.Image{Width: width, Height: height, Bits: 16, Predictor: 1 + z%7}
		for i := 0; i < len(voxels); i += 2 {
			m.Samples = append(m.Samples, little.Uint16(voxels[i:]))
		}
		frame := ljpegtest.Encode(m)
		if items = [][]byte{frame}; syntax == JPEGLosslessFirst { // in pieces
			items = [][]byte{frame[:20], frame[20:60], frame[60:]}
		}
	default:
		add(elemPixels, "OW", voxels)
		return b
	}
	b = append(b, 0xE0, 0x7F, 0x10, 0, 'O', 'B', 0, 0, 0xFF, 0xFF, 0xFF, 0xFF)
	b = append(b, 0xFE, 0xFF, 0, 0xE0, 0, 0, 0, 0)
	for _, item := range items {
		if len(item)%2 == 1 {
			item = append(item, 0)
		}
		b = little.AppendUint32(append(b, 0xFE, 0xFF, 0, 0xE0), uint32(len(item)))
		b = append(b, item...)
	}
	return append(b, 0xFE, 0xFF, 0xDD, 0xE0, 0, 0, 0, 0)
}

// NPYVolume returns a volume as a .npy file.
func NPYVolume(plus int) []byte {
	b := npy.AppendHeader(nil, driver.Uint16, []int64{7, 8, 9})
	for z := range 7 {
		b = append(b, voxelRows(binary.LittleEndian, z, 0, 8, 0, 9, plus)...)
	}
	return b
}

// Volumes returns a folder per format, with volumes of 7 x 8 x 9 voxels.
func Volumes(t testing.TB) map[string]string {
	all := map[string]string{}
	for name, f := range map[string]func(i int) (string, []byte){
		"npy": func(i int) (string, []byte) { return ".npy", NPYVolume(i) },
		"strips": func(i int) (string, []byte) {
			return ".tif", TIFF(binary.LittleEndian, 7, 8, 9, 3, false, false, i)
		},
		"big": func(i int) (string, []byte) { return ".tif", TIFF(binary.BigEndian, 7, 8, 9, 8, false, false, i) },
		"tiles": func(i int) (string, []byte) {
			return ".tif", TIFF(binary.LittleEndian, 7, 8, 9, 16, true, false, i)
		},
		"packed": func(i int) (string, []byte) { return ".tif", TIFF(binary.LittleEndian, 7, 8, 9, 3, false, true, i) },
	} {
		all[name] = Numbered(t, 5, f)
	}
	for name, syntax := range map[string]string{"implicit": ImplicitLittle, "explicit": ExplicitLittle, "rle": RLELossless, "lossless": JPEGLossless, "pieces": JPEGLosslessFirst} {
		dir := t.TempDir()
		for i := range 5 {
			sub := filepath.Join(dir, fmt.Sprintf("s%d", i))
			for z := range 7 { // names in another order than positions
				drivertest.Put(t, sub, fmt.Sprintf("%d.dcm", z*3%7), DICOM(syntax, z, 8, 9, i))
			}
		}
		all[name] = dir
	}
	return all
}
