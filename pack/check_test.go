package pack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/audio"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/dynlib"
	"github.com/stokerdata/stoker/internal/source/foldersource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/video"
)

// packSound packs a folder of recordings, and returns the summary's manifest and the names of those left out.
func packSound(t *testing.T, files map[string][]byte, opt *Options) (dst string, m *Manifest, left []string) {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		writeFile(t, b, dir, name)
	}
	src, err := foldersource.Open(t.Context(), dir, localstore.New(dir), &foldersource.Options{Sound: true})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst = filepath.Join(t.TempDir(), "pack")
	m = mustWriteSource(t, src, dst, opt).Manifest
	for _, s := range m.Skipped {
		left = append(left, s.Path)
	}
	return dst, m, left
}

func sound(t testing.TB, name string) []byte {
	return must(os.ReadFile(filepath.Join("../internal/audio/testdata", name)))
}

// unknownWAV returns a recording in an unsupported codec.
func unknownWAV() []byte {
	b := wavBytes(make([]byte, 400))
	binary.LittleEndian.PutUint16(b[20:], 0x7777)
	return b
}

// Recordings with an unreadable header are left out and listed. CheckDecode also finds damage after the header.
// Verify finds it later, but does not call the pack damaged.
func TestPackSound(t *testing.T) {
	flac := bytes.Clone(sound(t, "stereo16.flac"))
	for i := len(flac) / 2; i < len(flac)/2+20; i++ {
		flac[i] ^= 0x55
	}
	files := map[string][]byte{
		"a.wav": sound(t, "s16.wav"), "b.flac": flac, "c.mp3": []byte("this is text"), "d.wav": unknownWAV(),
		"e.opus": sound(t, "stereo.opus"), "f.ogg": sound(t, "mono.ogg"), "g.mp3": sound(t, "mono.mp3"), "h.wav": sound(t, "s16.wav")[:60],
	}
	dst, m, left := packSound(t, files, nil)
	if want := []string{"c.mp3", "d.wav", "h.wav"}; m.Records != 5 || !slices.Equal(left, want) {
		t.Fatalf("%d records, %v left out, want %v", m.Records, left, want)
	}
	rep, err := Verify(t.Context(), dst, &VerifyOptions{Decode: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Problems) != 1 || rep.Problems[0].Path != "b.flac" || !rep.Problems[0].Intact || !strings.Contains(rep.Problems[0].Reason, "the audio cannot be decoded: flac") {
		t.Errorf("%+v", rep)
	}
	_, m, left = packSound(t, files, &Options{Check: CheckDecode})
	if want := []string{"b.flac", "c.mp3", "d.wav", "h.wav"}; m.Records != 4 || !slices.Equal(left, want) {
		t.Errorf("with CheckDecode: %d records, %v left out, want %v", m.Records, left, want)
	}
}

// All of a recording is decoded, in pieces.
func TestTrySound(t *testing.T) {
	w, err := newWorker(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for _, name := range []string{"s16.wav", "stereo16.flac", "stereo.mp3", "mono.ogg", "stereo.opus"} {
		if err := w.enc.trySound(sound(t, name), true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := wavBytes(make([]byte, 2*(soundPiece+10)))
	if need := soundMemory(long); need < 4*soundPiece || need > 4*soundPiece+4*int64(len(long)) {
		t.Errorf("%d bytes of memory", need)
	}
	if err := w.enc.trySound(long, true); err != nil {
		t.Error(err)
	}
	if soundMemory([]byte("no sound")) != 0 {
		t.Error("memory for what is not decoded")
	}
}

// JPEGs of a kind that the decoder does not support are left out, even if they are only kept.
func TestPackRareJPEG(t *testing.T) {
	b := testJPEG(t, 1, 40, 30)
	rare := bytes.Clone(b)
	at := bytes.Index(rare, []byte{0xFF, 0xC0})
	rare[at+1] = 0xC3 // lossless
	src := t.TempDir()
	writeFile(t, b, src, "a", "plain.jpg")
	writeFile(t, rare, src, "a", "rare.jpg")
	for _, how := range []string{ImagesKeep, ImagesAuto} {
		m := mustWrite(t, src, filepath.Join(t.TempDir(), how), &Options{Images: how}).Manifest
		if m.Records != 1 || len(m.Skipped) != 1 || m.Skipped[0].Path != "a/rare.jpg" {
			t.Errorf("%s: %d records, %v", how, m.Records, m.Skipped)
		}
	}
}

// CheckDecode also decodes clips.
func TestPackClips(t *testing.T) {
	w, err := newWorker(&Options{Check: CheckDecode})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	f := &Field{Name: "frames", Shape: []int{1}, Kind: "frames", Frames: &FrameSize{MaxWidth: 40, MaxHeight: 30}}
	jpeg := testJPEG(t, 1, 40, 30)
	for name, b := range map[string][]byte{"whole": jpeg, "cut": jpeg[:len(jpeg)/2]} {
		c := video.Clip{Stream: video.Stream{Codec: video.MJPEG, Width: 40, Height: 30}, Video: 1, Frames: []int32{0}}
		c.Packets = []video.Packet{{Data: b}}
		var src Value
		src.Bytes = c.AppendTo(nil)
		err := w.checkValue(t.Context(), &src.Value, f)
		if bad := new(BadInput); (name == "cut") != errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The cause if a value cannot be decoded.
func TestFaultOf(t *testing.T) {
	for want, errs := range map[fault][]error{
		faultMemory: {&tooLarge{}},
		faultUnsupported: {
			fmt.Errorf("x: %w", &cdec.Error{Kind: cdec.ErrUnsupported, Msg: "12 bits"}), audio.ErrFormat, dynlib.ErrMissing,
			must0(audio.Probe(unknownWAV())),
		},
		faultData: {&cdec.Error{Kind: cdec.ErrCorrupt, Msg: "cut"}, context.Canceled, must0(audio.Probe(sound(t, "s16.wav")[:60]))},
	} {
		for _, err := range errs {
			if got := faultOf(err); got != want {
				t.Errorf("%v: %d, want %d", err, got, want)
			}
		}
	}
}

// must0 returns the error of two results.
func must0[T any](_ T, err error) error { return err }
