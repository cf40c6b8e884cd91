package pack

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/videosource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/internal/video/videotest"
	"github.com/stokerdata/stoker/source/driver"
)

// broken is a source that replaces some of its clips.
type broken struct {
	driver.Source
	change func(id int64, c *video.Clip)
}

func (s broken) Parse(g *driver.Group) error {
	if err := s.Source.Parse(g); err != nil {
		return err
	}
	for k, id := range g.IDs {
		var c video.Clip
		if err := c.Parse(g.Records[k].Values[0].Bytes); err != nil {
			return err
		}
		for i := range c.Packets {
			c.Packets[i].Data = bytes.Clone(c.Packets[i].Data)
		}
		s.change(id, &c)
		g.Records[k].Values[0].Bytes = c.AppendTo(nil)
	}
	return nil
}

// Clips of all kinds whose frames are images are decoded, and damaged ones are named.
func TestVerifyClips(t *testing.T) {
	for _, how := range []string{ImagesKeep, ImagesAuto, "damaged", "frames"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			videotest.Write(t, filepath.Join(dir, "x.avi"), 12, 3)
			src, err := videosource.Open(t.Context(), dir, localstore.New(dir), &videosource.Options{Frames: 3})
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			opt := &Options{Images: how, Memory: 256 << 20}
			from := broken{src, func(id int64, c *video.Clip) {
				switch {
				case how == "damaged" && id == 2: // the checksum matches the packed data
					copy(c.Packets[1].Data[len(c.Packets[1].Data)/3:], bytes.Repeat([]byte{0xFF, 0xC4}, 40))
				case how == "frames" && id == 2:
					c.Packets[0].Data = c.Packets[0].Data[:4]
				}
			}}
			if opt.Images == "damaged" || opt.Images == "frames" {
				opt.Images = ImagesKeep
			}
			out := filepath.Join(t.TempDir(), "pack")
			if _, err := WriteSource(t.Context(), from, out, opt); err != nil {
				t.Fatal(err)
			}
			rep, err := Verify(t.Context(), out, &VerifyOptions{Decode: true, Memory: 256 << 20})
			if err != nil {
				t.Fatal(err)
			}
			if how == ImagesKeep || how == ImagesAuto {
				if len(rep.Problems) > 0 || rep.Records != 4 {
					t.Errorf("%d records: %v", rep.Records, rep.Problems)
				}
				return
			}
			if len(rep.Problems) != 1 || rep.Problems[0].FirstRecord != 2 || !strings.Contains(rep.Problems[0].Reason, "the frames cannot be decoded: frame ") {
				t.Errorf("%v", rep.Problems)
			}
		})
	}
}

// A damaged frame of each kind is an error and no panic.
func TestDamagedStills(t *testing.T) {
	w, err := newWorker(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	room, err := newVerifyBudget(&VerifyOptions{Memory: 256 << 20, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	v := &verifier{memory: room}
	jpeg := videotest.Gray(70)
	dct, err := w.enc.toDCT.Encode(jpeg)
	if err != nil {
		t.Fatal(err)
	}
	dct = bytes.Clone(dct)
	raw := make([]byte, 3*16*8)
	val := &Value{Field: &Field{Kind: driver.KindFrames}}
	for codec, b := range map[string][]byte{video.DCT: dct, video.MJPEG: jpeg, video.Raw: raw} {
		c := &video.Clip{Stream: video.Stream{Codec: codec, Width: 16, Height: 8}}
		padded := append(bytes.Clone(b), make([]byte, 64)...)[:len(b)]
		if err := v.decodeStill(t.Context(), val, c, padded, w); err != nil {
			t.Errorf("%s: %v", codec, err)
		}
		for n := range len(b) {
			cut := append(bytes.Clone(b[:n]), make([]byte, 64)...)[:n]
			if err := v.decodeStill(t.Context(), val, c, cut, w); err == nil && n < len(b)/2 {
				t.Errorf("%s: %d of %d bytes are a frame", codec, n, len(b))
			}
		}
	}
}
