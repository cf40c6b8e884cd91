package csound

/*
#cgo noescape ss_vorbis_blocks
#cgo nocallback ss_vorbis_blocks
#cgo noescape ss_vorbis_decode
#cgo nocallback ss_vorbis_decode
#cgo noescape ss_opus_samples
#cgo nocallback ss_opus_samples
#cgo noescape ss_opus_decode
#cgo nocallback ss_opus_decode
#include "csound.h"
*/
import "C"

import "unsafe"

// Packets are the packets of an Ogg stream, one after the other: Sizes[i] bytes of Data each.
type Packets struct {
	Data  []byte
	Sizes []int32
}

func (p *Packets) args() (*C.uint8_t, *C.int32_t, C.int) {
	total := 0
	for _, n := range p.Sizes {
		total += int(n)
	}
	_ = p.Data[:total]
	return (*C.uint8_t)(unsafe.SliceData(p.Data)), (*C.int32_t)(unsafe.SliceData(p.Sizes)), C.int(len(p.Sizes))
}

// Vorbis decodes the packets of one kind of stream. Close frees it.
type Vorbis struct {
	c *C.ss_vorbis
	// Channels and Rate are the stream's.
	Channels, Rate int
}

// NewVorbis reads the first and the third header of a stream.
func NewVorbis(id, setup []byte) (*Vorbis, error) {
	if len(id) == 0 || len(setup) == 0 {
		return nil, ErrDamaged
	}
	v := &Vorbis{}
	var channels, rate C.int
	code := C.ss_vorbis_open((*C.uint8_t)(&id[0]), C.size_t(len(id)), (*C.uint8_t)(&setup[0]), C.size_t(len(setup)), &v.c, &channels, &rate)
	v.Channels, v.Rate = int(channels), int(rate)
	return v, failure(code)
}

// Close frees the library's memory.
func (v *Vorbis) Close() {
	C.ss_vorbis_close(v.c)
	v.c = nil
}

// Blocks returns the block sizes of packets, 0 for packets without sound.
func (v *Vorbis) Blocks(p *Packets, blocks []int32) {
	if len(p.Sizes) == 0 {
		return
	}
	_ = blocks[len(p.Sizes)-1]
	data, sizes, count := p.args()
	C.ss_vorbis_blocks(v.c, data, sizes, count, (*C.int32_t)(&blocks[0]))
}

// Decode decodes packets from the first one on, as if nothing preceded it. It leaves out skip samples and writes n to
// dst, whose channels begin at multiples of stride. It returns the number of samples written.
func (v *Vorbis) Decode(p *Packets, skip, n int64, dst []float32, stride int) (int64, error) {
	if n == 0 {
		return 0, nil
	}
	_ = dst[int64((v.Channels-1)*stride)+n-1]
	data, sizes, count := p.args()
	var done C.int64_t
	code := C.ss_vorbis_decode(v.c, data, sizes, count, C.int64_t(skip), C.int64_t(n), (*C.float)(&dst[0]), C.size_t(stride), &done)
	return int64(done), failure(code)
}

// OpusOptions are the settings in a stream's header. Gain is in 1/256 dB.
type OpusOptions struct {
	Rate, Channels, Streams, Coupled int
	Mapping                          [256]byte
	Gain                             int
}

// Opus decodes the packets of one kind of stream. Close frees it.
type Opus struct {
	c    *C.ss_opus
	o    OpusOptions
	room []float32
}

// NewOpus returns a decoder.
func NewOpus(o *OpusOptions) (*Opus, error) {
	d := &Opus{o: *o, room: make([]float32, o.Rate/25*3*o.Channels)}
	code := C.ss_opus_open(C.int(o.Rate), C.int(o.Channels), C.int(o.Streams), C.int(o.Coupled), (*C.uint8_t)(&o.Mapping[0]), C.int(o.Gain), &d.c)
	return d, failure(code)
}

// Options returns the options of the decoder.
func (d *Opus) Options() OpusOptions { return d.o }

// Close frees the library's memory.
func (d *Opus) Close() {
	C.ss_opus_close(d.c)
	d.c = nil
}

// OpusSamples returns the number of samples in packets at a rate.
func OpusSamples(p *Packets, rate int) int64 {
	data, sizes, count := p.args()
	var total C.int64_t
	C.ss_opus_samples(data, sizes, count, C.int(rate), &total)
	return int64(total)
}

// Decode is like Vorbis.Decode.
func (d *Opus) Decode(p *Packets, skip, n int64, dst []float32, stride int) (int64, error) {
	if n == 0 {
		return 0, nil
	}
	_ = dst[int64((d.o.Channels-1)*stride)+n-1]
	data, sizes, count := p.args()
	var done C.int64_t
	code := C.ss_opus_decode(d.c, data, sizes, count, (*C.float)(&d.room[0]), C.int64_t(skip), C.int64_t(n), (*C.float)(&dst[0]), C.size_t(stride), &done)
	return int64(done), failure(code)
}
