package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/s2"
)

// files returns the files that the source is tested with.
func files(t testing.TB) [][]byte {
	t.Helper()
	names, err := filepath.Glob("../parquetsource/testdata/*.parquet")
	if err != nil || len(names) < 8 {
		t.Fatal(names, err)
	}
	var out [][]byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

func footer(b []byte) []byte {
	n := int(binary.LittleEndian.Uint32(b[len(b)-8:]))
	return b[len(b)-8-n : len(b)-8]
}

// No footer makes the parser panic, or allocate more than its bytes justify.
func FuzzMeta(f *testing.F) {
	for _, b := range files(f) {
		f.Add(footer(b), int64(len(b)))
	}
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		m, err := ParseMeta(b, size)
		if err != nil {
			return
		}
		rows := int64(0)
		for _, g := range m.Groups {
			rows += g.Rows
			for i, c := range g.Chunks {
				if c.seal || c.file { // which are only named
					if c.Supported() == nil {
						t.Fatalf("%+v is read", c)
					}
					continue
				}
				if c.Type != m.Schema.Leaves[i].Type || g.Rows > 0 && (c.Start() < 4 || c.Start()+c.Bytes > size) {
					t.Fatalf("%+v", c)
				}
			}
		}
		if rows != m.Rows || m.Schema.String() == "" {
			t.Fatal(rows, m.Rows)
		}
	})
}

// No page index gives bytes or rows out of range.
func FuzzIndex(f *testing.F) {
	f.Add([]byte{0x19, 0x2C, 0x16, 0x08, 0x15, 0x14, 0x16, 0x00, 0x00, 0x16, 0x30, 0x15, 0x14, 0x16, 0x04, 0x00, 0x00})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Chunk{Data: 4, Bytes: 100}
		places, err := ParseIndex(b, c, 10)
		if err != nil {
			return
		}
		for i, p := range places {
			if p.Off < 4 || p.Off+p.Bytes > 104 || p.Row < 0 || p.Row >= 10 || i > 0 && (p.Row < places[i-1].Row || p.Off < places[i-1].Off) {
				t.Fatal(places)
			}
		}
	})
}

// leaves has leaves of each kind.
var leaves = []*Leaf{
	{Type: ByteArray}, {Type: ByteArray, MaxDef: 1, Valid: 1}, {Type: FixedBytes, Length: 3, MaxDef: 1, Valid: 1}, {Type: Boolean, Width: 1, MaxDef: 1, Valid: 1},
	{Type: Int32, Width: 1}, {Type: Int32, Width: 4, MaxDef: 2, Valid: 2}, {Type: Int64, Width: 8, MaxDef: 1, Valid: 1}, {Type: Float, Width: 4}, {Type: FixedBytes, Length: 2, Width: 2},
	{Type: Int32, Width: 1, MaxDef: 3, MaxRep: 1, Valid: 1, Lists: []uint8{2}}, {Type: Double, Width: 8, MaxDef: 5, MaxRep: 2, Valid: 1, Lists: []uint8{2, 4}},
}

// No pages make a decoder panic, and each value is in range.
func FuzzPages(f *testing.F) {
	for _, b := range files(f) {
		m, err := ParseMeta(footer(b), int64(len(b)))
		if err != nil {
			f.Fatal(err)
		}
		for i := range m.Groups[0].Chunks {
			c := &m.Groups[0].Chunks[i]
			for k, l := range leaves {
				if l.Type == c.Type {
					f.Add(b[c.Start():c.Start()+c.Bytes], uint8(k), uint8(c.Codec), int64(m.Groups[0].Rows), i%2 == 0)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, leaf, codec uint8, rows int64, index bool) {
		taken := 0
		d := &Decoder{Leaf: leaves[int(leaf)%len(leaves)], Codec: Codec(codec % 8), Index: index, Alloc: func(n int) ([]byte, error) {
			if taken += n; taken > 64<<20 {
				return nil, errors.New("no memory")
			}
			return make([]byte, n), nil
		}}
		dict, err := Pages(b, true)
		if err == nil {
			if p, err := d.Dictionary(dict[0]); err == nil && !index {
				d.Dict = p
			}
		}
		pages, err := Pages(b, false)
		if err != nil {
			return
		}
		for _, r := range pages {
			if d.Leaf.MaxRep > 0 {
				_, _, _ = d.Starting(r)
			}
		}
		if d.Leaf.Width == 0 {
			pages = pages[:1]
			rows = pages[0].Values
		} else if d.Leaf.MaxRep == 0 {
			rows = 0
			for _, r := range pages {
				rows += r.Values
			}
		}
		p, err := d.Data(pages, rows)
		if err != nil {
			return
		}
		if parts := FindParts(d.Codec, pages[0]); parts != nil && p.Stored && index && p.Index == nil {
			look(t, p, parts, pages[0])
		}
		for row := range min(int64(p.Rows), 1000) {
			if p.Index != nil && index {
				break
			}
			if in, lo, hi := p.Range(row); lo > hi || !index && hi > int64(len(in.Values)) {
				t.Fatal(row, lo, hi, len(in.Values))
			}
		}
	})
}

// look reads single values of a page.
func look(t *testing.T, p *Page, parts *Parts, r Raw) {
	all := make([]byte, r.Header.Size)
	all = append(all, r.Body...)
	scratch := make([]byte, PartBytes)
	for row := range min(int64(p.Rows), 100) {
		_, lo, hi := p.Range(row)
		if lo == hi {
			continue
		}
		from, to := parts.Range(p.Base+lo, p.Base+hi)
		if from < 0 || to > int64(len(all)) || from > to {
			t.Fatal(from, to, len(all))
		}
		if parts.At != nil {
			if err := parts.Extract(make([]byte, hi-lo), all[from:to], p.Base+lo, scratch); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Values extracted from the parts of a page equal those of the whole page.
func TestParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	plain := make([]byte, 5*PartBytes+1234)
	for i := range plain {
		plain[i] = byte(rng.IntN(256))
		if i/1000%3 == 0 { // compressible data
			plain[i] = byte(i / 50)
		}
	}
	// Like Google's compressor: piece by piece.
	body := binary.AppendUvarint(nil, uint64(len(plain)))
	for at := 0; at < len(plain); at += PartBytes {
		piece := s2.EncodeSnappy(nil, plain[at:min(at+PartBytes, len(plain))])
		_, n := binary.Uvarint(piece)
		body = append(body, piece[n:]...)
	}
	r := Raw{&Header{Size: 30, Bytes: int64(len(body)), Plain: int64(len(plain)), enc: encPlain}, body}
	p := FindParts(Snappy, r)
	if p == nil || len(p.At) != 7 {
		t.Fatalf("%+v", p)
	}
	file := append(make([]byte, 30), body...)
	scratch := make([]byte, PartBytes)
	for range 300 {
		lo := rng.Int64N(int64(len(plain)))
		hi := lo + 1 + rng.Int64N(min(int64(len(plain))-lo, 3*PartBytes))
		from, to := p.Range(lo, hi)
		out := make([]byte, hi-lo)
		if err := p.Extract(out, file[from:to], lo, scratch); err != nil || !bytes.Equal(out, plain[lo:hi]) {
			t.Fatal(lo, hi, err)
		}
	}
	if p := FindParts(Snappy, Raw{r.Header, s2.EncodeSnappy(nil, plain)}); p != nil {
		t.Error("what goes over the borders of parts is taken for parts")
	}
	if p := FindParts(Zstd, r); p != nil {
		t.Error("zstd has parts")
	}
}

// Levels in the deprecated encoding start at the highest bit of each byte.
func TestPackedLevels(t *testing.T) {
	dst := make([]uint8, 9)
	if some, err := packedLevels(dst[:8], []byte{0b00000101, 0b00111001, 0b01110111}, 8, 7); err != nil || !some || !bytes.Equal(dst[:8], []byte{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Error(some, err, dst)
	}
	if some, err := packedLevels(dst, []byte{0xFF, 0x80}, 9, 1); err != nil || some {
		t.Error(some, err)
	}
	if _, err := packedLevels(dst, []byte{0xFF}, 1, 2); err == nil {
		t.Error("a level of 3 is taken where the highest is 2")
	}
	mem := []uint8(nil)
	if got, rest, err := levelsV1(&mem, 9, 1, encBitPacked, []byte{0x7F, 0x80, 42}); err != nil || len(rest) != 1 || !bytes.Equal(got, []byte{0, 1, 1, 1, 1, 1, 1, 1, 1}) {
		t.Error(got, rest, err)
	}
	if _, _, err := levelsV1(&mem, 9, 1, encBitPacked, []byte{0x7F}); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	if _, _, err := levelsV1(&mem, 9, 1, encDelta, []byte{0x7F}); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	if _, rest, err := levelsV1(&mem, 9, 0, encDelta, []byte{42}); err != nil || len(rest) != 1 {
		t.Error(rest, err)
	}
}

// A footer without a count has the rows of its row groups.
func TestRowsNotCounted(t *testing.T) {
	tried := 0
	for _, b := range files(t) {
		meta := footer(b)
		m, err := ParseMeta(meta, int64(len(b)))
		if err != nil || m.Rows == 0 {
			continue
		}
		// Field 3 is a number with a sign, field 4 is a list.
		rows := binary.AppendUvarint([]byte{0x16}, uint64(2*m.Rows))
		none := append([]byte{0x16}, bytes.Repeat([]byte{0x80}, len(rows)-1)...)
		none[len(none)-1] = 0
		changed := bytes.Replace(meta, append(rows, 0x19), append(none, 0x19), 1)
		if bytes.Equal(changed, meta) {
			continue
		}
		tried++
		if got, err := ParseMeta(changed, int64(len(b))); err != nil || got.Rows != m.Rows {
			t.Errorf("without a count of %d rows: %v", m.Rows, err)
		}
	}
	if tried < 5 {
		t.Errorf("only %d files were tried", tried)
	}
}
