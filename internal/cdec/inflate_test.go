package cdec

import (
	"bytes"
	"compress/flate"
	"errors"
	"hash/adler32"
	"io"
	"math/rand/v2"
	"testing"
)

// deflated returns p, compressed.
func deflated(t testing.TB, p []byte, level int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, level)
	if err == nil {
		_, err = w.Write(p)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestInflateKernelSetsAgree decompresses random data of random structure, whole, cut
// off and with a bit turned, into rooms that fit and that do not.
func TestInflateKernelSetsAgree(t *testing.T) {
	defer useKernels(kernelSet.Load())
	rng := rand.New(rand.NewPCG(20, 6))
	rounds := 600
	if testing.Short() {
		rounds = 100
	}
	for range rounds {
		p := make([]byte, 0, 80_000)
		for size := rng.IntN(cap(p)); len(p) < size; {
			switch n := 1 + rng.IntN(700); rng.IntN(3) {
			case 0: // literals, of few kinds or many
				kinds := 1 + rng.IntN(256)
				for range n {
					p = append(p, byte(rng.IntN(kinds)))
				}
			case 1: // something again, from near or far
				if back := 1 + rng.IntN(1+rng.IntN(1+len(p))); back <= len(p) {
					for range n {
						p = append(p, p[len(p)-back])
					}
				}
			default:
				for range n {
					p = append(p, byte(rng.ExpFloat64()*4))
				}
			}
		}
		src := deflated(t, p, []int{flate.HuffmanOnly, 0, 1, 6, 9}[rng.IntN(5)])
		bad := bytes.Clone(src)
		bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		for _, c := range []struct {
			src  []byte
			room int
			want error
		}{
			{src, len(p), nil}, {src, len(p) + rng.IntN(400), nil}, {append(bytes.Clone(src), p[:min(len(p), 99)]...), len(p), nil},
			{src, len(p) - 1, ErrDeflateSize}, {src[:len(src)-1], len(p), ErrDeflateShort}, {bad, len(p) + 300, errors.ErrUnsupported},
		} {
			if c.room < 0 {
				continue
			}
			var first []byte
			var firstErr error
			for _, set := range kernelSets() {
				use(t, set)
				room := bytes.Repeat([]byte{0xA5}, c.room+64)
				n, used, err := Inflate(room[:c.room:c.room], c.src)
				if n > c.room || used > len(c.src) || !bytes.Equal(room[c.room:], bytes.Repeat([]byte{0xA5}, 64)) {
					t.Fatalf("kernels %s wrote or read what they must not: %d, %d", set, n, used)
				}
				switch {
				case c.want == nil && (err != nil || used != len(src) || !bytes.Equal(room[:n], p)):
					t.Fatalf("kernels %s: %d of %d bytes, used %d of %d, %v", set, n, len(p), used, len(src), err)
				case c.want != nil && !errors.Is(c.want, errors.ErrUnsupported) && !errors.Is(err, c.want):
					t.Fatalf("kernels %s: %v, want %v", set, err, c.want)
				case first == nil:
					first, firstErr = bytes.Clone(room[:n]), err
				case !errors.Is(err, firstErr) || err == nil && !bytes.Equal(first, room[:n]):
					t.Fatalf("kernels %s: %v, the others %v", set, err, firstErr)
				}
			}
		}
	}
}

// Inflate accepts the same data as the standard library, with the same result, and nothing else.
func FuzzInflate(f *testing.F) {
	rng := rand.New(rand.NewPCG(20, 7))
	for _, level := range []int{flate.HuffmanOnly, 0, 1, 9} {
		p := make([]byte, 2000)
		for i := range p {
			p[i] = byte(rng.ExpFloat64() * 9)
		}
		f.Add(deflated(f, p, level), len(p))
		f.Add(deflated(f, bytes.Repeat(p[:7], 300), level), 2100)
	}
	f.Fuzz(func(t *testing.T, src []byte, room int) {
		if room < 0 || room > 1<<20 {
			return
		}
		defer useKernels(kernelSet.Load())
		want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(src)), int64(room)+1))
		for _, set := range kernelSets() {
			use(t, set)
			dst := make([]byte, room)
			n, _, err := Inflate(dst, src)
			switch {
			case wantErr == nil && len(want) <= room && (err != nil || !bytes.Equal(dst[:n], want)):
				t.Fatalf("kernels %s: %d bytes and %v, want %d", set, n, err, len(want))
			case (wantErr != nil || len(want) > room) && err == nil:
				t.Fatalf("kernels %s: %d bytes, the standard library has %d and %v", set, n, len(want), wantErr)
			}
		}
	})
}

func TestAdler32(t *testing.T) {
	defer useKernels(kernelSet.Load())
	p := bytes.Repeat([]byte{255}, 1<<17) // overflows first
	p = append(p, deflated(t, p, 0)...)
	for _, set := range kernelSets() {
		use(t, set)
		for _, n := range []int{0, 1, 31, 32, 33, 5535, 5536, 5537, 5568, 11073, len(p)} {
			if got, want := Adler32(p[len(p)-n:]), adler32.Checksum(p[len(p)-n:]); got != want {
				t.Errorf("kernels %s, %d bytes: %08x, want %08x", set, n, got, want)
			}
		}
	}
}

func TestUnshuffle(t *testing.T) {
	defer useKernels(kernelSet.Load())
	rng := rand.New(rand.NewPCG(20, 8))
	for _, size := range []int{1, 2, 3, 4, 5, 8, 12, 16} {
		for _, bytesOf := range []int{0, size - 1, size, 31 * size, 64*size + size/2, 1000*size + 1} {
			src, want := make([]byte, bytesOf), make([]byte, bytesOf)
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			n := bytesOf / size
			copy(want[n*size:], src[n*size:])
			for i := range n {
				for k := range size {
					want[i*size+k] = src[k*n+i]
				}
			}
			for _, set := range kernelSets() {
				use(t, set)
				got := make([]byte, bytesOf)
				if Unshuffle(got, src, size); !bytes.Equal(got, want) {
					t.Errorf("kernels %s, %d bytes of numbers of %d", set, bytesOf, size)
				}
			}
		}
	}
}

func use(t testing.TB, kernels string) {
	t.Helper()
	if err := SetKernels(kernels); err != nil {
		t.Fatal(err)
	}
}
