package audio

import (
	"encoding/binary"
	"fmt"
	"math"
)

// This file reads the containers of Apple, NeXT and Sun: AIFF, AIFF-C, CAF and AU.

// openAIFF reads AIFF and AIFF-C.
func openAIFF(b []byte) (Info, recording, error) {
	info := Info{Format: "aiff"}
	r, err := aiffChunks(b, &info)
	if err != nil {
		return info, nil, fmt.Errorf("aiff: %w", err)
	}
	return info, r, nil
}

func aiffChunks(b []byte, info *Info) (recording, error) {
	var p *pcm
	var data []byte
	frames := uint64(0)
	for at := uint64(12); p == nil || data == nil; {
		if at+8 > uint64(len(b)) {
			return nil, fmt.Errorf("the chunks COMM and SSND are not in %d bytes: the file is damaged or cut off", len(b))
		}
		id, size := string(b[at:at+4]), uint64(binary.BigEndian.Uint32(b[at+4:]))
		body := b[at+8:]
		if id == "SSND" && (size == 0 || size == unknownSize) && len(body) >= 8 {
			size = uint64(len(body)) // written to a pipe
		}
		if size > uint64(len(body)) {
			return nil, fmt.Errorf("the chunk %q at offset %d has %d bytes, of which %d are there: the file is damaged or cut off", id, at, size, len(body))
		}
		body = body[:size]
		switch id {
		case "COMM":
			var err error
			if p, frames, err = aiffCommon(body, string(b[8:12]) == "AIFC", info); err != nil {
				return nil, fmt.Errorf("the chunk COMM at offset %d: %w", at, err)
			}
		case "SSND":
			if size < 8 || uint64(binary.BigEndian.Uint32(body)) > size-8 {
				return nil, fmt.Errorf("the chunk SSND at offset %d is too short: %d bytes", at, size)
			}
			data = body[8+binary.BigEndian.Uint32(body):]
		}
		at += 8 + size + size&1
	}
	p.fill(info, data)
	if frames > uint64(info.Frames) {
		return nil, fmt.Errorf("%d samples, of which %d are there: the file is cut off", frames, info.Frames)
	}
	return p, nil
}

// aiffCommon reads the chunk COMM.
func aiffCommon(b []byte, compressed bool, info *Info) (p *pcm, frames uint64, err error) {
	if len(b) < 18 || compressed && len(b) < 22 {
		return nil, 0, fmt.Errorf("it is too short: %d bytes", len(b))
	}
	info.Channels = int(binary.BigEndian.Uint16(b))
	info.Rate = int(min(extended(b[8:]), MaxRate+1))
	kind, size := "NONE", (int(binary.BigEndian.Uint16(b[6:]))+7)/8
	if compressed {
		kind = string(b[18:22])
	}
	s, big := aiffSample(kind, size)
	if p, err = newPCM(s, info); err == errSample {
		return nil, 0, fmt.Errorf("samples of format %q with %d bits: %w", kind, 8*size, errNotNative)
	} else if err != nil {
		return nil, 0, err
	}
	p.swap = big
	return p, uint64(binary.BigEndian.Uint32(b[2:])), nil
}

// aiffSample returns how samples are stored, by the name of the compression.
func aiffSample(kind string, size int) (s sample, big bool) {
	switch kind {
	case "NONE", "twos":
		return signed(size), true
	case "sowt":
		return signed(size), false
	case "in24":
		return sampleS24, true
	case "in32":
		return sampleS32, true
	case "42ni", "42n1":
		return sampleS24, false
	case "23ni", "23n1":
		return sampleS32, false
	case "fl32", "FL32":
		return sampleF32, true
	case "fl64", "FL64":
		return sampleF64, true
	case "ulaw", "ULAW":
		return sampleMuLaw, true
	case "alaw", "ALAW":
		return sampleALaw, true
	case "raw ":
		if size == 1 {
			return sampleU8, true
		}
	}
	return sampleUnknown, true
}

// extended reads a number of 80 bits.
func extended(b []byte) float64 {
	e := int(binary.BigEndian.Uint16(b))
	v := math.Ldexp(float64(binary.BigEndian.Uint64(b[2:])), e&0x7fff-16383-63)
	if e&0x8000 != 0 || math.IsNaN(v) {
		return 0
	}
	return v
}

// openAU reads AU, of both byte orders.
func openAU(b []byte) (Info, recording, error) {
	info := Info{Format: "au"}
	order := binary.ByteOrder(binary.BigEndian)
	if string(b[:4]) == "dns." {
		order = binary.LittleEndian
	}
	if len(b) < 24 {
		return info, nil, fmt.Errorf("au: a file of %d bytes: it is cut off", len(b))
	}
	begin, size, kind := order.Uint32(b[4:]), order.Uint32(b[8:]), order.Uint32(b[12:])
	info.Rate, info.Channels = int(order.Uint32(b[16:])), int(min(order.Uint32(b[20:]), MaxChannels+1))
	kinds := map[uint32]sample{1: sampleMuLaw, 2: sampleS8, 3: sampleS16, 4: sampleS24, 5: sampleS32, 6: sampleF32, 7: sampleF64, 27: sampleALaw}
	p, err := newPCM(kinds[kind], &info)
	if err == errSample {
		return info, nil, fmt.Errorf("au: samples of format %d: %w", kind, errNotNative)
	} else if err != nil {
		return info, nil, fmt.Errorf("au: %w", err)
	}
	if begin < 24 || uint64(begin) > uint64(len(b)) {
		return info, nil, fmt.Errorf("au: the samples begin at byte %d of %d: the file is damaged or cut off", begin, len(b))
	}
	data := b[begin:]
	if size != unknownSize {
		if uint64(size) > uint64(len(data)) {
			return info, nil, fmt.Errorf("au: %d bytes of samples, of which %d are there: the file is cut off", size, len(data))
		}
		data = data[:size]
	}
	p.swap = order == binary.BigEndian
	return info, p.fill(&info, data), nil
}

// openCAF reads Apple's Core Audio Format.
func openCAF(b []byte) (Info, recording, error) {
	info := Info{Format: "caf"}
	r, err := cafChunks(b, &info)
	if err != nil {
		return info, nil, fmt.Errorf("caf: %w", err)
	}
	return info, r, nil
}

func cafChunks(b []byte, info *Info) (recording, error) {
	var p *pcm
	for at := uint64(8); ; {
		if at+12 > uint64(len(b)) {
			return nil, fmt.Errorf("there are no samples in %d bytes: the file is damaged or cut off", len(b))
		}
		id, size := string(b[at:at+4]), binary.BigEndian.Uint64(b[at+4:])
		body := b[at+12:]
		if id == "data" && size == math.MaxUint64 {
			size = uint64(len(body)) // up to the end of the file
		}
		if size > uint64(len(body)) {
			return nil, fmt.Errorf("the chunk %q at offset %d has %d bytes, of which %d are there: the file is damaged or cut off", id, at, size, len(body))
		}
		body = body[:size]
		switch {
		case id == "desc":
			var err error
			if p, err = cafFormat(body, info); err != nil {
				return nil, fmt.Errorf("the chunk desc at offset %d: %w", at, err)
			}
		case id == "data" && p == nil:
			return nil, fmt.Errorf("the samples at offset %d come before their description: the file is damaged", at)
		case id == "data" && size < 4:
			return nil, fmt.Errorf("the chunk data at offset %d is too short: %d bytes", at, size)
		case id == "data":
			return p.fill(info, body[4:]), nil // the number of edits comes first
		}
		at += 12 + size
	}
}

// cafFormat reads the chunk desc.
func cafFormat(b []byte, info *Info) (*pcm, error) {
	if len(b) < 32 {
		return nil, fmt.Errorf("it is too short: %d bytes", len(b))
	}
	rate := math.Float64frombits(binary.BigEndian.Uint64(b))
	if rate > 0 { // and a number
		info.Rate = int(min(rate, MaxRate+1))
	}
	kind, flags, packet := string(b[8:12]), binary.BigEndian.Uint32(b[12:]), int(binary.BigEndian.Uint32(b[16:]))
	channels := binary.BigEndian.Uint32(b[24:])
	info.Channels = int(min(channels, MaxChannels+1))
	size := 0
	if info.Channels > 0 && packet%info.Channels == 0 {
		size = packet / info.Channels
	}
	s := sampleUnknown
	switch {
	case kind == "lpcm" && flags&1 != 0:
		s = float(size)
	case kind == "lpcm":
		s = signed(size)
	case kind == "ulaw" && size == 1:
		s = sampleMuLaw
	case kind == "alaw" && size == 1:
		s = sampleALaw
	}
	p, err := newPCM(s, info)
	if err == errSample {
		return nil, fmt.Errorf("samples of format %q: %w", kind, errNotNative)
	} else if err != nil {
		return nil, err
	}
	p.swap = flags&2 == 0
	return p, nil
}
