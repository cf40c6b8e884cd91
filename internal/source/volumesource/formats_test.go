package volumesource

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/imagecodec/ljpegtest"
	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

// voxel returns the value of a voxel in the files of these tests.
func voxel(z, y, x, plus int) uint16 { return uint16(z*1000 + y*100 + x + plus) }

// rowsOf returns the voxels in some rows of a slice.
func rowsOf(order binary.AppendByteOrder, z, y0, y1, x0, x1, plus int) (b []byte) {
	for y := y0; y < y1; y++ {
		for x := x0; x < x1; x++ {
			b = order.AppendUint16(b, voxel(z, y, x, plus))
		}
	}
	return b
}

// tiffFile returns a TIFF file of slices of uint16.
func tiffFile(order binary.AppendByteOrder, depth, height, width, rows int, tiled, packed bool, plus int) []byte {
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
				part := rowsOf(order, z, y, y1, x, x1, plus)
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

// dicomFile returns a slice of a series.
func dicomFile(syntax string, z, height, width, plus int) []byte {
	b := append(make([]byte, 128), "DICM"...)
	little := binary.LittleEndian
	implicit := syntax == implicitLittle
	add := func(tag uint32, vr string, value []byte) {
		if len(value)%2 == 1 {
			value = append(value, ' ')
		}
		b = little.AppendUint16(little.AppendUint16(b, uint16(tag>>16)), uint16(tag))
		switch {
		case implicit && tag>>16 != 2:
			b = little.AppendUint32(b, uint32(len(value)))
		case vrSizes[vr] == 4:
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
	voxels := rowsOf(little, z, 0, height, 0, width, plus)
	var items [][]byte
	switch syntax {
	case rleLossless:
		frame := make([]byte, 64)
		little.PutUint32(frame, 2)
		for k := 1; k >= 0; k-- {
			little.PutUint32(frame[8-4*k:], uint32(len(frame)))
			for i := k; i < len(voxels); i += 2 {
				frame = append(frame, 0, voxels[i])
			}
		}
		items = [][]byte{frame}
	case jpegLossless, jpegLosslessFirst:
		m := &ljpegtest.Image{Width: width, Height: height, Bits: 16, Predictor: 1 + z%7}
		for i := 0; i < len(voxels); i += 2 {
			m.Samples = append(m.Samples, little.Uint16(voxels[i:]))
		}
		frame := ljpegtest.Encode(m)
		if items = [][]byte{frame}; syntax == jpegLosslessFirst { // in pieces
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

func npyFile(plus int) []byte {
	b := npy.AppendHeader(nil, driver.Uint16, []int64{7, 8, 9})
	for z := range 7 {
		b = append(b, rowsOf(binary.LittleEndian, z, 0, 8, 0, 9, plus)...)
	}
	return b
}

// forms returns a folder per format, with volumes of 7 x 8 x 9 voxels.
func forms(t testing.TB) map[string]string {
	all := map[string]string{}
	for name, f := range map[string]func(i int) (string, []byte){
		"npy": func(i int) (string, []byte) { return ".npy", npyFile(i) },
		"strips": func(i int) (string, []byte) {
			return ".tif", tiffFile(binary.LittleEndian, 7, 8, 9, 3, false, false, i)
		},
		"big": func(i int) (string, []byte) { return ".tif", tiffFile(binary.BigEndian, 7, 8, 9, 8, false, false, i) },
		"tiles": func(i int) (string, []byte) {
			return ".tif", tiffFile(binary.LittleEndian, 7, 8, 9, 16, true, false, i)
		},
		"packed": func(i int) (string, []byte) { return ".tif", tiffFile(binary.LittleEndian, 7, 8, 9, 3, false, true, i) },
	} {
		all[name] = formattest.Numbered(t, 5, f)
	}
	for name, syntax := range map[string]string{"implicit": implicitLittle, "explicit": explicitLittle, "rle": rleLossless, "lossless": jpegLossless, "pieces": jpegLosslessFirst} {
		dir := t.TempDir()
		for i := range 5 {
			sub := filepath.Join(dir, fmt.Sprintf("s%d", i))
			if err := os.Mkdir(sub, 0o755); err != nil {
				t.Fatal(err)
			}
			for z := range 7 { // names in another order than positions
				name := filepath.Join(sub, fmt.Sprintf("%d.dcm", z*3%7))
				if err := os.WriteFile(name, dicomFile(syntax, z, 8, 9, i), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		all[name] = dir
	}
	return all
}

func TestForms(t *testing.T) {
	patch := &Options{Patch: [3]int{3, 4, 5}, Stride: [3]int{3, 3, 3}}
	for name, dir := range forms(t) {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, opener(dir, nil))
			drivertest.Run(t, opener(dir, patch))
			for _, opt := range []*Options{nil, patch} {
				s := opener(dir, opt)(t)
				for _, r := range drivertest.Records(t, s, upTo(s.Info().Len)...) {
					if r.Err != nil {
						t.Fatal(r.Err)
					}
					file, box := s.(*source).place(r.ID)
					checkBox(t, r.Values[0].Bytes, box, file)
				}
				s.Close()
			}
		})
	}
}

// checkBox checks the voxels of a part.
func checkBox(t *testing.T, b []byte, box driver.Box, plus int) {
	t.Helper()
	for z := range box.Size[0] {
		for y := range box.Size[1] {
			for x := range box.Size[2] {
				if got, want := binary.LittleEndian.Uint16(b), voxel(box.At[0]+z, box.At[1]+y, box.At[2]+x, plus); got != want {
					t.Fatalf("voxel %d, %d, %d of %v is %d, want %d", z, y, x, box, got, want)
				}
				b = b[2:]
			}
		}
	}
}

func TestFaultsOfForms(t *testing.T) {
	for name, dir := range forms(t) {
		t.Run(name, func(t *testing.T) {
			drivertest.Faults(t, localstore.New(dir), false, func(ctx context.Context, st store.Store) (driver.Source, error) {
				return Open(ctx, "test", st, nil)
			})
		})
	}
}

// Only the rows of a part are read. From wide rows, only the columns of the part are read.
func TestOnlyThePartIsRead(t *testing.T) {
	box := driver.Box{At: [3]int{2, 3, 4}, Size: [3]int{2, 4, 3}}
	for name, c := range map[string]struct{ most int64 }{
		"npy": {2 * 4 * 9 * 2}, "strips": {2 * 4 * 9 * 2}, "big": {2 * 4 * 9 * 2}, "tiles": {2 * 4 * 16 * 2}, "explicit": {2 * 4 * 9 * 2},
	} {
		s := opener(forms(t)[name], nil)(t)
		var g driver.Group
		g.Box = func(int, int) (driver.Box, bool) { return box, true }
		g.Begin([]int64{1, 3}, len(s.Info().Fields))
		s.Locate(&g)
		total := int64(0)
		for _, e := range g.Extents {
			total += e.Size
		}
		if total != 2*c.most {
			t.Errorf("%s: %d bytes are read for two parts, want %d", name, total, 2*c.most)
		}
		s.Close()
	}
	wide := &volume{shape: []int{4, 6, 1 << 14}, dtype: driver.Int16}
	wide.whole(100)
	extents := wide.locate(nil, &driver.Box{At: [3]int{1, 2, 300}, Size: [3]int{2, 3, 50}}, 0)
	if len(extents) != 6 || extents[1].Size != 100 || extents[1].Offset != 100+2*((1*6+3)<<14+300) {
		t.Errorf("%+v", extents)
	}
}

func TestPairsOfForms(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		sub := filepath.Join(dir, "ct", fmt.Sprintf("case%d", i))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for z := range 7 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("%d.dcm", z)), dicomFile(explicitLittle, z, 8, 9, i), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if i < 2 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("case%d.npy", i)), npyFile(i), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	fields := []pairsource.Field{{Name: "image", Pattern: "ct/*/*.dcm"}, {Name: "label", Pattern: "*.npy"}}
	s := opener(dir, &Options{Fields: fields})(t)
	defer s.Close()
	if f := s.Info().Fields; s.Info().Len != 2 || len(f) != 3 || !f[1].Mask || f[0].Mask || f[2].Name != "affine" {
		t.Fatalf("%d records, %+v", s.Info().Len, f)
	}
	for _, r := range drivertest.Records(t, s, 0, 1) {
		if r.Err != nil || !bytes.Equal(r.Values[0].Bytes, r.Values[1].Bytes) {
			t.Errorf("record %d: %v", r.ID, r.Err)
		}
	}
	if left := s.(driver.Skipper).Skipped(); len(left) != 1 || !strings.Contains(left[0].Reason, "no partner in *.npy") {
		t.Errorf("%v", left)
	}
}

func fuzzFile(f *testing.F, name string) {
	path := filepath.Join(f.TempDir(), name)
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, opt := range []*Options{nil, {Patch: [3]int{1, 2, 2}}} {
			s, err := Open(t.Context(), path, localstore.New(path), opt)
			if err != nil {
				continue
			}
			if f := s.Info().Fields[0]; f.MaxBytes < 1<<22 && len(b) < 1<<16 {
				_ = fmt.Sprint(drivertest.Records(t, s, 0, s.Info().Len-1))
			}
			s.Close()
		}
	})
}

func FuzzTIFF(f *testing.F) {
	for _, b := range [][]byte{
		tiffFile(binary.LittleEndian, 2, 5, 6, 2, false, false, 0), tiffFile(binary.BigEndian, 2, 5, 6, 5, false, true, 0),
		tiffFile(binary.LittleEndian, 1, 18, 17, 16, true, true, 0), tiffFile(binary.BigEndian, 1, 18, 17, 16, true, false, 0),
	} {
		f.Add(b)
	}
	big := []byte("II+\x00\x08\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00")
	f.Add(append(big, make([]byte, 60)...))
	fuzzFile(f, "x.tif")
}

func FuzzDICOM(f *testing.F) {
	for _, s := range []string{implicitLittle, explicitLittle, rleLossless, jpegLossless, jpegLosslessFirst} {
		f.Add(dicomFile(s, 1, 3, 4, 0))
	}
	fuzzFile(f, "x.dcm")
}

func FuzzNumPy(f *testing.F) {
	f.Add(npyFile(0))
	fuzzFile(f, "x.npy")
}
