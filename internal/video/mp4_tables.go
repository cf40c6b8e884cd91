package video

import (
	"errors"
	"fmt"
	"math"
)

// tables makes frames of the tables of a track.
func (t *mp4Track) tables() error {
	part := map[string][]byte{}
	err := boxes(t.stbl, func(kind string, b []byte) error {
		if _, ok := part[kind]; !ok {
			part[kind] = b
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.stsd(part["stsd"]); err != nil {
		return err
	}
	sizes, err := sampleSizes(part["stsz"], part["stz2"], t.size)
	if err != nil {
		return err
	}
	if sizes.n == 0 {
		return nil
	}
	t.x.Frames = make([]Frame, sizes.n)
	for i := range t.x.Frames {
		n := sizes.at(int64(i))
		if n > MaxFrameBytes {
			return fmt.Errorf("frame %d has %d bytes, more than the limit of %d", i, n, int64(MaxFrameBytes))
		}
		t.x.Frames[i].Size = n
	}
	if err := t.places(part["stsc"], part["stco"], part["co64"]); err != nil {
		return err
	}
	if err := t.times(part["stts"], part["ctts"]); err != nil {
		return err
	}
	return t.keys(part["stss"])
}

// table reads a box of entries of the same size, which follow version, flags and their number.
func table(name string, b []byte, entry int) (entries []byte, n int, err error) {
	if b == nil {
		return nil, 0, nil
	}
	if len(b) < 8 {
		return nil, 0, fmt.Errorf("its %s box is too short", name)
	}
	count := int64(be.Uint32(b[4:]))
	if count > int64(len(b)-8)/int64(entry) {
		return nil, 0, fmt.Errorf("its %s box says %d entries in %d bytes", name, count, len(b))
	}
	return b[8:], int(count), nil
}

// sampleTable has the sizes of frames.
type sampleTable struct {
	n    int64
	same uint32
	b    []byte
	bits int
}

func (s *sampleTable) at(i int64) uint32 {
	switch {
	case s.same > 0:
		return s.same
	case s.bits == 32:
		return be.Uint32(s.b[4*i:])
	case s.bits == 16:
		return uint32(be.Uint16(s.b[2*i:]))
	case s.bits == 8:
		return uint32(s.b[i])
	}
	return uint32(s.b[i/2]>>(4*(1-i%2))) & 15
}

func sampleSizes(stsz, stz2 []byte, size int64) (s sampleTable, err error) {
	b := stsz
	s.bits = 32
	if b == nil {
		b = stz2
	}
	if len(b) < 12 {
		return s, errors.New("it has no table of sizes (stsz)")
	}
	s.n, s.b = int64(be.Uint32(b[8:])), b[12:]
	if stsz != nil {
		s.same = be.Uint32(b[4:])
	} else if s.bits = int(b[7]); s.bits != 4 && s.bits != 8 && s.bits != 16 {
		return s, fmt.Errorf("its stz2 box has sizes of %d bits", s.bits)
	}
	switch {
	case s.n > MaxFrames:
		return s, tooMany(s.n)
	case s.same > 0 && s.n > size/int64(s.same):
		return s, fmt.Errorf("its index says %d frames of %d bytes, the file has %d bytes: it is cut off or damaged", s.n, s.same, size)
	case s.same == 0 && s.n > int64(len(s.b))*8/int64(s.bits):
		return s, fmt.Errorf("its table of sizes says %d frames in %d bytes", s.n, len(s.b))
	}
	return s, nil
}

// places computes the locations of frames, which are stored in chunks.
func (t *mp4Track) places(stsc, stco, co64 []byte) error {
	name, entry, table64 := "stco", 4, false
	where := stco
	if where == nil {
		name, entry, where, table64 = "co64", 8, co64, true
	}
	chunks, nchunks, err := table(name, where, entry)
	if err != nil {
		return err
	}
	runs, nruns, err := table("stsc", stsc, 12)
	if err != nil {
		return err
	}
	frame := 0
	for r := range nruns {
		e := runs[12*r:]
		first, each, which := int64(be.Uint32(e)), int64(be.Uint32(e[4:])), be.Uint32(e[8:])
		last := int64(nchunks)
		if r+1 < nruns {
			last = min(int64(be.Uint32(e[12:]))-1, last)
		}
		if first < 1 || last < first && r+1 < nruns {
			return fmt.Errorf("entry %d of its stsc box begins with chunk %d", r, first)
		}
		if which != 1 && last >= first {
			return unsupported{errors.New("its frames are of several descriptions, which is not read")}
		}
		for c := first; c <= last && frame < len(t.x.Frames); c++ {
			at := uint64(0)
			if table64 {
				at = be.Uint64(chunks[8*(c-1):])
			} else {
				at = uint64(be.Uint32(chunks[4*(c-1):]))
			}
			if at > uint64(t.size) {
				return fmt.Errorf("chunk %d lies at byte %d, the file has %d bytes: it is cut off", c, at, t.size)
			}
			for k := int64(0); k < each && frame < len(t.x.Frames); k++ {
				f := &t.x.Frames[frame]
				f.Offset = int64(at)
				at += uint64(f.Size)
				frame++
			}
		}
	}
	if frame < len(t.x.Frames) {
		return fmt.Errorf("its index says %d frames, and where %d of them lie", len(t.x.Frames), frame)
	}
	return nil
}

// times computes when frames are shown: the decoding time plus an offset.
func (t *mp4Track) times(stts, ctts []byte) error {
	b, n, err := table("stts", stts, 8)
	if err != nil {
		return err
	}
	frames := t.x.Frames
	frame, now := 0, int64(0)
	for i := range n {
		delta := int64(be.Uint32(b[8*i+4:]))
		if delta > math.MaxInt32 { // some writers mean a negative number
			delta = 1
		}
		for k := int64(be.Uint32(b[8*i:])); k > 0 && frame < len(frames); k-- {
			frames[frame].PTS = now
			now += delta
			frame++
		}
	}
	if frame < len(frames) {
		return fmt.Errorf("its index says %d frames, and the times of %d", len(frames), frame)
	}
	t.dts = now
	if b, n, err = table("ctts", ctts, 8); err != nil {
		return err
	}
	frame = 0
	for i := range n {
		shift := int64(int32(be.Uint32(b[8*i+4:])))
		for k := int64(be.Uint32(b[8*i:])); k > 0 && frame < len(frames); k-- {
			frames[frame].PTS += shift
			frame++
		}
	}
	return nil
}

// keys marks the frames at which decoding can start. Without a table, these are all frames.
func (t *mp4Track) keys(stss []byte) error {
	if stss == nil {
		for i := range t.x.Frames {
			t.x.Frames[i].Key = true
		}
		return nil
	}
	b, n, err := table("stss", stss, 4)
	if err != nil {
		return err
	}
	for i := range n {
		k := int64(be.Uint32(b[4*i:])) - 1
		if k < 0 || k >= int64(len(t.x.Frames)) {
			return fmt.Errorf("entry %d of its stss box is frame %d of %d", i, k+1, len(t.x.Frames))
		}
		t.x.Frames[k].Key = true
	}
	return nil
}

// codecs are the names of sample entries.
var codecs = map[string]string{
	"avc1": H264, "avc3": H264, "hvc1": HEVC, "hev1": HEVC, "av01": AV1, "vp09": VP9, "vp08": VP8,
	"mp4v": MPEG4, "jpeg": MJPEG, "mjpa": MJPEG, "MJPG": MJPEG,
}

// stsd reads the encoding of frames.
func (t *mp4Track) stsd(b []byte) error {
	if len(b) < 8 {
		return errors.New("it does not say how its video is encoded (stsd)")
	}
	first := true
	return boxes(b[8:], func(kind string, e []byte) error {
		if !first {
			return nil
		}
		first = false
		codec, ok := codecs[kind]
		switch {
		case kind == "encv":
			return errors.New("its video is encrypted")
		case !ok:
			return unsupported{fmt.Errorf("its video is encoded as %q; H.264, HEVC, AV1, VP9, VP8, MPEG-4 and MJPEG are read", kind)}
		case len(e) < 78:
			return errors.New("its stsd box is too short")
		}
		t.x.Codec = codec
		t.x.Width, t.x.Height = int(be.Uint16(e[24:])), int(be.Uint16(e[26:]))
		return boxes(e[78:], func(kind string, b []byte) error {
			switch kind {
			case "avcC", "hvcC", "av1C":
				t.x.Config = b
			case "esds":
				t.x.Config = decoderConfig(b)
				if object := objectType(b); object == 0x6c {
					t.x.Codec = MJPEG
				} else if object != 0x20 && object != 0 {
					return unsupported{fmt.Errorf("its video is of MPEG-4 object type 0x%02x; H.264, HEVC, AV1, VP9, VP8, MPEG-4 and MJPEG are read", object)}
				}
			case "colr":
				if len(b) >= 10 && (string(b[:4]) == "nclx" || string(b[:4]) == "nclc") {
					t.x.Matrix = Matrix(min(be.Uint16(b[8:]), 255))
					if string(b[:4]) == "nclx" && len(b) >= 11 {
						t.x.Range = RangeLimited + Range(b[10]>>7)
					}
				}
			}
			return nil
		})
	})
}

// descriptor reads the head of an MPEG-4 descriptor: its tag and its body.
func descriptor(b []byte) (tag byte, body []byte) {
	if len(b) < 2 {
		return 0, nil
	}
	n, i := 0, 1
	for ; i < len(b) && i < 5; i++ {
		n = n<<7 | int(b[i]&0x7f)
		if b[i]&0x80 == 0 {
			i++
			break
		}
	}
	if n > len(b)-i {
		n = len(b) - i
	}
	return b[0], b[i : i+n]
}

// config finds the description of a decoder in an esds box.
func config(esds []byte) []byte {
	if len(esds) < 4 {
		return nil
	}
	tag, b := descriptor(esds[4:])
	if tag == 3 && len(b) >= 3 {
		flags := b[2]
		b = b[3:]
		for _, skip := range []struct {
			bit byte
			n   int
		}{{0x80, 2}, {0x20, 2}} {
			if flags&skip.bit != 0 {
				b = b[min(skip.n, len(b)):]
			}
		}
		tag, b = descriptor(b)
	}
	if tag != 4 || len(b) < 13 {
		return nil
	}
	return b
}

func objectType(esds []byte) byte {
	if b := config(esds); b != nil {
		return b[0]
	}
	return 0
}

func decoderConfig(esds []byte) []byte {
	if b := config(esds); b != nil {
		if tag, c := descriptor(b[13:]); tag == 5 {
			return c
		}
	}
	return nil
}
