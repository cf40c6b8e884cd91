package audio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/csound"
)

// flac is a FLAC file (RFC 9639).
type flac struct {
	s      csound.FLAC
	frames []byte // from the first one on
	offset int    // of frames in the file
	total  int64  // samples
	points []seekPoint
}

// seekPoint is the offset of the frame that contains a sample, counted from the first frame.
type seekPoint struct{ sample, offset int64 }

func openFLAC(b []byte) (Info, recording, error) {
	info := Info{Format: "flac"}
	f := &flac{}
	at, minBlock := tags(b)+4, 0
	for last := false; !last; {
		if at+4 > len(b) {
			return info, nil, fmt.Errorf("flac: the metadata do not end in %d bytes: the file is cut off", len(b))
		}
		head := binary.BigEndian.Uint32(b[at:])
		last = head>>31 == 1
		kind, size := int(head>>24&0x7f), int(head&0xffffff)
		if size > len(b)-at-4 {
			return info, nil, fmt.Errorf("flac: the metadata at offset %d have %d bytes, of which %d are there: the file is cut off", at, size, len(b)-at-4)
		}
		body := b[at+4 : at+4+size]
		switch {
		case kind == 0 && size < 34:
			return info, nil, fmt.Errorf("flac: STREAMINFO at offset %d has %d bytes, expected 34: the file is damaged", at, size)
		case kind == 0 && f.s.MaxBlock == 0:
			minBlock = int(binary.BigEndian.Uint16(body))
			v := binary.BigEndian.Uint64(body[10:])
			f.s = csound.FLAC{
				MaxBlock: int(binary.BigEndian.Uint16(body[2:])), Rate: int(v >> 44),
				Channels: int(v>>41&7) + 1, Bits: int(v>>36&31) + 1,
			}
			f.total = int64(v & (1<<36 - 1))
			if f.s.MaxBlock < 1 || f.s.Bits < 4 {
				return info, nil, fmt.Errorf("flac: STREAMINFO says blocks of up to %d samples of %d bits: the file is damaged", f.s.MaxBlock, f.s.Bits)
			}
		case kind == 3:
			f.seekTable(body)
		}
		at += 4 + size
	}
	if f.s.MaxBlock == 0 {
		return info, nil, errors.New("flac: the metadata have no STREAMINFO: the file is damaged")
	}
	f.frames, f.offset = b[at:], at
	f.settle(minBlock)
	if f.total == 0 {
		f.total = f.count()
	}
	// A frame of 65,535 samples that are all the same takes a dozen bytes.
	if most := int64(len(f.frames)/10+1) * int64(f.s.MaxBlock); f.total > most {
		return info, nil, fmt.Errorf("flac: STREAMINFO says %d samples, more than %d bytes can hold: the file is damaged or cut off", f.total, len(f.frames))
	}
	info.Rate, info.Channels, info.Frames = f.s.Rate, f.s.Channels, f.total
	info.Encoding = fmt.Sprintf("%d bit", f.s.Bits)
	return info, f, nil
}

// settle corrects the values of STREAMINFO with the header of the first frame. Decoders that read from the start
// never notice a wrong STREAMINFO.
func (f *flac) settle(minBlock int) {
	f.s.Unit = f.s.MaxBlock
	block, bits, variable, ok := f.s.First(slices.Clone(f.frames[:min(32, len(f.frames))]))
	if !ok {
		return
	}
	old := minBlock != f.s.MaxBlock && !variable
	f.s.Unit, f.s.MaxBlock = block, max(f.s.MaxBlock, block)
	if bits > 0 {
		f.s.Bits = bits
	}
	if old && f.samplesCounted(block) {
		f.s.Unit = 1
	}
}

// samplesCounted reports whether the second frame has the number of its first sample. Encoders before
// FLAC 1.2 did not mark files whose frames differ in size.
func (f *flac) samplesCounted(block int) bool {
	var d Decoder
	part := d.copied(f.frames[:min(f.frameBytes(), len(f.frames))])
	room, out := make([]int32, f.s.Channels*f.s.MaxBlock), make([]float32, f.s.Channels)
	_, place, err := f.s.Decode(part, 0, room, 0, 1, out, 1)
	if err != nil {
		return false
	}
	s := f.s
	s.Unit = 1
	at, number, _, ok := s.Find(d.copied(f.frames[place:min(place+32, len(f.frames))]), 0)
	return ok && at == 0 && number == int64(block)
}

// frameBytes returns the size of a frame that is not compressed. A frame is hardly ever larger.
func (f *flac) frameBytes() int {
	return f.s.MaxBlock*f.s.Channels*(f.s.Bits+7)/8 + 64*f.s.Channels
}

// seekTable reads a SEEKTABLE and ignores invalid entries.
func (f *flac) seekTable(b []byte) {
	for ; len(b) >= 18; b = b[18:] {
		p := seekPoint{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}
		if p.sample < 0 || p.offset < 0 || len(f.points) > 0 && p.sample <= f.points[len(f.points)-1].sample {
			continue // reserved entries are -1
		}
		f.points = append(f.points, p)
	}
}

// count finds the number of samples from the last frame if STREAMINFO does not have it.
func (f *flac) count() (total int64) {
	window := 4 << 10
	for window < 2*len(f.frames) {
		at := max(0, len(f.frames)-window)
		for at < len(f.frames) {
			p, sample, block, ok := f.find(at)
			if !ok {
				break
			}
			total = max(total, sample+block)
			at = p + 6
		}
		if total > 0 {
			return total
		}
		window *= 4
	}
	return total
}

// find searches for the header of a frame from an offset on.
func (f *flac) find(at int) (place int, sample, block int64, ok bool) {
	for at < len(f.frames) {
		// The data is copied in pieces, because C must not read mapped files.
		end := min(at+64<<10, len(f.frames))
		piece := append(make([]byte, 0, end-at), f.frames[at:end]...)
		if p, sample, block, ok := f.s.Find(piece, 0); ok {
			return at + p, sample, block, true
		}
		if end == len(f.frames) {
			break
		}
		at = end - 16 // a header may lie across
	}
	return 0, 0, 0, false
}

// near finds a frame that begins at sample from or shortly before it, by binary search for frames.
func (f *flac) near(from int64) int {
	lo, hi := int64(0), int64(len(f.frames))
	for _, p := range f.points {
		if p.sample <= from && p.offset < hi {
			if at, sample, _, ok := f.find(int(p.offset)); ok && int64(at) == p.offset && sample == p.sample {
				lo = max(lo, p.offset)
			}
		}
	}
	for hi-lo > 32<<10 {
		mid := lo + (hi-lo)/2
		at, sample, _, ok := f.find(int(mid))
		if ok && int64(at) < hi && sample <= from {
			lo = int64(at)
		} else {
			hi = mid
		}
	}
	return int(lo)
}

// pieceBytes is the approximate size of a piece that is copied and decoded.
const pieceBytes = 256 << 10

func (f *flac) decode(d *Decoder, dst []float32, stride int, from, n int64) error {
	place, err := f.seek(d, dst, stride, from, n)
	if errors.Is(err, csound.ErrDamaged) && f.s.MaxBlock < csound.MaxBlock {
		f.s.MaxBlock = csound.MaxBlock // a later frame may have more samples than in STREAMINFO
		place, err = f.seek(d, dst, stride, from, n)
	}
	if err != nil {
		return fmt.Errorf("the frame at offset %d: %w", f.offset+place, err)
	}
	return nil
}

// seek decodes from a frame near from on, or from the first one if that fails.
func (f *flac) seek(d *Decoder, dst []float32, stride int, from, n int64) (place int, err error) {
	room := d.ints(f.s.Channels * f.s.MaxBlock)
	at := 0
	if from > int64(4*f.s.MaxBlock) {
		at = f.near(from)
	}
	place, err = f.run(d, room, at, dst, stride, from, n)
	if err != nil && at > 0 { // the match was not a frame
		place, err = f.run(d, room, 0, dst, stride, from, n)
	}
	return place, err
}

// run decodes frames from at on.
func (f *flac) run(d *Decoder, room []int32, at int, dst []float32, stride int, from, n int64) (place int, err error) {
	frame := f.frameBytes()
	for done := int64(0); done < n; {
		part := f.frames[at:min(at+pieceBytes+2*frame, len(f.frames))]
		if len(part) == 0 {
			return at, csound.ErrCut
		}
		got, place, err := f.s.Decode(d.copied(part), 0, room, from+done, n-done, dst[done:], stride)
		done += got
		at += place
		if err != nil && (place == 0 || at+len(part)-place == len(f.frames)) {
			return at, err
		}
	}
	return at, nil
}
