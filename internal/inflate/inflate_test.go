package inflate

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"testing"
)

// samples are bytes of several kinds.
func samples() map[string][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 100_003)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	few := make([]byte, 70_001)
	for i := range few {
		few[i] = byte(rng.ExpFloat64() * 3)
	}
	floats := make([]byte, 0, 120_000)
	for i := range 30_000 {
		floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(float32(math.Sin(float64(i)/50))+float32(rng.NormFloat64())/1000))
	}
	runs := make([]byte, 0, 100_000)
	for len(runs) < 100_000 {
		n, period := 1+rng.IntN(400), 1+rng.IntN(20)
		for k := range n {
			runs = append(runs, byte(k%period*7))
		}
	}
	return map[string][]byte{
		"nothing": {}, "one": {42}, "random": random, "few": few, "floats": floats, "runs": runs, "zeros": make([]byte, 300_000),
		"text": bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog. "), 2000),
	}
}

func deflated(t testing.TB, p []byte, level int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRaw(t *testing.T) {
	for name, p := range samples() {
		for _, level := range []int{flate.HuffmanOnly, 0, 1, 6, 9} {
			b := deflated(t, p, level)
			dst := make([]byte, len(p))
			n, used, err := Raw(dst, append(b, 1, 2, 3, 4, 5))
			if err != nil || n != len(p) || used != len(b) || !bytes.Equal(dst, p) {
				t.Errorf("%s, level %d: %d of %d bytes, used %d of %d, %v", name, level, n, len(p), used, len(b), err)
			}
			// More room does not matter, less is found.
			if n, _, err := Raw(make([]byte, len(p)+500), b); err != nil || n != len(p) {
				t.Errorf("%s with more room: %d, %v", name, n, err)
			}
			if len(p) > 0 {
				if _, _, err := Raw(make([]byte, len(p)-1), b); !errors.Is(err, ErrSize) {
					t.Errorf("%s with less room: %v", name, err)
				}
				if _, _, err := Raw(dst, b[:len(b)-1]); err == nil {
					t.Errorf("%s, level %d, cut off, is whole", name, level)
				}
			}
		}
	}
}

func TestFrames(t *testing.T) {
	p := samples()["text"]
	var z, g bytes.Buffer
	zw, gw := zlib.NewWriter(&z), gzip.NewWriter(&g)
	gw.Name, gw.Comment, gw.Extra = "name", "comment", []byte("extra")
	for _, w := range []io.WriteCloser{zw, gw} {
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	dst := make([]byte, len(p))
	if err := Zlib(dst, z.Bytes()); err != nil || !bytes.Equal(dst, p) {
		t.Error(err)
	}
	clear(dst)
	if err := Gzip(dst, g.Bytes()); err != nil || !bytes.Equal(dst, p) {
		t.Error(err)
	}
	two := make([]byte, 2*len(p))
	if err := Gzip(two, bytes.Repeat(g.Bytes(), 2)); err != nil || !bytes.Equal(two, bytes.Repeat(p, 2)) {
		t.Error(err)
	}
	for _, b := range [][]byte{z.Bytes(), g.Bytes()} {
		bad := bytes.Clone(b)
		bad[len(bad)-5] ^= 1
		if err := Zlib(dst, bad); err == nil {
			t.Error("a zlib frame with a wrong checksum is whole")
		}
		if err := Gzip(dst, bad); err == nil {
			t.Error("a gzip file with a wrong checksum is whole")
		}
	}
	if err := Zlib(make([]byte, len(p)+1), z.Bytes()); !errors.Is(err, ErrSize) {
		t.Error(err)
	}
}

// Raw accepts and rejects the same data as the standard library, with the same result.
func FuzzRaw(f *testing.F) {
	for _, p := range samples() {
		p = p[:min(len(p), 3000)]
		for _, level := range []int{flate.HuffmanOnly, 0, 1, 9} {
			f.Add(deflated(f, p, level), len(p))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, room int) {
		if room < 0 || room > 1<<20 {
			return
		}
		dst := make([]byte, room)
		n, used, err := Raw(dst, src)
		if used > len(src) || n > room {
			t.Fatalf("%d of %d bytes, used %d of %d", n, room, used, len(src))
		}
		r := bytes.NewReader(src)
		want, werr := io.ReadAll(io.LimitReader(flate.NewReader(r), int64(room)+1))
		if werr == nil && len(want) <= room {
			if err != nil || !bytes.Equal(dst[:n], want) {
				t.Fatalf("%d bytes and %v, want %d", n, err, len(want))
			}
		} else if err == nil {
			t.Fatalf("%d bytes, the other has %d and %v", n, len(want), werr)
		}
	})
}

func Benchmark(b *testing.B) {
	for _, name := range []string{"floats", "few", "text", "runs"} {
		p := samples()[name]
		src := deflated(b, p, 6)
		dst := make([]byte, len(p))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for range b.N {
				if _, _, err := Raw(dst, src); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/standard", func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			r := flate.NewReader(bytes.NewReader(src))
			for range b.N {
				_ = r.(flate.Resetter).Reset(bytes.NewReader(src), nil)
				if _, err := io.ReadFull(r, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
