package tiffimage

import (
	"bytes"
	giflzw "compress/lzw"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/imagefile"
)

// files calls f with the TIFF files of package decode, whose tests compare all pixels with
// Pillow's.
func files(t testing.TB, f func(name string, b []byte)) {
	t.Helper()
	names, err := filepath.Glob("../decode/testdata/formats/*.tiff")
	if err != nil || len(names) < 50 {
		t.Fatalf("%d files: %v", len(names), err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f(filepath.Base(name), b)
	}
}

// maxFuzzed bounds the pictures that are read while fuzzing.
const maxFuzzed = 1 << 16

func read(b []byte, opt Options) error {
	l, err := imagefile.ReadTIFFLayout(b)
	if err != nil {
		return err
	}
	t, channels := Type(l, opt)
	if int64(l.Width)*int64(l.Height) > maxFuzzed || int64(l.BlockWidth)*int64(l.BlockHeight)*int64(l.Samples) > 16*maxFuzzed {
		return nil
	}
	return Read(b, l, opt, make([]byte, l.Width*l.Height*channels*t.Size()))
}

// TestEveryByteIsNeeded cuts each file within its pixels, which is an error.
func TestEveryByteIsNeeded(t *testing.T) {
	files(t, func(name string, b []byte) {
		l, err := imagefile.ReadTIFFLayout(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if err := read(b, Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		l.Sizes[0] /= 3
		kind, channels := Type(l, Options{})
		if Read(b, l, Options{}, make([]byte, l.Width*l.Height*channels*kind.Size())) == nil {
			t.Errorf("%s: a third of its first block is enough", name)
		}
	})
}

// TestFaxCodes decodes a row of each length, white and black, that is written with the
// codes of the table: no code is the beginning of another one.
func TestFaxCodes(t *testing.T) {
	tables := faxTables()
	for table, count := range []int{27 + 64 + 13, 27 + 64 + 13, 9} {
		seen := map[faxCode]bool{}
		space := 0
		for _, c := range tables[table] {
			if c.bits > 0 {
				seen[c] = true
				space++
			}
		}
		sum := 0
		for c := range seen {
			sum += 1 << (faxBits - c.bits)
		}
		if len(seen) != count || sum != space {
			t.Errorf("table %d: %d codes of %d, %d of %d entries", table, len(seen), count, sum, space)
		}
	}
}

func FuzzRead(f *testing.F) {
	files(f, func(_ string, b []byte) { f.Add(b) })
	f.Fuzz(func(_ *testing.T, b []byte) {
		for _, opt := range []Options{{}, {Mask: true}, {Narrow: true}} {
			_ = read(b, opt)
		}
	})
}

func FuzzFax(f *testing.F) {
	f.Add([]byte{0x00, 0x10, 0x01, 0x35, 0x9a}, uint8(0))
	f.Add(bytes.Repeat([]byte{0x26, 0xa0}, 9), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, how uint8) {
		kind := faxKind{group4: how&1 != 0, marks: how&2 != 0, twoDimensions: how&4 != 0, align: int(how >> 3 & 1 * 8)}
		_ = unpackFax(make([]byte, 9*7), b, 68, kind)
	})
}

// TestLZWOfBothOrders reads LZW with the high bits first, and with the low bits first as before TIFF 5.0.
func TestLZWOfBothOrders(t *testing.T) {
	data := bytes.Repeat([]byte("rows of pixels, "), 400)
	var old bytes.Buffer
	w := giflzw.NewWriter(&old, giflzw.LSB, 8)
	if _, err := w.Write(data); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	// Two literals and the end, in codes of 9 bits.
	now := []byte{0x80, 0x1d, 0x0d, 0xb0, 0x10}
	for name, c := range map[string]struct{ src, want []byte }{"low bits first": {old.Bytes(), data}, "high bits first": {now, []byte("tm")}} {
		got, err := io.ReadAll(lzwReader(c.src))
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %d bytes (%.20q), %v", name, len(got), got, err)
		}
	}
}
