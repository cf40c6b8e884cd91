package video

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// memory is a file in memory.
type memory []byte

func (m memory) Size() int64 { return int64(len(m)) }

func (m memory) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(m))-int64(len(p)) {
		return errors.New("read behind the end")
	}
	copy(p, m[off:])
	return nil
}

func data(t testing.TB, name string) memory {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(t testing.TB, name string) *Index {
	t.Helper()
	x, err := Open(t.Context(), data(t, name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return x
}

// packets are the packets of small.mp4 according to ffprobe: pts, position and size.
var packets = [][3]int64{
	{0, 48, 1100}, {1536, 1148, 23}, {512, 1171, 12}, {1024, 1183, 12}, {3072, 1195, 46}, {2048, 1241, 14}, {2560, 1255, 12},
	{3584, 1267, 20}, {4096, 1287, 472}, {5632, 1759, 23}, {4608, 1782, 12}, {5120, 1794, 12}, {7168, 1806, 58}, {6144, 1864, 14},
	{6656, 1878, 12}, {7680, 1890, 14}, {8192, 1904, 415}, {9728, 2319, 17}, {8704, 2336, 12}, {9216, 2348, 12},
}

func TestMP4(t *testing.T) {
	x := open(t, "small.mp4")
	if x.Codec != H264 || x.Width != 64 || x.Height != 48 || x.Format != "mp4" || len(x.Frames) != len(packets) || x.Timescale != 12800 {
		t.Fatalf("%+v, %d frames", x.Stream, len(x.Frames))
	}
	for i, p := range packets {
		f := x.Frames[i]
		if f.PTS != p[0] || f.Offset != p[1] || int64(f.Size) != p[2] || f.Key != (i%8 == 0) {
			t.Errorf("frame %d is %+v, ffprobe says %v", i, f, p)
		}
	}
	if !slices.Equal(x.Shown[:9], []int32{0, 2, 3, 1, 5, 6, 4, 7, 8}) {
		t.Errorf("shown are %v", x.Shown)
	}
	if s, r, d := x.Seconds(5), x.Rate(), x.Duration(); s != 0.2 || r != 25 || d < 0.7999 || d > 0.8001 {
		t.Errorf("frame 5 at %v s, %v a second, %v s", s, r, d)
	}
	for seconds, want := range map[float64]int{-1: 0, 0: 0, 0.0370: 0, 0.0395: 1, 0.04: 1, 0.2: 5, 99: 19} {
		if got := x.At(seconds); got != want {
			t.Errorf("at %v s frame %d is shown, not %d", seconds, got, want)
		}
	}
}

// The same frames are found in each container.
func TestContainers(t *testing.T) {
	want, all := open(t, "small.mp4"), data(t, "small.mp4")
	for _, name := range []string{"fragments.mp4", "turned.mov", "small.mkv"} {
		x, b := open(t, name), data(t, name)
		if len(x.Frames) != len(want.Frames) || !slices.Equal(x.Shown, want.Shown) || x.Codec != want.Codec || !bytes.Equal(x.Config, want.Config) {
			t.Fatalf("%s: %d frames, shown %v, %s", name, len(x.Frames), x.Shown, x.Codec)
		}
		for i, f := range x.Frames {
			w := want.Frames[i]
			if f.Key != w.Key || !bytes.Equal(b[f.Offset:f.Offset+int64(f.Size)], all[w.Offset:w.Offset+int64(w.Size)]) {
				t.Errorf("%s: frame %d differs", name, i)
			}
			if d := x.Seconds(i) - want.Seconds(i); d > 1e-3 || d < -1e-3 {
				t.Errorf("%s: frame %d is shown at %v s", name, i, x.Seconds(i))
			}
		}
	}
	if x := open(t, "turned.mov"); x.Rotation != 270 {
		t.Errorf("turned by %d", x.Rotation)
	}
	if x := open(t, "small.webm"); x.Codec != VP9 || len(x.Shown) != 20 || x.Format != "matroska" {
		t.Errorf("webm: %s, %d frames", x.Codec, len(x.Shown))
	}
}

// Frames of AVI files are JPEGs, found by either index and without one.
func TestAVI(t *testing.T) {
	b := data(t, "small.avi")
	for _, change := range []func(b memory){
		func(memory) {},
		func(b memory) { copy(b[bytes.LastIndex(b, []byte("idx1")):], "JUNK") },
	} {
		c := slices.Clone(b)
		change(c)
		x, err := Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if x.Codec != MJPEG || len(x.Shown) != 8 || math.Abs(x.Rate()-25) > 1e-9 || x.Width != 64 || x.Height != 48 {
			t.Fatalf("%+v, %d frames", x.Stream, len(x.Shown))
		}
		for i, f := range x.Frames {
			if !f.Key || !bytes.HasPrefix(b[f.Offset:], []byte{0xff, 0xd8}) {
				t.Errorf("frame %d is at %d", i, f.Offset)
			}
		}
	}
}

// The data to decode for frames begins with a key frame that is shown before them.
func TestSpans(t *testing.T) {
	x := open(t, "small.mp4")
	for _, c := range []struct {
		frames []int32
		want   []Span
	}{
		{[]int32{0}, []Span{{0, 0}}},
		{[]int32{7, 3}, []Span{{0, 7}}},
		{[]int32{3, 12}, []Span{{0, 3}, {8, 12}}},
		{[]int32{19, 8, 7}, []Span{{0, 8}, {16, 19}}},
	} {
		if got := x.Spans(nil, c.frames); !slices.Equal(got, c.want) {
			t.Errorf("frames %v: %v, not %v", c.frames, got, c.want)
		}
	}
	// A frame that is shown before its preceding key frame.
	x.Frames[9].PTS = x.Frames[8].PTS - 1
	if got := x.Start(9); got != 0 {
		t.Errorf("decoding begins at %d", got)
	}
}

// clip returns a clip of frames of a file.
func clip(t testing.TB, name string, frames ...int32) []byte {
	x, b := open(t, name), data(t, name)
	spans := x.Spans(nil, frames)
	var pieces []Piece
	var parts [][]byte
	for _, s := range spans {
		pieces = x.Pieces(pieces, s)
	}
	for _, p := range pieces {
		parts = append(parts, b[p.Offset:p.Offset+p.Size])
	}
	out := make([]byte, x.Size(spans, frames))
	if err := x.Append(out, 17, spans, frames, pieces, parts); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestClip(t *testing.T) {
	b := clip(t, "small.mp4", 3, 12, 3)
	x, all := open(t, "small.mp4"), data(t, "small.mp4")
	var c Clip
	if err := c.Parse(b); err != nil {
		t.Fatal(err)
	}
	if c.Video != 17 || c.Codec != H264 || !bytes.Equal(c.Config, x.Config) || !slices.Equal(c.Frames, []int32{3, 8, 3}) || len(c.Packets) != 9 {
		t.Errorf("%+v", c)
	}
	for _, p := range c.Packets {
		if f := x.Frames[p.N]; !bytes.Equal(p.Data, all[f.Offset:f.Offset+int64(f.Size)]) {
			t.Errorf("packet %d differs", p.N)
		}
	}
	for n := range b {
		if n < len(b)-20 && n > 200 {
			continue
		}
		if err := c.Parse(b[:n]); err == nil {
			t.Errorf("%d of %d bytes are a clip", n, len(b))
		}
	}
}

// Damage gives an error, and allocates no more than the size of the file allows.
func TestDamage(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(b memory) memory
	}{
		{"small.mp4", "its table of sizes says", func(b memory) memory {
			be.PutUint32(b[bytes.Index(b, []byte("stsz"))+12:], 1<<23)
			return b
		}},
		{"small.mp4", "the limit of 16777216", func(b memory) memory {
			be.PutUint32(b[bytes.Index(b, []byte("stsz"))+12:], 1<<31)
			return b
		}},
		{"small.mp4", "frames of 1 bytes", func(b memory) memory {
			i := bytes.Index(b, []byte("stsz"))
			be.PutUint32(b[i+8:], 1)
			be.PutUint32(b[i+12:], 1<<23)
			return b
		}},
		{"small.mp4", "it is cut off", func(b memory) memory { return b[:1000] }},
		{"small.mp4", "no moov box", func(b memory) memory { copy(b[bytes.Index(b, []byte("moov")):], "free"); return b }},
		{"small.mp4", "encrypted", func(b memory) memory { copy(b[bytes.Index(b, []byte("avc1\x00\x00")):], "encv"); return b }},
		{"small.avi", "encoded as \"XVID\"", func(b memory) memory { copy(b[bytes.LastIndex(b[:1000], []byte("MJPG")):], "XVID"); return b }},
		{"small.avi", "does not fit", func(b memory) memory { return b[:300] }},
		{"small.mkv", "", func(b memory) memory { return b[:200] }},
	} {
		_, err := Open(t.Context(), c.change(slices.Clone(data(t, c.name))))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := Open(t.Context(), memory("this is a text, and no video")); !errors.Is(err, ErrNotVideo) {
		t.Error(err)
	}
}

func FuzzOpen(f *testing.F) {
	for _, name := range []string{"small.mp4", "fragments.mp4", "turned.mov", "small.avi", "small.mkv", "small.webm"} {
		f.Add([]byte(data(f, name)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Open(t.Context(), memory(b))
		if err != nil {
			return
		}
		for i, d := range x.Shown {
			if i > 100 {
				break
			}
			spans := x.Spans(nil, []int32{d})
			var pieces []Piece
			for _, s := range spans {
				if s.Last-s.First > 1000 {
					return
				}
				pieces = x.Pieces(pieces, s)
			}
			var parts [][]byte
			for _, p := range pieces {
				parts = append(parts, b[p.Offset:p.Offset+p.Size])
			}
			n := x.Size(spans, []int32{d})
			if most := x.MostClip(i, i, 1); n > most {
				t.Errorf("a clip of %d bytes, where %d are the most", n, most)
			}
			out := make([]byte, n)
			if err := x.Append(out, 1, spans, []int32{d}, pieces, parts); err != nil {
				t.Error(err)
			}
			if err := new(Clip).Parse(out); err != nil {
				t.Error(err)
			}
			_ = x.At(x.Seconds(i))
		}
	})
}

func FuzzClip(f *testing.F) {
	f.Add(clip(f, "small.mp4", 3, 12))
	f.Add(clip(f, "small.avi", 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Clip
		if c.Parse(b) != nil {
			return
		}
		for _, at := range c.Frames {
			var buf []byte
			_ = JPEG(&buf, c.Packets[at].Data)
		}
		c.Forget()
	})
}

// The output of AppendTo is parsed to the same clip.
func TestClipAppendTo(t *testing.T) {
	c := Clip{Stream: Stream{Codec: Raw, Config: []byte("config"), Width: 3, Height: 2, Rotation: 90, Mirror: true, Matrix: 5, Range: RangeFull}, Video: 1 << 60}
	for i, size := range []int{18, 0, 7} {
		c.Packets = append(c.Packets, Packet{N: int32(i * 5), Data: bytes.Repeat([]byte{byte(i + 1)}, size)})
	}
	c.Frames = []int32{2, 0, 0, 1}
	b := c.AppendTo([]byte("front"))
	if int64(len(b)) != 5+c.Bytes() {
		t.Errorf("%d bytes, not %d", len(b)-5, c.Bytes())
	}
	var got Clip
	if err := got.Parse(b[5:]); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.AppendTo(nil), b[5:]) || got.Width != 3 || got.Codec != Raw || len(got.Packets) != 3 || !slices.Equal(got.Frames, c.Frames) {
		t.Errorf("%+v", got)
	}
	for n := range len(b) - 5 {
		if err := got.Parse(b[5 : 5+n]); err == nil {
			t.Errorf("%d of %d bytes were accepted", n, len(b)-5)
		}
	}
}

// Matroska's projection turns and mirrors as FFmpeg has it.
func TestProjection(t *testing.T) {
	element := func(id uint16, v float64, size int) []byte {
		b := append(be.AppendUint16(nil, id), 0x80|byte(size))
		if size == 4 {
			return be.AppendUint32(b, math.Float32bits(float32(v)))
		}
		return be.AppendUint64(b, math.Float64bits(v))
	}
	for _, c := range []struct {
		roll, yaw, pitch float64
		kind             byte
		rotation         int
		mirror           bool
	}{
		{90, 0, 0, 0, 270, false}, {-90, 0, 0, 0, 90, false}, {180, 0, 0, 0, 180, false}, {-180, 0, 0, 0, 180, false}, {0, 0, 0, 0, 0, false},
		{90, 180, 0, 0, 90, true}, {0, -180, 0, 0, 0, true}, {90, 0, 30, 0, 0, false}, {90, 0, 0, 1, 0, false}, {45, 0, 0, 0, 0, false},
		{math.NaN(), 0, 0, 0, 0, false}, {1e300, 0, 0, 0, 0, false},
	} {
		for _, size := range []int{4, 8} {
			body := append([]byte{0x76, 0x71, 0x81, c.kind}, element(mkRoll, c.roll, size)...)
			body = append(append(body, element(mkYaw, c.yaw, size)...), element(mkPitch, c.pitch, size)...)
			var s Stream
			err := s.mkVideo(append([]byte{0x76, 0x70, 0x80 | byte(len(body))}, body...))
			if err != nil || s.Rotation != c.rotation || s.Mirror != c.mirror {
				t.Errorf("%+v, %d bytes: %d, %v, %v", c, size, s.Rotation, s.Mirror, err)
			}
		}
	}
}

// The matrix of a track of MP4 turns, mirrors or both.
func TestTrackMatrix(t *testing.T) {
	for m, want := range map[[4]int32]Stream{
		{1, 0, 0, 1}: {}, {0, 1, -1, 0}: {Rotation: 90}, {-1, 0, 0, -1}: {Rotation: 180}, {0, -1, 1, 0}: {Rotation: 270},
		{-1, 0, 0, 1}: {Mirror: true}, {1, 0, 0, -1}: {Rotation: 180, Mirror: true}, {0, 1, 1, 0}: {Rotation: 90, Mirror: true},
		{0, -1, -1, 0}: {Rotation: 270, Mirror: true},
	} {
		b := make([]byte, 84)
		for i, k := range []int{0, 4, 12, 16} {
			be.PutUint32(b[40+k:], uint32(m[i]<<16))
		}
		track := mp4Track{x: &Index{}}
		if err := track.tkhd(b); err != nil || track.x.Rotation != want.Rotation || track.x.Mirror != want.Mirror {
			t.Errorf("%v: %d, %v, %v", m, track.x.Rotation, track.x.Mirror, err)
		}
	}
}
