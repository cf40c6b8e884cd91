package audio

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/internal/csound"
)

// An Ogg file consists of pages of a few kilobytes, each with a checksum. Pages hold packets in segments of up to 255
// bytes, and a packet may continue in the next page.

// page is the header of a page.
type page struct {
	flags   byte
	granule int64
	serial  uint32
	lacing  []byte
	body    []byte
	size    int
	sum     uint32
}

const (
	pageContinued = 1
	pageFirst     = 2
	pageLast      = 4
)

// readPage reads the page at b[at:].
func readPage(b []byte, at int) (p page, err error) {
	if at+27 > len(b) {
		return p, fmt.Errorf("the page at offset %d: %w", at, csound.ErrCut)
	}
	h := b[at:]
	if string(h[:4]) != "OggS" || h[4] != 0 {
		return p, fmt.Errorf("there is no page at offset %d: the file is damaged", at)
	}
	n := int(h[26])
	if 27+n > len(h) {
		return p, fmt.Errorf("the page at offset %d: %w", at, csound.ErrCut)
	}
	p = page{flags: h[5], granule: int64(binary.LittleEndian.Uint64(h[6:])), serial: binary.LittleEndian.Uint32(h[14:]), sum: binary.LittleEndian.Uint32(h[22:]), lacing: h[27 : 27+n]}
	total := 0
	for _, s := range p.lacing {
		total += int(s)
	}
	if 27+n+total > len(h) {
		return p, fmt.Errorf("the page at offset %d: %w", at, csound.ErrCut)
	}
	p.body, p.size = h[27+n:27+n+total], 27+n+total
	return p, nil
}

// oggTable has the checksums of bytes that are followed by k bytes.
var oggTable = func() (t [8][256]uint32) {
	for i := range 256 {
		c := uint32(i) << 24
		for range 8 {
			if c>>31 == 1 {
				c = c<<1 ^ 0x04c11db7
			} else {
				c <<= 1
			}
		}
		t[0][i] = c
	}
	for k := 1; k < 8; k++ {
		for i := range 256 {
			t[k][i] = t[k-1][i]<<8 ^ t[0][t[k-1][i]>>24]
		}
	}
	return t
}()

func oggSum(c uint32, b []byte) uint32 {
	for len(b) >= 8 {
		c ^= binary.BigEndian.Uint32(b)
		c = oggTable[7][c>>24] ^ oggTable[6][c>>16&255] ^ oggTable[5][c>>8&255] ^ oggTable[4][c&255] ^
			oggTable[3][b[4]] ^ oggTable[2][b[5]] ^ oggTable[1][b[6]] ^ oggTable[0][b[7]]
		b = b[8:]
	}
	for _, v := range b {
		c = c<<8 ^ oggTable[0][byte(c>>24)^v]
	}
	return c
}

// check compares the checksum of the page at b[at:].
func (p *page) check(b []byte, at int) error {
	h := b[at : at+p.size]
	sum := oggSum(oggSum(oggSum(0, h[:22]), []byte{0, 0, 0, 0}), h[26:])
	if sum != p.sum {
		return fmt.Errorf("the page at offset %d: %w", at, csound.ErrChecksum)
	}
	return nil
}

// stream is the pages of one stream of an Ogg file.
type stream struct {
	b      []byte
	serial uint32
	first  int // the page in which the sound begins
}

// packets reads the pages, starting with the one at offset at. f gets each page, with the packets that end in it.
// data has the bytes of the packets, one after the other. packets stops when f returns false or after the stream's
// last page.
func (s *stream) packets(at int, data []byte, f func(p *page, next int, data []byte, sizes []int32) bool) error {
	var sizes []int32
	started, open := false, int32(0)
	begin := 0 // of the packet that is open
	for at < len(s.b) {
		p, err := readPage(s.b, at)
		if err != nil {
			return err
		}
		if p.serial != s.serial {
			if p.flags&pageFirst != 0 && started {
				return fmt.Errorf("at offset %d another stream begins: several recordings in one file are not supported", at)
			}
			at += p.size
			continue
		}
		if err := p.check(s.b, at); err != nil {
			return err
		}
		if !started && p.flags&pageContinued != 0 || started && (p.flags&pageContinued != 0) != (open > 0 || begin < len(data)) {
			return fmt.Errorf("the page at offset %d does not go on with the one before: the file is damaged", at)
		}
		started = true
		data = append(data, p.body...)
		for _, n := range p.lacing {
			open += int32(n)
			if n < 255 {
				sizes = append(sizes, open)
				begin += int(open)
				open = 0
			}
		}
		at += p.size
		if !f(&p, at, data[:begin], sizes) || p.flags&pageLast != 0 {
			return nil
		}
	}
	return nil
}

// openOgg reads the headers of the first stream of sound.
func openOgg(d *Decoder, b []byte) (Info, recording, error) {
	info := Info{Format: "ogg"}
	for at := 0; at < len(b); {
		p, err := readPage(b, at)
		if err != nil {
			return info, nil, fmt.Errorf("ogg: %w", err)
		}
		if p.flags&pageFirst == 0 {
			break
		}
		s := &stream{b: b, serial: p.serial}
		switch {
		case bytes.HasPrefix(p.body, []byte("\x01vorbis")):
			info.Format = "vorbis"
			v := &vorbis{s: s}
			if err := v.open(d, at, &info); err != nil {
				return info, nil, fmt.Errorf("vorbis: %w", err)
			}
			return info, v, nil
		case bytes.HasPrefix(p.body, []byte("OpusHead")):
			info.Format = "opus"
			o := &opus{s: s}
			if err := o.open(at, &info); err != nil {
				return info, nil, fmt.Errorf("opus: %w", err)
			}
			return info, o, nil
		}
		at += p.size
	}
	return info, nil, fmt.Errorf("ogg: neither Vorbis nor Opus: %w", errNotNative)
}

// headers reads n packets from the page at. After them, sound begins in a new page.
func (s *stream) headers(at, n int) ([][]byte, error) {
	var packets [][]byte
	var data []byte
	var sizes []int32
	err := s.packets(at, nil, func(_ *page, next int, d []byte, sz []int32) bool {
		data, sizes, s.first = d, sz, next
		return len(sz) < n
	})
	if err != nil {
		return nil, err
	}
	if len(sizes) != n {
		return nil, fmt.Errorf("it has %d of %d headers: %w", len(sizes), n, csound.ErrDamaged)
	}
	for _, size := range sizes {
		packets = append(packets, data[:size])
		data = data[size:]
	}
	return packets, nil
}

// lastGranule returns the position of the last page that has one.
func (s *stream) lastGranule() int64 {
	for at := len(s.b); at > s.first; {
		at = bytes.LastIndex(s.b[:at], []byte("OggS"))
		if at < s.first {
			break
		}
		if p, err := readPage(s.b, at); err == nil && p.serial == s.serial && p.granule >= 0 && p.check(s.b, at) == nil {
			return p.granule
		}
	}
	return -1
}

// firstPage returns the packets of the pages up to the first one that has a position,
// and that page.
func (s *stream) firstPage() (packets csound.Packets, granule int64, last bool, err error) {
	granule = -1
	err = s.packets(s.first, nil, func(p *page, _ int, data []byte, sizes []int32) bool {
		packets = csound.Packets{Data: data, Sizes: sizes}
		granule, last = p.granule, p.flags&pageLast != 0
		return granule < 0
	})
	return packets, granule, last, err
}

// bounds computes the position of the recording in the decoded samples: skip samples are left out at the start, and
// the recording has n samples. have is the number of samples up to the first page with a position.
func bounds(have, granule, last int64, only bool) (skip, n int64) {
	if last < 0 {
		return 0, 0
	}
	if granule < have && !only {
		skip = have - granule
	}
	begin := max(granule-have, 0) // the recording may be a part of a longer one
	return skip, max(last-begin, 0)
}
