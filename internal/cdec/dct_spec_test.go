package cdec

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// A second, plain implementation of the dct codec in Go, as docs/reference/pack-format.md specifies it. The tests
// compare the C code with it.

type specComp struct {
	h, v, table int
	blocks      [][][64]int16 // rows of blocks, zigzag order
}

type specImage struct {
	width, height, tile int
	comps               []specComp
	tables              [][64]uint16 // zigzag order
}

func divUp(a, b int) int { return (a + b - 1) / b }

func (im *specImage) factors() (h, v int) {
	for _, c := range im.comps {
		h, v = max(h, c.h), max(v, c.v)
	}
	return h, v
}

// sizeInBlocks of component c.
func (im *specImage) sizeInBlocks(c int) (w, h int) {
	hm, vm := im.factors()
	return divUp(im.width*im.comps[c].h, 8*hm), divUp(im.height*im.comps[c].v, 8*vm)
}

// bitString has its first bit in the lowest bit of the first byte.
type bitString struct {
	p []byte
	n int
}

func (b *bitString) put(v uint64, n int) {
	for i := range n {
		if b.n%8 == 0 {
			b.p = append(b.p, 0)
		}
		b.p[b.n/8] |= byte(v>>i&1) << (b.n % 8)
		b.n++
	}
}

func (b *bitString) get(n int) (v uint64) {
	for i := range n {
		v |= uint64(b.p[b.n/8]>>(b.n%8)&1) << i
		b.n++
	}
	return v
}

func dcWidth(class int) int {
	if class == 15 {
		return 16
	}
	return class
}

func endOf(class int) int {
	if class == 15 {
		return 63
	}
	return 4 * class
}

// tileBlocks lists the blocks of a tile, component by component, with the block that predicts the DC of each (nil:
// 0), and the number of luma blocks.
func (im *specImage) tileBlocks(row, col int) (blocks, before []*[64]int16, luma int) {
	for c := range im.comps {
		k := &im.comps[c]
		w, h := im.sizeInBlocks(c)
		x0, x1 := col*im.tile*k.h, min((col+1)*im.tile*k.h, w)
		y0, y1 := row*k.v, min((row+1)*k.v, h)
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				var p *[64]int16
				if x > x0 {
					p = &k.blocks[y][x-1]
				} else if y > y0 {
					p = &k.blocks[y-1][x]
				}
				blocks, before = append(blocks, &k.blocks[y][x]), append(before, p)
			}
		}
		if c == 0 {
			luma = len(blocks)
		}
	}
	return blocks, before, luma
}

func (im *specImage) packTile(row, col int) []byte {
	blocks, before, luma := im.tileBlocks(row, col)
	heads, deltas := make([]byte, len(blocks)), make([]uint16, len(blocks))
	for i, b := range blocks {
		d := b[0]
		if before[i] != nil {
			d -= before[i][0]
		}
		deltas[i] = uint16(d<<1) ^ uint16(d>>15)
		last := 0
		for z := 1; z < 64; z++ {
			if b[z] != 0 {
				last = z
			}
		}
		heads[i] = byte(min(bits.Len16(deltas[i]), 15)<<4 | min(divUp(last, 4), 15))
	}
	var s bitString
	for _, group := range [][2]int{{0, luma}, {luma, len(blocks)}} {
		for i := group[0]; i < group[1]; i++ {
			s.put(uint64(deltas[i]), dcWidth(int(heads[i]>>4)))
		}
		var values []int
		for i := group[0]; i < group[1]; i++ {
			for z := 1; z <= endOf(int(heads[i]&15)); z++ {
				v := int(blocks[i][z])
				if v == 0 {
					s.put(0, 1)
					continue
				}
				s.put(1, 1)
				values = append(values, v)
			}
		}
		for _, v := range values {
			s.put(uint64(v)>>63, 1)
		}
		for k := 2; k <= 16 && len(values) > 0; k++ {
			var more []int
			for _, v := range values {
				m := max(v, -v)
				if m>>(k-1) == 0 {
					s.put(0, 1)
					continue
				}
				s.put(1, 1)
				more = append(more, v)
			}
			for _, v := range more {
				s.put(uint64(max(v, -v))>>(k-2)&1, 1)
			}
			values = more
		}
	}
	return append(heads, s.p...)
}

func (im *specImage) unpackTile(p []byte, row, col int) {
	blocks, before, luma := im.tileBlocks(row, col)
	heads, s := p[:len(blocks)], bitString{p: p[len(blocks):]}
	for _, group := range [][2]int{{0, luma}, {luma, len(blocks)}} {
		for i := group[0]; i < group[1]; i++ {
			f := uint16(s.get(dcWidth(int(heads[i] >> 4))))
			d := int16(f>>1) ^ -int16(f&1)
			if before[i] != nil {
				d += before[i][0]
			}
			blocks[i][0] = d
		}
		type value struct {
			at        *int16
			magnitude int
			negative  bool
		}
		var values []*value
		for i := group[0]; i < group[1]; i++ {
			for z := 1; z <= endOf(int(heads[i]&15)); z++ {
				if s.get(1) == 1 {
					values = append(values, &value{at: &blocks[i][z], magnitude: 1})
				}
			}
		}
		all := values
		for _, v := range values {
			v.negative = s.get(1) == 1
		}
		for k := 2; k <= 16 && len(values) > 0; k++ {
			var more []*value
			for _, v := range values {
				if s.get(1) == 1 {
					more = append(more, v)
				}
			}
			for _, v := range more {
				v.magnitude += (1 + int(s.get(1))) << (k - 2)
			}
			values = more
		}
		for _, v := range all {
			if v.negative {
				v.magnitude = -v.magnitude
			}
			*v.at = int16(v.magnitude)
		}
	}
}

func (im *specImage) counts() (rows, cols int) {
	h, v := im.factors()
	return divUp(im.height, 8*v), divUp(divUp(im.width, 8*h), im.tile)
}

func (im *specImage) pack() []byte {
	le := binary.LittleEndian
	out := append([]byte("dct"), 1)
	out = le.AppendUint16(out, uint16(im.width))
	out = le.AppendUint16(out, uint16(im.height))
	var wide byte
	for t, q := range im.tables {
		for _, v := range q {
			if v > 255 {
				wide |= 1 << t
			}
		}
	}
	out = append(out, byte(len(im.comps)), byte(im.tile), byte(len(im.tables)), wide)
	for _, c := range im.comps {
		out = append(out, byte(c.h<<4|c.v), byte(c.table))
	}
	for t, q := range im.tables {
		for _, v := range q {
			if wide>>t&1 == 1 {
				out = le.AppendUint16(out, v)
			} else {
				out = append(out, byte(v))
			}
		}
	}
	rows, cols := im.counts()
	var offsets, sizes, data []byte
	for r := range rows {
		offsets = le.AppendUint32(offsets, uint32(len(data)))
		for c := range cols {
			tile := im.packTile(r, c)
			sizes = le.AppendUint16(sizes, uint16(len(tile)))
			data = append(data, tile...)
		}
	}
	return append(append(append(out, offsets...), sizes...), data...)
}

// specUnpack reads bytes that are known to be good.
func specUnpack(p []byte) *specImage {
	le := binary.LittleEndian
	im := &specImage{width: int(le.Uint16(p[4:])), height: int(le.Uint16(p[6:])), tile: int(p[9])}
	comps, tables, wide := int(p[8]), int(p[10]), p[11]
	p = p[12:]
	for range comps {
		im.comps = append(im.comps, specComp{h: int(p[0] >> 4), v: int(p[0] & 15), table: int(p[1])})
		p = p[2:]
	}
	for t := range tables {
		var q [64]uint16
		for i := range q {
			if wide>>t&1 == 1 {
				q[i], p = le.Uint16(p), p[2:]
			} else {
				q[i], p = uint16(p[0]), p[1:]
			}
		}
		im.tables = append(im.tables, q)
	}
	im.clear()
	rows, cols := im.counts()
	offsets, sizes, data := p[:4*rows], p[4*rows:], p[4*rows+2*rows*cols:]
	for r := range rows {
		at := int(le.Uint32(offsets[4*r:]))
		for c := range cols {
			n := int(le.Uint16(sizes[2*(r*cols+c):]))
			im.unpackTile(data[at:at+n], r, c)
			at += n
		}
	}
	return im
}

// clear allocates the blocks.
func (im *specImage) clear() {
	for c := range im.comps {
		w, h := im.sizeInBlocks(c)
		im.comps[c].blocks = make([][][64]int16, h)
		for y := range h {
			im.comps[c].blocks[y] = make([][64]int16, w)
		}
	}
}

// randomSpecImage returns coefficients like those of photographs, or extreme ones up to most.
func randomSpecImage(rng *rand.Rand, w, h int, sampling [][2]int, most int) *specImage {
	im := &specImage{width: w, height: h, tables: make([][64]uint16, 1+rng.IntN(2))}
	blocks := 0
	for _, s := range sampling {
		im.comps = append(im.comps, specComp{h: s[0], v: s[1], table: rng.IntN(len(im.tables))})
		blocks += s[0] * s[1]
	}
	im.tile = 1 + rng.IntN(min(8, 64/blocks))
	for t := range im.tables {
		scale := 1 + rng.IntN(40)
		for z := range 64 {
			im.tables[t][z] = uint16(1 + rng.IntN(scale)*(z+8)/16)
		}
	}
	im.clear()
	for c := range im.comps {
		for _, row := range im.comps[c].blocks {
			for x := range row {
				row[x][0] = int16(rng.IntN(2*min(most, 1000)+1) - min(most, 1000))
				for range rng.IntN(1 + rng.IntN(64)) {
					z := 1 + rng.IntN(1+rng.IntN(63))
					m := 1 + most/(z*z)
					row[x][z] = int16(max(-most, min(most, rng.IntN(2*m+1)-m)))
				}
			}
		}
	}
	return im
}

// TestDCTSpecification: the codec described in docs/reference/pack-format.md is the one in C.
func TestDCTSpecification(t *testing.T) {
	for i, jpeg := range seedImages(t) {
		src, err := encodeDCT(nil, jpeg)
		if err != nil {
			t.Fatal(err)
		}
		if again := specUnpack(src).pack(); !bytes.Equal(again, src) {
			t.Errorf("image %d: unpacked and packed again by the specification, the bytes differ", i)
		}
	}
}

// TestDCTOddSampling makes images with factors that the JPEG encoder at hand
// does not write, and compares with libjpeg's decode of the same coefficients.
func TestDCTOddSampling(t *testing.T) {
	samplings := [][][2]int{
		{{1, 1}, {2, 2}, {1, 1}}, {{1, 1}, {1, 1}, {2, 2}}, {{2, 2}, {2, 1}, {1, 2}}, {{2, 1}, {1, 1}, {2, 1}}, {{4, 4}, {2, 2}, {1, 1}},
		{{4, 4}, {4, 4}, {4, 4}}, {{2, 4}, {1, 2}, {1, 1}}, {{4, 2}, {2, 2}, {2, 1}}, {{3, 3}, {1, 3}, {3, 1}}, {{1, 2}, {1, 1}, {1, 2}},
		{{1, 4}, {1, 1}, {1, 2}}, {{2, 2}, {2, 2}, {2, 2}}, {{3, 2}, {3, 1}, {1, 2}}, {{1, 1}},
	}
	everyKernel(t, func(t *testing.T) {
		d := newDecoder(t)
		rng := rand.New(rand.NewPCG(15, 16))
		for _, s := range samplings {
			for i := range 25 {
				most := []int{20, 300, 1023}[i%3]
				if !libjpegIsAVX2 {
					most = 20
				}
				im := randomSpecImage(rng, 1+rng.IntN(150), 1+rng.IntN(90), s, most)
				if i < 6 {
					im = randomSpecImage(rng, 1+rng.IntN(10), 1+rng.IntN(10), s, most)
				}
				src := im.pack()
				jpeg, err := DCTToJPEG(nil, src, nil, nil)
				if err != nil {
					t.Fatalf("sampling %v: %v", s, err)
				}
				pix, w, h := decodeFull(t, d, jpeg)
				ok := checkDCTBox(t, d, src, pix, w, 0, 0, w, h)
				for range 8 {
					bw, bh := 1+rng.IntN(w), 1+rng.IntN(h)
					ok = ok && checkDCTBox(t, d, src, pix, w, rng.IntN(w-bw+1), rng.IntN(h-bh+1), bw, bh)
				}
				if !ok {
					t.Fatalf("%dx%d, sampling %v, tiles of %d", w, h, s, im.tile)
				}
				again, err := encodeDCT(nil, jpeg)
				if err != nil {
					t.Fatal(err)
				}
				one, two := specUnpack(src), specUnpack(again)
				for c := range one.comps {
					ok = ok && reflect.DeepEqual(one.comps[c].blocks, two.comps[c].blocks)
				}
				if !ok {
					t.Fatalf("%dx%d, sampling %v: other coefficients after the way through a JPEG", w, h, s)
				}
			}
		}
	})
}

// TestDCTExample checks the example in docs/reference/pack-format.md.
func TestDCTExample(t *testing.T) {
	im := &specImage{width: 12, height: 8, tile: 8, comps: []specComp{{h: 1, v: 1}}, tables: make([][64]uint16, 1)}
	for z := range 64 {
		im.tables[0][z] = uint16(16 + z)
	}
	im.clear()
	im.comps[0].blocks[0][0] = [64]int16{0: 5, 1: -1, 2: 3, 5: 6}
	im.comps[0].blocks[0][1] = [64]int16{0: 4}
	src := im.pack()
	tables := hex.EncodeToString(src[14 : 14+64])
	got := hex.EncodeToString(src)
	want := "64637401" + "0c00" + "0800" + "01" + "08" + "01" + "00" + "1100" + tables + "00000000" + "0600" + "42" + "10" + "7a22ce00"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, err := CheckDCT(src); err != nil {
		t.Error(err)
	}
}

// goldenDCT are files of testdata/dct: name.jpg, and the dct form in name.dct.
var goldenDCT = []string{"gray", "444", "422", "420", "440", "411", "410", "441", "333", "progressive", "restart", "odd"}

// TestDCTGolden holds the bytes still: packs live longer than programs. With
// STOKER_WRITE_GOLDEN=1 it makes files that do not exist.
func TestDCTGolden(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	options := map[string]EncodeOptions{
		"444": {}, "422": {HSamp: 2}, "420": {HSamp: 2, VSamp: 2}, "440": {VSamp: 2}, "411": {HSamp: 4}, "410": {HSamp: 4, VSamp: 2}, "441": {VSamp: 4},
		"333": {HSamp: 3}, "progressive": {HSamp: 2, VSamp: 2, Progressive: true}, "restart": {RestartMCUs: 2}, "odd": {HSamp: 2, VSamp: 2, Quality: 97},
	}
	for _, name := range goldenDCT {
		base := filepath.Join("testdata", "dct", name)
		w, h, channels := 75, 43, 3
		switch name {
		case "gray":
			channels = 1
		case "odd":
			w, h = 19, 3
		}
		pix := texture(rng, w, h, channels)
		if _, err := os.Stat(base + ".jpg"); err != nil && os.Getenv("STOKER_WRITE_GOLDEN") != "" {
			jpeg, err := EncodeJPEG(pix, w, h, channels, options[name])
			if err != nil {
				t.Fatal(err)
			}
			src, err := encodeDCT(nil, jpeg)
			if err != nil {
				t.Fatal(err)
			}
			if os.WriteFile(base+".jpg", jpeg, 0o644) != nil || os.WriteFile(base+".dct", src, 0o644) != nil {
				t.Fatal("golden files cannot be written")
			}
		}
		jpeg, err := os.ReadFile(base + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(base + ".dct")
		if err != nil {
			t.Fatal(err)
		}
		everyKernel(t, func(t *testing.T) {
			got, err := encodeDCT(nil, jpeg)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: other bytes than in %s.dct (%v)", name, base, err)
			}
			if !bytes.Equal(specUnpack(want).pack(), want) {
				t.Errorf("%s: the specification packs the coefficients to other bytes", name)
			}
			d := newDecoder(t)
			pix, width, height := decodeFull(t, d, jpeg)
			checkDCTBox(t, d, want, pix, width, 0, 0, width, height)
			checkDCTBox(t, d, want, pix, width, 5, 1, width-7, height-2)
		})
	}
}
