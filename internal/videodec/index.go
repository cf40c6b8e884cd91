package videodec

// #include "videodec.h"
import "C"

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/stokerdata/stoker/internal/video"
)

// Index reads the index of a file of video. A container or codec that package video does not read is read through
// FFmpeg's libraries.
func Index(ctx context.Context, in video.Input) (*video.Index, error) {
	x, err := video.Open(ctx, in)
	if !errors.Is(err, video.ErrUnsupported) {
		return x, err
	}
	if lacks := LoadFormat(); lacks != nil {
		return nil, fmt.Errorf("%w, and %w; or convert it: ffmpeg -i IN OUT.mp4", err, lacks)
	}
	x, ferr := through(ctx, in)
	if ferr != nil {
		return nil, fmt.Errorf("%w (FFmpeg: %w)", err, ferr)
	}
	return x, nil
}

// For a file that libavformat reads, the visible frames and their order are not known in advance. The reasons are
// fields, packed B-frames, frames that lack others, and missing times. The file is therefore decoded once.

// listing collects the packets of a stream.
type listing struct {
	in     *blocks
	d      *demuxer
	stream video.Stream
	found  []video.Found
	times  [][2]int64 // pts and dts
	order  []int32    // packets, as their frames come out
	seen   []bool     // packets whose frame has come out
	begin  int64      // offset of the last packet
	at     int64      // offset of its end
	held   int        // bytes of packets that were not found
}

const noTime = math.MinInt64

func through(ctx context.Context, in video.Input) (*video.Index, error) {
	l := &listing{in: &blocks{ctx: ctx, in: in, size: in.Size()}}
	var err error
	if l.d, err = demux(nil, l.in, in.Size(), mediaVideo); err != nil {
		return nil, l.in.or(err)
	}
	defer l.d.close()
	l.describe()
	if err := l.packets(ctx); err != nil {
		return nil, l.in.or(err)
	}
	return l.index()
}

// describe sets the properties that decoders need.
func (l *listing) describe() {
	s := &l.d.stream
	l.stream = video.Stream{
		Codec: video.Coded(C.GoString(&s.codec[0]), uint32(s.tag), int(s.bits)), Width: int(s.width), Height: int(s.height), Matrix: video.MatrixUnknown,
		Config: C.GoBytes(unsafe.Pointer(s.config), C.int(s.config_size)),
	}
	if s.turned != 0 {
		m := [4]int32{int32(s.matrix[0]), int32(s.matrix[1]), int32(s.matrix[3]), int32(s.matrix[4])}
		for i := range m {
			m[i] /= 1 << 16
		}
		l.stream.Rotation = map[[4]int32]int{{0, 1, -1, 0}: 90, {-1, 0, 0, -1}: 180, {0, -1, 1, 0}: 270}[m]
	}
}

// packets reads and decodes all packets.
func (l *listing) packets(ctx context.Context) error {
	dec, err := New(&l.stream)
	if err != nil {
		return err
	}
	defer dec.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		ok, err := l.d.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		p := &l.d.packet
		if p.size <= 0 {
			continue
		}
		if len(l.found) == video.MaxFrames {
			return fmt.Errorf("it has more than %d packets", video.MaxFrames)
		}
		data := unsafe.Slice((*byte)(unsafe.Pointer(p.data)), int(p.size))
		parts, err := l.find(data, int64(p.pos))
		if err != nil {
			return err
		}
		f := video.Found{Frame: video.Frame{Size: uint32(p.size), Key: p.key != 0}}
		switch {
		case parts == nil:
			f.Offset = max(min(l.at, l.in.size-int64(p.size)), 0)
			f.Held = slices.Clone(data)
			if l.held += len(data); l.held > mostHeld {
				return errors.New("too many of its packets are not stored contiguously in the file: ffmpeg -i IN OUT.mp4 makes a file that can be read")
			}
		case len(parts) > 1 || parts[0].Count > 1:
			f.Parts = parts
			f.Offset = parts[0].Offset
		default:
			f.Offset = parts[0].Offset
		}
		n := int64(len(l.found))
		l.found, l.times, l.seen = append(l.found, f), append(l.times, [2]int64{int64(p.pts), int64(p.dts)}), append(l.seen, false)
		// A packet that cannot be decoded gives an error when its frame is requested.
		if dec.Send(data, n, false) == nil {
			l.frames(dec)
		}
	}
	if dec.End() == nil {
		l.frames(dec)
	}
	if len(l.order) == 0 {
		return errors.New("none of its frames can be decoded")
	}
	return nil
}

// frames notes the frames that come out.
func (l *listing) frames(dec *Decoder) {
	for {
		f, ok, err := dec.Receive()
		if !ok && err == nil {
			return
		}
		if err != nil && f.Width == 0 {
			return
		}
		if n := f.PTS; n >= 0 && n < int64(len(l.seen)) && !l.seen[n] {
			l.seen[n] = true
			l.order = append(l.order, int32(n))
		}
		if len(l.order) == 1 {
			l.stream.Width, l.stream.Height = f.Width, f.Height
		}
	}
}

// index returns the index of the frames found.
func (l *listing) index() (*video.Index, error) {
	num, den := int64(l.d.stream.num), int64(l.d.stream.den)
	times := l.shown(func(n int32) int64 { return l.times[n][0] })
	if times == nil {
		times = l.shown(nil)
	}
	if times == nil || num < 1 || den < 1 { // the rate is unknown
		num, den = 1, 25
		times = make([]int64, len(l.order))
		for i := range times {
			times[i] = int64(i)
		}
	}
	for i := range l.found {
		l.found[i].Hidden = !l.seen[i]
	}
	for i, n := range l.order {
		l.found[n].PTS = times[i] * num
	}
	// Frames that do not come out are as late as those around them: key frames are looked for by time.
	for i := range l.found {
		if l.found[i].Hidden && i > 0 {
			l.found[i].PTS = l.found[i-1].PTS
		}
	}
	return video.New(&l.stream, "container of FFmpeg", den, l.found, l.in.size)
}

// shown returns the times of the frames in the order of output. The times are those of the packets, or without of the
// decoding times, because some containers have only those. It returns nil if the times do not grow.
func (l *listing) shown(of func(n int32) int64) []int64 {
	out := make([]int64, len(l.order))
	for i, n := range l.order {
		if of != nil {
			out[i] = of(n)
		} else {
			out[i] = l.times[n][1]
		}
	}
	if of == nil {
		slices.Sort(out)
	}
	for i, t := range out {
		if t == noTime || i > 0 && t <= out[i-1] {
			return nil
		}
	}
	return out
}

// The location of a packet is found by its bytes. The search starts at the demuxer's position, or at the end of the
// previous packet. A packet is in one piece, or in pieces with headers of the container between them. The bytes of
// all pieces found are compared.

const (
	anchor   = 16       // bytes that must be equal at the start of a piece
	nearest  = 512      // from one piece to the next: the head of a packet of the container
	packet   = 8 << 10  // with a packet of another stream between them
	near     = 64 << 10 // with several
	farthest = 4 << 20
	mostHeld = 64 << 20
)

// find returns the location of data in the file, nil if not found. Bytes that match too early or too late, such as
// padding, can hide those of the next packet, so earlier positions are also tried.
func (l *listing) find(data []byte, pos int64) ([]video.Parts, error) {
	for _, at := range []int64{max(l.at, pos), l.at, pos, l.begin} {
		if at < 0 {
			continue
		}
		parts, end, err := l.match(data, at)
		if err != nil {
			return nil, err
		}
		if parts != nil {
			l.begin, l.at = parts[0].Offset, end
			return parts, nil
		}
	}
	return nil, nil
}

// match returns the locations of data from an offset on, and their end. The result is nil if not all of the data is
// found.
func (l *listing) match(data []byte, at int64) (parts []video.Parts, end int64, err error) {
	for done := 0; done < len(data); {
		place, n, err := l.piece(data[done:], at)
		if err != nil || n == 0 {
			return nil, 0, err
		}
		parts = add(parts, place, n)
		done, at = done+n, place+int64(n)
	}
	return parts, at, nil
}

// piece finds the next piece of data from an offset on. n is 0 if there is none. The bytes of a frame often also
// occur in the frames before and after, so the nearest match has priority.
func (l *listing) piece(data []byte, at int64) (place int64, n int, err error) {
	if n, err = l.equal(data, at); err != nil || n >= min(anchor, len(data)) {
		return at, n, err
	}
	for _, try := range []struct {
		bytes int
		most  int64
	}{{anchor, nearest}, {0, 0}, {8, nearest}, {4, nearest}, {8, packet}, {anchor, near}, {8, near}, {anchor, farthest}, {4, near}, {2, near}, {1, near}} {
		if try.bytes == 0 {
			if n > 0 {
				return at, n, nil
			}
			continue
		}
		if place, err = l.search(data[:min(try.bytes, len(data))], at, try.most); err != nil {
			return 0, 0, err
		}
		if place >= 0 {
			n, err = l.equal(data, place)
			return place, n, err
		}
	}
	return 0, 0, nil
}

// equal returns the number of bytes of data that match at an offset.
func (l *listing) equal(data []byte, at int64) (n int, err error) {
	for n < len(data) && at+int64(n) < l.in.size {
		b, err := l.in.block(at + int64(n))
		if err != nil {
			return 0, err
		}
		b = b[:min(len(b), len(data)-n)]
		if !bytes.Equal(b, data[n:n+len(b)]) {
			for i := range b {
				if b[i] != data[n+i] {
					return n + i, nil
				}
			}
		}
		n += len(b)
	}
	return n, nil
}

// search returns the next position of some bytes, within most bytes, or -1.
func (l *listing) search(want []byte, at, most int64) (int64, error) {
	for end := min(at+most, l.in.size); at < end; {
		b, err := l.in.block(at)
		if err != nil {
			return -1, err
		}
		if i := bytes.Index(b, want); i >= 0 {
			return at + int64(i), nil
		}
		// The bytes may begin at the end of this block.
		for at += max(int64(len(b)-len(want)+1), 0); len(b) >= 1 && at%blockBytes != 0 && at < end; at++ {
			if n, err := l.equal(want, at); err != nil || n == len(want) {
				return at, err
			}
		}
	}
	return -1, nil
}

// add appends a piece to parts.
func add(parts []video.Parts, at int64, n int) []video.Parts {
	if k := len(parts) - 1; k >= 0 {
		p := &parts[k]
		stride := at - p.Offset
		if p.Count > 1 {
			stride = int64(p.Stride)
		}
		if int64(p.Size) == int64(n) && stride < math.MaxUint32 && at == p.Offset+stride*int64(p.Count) {
			p.Stride = uint32(stride)
			p.Count++
			return parts
		}
	}
	return append(parts, video.Parts{Offset: at, Size: uint32(n), Count: 1})
}

// blocks reads a file in blocks, of which the last ones are kept: the demuxer and the listing read the same.
type blocks struct {
	ctx  context.Context
	in   video.Input
	size int64
	held [heldBlocks]struct {
		n int64 // plus one
		b []byte
	}
	next int
	err  error // of the input
}

const (
	blockBytes = 1 << 20
	heldBlocks = 6
)

// or returns the error of the input, or else err, which is then FFmpeg's.
func (r *blocks) or(err error) error {
	if r.err != nil {
		return r.err
	}
	return err
}

// block returns the bytes from an offset to the end of its block.
func (r *blocks) block(at int64) ([]byte, error) {
	n := at / blockBytes
	for i := range r.held {
		if h := &r.held[i]; h.n == n+1 {
			return h.b[at-n*blockBytes:], nil
		}
	}
	h := &r.held[r.next]
	r.next = (r.next + 1) % heldBlocks
	h.n = 0
	size := min(blockBytes, r.size-n*blockBytes)
	if int64(cap(h.b)) < size {
		h.b = make([]byte, size)
	}
	h.b = h.b[:size]
	if err := r.in.ReadAt(r.ctx, h.b, n*blockBytes); err != nil {
		r.err = err
		return nil, err
	}
	h.n = n + 1
	return h.b[at-n*blockBytes:], nil
}

func (r *blocks) read(p []byte, off int64) error {
	for len(p) > 0 {
		b, err := r.block(off)
		if err != nil {
			return err
		}
		n := copy(p, b)
		p, off = p[n:], off+int64(n)
	}
	return nil
}
