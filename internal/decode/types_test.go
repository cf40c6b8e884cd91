package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// expected returns the expected pixels of a file in testdata/formats, nil if there is none.
func expected(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/formats/" + name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return data[8:]
}

// decodeAs decodes a whole image to pixels of a type.
func decodeAs(d *Decoder, v driver.Value, px item.PixelType, mask bool, w, h int32) ([]byte, error) {
	geom := cut(0, 0, w, h)
	geom.Filter = item.Nearest
	reqs := []Request{{Value: v, Pixels: px, Mask: mask, Geom: geom, Store: px.Plain(), Dst: make([]byte, int(w)*int(h)*px.Size())}}
	d.Run(reqs)
	return reqs[0].Dst, reqs[0].Err
}

func u8(channels int32) item.PixelType { return item.PixelType{DType: item.U8, Channels: channels} }

func u16(channels int32) item.PixelType { return item.PixelType{DType: item.U16, Channels: channels} }

// luma is Pillow's.
func luma(p []byte) byte {
	return byte((int(p[0])*19595 + int(p[1])*38470 + int(p[2])*7471 + 0x8000) >> 16)
}

// TestModesArePillows compares RGBA, LA and L of all formats with Pillow's.
func TestModesArePillows(t *testing.T) {
	d := newDecoder(t, Options{ApplyOrientation: true})
	compared := 0
	formats(t, func(name string, src, rgb []byte, w, h int32) {
		v := driver.Value{Bytes: src}
		n := int(w) * int(h)
		rgba := expected(t, name+".rgba")
		opaque := rgba == nil // JPEG, oriented files and 16-bit gray: no alpha
		if opaque {
			for i := range n {
				rgba = append(append(rgba, rgb[3*i:3*i+3]...), 255)
			}
		}
		var la, l []byte
		for i := range n {
			la = append(la, luma(rgba[4*i:]), rgba[4*i+3])
			l = append(l, luma(rgba[4*i:]))
		}
		for px, want := range map[item.PixelType][]byte{u8(4): rgba, u8(2): la, u8(1): l} {
			got, err := decodeAs(d, v, px, false, w, h)
			if err != nil {
				t.Errorf("%s as %s: %v", name, px, err)
				continue
			}
			if !bytes.Equal(got, want) {
				at := 0
				for got[at] == want[at] {
					at++
				}
				t.Errorf("%s as %s: byte %d is %d, want %d", name, px, at, got[at], want[at])
			}
			compared++
			// 16-bit values are 8-bit values scaled to the range.
			if strings.Contains(name, "16") || strings.Contains(name, "float") || strings.Contains(name, "int") || strings.HasSuffix(name, ".pfm") {
				continue
			}
			px.DType = item.U16
			wide, err := decodeAs(d, v, px, false, w, h)
			if err != nil {
				t.Errorf("%s as %s: %v", name, px, err)
				continue
			}
			for i := range want {
				if v := binary.LittleEndian.Uint16(wide[2*i:]); v != uint16(want[i])*257 {
					t.Errorf("%s as %s: value %d is %d, want %d", name, px, i, v, uint16(want[i])*257)
					break
				}
			}
		}
	})
	if compared < 100 {
		t.Errorf("only %d were compared", compared)
	}
}

// TestSixteenBits decodes images of 16 bits without conversion.
func TestSixteenBits(t *testing.T) {
	d := newDecoder(t, Options{})
	for name, channels := range map[string]int32{
		"gray16.png.mask": 1, "gray16.tiff.mask": 1, "classes16.png.mask": 1, "classes16.tiff.mask": 1,
		"rgb16.png.u16": 3, "rgba16.png.u16": 4, "gray-alpha16.png.u16": 2,
	} {
		file := name[:strings.LastIndexByte(name, '.')]
		src, err := os.ReadFile("testdata/formats/" + file)
		if err != nil {
			t.Fatal(err)
		}
		info, err := imagefile.Probe(src)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeAs(d, driver.Value{Bytes: src}, u16(channels), false, info.Width, info.Height)
		if err != nil || !bytes.Equal(got, expected(t, name)) {
			t.Errorf("%s is not decoded to its values: %v", file, err)
		}
	}
}

// TestMasksAreTheirValues decodes masks of all formats to the class numbers
// that np.asarray(Image.open(file)) shows: indices of palettes, values of gray.
func TestMasksAreTheirValues(t *testing.T) {
	d := newDecoder(t, Options{})
	compared := 0
	formats(t, func(name string, src, _ []byte, w, h int32) {
		want := expected(t, name+".mask")
		if want == nil {
			return
		}
		compared++
		v := driver.Value{Bytes: src}
		got, err := decodeAs(d, v, u16(1), true, w, h)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s as a mask of 16 bits: not its values, %v", name, err)
		}
		largest := uint16(0)
		for i := 0; i < len(want); i += 2 {
			largest = max(largest, binary.LittleEndian.Uint16(want[i:]))
		}
		small, err := decodeAs(d, v, u8(1), true, w, h)
		if largest > 255 {
			if !errors.Is(err, cdec.ErrUnsupported) || !strings.Contains(err.Error(), "more than uint8 holds; ask for 16 bits") {
				t.Errorf("%s as a mask of 8 bits: %v", name, err)
			}
			return
		}
		if err != nil {
			t.Errorf("%s as a mask of 8 bits: %v", name, err)
		}
		for i := range small {
			if small[i] != want[2*i] {
				t.Errorf("%s as a mask of 8 bits: pixel %d is class %d, want %d", name, i, small[i], want[2*i])
				break
			}
		}
	})
	if compared < 15 {
		t.Errorf("only %d were compared", compared)
	}
	src, err := os.ReadFile("testdata/formats/rgb.png")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeAs(d, driver.Value{Bytes: src}, u8(1), true, 37, 29); !errors.Is(err, cdec.ErrUnsupported) || !strings.Contains(err.Error(), "the mask has a colour") {
		t.Errorf("a mask of colours: %v", err)
	}
}

// TestGeometryOfOtherTypes checks that a resized box of an image equals the resized box of its pixels, for any pixel
// type, rotated or not.
func TestGeometryOfOtherTypes(t *testing.T) {
	for _, turn := range []bool{false, true} {
		d := newDecoder(t, Options{ApplyOrientation: turn})
		formats(t, func(name string, src, _ []byte, _, _ int32) {
			v := driver.Value{Bytes: src}
			info, err := d.Info(v)
			if err != nil {
				t.Fatal(name, err)
			}
			w, h := info.Width, info.Height
			if w < 20 || h < 20 {
				return
			}
			g := cut(3, 2, w-7, h-4)
			g.ResizeW, g.ResizeH, g.FlipH = 20, 17, true
			g.Window = item.Rect{X: 2, Y: 1, W: 15, H: 14}
			for _, px := range []item.PixelType{u8(2), u8(4), u16(1), u16(3)} {
				pix, err := decodeAs(d, v, px, false, w, h)
				if err != nil {
					t.Fatal(name, err)
				}
				got, want := make([]byte, 15*14*px.Size()), make([]byte, 15*14*px.Size())
				reqs := []Request{
					{Value: v, Pixels: px, Geom: g, Store: px.Plain(), Dst: got},
					{Value: driver.Value{Bytes: pix, Codec: driver.CodecRaw, Width: w, Height: h, Channels: px.Channels, Orientation: 1}, Raw: px.DType, Pixels: px, Geom: g, Store: px.Plain(), Dst: want},
				}
				d.Run(reqs)
				if reqs[0].Err != nil || reqs[1].Err != nil {
					t.Fatal(name, px, reqs[0].Err, reqs[1].Err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s as %s: the box differs from the box of the pixels", name, px)
				}
			}
		})
	}
}

// TestRawTypes decodes raw values of all types to all types that they can
// become.
func TestRawTypes(t *testing.T) {
	d := newDecoder(t, Options{ApplyOrientation: true})
	raw := func(b []byte, channels int32) driver.Value {
		return driver.Value{Bytes: b, Codec: driver.CodecRaw, Width: 2, Height: 1, Channels: channels}
	}
	for _, c := range []struct {
		in    driver.Value
		dtype item.DType
		px    item.PixelType
		mask  bool
		want  []byte
	}{
		{raw([]byte{5, 200}, 1), item.U8, u8(3), false, []byte{5, 5, 5, 200, 200, 200}},
		{raw([]byte{5, 200}, 1), 0, u8(4), false, []byte{5, 5, 5, 255, 200, 200, 200, 255}},
		{raw([]byte{5, 200}, 1), 0, u16(1), false, []byte{5, 5, 200, 200}},
		{raw([]byte{5, 200}, 1), 0, u16(1), true, []byte{5, 0, 200, 0}},
		{raw([]byte{5, 9, 200, 8}, 2), 0, u8(1), false, []byte{5, 200}},
		{raw([]byte{5, 9, 200, 8}, 2), 0, u8(3), false, []byte{5, 5, 5, 200, 200, 200}},
		{raw([]byte{5, 9, 200, 8}, 2), 0, u8(2), false, []byte{5, 9, 200, 8}},
		{raw([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 4), 0, u8(3), false, []byte{1, 2, 3, 5, 6, 7}},
		{raw([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 4), 0, u8(4), false, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{raw([]byte{1, 2, 3, 4}, 1), item.U16, u16(1), false, []byte{1, 2, 3, 4}},
		{raw([]byte{7, 0, 9, 0}, 1), item.U16, u8(1), true, []byte{7, 9}},
		{raw([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 1), item.F32, item.PixelType{DType: item.F32, Channels: 1}, false, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		got, err := decodeAs(d, func() driver.Value { return c.in }(), c.px, c.mask, 2, 1)
		if c.dtype == item.U16 || c.dtype == item.F32 {
			reqs := []Request{{Value: c.in, Raw: c.dtype, Pixels: c.px, Mask: c.mask, Geom: cut(0, 0, 2, 1), Store: c.px.Plain(), Dst: got}}
			d.Run(reqs)
			err = reqs[0].Err
		}
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%v of %s as %s (mask %v): %v, %v, want %v", c.in.Bytes, c.dtype, c.px, c.mask, got, err, c.want)
		}
		// Turned upside down and back: the same values in reverse order.
		turned := c.in
		turned.Orientation = 3
		reqs := []Request{{Value: turned, Raw: c.dtype, Pixels: c.px, Mask: c.mask, Geom: cut(0, 0, 2, 1), Store: c.px.Plain(), Dst: make([]byte, len(c.want))}}
		d.Run(reqs)
		half := len(c.want) / 2
		if back := append(bytes.Clone(c.want[half:]), c.want[:half]...); reqs[0].Err != nil || !bytes.Equal(reqs[0].Dst, back) {
			t.Errorf("%v of %s as %s, turned: %v, %v, want %v", c.in.Bytes, c.dtype, c.px, reqs[0].Dst, reqs[0].Err, back)
		}
	}
	float := item.PixelType{DType: item.F32, Channels: 1}
	for name, r := range map[string]Request{
		"floats as bytes":       {Value: raw(make([]byte, 8), 1), Raw: item.F32, Pixels: u8(3)},
		"floats of more planes": {Value: raw(make([]byte, 8), 1), Raw: item.F32, Pixels: item.PixelType{DType: item.F32, Channels: 3}},
		"integers of 64 bits":   {Value: raw(make([]byte, 16), 1), Raw: item.I64, Pixels: u16(1)},
		"a mask of RGB":         {Value: raw([]byte{1, 2, 3, 4, 5, 6}, 3), Mask: true, Pixels: u8(1)},
		"a mask of floats":      {Value: raw(make([]byte, 8), 1), Raw: item.F32, Mask: true, Pixels: float},
		"a mask of 3 channels":  {Value: raw(make([]byte, 6), 3), Mask: true, Pixels: u8(3)},
		"too few bytes":         {Value: raw(make([]byte, 3), 1), Raw: item.U16, Pixels: u16(1)},
		"5 channels":            {Value: raw(make([]byte, 10), 5), Pixels: u8(4)},
		"to 5 channels":         {Value: raw(make([]byte, 10), 1), Pixels: u8(5)},
	} {
		r.Geom, r.Store = cut(0, 0, 2, 1), r.Pixels.Plain()
		r.Dst = make([]byte, 64)
		reqs := []Request{r}
		d.Run(reqs)
		if reqs[0].Err == nil || strings.Contains(reqs[0].Err.Error(), "\n") {
			t.Errorf("%s: %v", name, reqs[0].Err)
		}
	}
}

// TestRowsOfU16 stores bytes as u16, and JPEGs as other types than RGB.
func TestRowsOfU16(t *testing.T) {
	d := newDecoder(t, Options{})
	formats(t, func(name string, src, want []byte, w, h int32) {
		if !strings.HasSuffix(name, ".jpg") || strings.HasPrefix(name, "orientation") {
			return
		}
		st := item.RGB.Plain()
		st.DType = item.U16
		reqs := []Request{{Value: driver.Value{Bytes: src}, Geom: cut(0, 0, w, h), Store: st, Dst: make([]byte, 2*len(want))}}
		d.Run(reqs)
		if reqs[0].Err != nil {
			t.Fatal(name, reqs[0].Err)
		}
		for i, v := range want {
			if got := binary.LittleEndian.Uint16(reqs[0].Dst[2*i:]); got != uint16(v) {
				t.Fatalf("%s: value %d is %d, want %d", name, i, got, v)
			}
		}
	})
}

// FuzzDecodeTypes feeds the decoders of all formats with damaged images, for
// all types of pixels and for masks.
func FuzzDecodeTypes(f *testing.F) {
	formats(f, func(_ string, src, _ []byte, _, _ int32) { f.Add(src, byte(4), false, false) })
	d := newDecoder(f, Options{MaxPixels: 1 << 16, ApplyOrientation: true})
	f.Fuzz(func(t *testing.T, src []byte, channels byte, wide, mask bool) {
		v := driver.Value{Bytes: src}
		info, err := d.Info(v)
		if err != nil || int64(info.Width)*int64(info.Height) > 1<<16 {
			return
		}
		px := u8(int32(channels % 6))
		if wide {
			px.DType = item.U16
		}
		_, _ = decodeAs(d, v, px, mask, info.Width, info.Height)
	})
}
