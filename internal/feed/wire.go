package feed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// The service and method of Arrow Flight that servers offer.
const (
	Service = "arrow.flight.protocol.FlightService"
	DoGet   = "/" + Service + "/DoGet"
)

// GetStream describes DoGet to gRPC.
var GetStream = grpc.StreamDesc{StreamName: "DoGet", ServerStreams: true}

// RawTicket is Flight's Ticket.
type RawTicket struct{ Bytes []byte }

// Data is Flight's FlightData. The codec sends Body from where it is, and receives it without joining its parts.
type Data struct {
	// Header is the metadata of an Arrow IPC message, Meta is app_metadata.
	Header, Meta []byte
	Body         [][]byte
	// Lease holds the memory of Body while it is sent.
	Lease *Lease

	held mem.BufferSlice
}

// Free releases the memory of a received message.
func (d *Data) Free() {
	d.held.Free()
	*d = Data{}
}

// Size is the size of the body in bytes.
func (d *Data) Size() int64 {
	n := int64(0)
	for _, p := range d.Body {
		n += int64(len(p))
	}
	return n
}

// copy fills dst with the body from an offset on. The caller has checked that the body is long enough.
func (d *Data) copy(dst []byte, off int64) {
	for _, p := range d.Body {
		if len(dst) == 0 {
			return
		}
		if off >= int64(len(p)) {
			off -= int64(len(p))
			continue
		}
		n := copy(dst, p[off:])
		dst, off = dst[n:], 0
	}
}

// Lease counts the messages that still use a slot. gRPC writes messages after Send returns.
type Lease struct {
	count   atomic.Int64
	release func()
}

// NewLease returns a lease with one holder, which calls Done. release is called after the last one.
func NewLease(release func()) *Lease {
	l := &Lease{release: release}
	l.count.Store(1)
	return l
}

// Done gives up one hold.
func (l *Lease) Done() {
	if l.count.Add(-1) == 0 {
		l.release()
	}
}

// Get implements mem.BufferPool. gRPC does not allocate from a lease.
func (l *Lease) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool: a part of the slot was sent, or is not sent any more.
func (l *Lease) Put(*[]byte) { l.Done() }

// Codec writes and reads the messages of DoGet.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name implements encoding.CodecV2: on the wire the messages are Protocol Buffers.
func (Codec) Name() string { return "proto" }

// The fields of Flight's messages, with their wire type, which is 2 for all.
const (
	tagTicket = 1<<3 | 2
	tagHeader = 2<<3 | 2
	tagMeta   = 3<<3 | 2
	tagBody   = 1000<<3 | 2
)

func appendField(b []byte, tag uint64, value []byte) []byte {
	b = binary.AppendUvarint(b, tag)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *RawTicket:
		return mem.BufferSlice{mem.SliceBuffer(appendField(nil, tagTicket, v.Bytes))}, nil
	case *Data:
		head := appendField(make([]byte, 0, len(v.Header)+len(v.Meta)+64), tagHeader, v.Header)
		if len(v.Meta) > 0 {
			head = appendField(head, tagMeta, v.Meta)
		}
		head = binary.AppendUvarint(head, tagBody)
		head = binary.AppendUvarint(head, uint64(v.Size()))
		out := make(mem.BufferSlice, 1, len(v.Body)+1)
		out[0] = mem.SliceBuffer(head)
		for _, p := range v.Body {
			// gRPC does not count the users of small buffers.
			if v.Lease == nil || mem.IsBelowBufferPoolingThreshold(cap(p)) {
				out = append(out, mem.SliceBuffer(slices.Clone(p)))
				continue
			}
			v.Lease.count.Add(1)
			out = append(out, mem.NewBuffer(&p, v.Lease))
		}
		return out, nil
	}
	return nil, fmt.Errorf("feed: a message of type %T", v)
}

// Unmarshal implements encoding.CodecV2.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	r := reader{parts: data, left: data.Len()}
	switch v := v.(type) {
	case *RawTicket:
		*v = RawTicket{}
		return r.fields(func(tag uint64, n int) error {
			if tag != tagTicket {
				return r.skip(n)
			}
			var err error
			v.Bytes, err = r.bytes(n)
			return err
		})
	case *Data:
		*v = Data{}
		err := r.fields(func(tag uint64, n int) (err error) {
			switch tag {
			case tagHeader:
				v.Header, err = r.bytes(n)
			case tagMeta:
				v.Meta, err = r.bytes(n)
			case tagBody:
				v.Body, err = r.pieces(n)
			default:
				err = r.skip(n)
			}
			return err
		})
		if err == nil {
			data.Ref()
			v.held = data
		}
		return err
	}
	return fmt.Errorf("feed: a message of type %T", v)
}

var errWire = errors.New("a message that is not one of Arrow Flight")

// reader reads a message that lies in parts.
type reader struct {
	parts mem.BufferSlice
	off   int // in parts[0]
	left  int
}

// fields calls field for each field with bytes, whose value it has to read. Flight's messages have no others.
func (r *reader) fields(field func(tag uint64, n int) error) error {
	for r.left > 0 {
		tag, err := r.uvarint()
		if err != nil {
			return err
		}
		n, err := r.uvarint()
		if err != nil || tag&7 != 2 || n > uint64(r.left) {
			return errWire
		}
		if err := field(tag, int(n)); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) uvarint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		p := r.next(1)
		if len(p) == 0 {
			return 0, errWire
		}
		v |= uint64(p[0]&0x7f) << shift
		if p[0] < 0x80 {
			return v, nil
		}
	}
	return 0, errWire
}

// next takes up to n bytes that lie in one part.
func (r *reader) next(n int) []byte {
	for len(r.parts) > 0 {
		p := r.parts[0].ReadOnlyData()[r.off:]
		if len(p) == 0 {
			r.parts, r.off = r.parts[1:], 0
			continue
		}
		p = p[:min(n, len(p))]
		r.off += len(p)
		r.left -= len(p)
		return p
	}
	return nil
}

func (r *reader) pieces(n int) ([][]byte, error) {
	var out [][]byte
	for n > 0 {
		p := r.next(n)
		if len(p) == 0 {
			return nil, errWire
		}
		out = append(out, p)
		n -= len(p)
	}
	return out, nil
}

// bytes copies n bytes. There are as many: fields has compared.
func (r *reader) bytes(n int) ([]byte, error) {
	pieces, err := r.pieces(n)
	return slices.Concat(pieces...), err
}

func (r *reader) skip(n int) error {
	_, err := r.pieces(n)
	return err
}

// Unmarshal reads a message from one piece of memory.
func Unmarshal(message []byte, v any) error {
	return Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)}, v)
}
