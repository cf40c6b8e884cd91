package imagecodec

import (
	"bytes"
	giflzw "compress/lzw"
	"io"
	"testing"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// TestEveryByteIsNeeded cuts each file within its pixels, which is an error.
func TestEveryByteIsNeeded(t *testing.T) {
	files(t, driver.CodecTIFF, func(name string, b []byte) {
		l, err := imagefile.ReadTIFFLayout(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		p := newTIFF(b, l, Options{})
		if _, err := p.Decode(Make); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		l.Sizes[0] /= 3
		if _, err := p.Decode(Make); err == nil {
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

// Lab becomes the colours that Pillow computes with Little CMS, also those outside of sRGB.
func TestLab(t *testing.T) {
	for _, c := range [][2][3]byte{
		{{244, 5, 150}, {52, 247, 255}}, {{237, 180, 50}, {35, 255, 130}}, {{251, 223, 201}, {17, 255, 255}},
		{{205, 186, 64}, {21, 230, 60}}, {{152, 96, 167}, {235, 7, 255}}, {{181, 177, 66}, {0, 206, 17}},
		{{0, 0, 0}, {1, 0, 1}}, {{255, 0, 0}, {254, 255, 254}}, {{128, 0, 0}, {119, 119, 119}},
		{{255, 127, 127}, {255, 67, 0}}, {{255, 128, 128}, {0, 255, 255}}, {{40, 200, 90}, {0, 53, 0}},
		{{90, 20, 250}, {110, 71, 93}}, {{200, 128, 0}, {0, 242, 190}}, {{185, 241, 225}, {110, 188, 234}},
		{{130, 240, 249}, {82, 130, 133}}, {{248, 20, 116}, {255, 230, 0}}, {{155, 72, 96}, {255, 70, 0}},
		{{160, 205, 148}, {0, 182, 255}}, {{44, 173, 223}, {0, 63, 90}}, {{56, 139, 86}, {0, 76, 0}},
		{{230, 15, 122}, {255, 214, 0}}, {{229, 110, 35}, {255, 87, 168}}, {{201, 246, 251}, {171, 201, 204}},
		{{238, 94, 187}, {255, 149, 255}}, {{248, 146, 237}, {0, 255, 255}}, {{150, 45, 118}, {227, 104, 0}},
		{{155, 77, 180}, {220, 77, 255}}, {{104, 241, 53}, {88, 102, 0}}, {{170, 23, 34}, {214, 146, 102}},
	} {
		got := labToRGB(c[0])
		for i := range got {
			if d := int(got[i]) - int(c[1][i]); d < -1 || d > 1 {
				t.Errorf("%d is %d, Pillow has %d", c[0], got, c[1])
				break
			}
		}
	}
}
