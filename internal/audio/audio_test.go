package audio

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/csound"
	"github.com/stokerdata/stoker/internal/videodec"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func floats(t testing.TB, name string) []float32 {
	b := file(t, name)
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// signal returns the samples that scripts/fixtures/audio.py writes: 16 bits, interleaved.
func signal(frames, channels int) []int16 {
	out := make([]int16, frames*channels)
	state := int64(1)
	for i := range frames {
		for c := range channels {
			state = (state*1103515245 + 12345) & 0x7fffffff
			phase := i * (37 + c) % 4000
			if phase >= 2000 {
				phase = 4000 - phase
			}
			out[i*channels+c] = int16(8*phase - 8000 + int(state>>16)%64)
		}
	}
	return out
}

func decode(t testing.TB, b []byte) (Info, []float32) {
	t.Helper()
	var d Decoder
	defer d.Close()
	if err := d.Open(b); err != nil {
		t.Fatal(err)
	}
	out := make([]float32, d.Frames*int64(d.Channels))
	if err := d.Decode(out, int(d.Frames), 0, d.Frames); err != nil {
		t.Fatal(err)
	}
	return d.Info, out
}

// The samples are identical, bit for bit, to those that soundfile reads from the files that it wrote.
func TestWAV(t *testing.T) {
	for name, encoding := range map[string]string{
		"u8": "8 bit", "s16": "16 bit", "s24": "24 bit", "s32": "32 bit", "f32": "float 32 bit", "f64": "float 64 bit",
		"alaw": "A-law", "mulaw": "mu-law", "extensible": "16 bit", "rf64": "24 bit",
	} {
		info, got := decode(t, file(t, name+".wav"))
		if want := (Info{"wav", 22050, 2, encoding, info.FrameBytes, 150}); info != want {
			t.Errorf("%s: %+v, want %+v", name, info, want)
		}
		for i, want := range floats(t, name+".f32") {
			if v := got[i%2*150+i/2]; v != want {
				t.Fatalf("%s: sample %d is %v, want %v", name, i, v, want)
			}
		}
	}
}

func TestFLAC(t *testing.T) {
	for _, c := range []struct {
		name                         string
		frames, channels, rate, bits int
	}{{"mono16", 9000, 1, 16000, 16}, {"stereo16", 6000, 2, 44100, 16}, {"stereo24", 5000, 2, 48000, 24}, {"five8", 1000, 5, 8000, 8}, {"silence", 40000, 1, 8000, 16}} {
		info, got := decode(t, file(t, c.name+".flac"))
		if info.Frames != int64(c.frames) || info.Channels != c.channels || info.Rate != c.rate {
			t.Errorf("%s: %+v", c.name, info)
		}
		for i, v := range signal(c.frames, c.channels) {
			want := float32(v) / 32768
			switch {
			case c.name == "silence":
				want = 0
			case c.bits == 8:
				want = float32(v>>8) / 128
			}
			if v := got[i%c.channels*c.frames+i/c.channels]; v != want {
				t.Fatalf("%s: sample %d is %v, want %v", c.name, i, v, want)
			}
		}
	}
}

// Ogg is decoded by the libraries that soundfile has, MP3 by a decoder of our own.
func TestLossy(t *testing.T) {
	for _, name := range []string{"mono.ogg", "stereo.ogg", "mono.opus", "stereo.opus", "mono.mp3", "stereo.mp3"} {
		info, got := decode(t, file(t, name))
		if info.Frames != 12000 {
			t.Fatalf("%s: %+v", name, info)
		}
		for i, want := range floats(t, name+".f32") {
			at := i%info.Channels*12000 + i/info.Channels*20
			if v := got[at]; math.Abs(float64(v-want)) > 2e-5 {
				t.Fatalf("%s: sample %d is %v, want %v", name, i, v, want)
			}
		}
	}
}

// Every part of a recording is that part of the whole.
func TestParts(t *testing.T) {
	for _, name := range all(t) {
		b := file(t, name)
		info, whole := decode(t, b)
		var d Decoder
		for _, part := range [][2]int64{{0, 1}, {info.Frames - 1, 1}, {info.Frames / 3, 100}, {info.Frames * 3 / 4, info.Frames / 8}, {-5, 10}, {info.Frames - 5, 10}, {info.Frames + 3, 4}, {-9, 4}} {
			if err := d.Open(b); err != nil {
				t.Fatal(err)
			}
			from, n := part[0], part[1]
			got := make([]float32, n*int64(d.Channels)+8)
			if err := d.Decode(got, int(n), from, n); err != nil {
				t.Fatalf("%s: samples %d and %d more: %v", name, from, n, err)
			}
			for c := range int64(d.Channels) {
				for i := range n {
					want := float32(0)
					if at := from + i; at >= 0 && at < info.Frames {
						want = whole[c*info.Frames+at]
					}
					if got[c*n+i] != want {
						t.Fatalf("%s: sample %d of channel %d of %d from %d on is %v, want %v", name, i, c, n, from, got[c*n+i], want)
					}
				}
			}
			if !slices.Equal(got[n*int64(d.Channels):], make([]float32, 8)) {
				t.Fatalf("%s: wrote behind the end", name)
			}
		}
		d.Close()
	}
}

func all(t testing.TB) (names []string) {
	t.Helper()
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if slices.Contains(Extensions, filepath.Ext(f.Name())) {
			names = append(names, f.Name())
		}
	}
	return names
}

// try opens and decodes; it returns an error and never panics.
func try(b []byte) error {
	var d Decoder
	defer d.Close()
	if err := d.Open(b); err != nil {
		return err
	}
	n := min(d.Frames, 1<<16)
	return d.Decode(make([]float32, n*int64(d.Channels)), int(n), d.Frames-n, n)
}

// A truncated file is reported as such.
func TestCut(t *testing.T) {
	for _, name := range all(t) {
		b := file(t, name)
		for _, n := range []int{len(b) - 1, len(b) - 40, len(b) / 2, 60, 20, 12} {
			if err := try(b[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes are read without an error", name, n, len(b))
			} else if strings.Contains(err.Error(), "neither") {
				t.Errorf("%s: %d bytes: %v", name, n, err)
			}
		}
	}
}

// A flipped bit in the sound is found if the format has checksums.
func TestDamage(t *testing.T) {
	for _, name := range []string{"stereo16.flac", "mono.ogg", "stereo.opus"} {
		b := file(t, name)
		for at := len(b) / 2; at < len(b); at += 97 {
			bad := slices.Clone(b)
			bad[at] ^= 4
			if err := try(bad); err == nil {
				t.Errorf("%s: a bit at %d is not noticed", name, at)
			}
		}
	}
}

// Headers that promise more than there is cost no memory.
func TestHeadersThatLie(t *testing.T) {
	wav := file(t, "s16.wav")
	binary.LittleEndian.PutUint32(wav[40:], 1<<31)
	if err := try(wav); err == nil || !strings.Contains(err.Error(), "of which 600 are there") {
		t.Errorf("WAV: %v", err)
	}
	flac := file(t, "silence.flac")
	binary.BigEndian.PutUint32(flac[22:], 1<<31) // of the 36 bits of samples
	if err := try(flac); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("FLAC: %v", err)
	}
	flac = file(t, "mono16.flac")
	flac[len(flac)-3000] ^= 1
	err := try(flac)
	if !errors.Is(err, csound.ErrChecksum) && !errors.Is(err, csound.ErrDamaged) || !strings.Contains(err.Error(), "offset") {
		t.Errorf("FLAC with a frame that is damaged: %v", err)
	}
}

// containers returns files of all containers, with the samples of signal(150, 2).
func containers() map[string][]byte {
	big, little := binary.BigEndian, binary.LittleEndian
	b16 := func(o binary.ByteOrder) (b []byte) {
		for _, v := range signal(150, 2) {
			var x [2]byte
			o.PutUint16(x[:], uint16(v))
			b = append(b, x[:]...)
		}
		return b
	}
	b24 := func(o binary.ByteOrder) (b []byte) {
		for _, v := range signal(150, 2) {
			var x [4]byte
			o.PutUint32(x[:], uint32(int32(v)<<16))
			if o == big {
				b = append(b, x[:3]...)
			} else {
				b = append(b, x[1:]...)
			}
		}
		return b
	}
	b32 := func(o binary.ByteOrder, of func(int16) uint32) (b []byte) {
		for _, v := range signal(150, 2) {
			var x [4]byte
			o.PutUint32(x[:], of(v))
			b = append(b, x[:]...)
		}
		return b
	}
	b64 := func(o binary.ByteOrder) (b []byte) {
		for _, v := range signal(150, 2) {
			var x [8]byte
			o.PutUint64(x[:], math.Float64bits(float64(v)/32768))
			b = append(b, x[:]...)
		}
		return b
	}
	whole := func(v int16) uint32 { return uint32(int32(v) << 16) }
	single := func(v int16) uint32 { return math.Float32bits(float32(v) / 32768) }
	chunk := func(o binary.ByteOrder, id string, body []byte) []byte {
		var n [4]byte
		o.PutUint32(n[:], uint32(len(body)))
		out := append(append([]byte(id), n[:]...), body...)
		return append(out, make([]byte, len(body)&1)...)
	}
	aiff := func(kind string, bits int, data []byte) []byte {
		comm := big.AppendUint16(big.AppendUint32(big.AppendUint16(nil, 2), 150), uint16(bits))
		comm = append(comm, "\x40\x0d\xac\x44\x00\x00\x00\x00\x00\x00"...) // 22050
		form := "AIFF"
		if kind != "" {
			form, comm = "AIFC", append(append(comm, kind...), 0, 0)
		}
		body := append([]byte(form), chunk(big, "NAME", []byte("odd"))...)
		body = append(append(body, chunk(big, "COMM", comm)...), chunk(big, "SSND", append(make([]byte, 8), data...))...)
		return chunk(big, "FORM", body)
	}
	au := func(o binary.ByteOrder, kind uint32, size int, data []byte) []byte {
		out := []byte(".snd")
		if o == little {
			out = []byte("dns.")
		}
		for _, v := range []uint32{28, uint32(size), kind, 22050, 2, 0} {
			var x [4]byte
			o.PutUint32(x[:], v)
			out = append(out, x[:]...)
		}
		return append(out, data...)
	}
	caf := func(flags, size int, data []byte) []byte {
		out := append([]byte("caff\x00\x01\x00\x00desc"), big.AppendUint64(nil, 32)...)
		out = append(big.AppendUint64(out, math.Float64bits(22050)), "lpcm"...)
		for _, v := range []int{flags, 2 * size, 1, 2, 8 * size} {
			out = big.AppendUint32(out, uint32(v))
		}
		out = append(append(out, "free"...), big.AppendUint64(nil, 3)...)
		out = append(append(out, 1, 2, 3), "data"...)
		return append(append(big.AppendUint64(out, uint64(len(data)+4)), 0, 0, 0, 0), data...)
	}
	wave := func(o binary.ByteOrder, id string, data []byte) []byte {
		var f [16]byte
		o.PutUint16(f[:], 1)
		o.PutUint16(f[2:], 2)
		o.PutUint32(f[4:], 22050)
		o.PutUint32(f[8:], 88200)
		o.PutUint16(f[12:], 4)
		o.PutUint16(f[14:], 16)
		return chunk(o, id, append(append([]byte("WAVE"), chunk(o, "fmt ", f[:])...), chunk(o, "data", data)...))
	}
	w64 := func(size uint64, data []byte) []byte {
		long := func(id string, size uint64) []byte { return little.AppendUint64([]byte(id+wave64), size) }
		out := append(little.AppendUint64([]byte(wave64First), 1<<20), "wave"+wave64...)
		out = append(append(out, long("odd ", 27)...), make([]byte, 8)...) // of 3 bytes
		out = append(append(out, long("fmt ", 40)...), "\x01\x00\x02\x00\x22\x56\x00\x00\x88\x58\x01\x00\x04\x00\x10\x00"...)
		return append(append(out, long("data", size)...), data...)
	}
	return map[string][]byte{
		"rifx": wave(big, "RIFX", b16(big)), "aiff 16": aiff("", 16, b16(big)), "aiff 24": aiff("", 20, b24(big)), "aiff 32": aiff("NONE", 32, b32(big, whole)),
		"aiff sowt": aiff("sowt", 16, b16(little)), "aiff twos": aiff("twos", 16, b16(big)), "aiff in24": aiff("in24", 16, b24(big)), "aiff in32": aiff("in32", 16, b32(big, whole)),
		"aiff 42ni": aiff("42ni", 24, b24(little)), "aiff 23ni": aiff("23ni", 32, b32(little, whole)), "aiff fl32": aiff("fl32", 32, b32(big, single)), "aiff FL64": aiff("FL64", 64, b64(big)),
		"au 3": au(big, 3, 600, b16(big)), "au 4": au(big, 4, 900, b24(big)), "au 5": au(big, 5, -1, b32(big, whole)), "au 6": au(big, 6, 1200, b32(big, single)), "au 7": au(big, 7, 2400, b64(big)),
		"au little": au(little, 3, 600, b16(little)), "caf 16": caf(0, 2, b16(big)), "caf 24": caf(2, 3, b24(little)), "caf 32": caf(0, 4, b32(big, whole)), "caf f32": caf(1, 4, b32(big, single)),
		"caf f64": caf(3, 8, b64(little)), "w64": w64(624, b16(little)), "w64 pipe": w64(math.MaxInt64-24, b16(little)), "id3": append([]byte("ID3\x04\x00\x00\x00\x00\x00\x03abc"), wave(little, "RIFF", b16(little))...),
	}
}

// Containers of other systems have the same samples.
func TestContainers(t *testing.T) {
	for name, b := range containers() {
		if name == "id3" {
			continue
		}
		info, got := decode(t, b)
		if info.Rate != 22050 || info.Channels != 2 || info.Frames != 150 {
			t.Errorf("%s: %+v", name, info)
			continue
		}
		for i, v := range signal(150, 2) {
			if want := float32(v) / 32768; got[i%2*150+i/2] != want {
				t.Fatalf("%s: sample %d is %v, want %v", name, i, got[i%2*150+i/2], want)
			}
		}
		for n := range len(b) {
			if _, err := Probe(b[:n]); err == nil && name != "au 5" && name != "w64 pipe" && n < len(b)-600 {
				t.Fatalf("%s: %d of %d bytes are read", name, n, len(b))
			}
		}
	}
}

// A tag before FLAC data does not make the file an MP3.
func TestTaggedFLAC(t *testing.T) {
	for _, name := range all(t) {
		b := file(t, name)
		if !strings.HasSuffix(name, ".flac") {
			continue
		}
		tag := []byte("ID3\x04\x00\x00\x00\x00\x00\x05hello")
		want, wanted := decode(t, b)
		got, samples := decode(t, append(append(slices.Clone(tag), tag...), b...))
		if got != want || !slices.Equal(samples, wanted) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// For sound that only FFmpeg can read, a missing FFmpeg is an error with a command to type.
func TestNotNative(t *testing.T) {
	t.Setenv(videodec.Folder, t.TempDir())
	if videodec.LoadFormat() == nil {
		t.Skip("FFmpeg is loaded already")
	}
	b := containers()["rifx"]
	b = slices.Clone(b)
	b[21] = 17 // IMA ADPCM
	if _, err := Probe(b); err == nil || !strings.Contains(err.Error(), "format 17 with 16 bits: only FFmpeg may read it") || !strings.Contains(err.Error(), "ffmpeg -i IN OUT.flac") {
		t.Error(err)
	}
	if _, err := Probe([]byte("no sound at all")); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Setenv(videodec.Folder, f.TempDir()) // this does not test FFmpeg
	for _, name := range slices.Sorted(maps.Keys(containers())) {
		f.Add(containers()[name])
	}
	for _, name := range all(f) {
		if b := file(f, name); len(b) < 5000 {
			f.Add(b)
		}
	}
	for _, b := range contradicted(f) {
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		_ = try(b)
	})
}

// flacFrames writes uncompressed frames of one channel and 16 bits. The number of a frame is that of its first
// sample, also without the mark that FLAC 1.2 introduced for it.
func flacFrames(samples []int16, sizes []int, marked bool) []byte {
	crc := func(b []byte, bits, polynomial int) int {
		c := 0
		for _, v := range b {
			c ^= int(v) << (bits - 8)
			for range 8 {
				c <<= 1
				if c>>bits != 0 {
					c ^= polynomial
				}
			}
		}
		return c
	}
	out, at := []byte(nil), 0
	for _, n := range sizes {
		f := []byte{0xff, 0xf8, 0x70, 0x08}
		if marked {
			f[1]++
		}
		f = append(f, string(rune(at))...) // numbers have the form of UTF-8
		f = binary.BigEndian.AppendUint16(f, uint16(n-1))
		f = append(f, byte(crc(f, 8, 0x107)), 2)
		for _, v := range samples[at : at+n] {
			f = binary.BigEndian.AppendUint16(f, uint16(v))
		}
		out = append(out, binary.BigEndian.AppendUint16(f, uint16(crc(f, 16, 0x18005)))...)
		at += n
	}
	return out
}

// contradicted returns files whose STREAMINFO differs from the frames. soundfile reads most of them.
func contradicted(t testing.TB) map[string][]byte {
	mono := file(t, "mono16.flac")
	changed := func(change func(b []byte)) []byte {
		b := slices.Clone(mono)
		change(b[8:])
		return b
	}
	block := func(least, most uint16) func([]byte) {
		return func(b []byte) {
			binary.BigEndian.PutUint16(b, least)
			binary.BigEndian.PutUint16(b[2:], most)
		}
	}
	old := func(least, most uint16, total byte, marked bool) []byte {
		info := []byte("fLaC\x80\x00\x00\x22")
		info = append(info, mono[8:42]...)
		block(least, most)(info[8:])
		copy(info[8+14:], []byte{0, 0})
		info[8+13] &= 0xf0
		binary.BigEndian.PutUint16(info[8+16:], uint16(total)*9000)
		return append(info, flacFrames(signal(9000, 1), []int{576, 4608, 300, 1000, 2516}, marked)...)
	}
	return map[string][]byte{
		"blocks too small": changed(block(512, 512)),
		"blocks too large": changed(block(16384, 16384)),
		"24 bits":          changed(func(b []byte) { b[12], b[13] = b[12]|1, b[13]&0xf|7<<4 }),
		"padding first":    slices.Concat([]byte("fLaC\x01\x00\x00\x05hello"), mono[4:]),
		"old":              old(300, 4608, 1, false),
		"old, no total":    old(300, 4608, 0, false),
		"small first":      old(300, 576, 1, true),
	}
}

func TestFLACContradicted(t *testing.T) {
	for name, b := range contradicted(t) {
		info, got := decode(t, b)
		if info.Frames != 9000 || info.Encoding != "16 bit" {
			t.Errorf("%s: %+v", name, info)
		}
		for i, v := range signal(9000, 1) {
			if want := float32(v) / 32768; got[i] != want {
				t.Fatalf("%s: sample %d is %v, want %v", name, i, got[i], want)
			}
		}
		var d Decoder
		part := make([]float32, 100)
		if err := errors.Join(d.Open(b), d.Decode(part, 100, 8800, 100)); err != nil || !slices.Equal(part, got[8800:8900]) {
			t.Errorf("%s: samples from 8800 on differ: %v", name, err)
		}
		d.Close()
	}
}
