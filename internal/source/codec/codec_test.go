package codec

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// sample has long and short repetitions, and parts that do not compress.
func sample(n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	var out []byte
	for len(out) < n {
		switch rng.IntN(3) {
		case 0:
			for range rng.IntN(50) {
				out = append(out, byte(rng.Uint32()))
			}
		case 1:
			out = append(out, bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(700))...)
		default:
			if back := 1 + rng.IntN(9000); back < len(out) {
				out = append(out, out[len(out)-back:][:min(back, 1+rng.IntN(300))]...)
			}
		}
	}
	return out[:n]
}

func alloc(n int) ([]byte, error) { return make([]byte, n), nil }

func lz4Block(t testing.TB, p []byte) []byte {
	t.Helper()
	b := make([]byte, lz4.CompressBlockBound(len(p)))
	n, err := lz4.CompressBlock(p, b, nil)
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
	return b[:n]
}

// shuffle is a simple reference implementation.
func shuffle(p []byte, element int) []byte {
	n := len(p) / element
	out := bytes.Clone(p)
	for i := range n {
		for k := range element {
			out[k*n+i] = p[i*element+k]
		}
	}
	return out
}

// bitshuffle is a simple reference implementation.
func bitshuffle(p []byte, element int) []byte {
	n := len(p) / element
	out := make([]byte, len(p))
	for i := range n {
		for k := range element {
			for b := range 8 {
				if p[i*element+k]>>b&1 != 0 {
					out[(k*8+b)*n/8+i/8] |= 1 << (i % 8)
				}
			}
		}
	}
	return out
}

func TestShuffles(t *testing.T) {
	for _, element := range []int{1, 2, 3, 4, 7, 8, 16} {
		for _, n := range []int{0, 1, 7, 8, 64, 333} {
			p := sample(n*element + n%element)
			got := make([]byte, len(p))
			if err := (Shuffle{element}).Decode(got, shuffle(p, element)); err != nil || !bytes.Equal(got, p) {
				t.Errorf("shuffle of %d elements of %d: %v", n, element, err)
			}
			p = p[:n/8*8*element]
			got = make([]byte, len(p))
			unbitshuffle(got, bitshuffle(p, element), element)
			if !bytes.Equal(got, p) {
				t.Errorf("bitshuffle of %d elements of %d", n, element)
			}
		}
	}
}

// TestBitshuffleBlocks tests the encodings of HDF5's filter, with a last block that is not full.
func TestBitshuffleBlocks(t *testing.T) {
	const element, block = 4, 64
	p := sample((3*block + 21) * element)
	var plain, packed []byte
	packed = binary.BigEndian.AppendUint64(nil, uint64(len(p)))
	packed = binary.BigEndian.AppendUint32(packed, block*element)
	for rest := p; ; {
		n := min(block*element, len(rest)/32*32)
		if n == 0 {
			plain, packed = append(plain, rest...), append(packed, rest...)
			break
		}
		b := bitshuffle(rest[:n], element)
		plain = append(plain, b...)
		dst := make([]byte, lz4.CompressBlockBound(n))
		k, err := lz4.CompressBlock(b, dst, nil)
		if err != nil {
			t.Fatal(err)
		}
		if k == 0 || k >= n { // as one literal run
			k, dst = 0, literals(b)
			k = len(dst)
		}
		packed = append(binary.BigEndian.AppendUint32(packed, uint32(k)), dst[:k]...)
		rest = rest[n:]
	}
	got := make([]byte, len(p))
	if err := (Bitshuffle{Element: element, Block: block}).Decode(got, plain); err != nil || !bytes.Equal(got, p) {
		t.Error("plain", err)
	}
	clear(got)
	if err := (Bitshuffle{Element: element, Inner: LZ4{}}).Decode(got, packed); err != nil || !bytes.Equal(got, p) {
		t.Error("lz4", err)
	}
}

// literals encodes p as one literal run of lz4.
func literals(p []byte) []byte {
	out := []byte{0xF0}
	n := len(p) - 15
	for ; n >= 255; n -= 255 {
		out = append(out, 255)
	}
	return append(append(out, byte(n)), p...)
}

func TestPieces(t *testing.T) {
	p := sample(100_000)
	zw, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	block := lz4Block(t, p)
	half := lz4Block(t, p[:50_000])
	framed := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, 100_000), 50_000)
	framed = append(binary.BigEndian.AppendUint32(framed, uint32(len(half))), half...)
	framed = append(binary.BigEndian.AppendUint32(framed, 50_000), p[50_000:]...)
	for _, c := range []struct {
		codec Codec
		b     []byte
	}{
		{Zstd{}, zw.EncodeAll(p, nil)},
		{Snappy{}, snappy.Encode(nil, p)},
		{LZ4{}, block},
		{SizedLZ4{}, append(binary.LittleEndian.AppendUint32(nil, 100_000), block...)},
		{BlockLZ4{}, framed},
	} {
		got := make([]byte, len(p))
		if err := c.codec.Decode(got, c.b); err != nil || !bytes.Equal(got, p) {
			t.Errorf("%T: %v", c.codec, err)
		}
		if err := c.codec.Decode(make([]byte, len(p)-1), c.b); err == nil {
			t.Errorf("%T: too large for its memory, and taken", c.codec)
		}
		if err := c.codec.Decode(make([]byte, len(p)+1), c.b); err == nil {
			t.Errorf("%T: too small for its memory, and taken", c.codec)
		}
		if err := c.codec.Decode(got, c.b[:len(c.b)-1]); err == nil {
			t.Errorf("%T: cut off, and taken", c.codec)
		}
	}
}

func TestPipeline(t *testing.T) {
	p := sample(4096)
	packed := append(lz4Block(t, shuffle(p, 4)), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(packed[len(packed)-4:], fletcher32(packed[:len(packed)-4]))
	line := Pipeline{Shuffle{4}, LZ4{}, Fletcher32{}}
	if err := line.Check(4096); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4096)
	if err := line.Decode(got, packed, 0, alloc); err != nil || !bytes.Equal(got, p) {
		t.Error(err)
	}
	packed[3] ^= 1
	if err := line.Decode(got, packed, 0, alloc); err == nil || !strings.Contains(err.Error(), "fletcher32: its checksum is wrong") {
		t.Error(err)
	}
	// Skipped steps.
	if err := line.Decode(got, p, 7, alloc); err != nil || !bytes.Equal(got, p) {
		t.Error(err)
	}
	if err := line.Decode(got, shuffle(p, 4), 6, alloc); err != nil || !bytes.Equal(got, p) {
		t.Error(err)
	}
	if err := line.Decode(got, p[1:], 7, alloc); err == nil {
		t.Error("a byte less is taken")
	}
	if err := (Pipeline{LZ4{}, Deflate{}}).Check(4096); err == nil {
		t.Error("two codecs one after the other")
	}
}

// No codec panics or writes outside of its memory, whatever its input.
func FuzzDecode(f *testing.F) {
	p := sample(300)
	f.Add(lz4Block(f, p), 300)
	f.Add(snappy.Encode(nil, p), 300)
	f.Add([]byte{31, 1, 2, 3, 0xE0, 255, 0}, 100)
	head := []byte{2, 1, 0x10, 4, 44, 1, 0, 0, 44, 1, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 7, 7, 7}
	head[12] = byte(len(head))
	f.Add(head, 300)
	all := []Codec{
		LZF{}, LZ4{}, SizedLZ4{}, BlockLZ4{}, Snappy{}, Zstd{}, Bzip2{}, Deflate{}, Gzip{}, Blosc{}, bloscLZ{}, Fletcher32{}, CRC32C{},
		Shuffle{3}, Bitshuffle{Element: 4}, Bitshuffle{Element: 2, Inner: LZ4{}},
	}
	f.Fuzz(func(t *testing.T, src []byte, n int) {
		if n < 0 || n > 1<<16 {
			return
		}
		for _, c := range all {
			room := bytes.Repeat([]byte{0xA5}, n+32)
			_ = c.Decode(room[:n:n], src)
			if !bytes.Equal(room[n:], bytes.Repeat([]byte{0xA5}, 32)) {
				t.Fatalf("%T writes behind its memory", c)
			}
		}
	})
}
