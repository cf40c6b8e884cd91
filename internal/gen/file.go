package gen

import (
	"encoding/binary"

	"github.com/stokerdata/stoker/internal/cdec"
)

// sizes are widths and heights as they come in photographs on the web, chosen so
// that their means are 470 x 400; portrait ones make up a quarter.
var sizes = [...][2]int{
	{180, 240}, {240, 180}, {246, 300}, {300, 225}, {300, 300}, {320, 480}, {332, 500}, {333, 500},
	{333, 500}, {334, 500}, {375, 500}, {375, 500}, {375, 500}, {400, 300}, {411, 280}, {433, 500},
	{450, 510}, {465, 500}, {468, 351}, {500, 293}, {500, 325}, {500, 333}, {500, 333}, {500, 333},
	{500, 334}, {500, 340}, {500, 353}, {500, 357}, {500, 373}, {500, 375}, {500, 375}, {500, 375},
	{500, 375}, {500, 375}, {500, 375}, {500, 375}, {500, 375}, {500, 375}, {500, 400}, {500, 414},
	{500, 418}, {500, 491}, {500, 500}, {500, 500}, {500, 500}, {550, 412}, {600, 450}, {640, 480},
	{800, 600}, {1024, 768},
}

// The mean of sizes.
const meanWidth, meanHeight = 470, 400

// pickSize draws a size; the mean over many is width x height.
func pickSize(s *stream, width, height int) (w, h int) {
	size := sizes[s.below(len(sizes))]
	w, h = size[0], size[1]
	if s.chance(35) { // cut by hand
		w += w * s.bell(12) / 100
		h += h * s.bell(12) / 100
	}
	return max(w*width/meanWidth, 8), max(h*height/meanHeight, 8)
}

// encoding is the way an image is stored.
type encoding struct {
	gray bool
	opts cdec.EncodeOptions
}

// pickEncoding draws the kind of JPEG, as often as each occurs in photographs
// on the web: three in four without subsampling at high quality.
func pickEncoding(s *stream) encoding {
	e := encoding{gray: s.chance(2)}
	e.opts.HSamp, e.opts.VSamp = 1, 1
	e.opts.Quality = 96
	switch p := s.below(100); {
	case p < 76:
		if s.chance(8) {
			e.opts.Quality = s.between(90, 98)
		}
	case p < 97:
		e.opts.HSamp, e.opts.VSamp = 2, 2
		e.opts.Quality = s.between(72, 95)
	case p < 99:
		e.opts.HSamp = 2
		e.opts.Quality = s.between(80, 95)
	default:
		e.opts.VSamp = 2
		e.opts.Quality = s.between(80, 95)
	}
	e.opts.Progressive = s.chance(3)
	e.opts.Optimize = e.opts.Progressive || s.chance(5)
	if s.chance(2) {
		e.opts.RestartMCUs = s.between(4, 64)
	}
	if s.chance(6) {
		e.opts.EXIF = exif([]int{1, 1, 3, 6, 8}[s.below(5)])
	}
	if s.chance(29) && !e.gray {
		e.opts.ICC = profile
	}
	return e
}

// exif returns an APP1 segment with two facts: who made the file, and how to
// turn it (1 upright, 3 upside down, 6 and 8 a quarter).
func exif(orientation int) []byte {
	const maker = "Stoker\x00\x00"
	be := binary.BigEndian
	b := []byte("Exif\x00\x00MM\x00\x2a")
	b = be.AppendUint32(b, 8) // the first directory
	b = be.AppendUint16(b, 2) // has two entries
	b = be.AppendUint16(b, 0x010f)
	b = be.AppendUint16(b, 2) // ASCII
	b = be.AppendUint32(b, 7)
	b = be.AppendUint32(b, 38) // behind the directory
	b = be.AppendUint16(b, 0x0112)
	b = be.AppendUint16(b, 3) // SHORT
	b = be.AppendUint32(b, 1)
	b = be.AppendUint16(b, uint16(orientation))
	b = be.AppendUint16(b, 0)
	b = be.AppendUint32(b, 0) // no further directory
	return append(b, maker...)
}

// profile is a colour profile of the usual size: sRGB primaries and a curve of
// 1024 points.
var profile = newProfile()

func newProfile() []byte {
	be := binary.BigEndian
	xyz := func(x, y, z uint32) []byte {
		b := append([]byte("XYZ "), 0, 0, 0, 0)
		for _, v := range []uint32{x, y, z} {
			b = be.AppendUint32(b, v)
		}
		return b
	}
	text := func(s string) []byte { return append([]byte("text\x00\x00\x00\x00"), s+"\x00"...) }
	const name = "Stoker generated RGB"
	desc := append([]byte("desc\x00\x00\x00\x00"), be.AppendUint32(nil, uint32(len(name)+1))...)
	desc = append(desc, name+"\x00"...)
	desc = append(desc, make([]byte, 4+4+2+1+67)...) // no Unicode, no script
	curve := be.AppendUint32([]byte("curv\x00\x00\x00\x00"), 1024)
	for i := range uint64(1024) {
		// sRGB's curve is close to a cubic: 0.0125 x + 0.6822 x^2 + 0.3053 x^3.
		v := (125*i*1023*1023 + 6822*i*i*1023 + 3053*i*i*i) * 65535 / (10000 * 1023 * 1023 * 1023)
		curve = be.AppendUint16(curve, uint16(v))
	}
	tags := []struct {
		name string
		data []byte
	}{
		{"desc", desc}, {"cprt", text("No rights reserved")}, {"wtpt", xyz(0xf6d6, 0x10000, 0xd32d)},
		{"rXYZ", xyz(0x6fa2, 0x38f5, 0x0390)}, {"gXYZ", xyz(0x6299, 0xb785, 0x18da)}, {"bXYZ", xyz(0x24a0, 0x0f84, 0xb6cf)},
		{"rTRC", curve}, {"gTRC", nil}, {"bTRC", nil}, // the three share one curve
	}
	var table, data []byte
	at, size := 0, 0
	for _, tag := range tags {
		if tag.data != nil {
			for len(data)%4 != 0 {
				data = append(data, 0)
			}
			at, size = 128+4+12*len(tags)+len(data), len(tag.data)
			data = append(data, tag.data...)
		}
		table = append(table, tag.name...)
		table = be.AppendUint32(be.AppendUint32(table, uint32(at)), uint32(size))
	}
	head := make([]byte, 128, 132)
	be.PutUint32(head, uint32(132+len(table)+len(data)))
	copy(head[8:], "\x02\x10\x00\x00mntrRGB XYZ ")
	be.PutUint16(head[24:], 2026) // made on 1 January 2026
	be.PutUint16(head[26:], 1)
	be.PutUint16(head[28:], 1)
	copy(head[36:], "acsp")
	copy(head[68:], xyz(0xf6d6, 0x10000, 0xd32d)[8:])
	head = be.AppendUint32(head, uint32(len(tags)))
	return append(append(head, table...), data...)
}
