package audio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/stokerdata/stoker/internal/csound"
)

// vorbis is a Vorbis stream in Ogg.
type vorbis struct {
	s         *stream
	id, setup []byte
	skip      int64
}

func (v *vorbis) open(d *Decoder, at int, info *Info) error {
	h, err := v.s.headers(at, 3)
	if err != nil {
		return err
	}
	v.id, v.setup = h[0], h[2]
	if len(v.id) < 30 || !bytes.HasPrefix(v.setup, []byte("\x05vorbis")) {
		return fmt.Errorf("its headers: %w", csound.ErrDamaged)
	}
	info.Channels, info.Rate = int(v.id[11]), int(binary.LittleEndian.Uint32(v.id[12:]))
	if info.Channels < 1 || info.Channels > MaxChannels || info.Rate < 1 || info.Rate > MaxRate {
		return fmt.Errorf("%d channels of %d Hz: %w", info.Channels, info.Rate, csound.ErrDamaged)
	}
	lib, err := d.vorbisFor(v)
	if err != nil {
		return fmt.Errorf("its headers: %w", err)
	}
	first, granule, only, err := v.s.firstPage()
	if err != nil {
		return err
	}
	ends := vorbisEnds(lib, &first)
	have := int64(0)
	if len(ends) > 0 {
		have = ends[len(ends)-1]
	}
	v.skip, info.Frames = bounds(have, granule, v.s.lastGranule(), only)
	return nil
}

// vorbisFor returns the library's decoder for the headers of v: making one takes
// longer than decoding seconds of sound, and most files of a data set have the same.
func (d *Decoder) vorbisFor(v *vorbis) (*csound.Vorbis, error) {
	if d.vorbis != nil && bytes.Equal(d.vorbisID, v.id) && bytes.Equal(d.vorbisSetup, v.setup) {
		return d.vorbis, nil
	}
	if d.vorbis != nil {
		d.vorbis.Close()
		d.vorbis = nil
	}
	lib, err := csound.NewVorbis(v.id, v.setup)
	if err != nil {
		return nil, err
	}
	d.vorbis, d.vorbisID, d.vorbisSetup = lib, v.id, v.setup
	return lib, nil
}

// vorbisEnds returns the number of samples after decoding each of the packets. Each packet except the first adds a
// quarter of its own block and of the previous one.
func vorbisEnds(lib *csound.Vorbis, p *csound.Packets) []int64 {
	blocks, ends := make([]int32, len(p.Sizes)), make([]int64, len(p.Sizes))
	lib.Blocks(p, blocks)
	total, before := int64(0), int64(0)
	for i, b := range blocks {
		if b > 0 {
			if before > 0 {
				total += (before + int64(b)) / 4
			}
			before = int64(b)
		}
		ends[i] = total
	}
	return ends
}

func (v *vorbis) decode(d *Decoder, dst []float32, stride int, from, n int64) error {
	lib, err := d.vorbisFor(v)
	if err != nil {
		return err
	}
	p, err := v.s.all(d)
	if err != nil {
		return err
	}
	ends := vorbisEnds(lib, &p)
	from += v.skip
	// The first decoded packet gives no samples alone. The samples after its end depend only on it and the next
	// packet.
	k := max(sort.Search(len(ends), func(i int) bool { return ends[i] > from })-1, 0)
	begin := int64(0)
	if len(ends) > 0 {
		begin = ends[k]
	}
	for _, size := range p.Sizes[:k] {
		p.Data = p.Data[size:]
	}
	p.Sizes = p.Sizes[k:]
	done, err := lib.Decode(&p, from-begin, n, dst, stride)
	if err == nil && done < n {
		err = fmt.Errorf("there are %d of %d samples: %w", from+done-v.skip, from+n-v.skip, csound.ErrCut)
	}
	return err
}

// all returns all packets of the stream, in memory of the decoder.
func (s *stream) all(d *Decoder) (csound.Packets, error) {
	p := csound.Packets{Sizes: d.sizes[:0]}
	err := s.packets(s.first, d.copied(nil), func(_ *page, _ int, data []byte, sizes []int32) bool {
		p = csound.Packets{Data: data, Sizes: sizes}
		return true
	})
	if cap(p.Data) > cap(d.block) {
		d.block = p.Data[:0]
	}
	d.sizes = p.Sizes
	return p, err
}
