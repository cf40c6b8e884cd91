package audio

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/csound"
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

// signal is what scripts/fixtures/audio.py writes: 16 bits, interleaved.
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

// What soundfile reads of the files that it wrote is what comes out here, to the bit.
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

// A file that is cut off says so.
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

// A bit that has turned over in the sound is found where the format has checksums.
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

func FuzzDecode(f *testing.F) {
	for _, name := range all(f) {
		if b := file(f, name); len(b) < 5000 {
			f.Add(b)
		}
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		_ = try(b)
	})
}
