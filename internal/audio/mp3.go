package audio

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/internal/csound"
)

// mp3 is a file of frames of MPEG audio layer III.
type mp3 struct {
	b      []byte
	places []int // of frames
	frame  csound.MP3Frame
	skip   int64 // samples in front of the first one of the recording
}

// mp3Delay is the number of samples that decoders return before the first encoded one.
const mp3Delay = 529

// mp3Garbage is the maximum number of bytes between frames.
const mp3Garbage = 64 << 10

// mp3Begin finds the first frame, after tags and other data that players skip.
func mp3Begin(b []byte) (at int, ok bool) {
	return mp3Next(b, tags(b))
}

// mp3Next finds the next header that another one like it follows, or the end.
func mp3Next(b []byte, at int) (int, bool) {
	for end := min(at+mp3Garbage, len(b)-4); at <= end; at++ {
		skip := bytes.IndexByte(b[at:end+4], 0xff)
		if skip < 0 || at+skip > end {
			break
		}
		at += skip
		f, ok := csound.ParseMP3(b[at:])
		if !ok {
			continue
		}
		next := at + f.Bytes()
		if next >= len(b)-4 || mp3Same(b[next:], &f) || mp3Ends(b[next:]) {
			return at, true
		}
	}
	return 0, false
}

func mp3Same(b []byte, f *csound.MP3Frame) bool {
	g, ok := csound.ParseMP3(b)
	return ok && g.Rate() == f.Rate() && g.Channels() == f.Channels() && g.Samples() == f.Samples()
}

// mp3Ends reports whether b begins with tags, which follow the last frame.
func mp3Ends(b []byte) bool {
	return bytes.HasPrefix(b, []byte("TAG")) || bytes.HasPrefix(b, []byte("APETAGEX")) || bytes.HasPrefix(b, []byte("LYRICS")) || bytes.HasPrefix(b, []byte("ID3"))
}

func openMP3(d *Decoder, b []byte) (Info, recording, error) {
	info := Info{Format: "mp3"}
	at, ok := mp3Begin(b)
	if !ok {
		return info, nil, fmt.Errorf("mp3: no frame of layer III is in it: the file is damaged, cut off, or of another layer")
	}
	m := &mp3{b: b, places: d.places[:0]}
	m.frame, _ = csound.ParseMP3(b[at:])
	info.Rate, info.Channels = m.frame.Rate(), m.frame.Channels()
	promised, delay, padding, tagged, trimmed := mp3Tag(b[at:], &m.frame)
	if tagged {
		at += m.frame.Bytes()
	}
	for at <= len(b)-4 && !mp3Ends(b[at:]) {
		f, ok := csound.ParseMP3(b[at:])
		if !ok || f.Rate() != info.Rate || f.Channels() != info.Channels || f.Samples() != m.frame.Samples() {
			if at, ok = mp3Next(b, at+1); !ok {
				break
			}
			continue
		}
		if at+f.Bytes() > len(b) {
			return info, nil, fmt.Errorf("mp3: the frame at offset %d has %d bytes, of which %d are there: the file is cut off", at, f.Bytes(), len(b)-at)
		}
		m.places = append(m.places, at)
		at += f.Bytes()
	}
	d.places = m.places
	if promised > len(m.places) {
		return info, nil, fmt.Errorf("mp3: it says that it has %d frames, and has %d: the file is cut off", promised, len(m.places))
	}
	info.Frames = int64(len(m.places)) * int64(m.frame.Samples())
	if trimmed {
		// The padding that encoders add before and after the sound is removed.
		m.skip = int64(delay + mp3Delay)
		info.Frames = max(info.Frames-int64(delay+max(padding, mp3Delay)), 0)
	}
	return info, m, nil
}

// mp3Tag reads the encoder's tag in the first frame: the number of frames that follow, and the numbers of samples
// added at both ends.
func mp3Tag(b []byte, f *csound.MP3Frame) (frames, delay, padding int, tagged, trimmed bool) {
	if len(b) < f.Bytes() || f.Tag()+8 > f.Bytes() {
		return 0, 0, 0, false, false
	}
	t := b[f.Tag():f.Bytes()]
	if string(t[:4]) != "Xing" && string(t[:4]) != "Info" {
		return 0, 0, 0, false, false
	}
	flags := binary.BigEndian.Uint32(t[4:])
	t = t[8:]
	for bit, size := range []int{4, 4, 100, 4} {
		if flags>>bit&1 == 0 {
			continue
		}
		if len(t) < size {
			return frames, 0, 0, true, false
		}
		if bit == 0 {
			frames = int(binary.BigEndian.Uint32(t))
		}
		t = t[size:]
	}
	if len(t) < 24 || t[0] == 0 {
		return frames, 0, 0, true, false
	}
	v := int(t[21])<<16 | int(t[22])<<8 | int(t[23])
	return frames, v >> 12, v & 0xfff, true, true
}

// mp3Before is the number of extra frames to decode before the requested ones, because each frame depends on the
// previous one. mp3Feed is the number of frames before those that may contain some of their bytes.
const (
	mp3Before = 3
	mp3Feed   = 40
)

func (m *mp3) decode(d *Decoder, dst []float32, stride int, from, n int64) error {
	if d.mp3 == nil {
		lib, err := csound.NewMP3()
		if err != nil {
			return err
		}
		d.mp3 = lib
	}
	d.mp3.Reset()
	per := int64(m.frame.Samples())
	if cap(d.wave) < m.frame.Channels()*m.frame.Samples() {
		d.wave = make([]float32, m.frame.Channels()*m.frame.Samples())
	}
	wave := d.wave[:m.frame.Channels()*m.frame.Samples()]
	from += m.skip
	first := int(from / per)
	done := int64(0)
	for k := max(first-mp3Before-mp3Feed, 0); done < n; k++ {
		if k >= len(m.places) {
			// The last samples are in the decoder only when a frame follows: silence.
			for c := range m.frame.Channels() {
				clear(dst[int64(c*stride)+done : int64(c*stride)+n])
			}
			return nil
		}
		at := m.places[k]
		f, _ := csound.ParseMP3(m.b[at:])
		b := d.copied(m.b[at : at+f.Bytes()])
		if k < first-mp3Before {
			_ = d.mp3.Decode(b, &f, nil, 0)
			continue
		}
		err := d.mp3.Decode(b, &f, wave, int(per))
		if k < first {
			continue
		}
		if err != nil {
			return fmt.Errorf("the frame at offset %d: %w", at, err)
		}
		lo := max(from+done-int64(k)*per, 0)
		take := min(per-lo, n-done)
		for c := range m.frame.Channels() {
			copy(dst[int64(c*stride)+done:int64(c*stride)+done+take], wave[int64(c)*per+lo:])
		}
		done += take
	}
	return nil
}
