package videodec

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stokerdata/stoker/internal/video"
)

// memory is a file in memory.
type memory []byte

func (m memory) Size() int64 { return int64(len(m)) }

func (m memory) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off+int64(len(p)) > int64(len(m)) {
		return errors.New("a read outside of the file")
	}
	copy(p, m[off:])
	return nil
}

// container writes packets in pieces of a size with heads between them, and other bytes.
func container(rng *rand.Rand, packets [][]byte, size int) memory {
	var out memory
	for _, p := range packets {
		for len(p) > 0 {
			n := min(len(p), 1+rng.IntN(size))
			if rng.IntN(3) > 0 {
				n = min(len(p), size)
			}
			out = append(out, 0x47, byte(rng.IntN(256)), byte(rng.IntN(256)), 0)
			out = append(append(out, p[:n]...), bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(300))...)
			p = p[n:]
		}
	}
	return out
}

// Packets are found in any container that splits them, also if the same bytes occur in many places. The pieces found
// have exactly the packet's bytes.
func TestFind(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var packets [][]byte
		for i := range 40 {
			p := append([]byte("\x00\x00\x01\xb3"), make([]byte, rng.IntN(6000))...)
			for k := range p[4:] {
				p[4+k] = byte(k / 50 * i)
				if seed%3 > 0 {
					p[4+k] = byte(rng.IntN(256))
				}
			}
			packets = append(packets, p)
		}
		file := container(rng, packets, []int{184, 2048, 1 << 20}[seed%3])
		l := &listing{in: &blocks{ctx: t.Context(), in: file, size: file.Size()}}
		var found []video.Found
		missing := 0
		for _, p := range packets {
			parts, err := l.find(p, -1)
			if err != nil {
				t.Fatal(err)
			}
			f := video.Found{Frame: video.Frame{Size: uint32(len(p)), Key: true, PTS: int64(len(found))}}
			if f.Parts = parts; parts == nil {
				f.Held = p
				missing++
			} else {
				f.Offset = parts[0].Offset
			}
			found = append(found, f)
		}
		if seed%3 > 0 && missing > 20 {
			t.Errorf("seed %d: %d of 40 packets are not found", seed, missing)
		}
		x, err := video.New(&video.Stream{Codec: "x", Width: 1, Height: 1}, "test", 1, found, file.Size())
		if err != nil {
			t.Fatal(seed, err)
		}
		for _, p := range x.Pieces(nil, video.Span{First: 0, Last: 39}) {
			for d := p.First; d <= p.Last; d++ {
				if got := x.Bytes(nil, d, &p, file[p.Offset:p.Offset+p.Size]); !bytes.Equal(got, packets[d]) {
					t.Fatalf("seed %d: packet %d has other bytes", seed, d)
				}
			}
		}
	}
}

func TestCoding(t *testing.T) {
	for _, c := range []struct {
		codec string
		tag   uint32
		bits  int
	}{{"wmv2", 0x32564d57, 24}, {"rawvideo", 0, 24}, {"ffv1", 0, 0}, {"mpeg4", 0xffffffff, 0}} {
		s := video.Stream{Codec: video.Coded(c.codec, c.tag, c.bits)}
		if codec, tag, bits := s.Coding(); codec != c.codec || tag != c.tag || bits != c.bits || len(s.Codec) > 32 {
			t.Errorf("%q: %s %x %d", s.Codec, codec, tag, bits)
		}
	}
	if codec, tag, bits := (&video.Stream{Codec: video.H264}).Coding(); codec != video.H264 || tag != 0 || bits != 0 {
		t.Error(codec, tag, bits)
	}
}
