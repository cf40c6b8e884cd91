package handoff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// Version is the version of the messages and of the ring's layout. It is in every message, and each side refuses other
// versions.
const Version = 3

// Limits for both sides, so that no length in a message can request more memory than this.
const (
	// MaxMessage is the size of the largest packet, and so of the largest
	// message, in bytes.
	MaxMessage = 64 << 10
	// MaxConfig is the size of the largest configuration in bytes, inline or
	// in a descriptor.
	MaxConfig = 16 << 20
	// MaxInlineConfig is the size limit of a configuration that is part of OPEN itself.
	MaxInlineConfig = 32 << 10
	// MaxSlots is the largest number of slots of a ring.
	MaxSlots = 4096

	maxText = 16 << 10
)

// Type is the kind of a message, its first byte.
type Type uint8

// The messages. The numbers are part of docs/reference/protocol.md.
const (
	TypeOpen     Type = 1
	TypeReady    Type = 2
	TypeStart    Type = 3
	TypeBatch    Type = 4
	TypeEpochEnd Type = 5
	TypeRelease  Type = 6
	TypeError    Type = 7
	TypeStats    Type = 8
	TypeClose    Type = 9
	// Between the engine and a worker process that runs functions of the user on batches. See
	// docs/reference/protocol.md. They are not sent yet.
	TypeJoin Type = 10
	TypeWork Type = 11
	TypeDone Type = 12
	// From the client, if it sets the order of the records.
	TypeOrder Type = 13
	// TypeRing comes with the ring of a client's own pipeline, in an engine where clients share batches.
	TypeRing Type = 14
)

var typeNames = [...]string{
	TypeOpen: "OPEN", TypeReady: "READY", TypeStart: "START", TypeBatch: "BATCH",
	TypeEpochEnd: "EPOCH_END", TypeRelease: "RELEASE", TypeError: "ERROR",
	TypeStats: "STATS", TypeClose: "CLOSE", TypeJoin: "JOIN", TypeWork: "WORK", TypeDone: "DONE", TypeOrder: "ORDER",
	TypeRing: "RING",
}

// String returns the name that docs/reference/protocol.md uses.
func (t Type) String() string {
	if int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return fmt.Sprintf("message type %d", uint8(t))
}

// Code is the kind of failure that an ERROR reports.
type Code uint16

// The codes of ERROR. The numbers are part of docs/reference/protocol.md.
const (
	// CodeProtocol: the peer sent an invalid message; the connection ends.
	CodeProtocol Code = 1
	// CodeConfig: the configuration or the source was refused at OPEN; the
	// connection ends.
	CodeConfig Code = 2
	// CodeRecord: one record could not be read or decoded; the stream stops
	// until the next START.
	CodeRecord Code = 3
	// CodeStream: the stream failed as a whole; it stops until the next START.
	CodeStream Code = 4
	// CodeInternal: a fault of the engine itself; the connection ends.
	CodeInternal Code = 5
	// CodeFunction: a function of the user failed; the stream stops until the next
	// START. Nobody sends it yet.
	CodeFunction Code = 6
)

// Message is one of the message types of this file.
type Message interface {
	// Type is the kind of the message.
	Type() Type
	// Append adds the encoded message to dst and returns the result.
	Append(dst []byte) []byte
}

// Open is the client's first message, with the configuration.
type Open struct {
	// Config is the JSON configuration, or empty if the configuration is in the file descriptor of the message.
	Config []byte
	// InFile reports that the configuration is in the descriptor, and FileSize is its size.
	InFile   bool
	FileSize uint32
}

// Ready answers Open. Two descriptors come with it: the ring, and a file of InfoSize bytes with the JSON description.
type Ready struct {
	InfoSize   uint32
	Slots      uint32
	SlotStride uint64
	RingSize   uint64
}

// Start restarts the stream at a position. Everything that was sent with an older generation is then stale.
type Start struct {
	Gen        uint32
	Epoch, Row int64
}

// Batch hands a filled slot to the client.
type Batch struct {
	Gen, Slot, Rows uint32
	// Repeated is the number of rows at the end that have already come in the epoch.
	Repeated uint32
	// Lease is different for every hand-over of the session; Release returns it.
	Lease       uint64
	Epoch, Step int64
	// NextEpoch and NextRow are the position after this batch.
	NextEpoch, NextRow int64
}

// EpochEnd follows the last batch of an epoch.
type EpochEnd struct {
	Gen   uint32
	Epoch int64
	// Skipped counts the records that were replaced because they could not be read. Report names as many of them as
	// fit, for a person.
	Skipped int64
	Report  string
}

// Release returns a slot to the engine.
type Release struct {
	Slot  uint32
	Lease uint64
}

// Error reports a failure.
type Error struct {
	Gen  uint32
	Code Code
	// Record is the number of the record that failed, or -1. Name is its place.
	Record             int64
	Name, Reason, Hint string
}

// Stats requests statistics if it comes from the client, and has them as JSON if it comes from the engine.
type Stats struct {
	Request uint32
	JSON    []byte
}

// Order sets the next records of a stream whose order the client gives.
type Order struct {
	Gen uint32
	// Whole reports that the last of the records ends a batch.
	Whole   bool
	Records []int64
}

// Ring comes with the descriptor of a second ring. Its slots begin at MaxSlots.
type Ring struct {
	Slots                uint32
	SlotStride, RingSize uint64
}

// Close ends the session in order. The end of the connection means the same.
type Close struct{}

const headerSize = 8

// Type implements Message.
func (Open) Type() Type { return TypeOpen }

// Type implements Message.
func (Ready) Type() Type { return TypeReady }

// Type implements Message.
func (Start) Type() Type { return TypeStart }

// Type implements Message.
func (Batch) Type() Type { return TypeBatch }

// Type implements Message.
func (EpochEnd) Type() Type { return TypeEpochEnd }

// Type implements Message.
func (Release) Type() Type { return TypeRelease }

// Type implements Message.
func (Error) Type() Type { return TypeError }

// Type implements Message.
func (Stats) Type() Type { return TypeStats }

// Type implements Message.
func (Order) Type() Type { return TypeOrder }

// Type implements Message.
func (Ring) Type() Type { return TypeRing }

// Type implements Message.
func (Close) Type() Type { return TypeClose }

var le = binary.LittleEndian

// begin appends a header; finish sets its size.
func begin(dst []byte, t Type) []byte {
	return append(dst, byte(t), Version, 0, 0, 0, 0, 0, 0)
}

func finish(dst []byte, start int) []byte {
	le.PutUint32(dst[start+4:], uint32(len(dst)-start))
	return dst
}

func appendI64(dst []byte, v int64) []byte { return le.AppendUint64(dst, uint64(v)) }

// Append implements Message.
func (m Open) Append(dst []byte) []byte {
	start := len(dst)
	dst = begin(dst, TypeOpen)
	if m.InFile {
		dst = le.AppendUint32(dst, 1)
		dst = le.AppendUint32(dst, m.FileSize)
	} else {
		dst = le.AppendUint32(dst, 0)
		dst = le.AppendUint32(dst, uint32(len(m.Config)))
		dst = append(dst, m.Config...)
	}
	return finish(dst, start)
}

// Append implements Message.
func (m Ready) Append(dst []byte) []byte {
	start := len(dst)
	dst = begin(dst, TypeReady)
	dst = le.AppendUint32(dst, m.InfoSize)
	dst = le.AppendUint32(dst, m.Slots)
	dst = le.AppendUint64(dst, m.SlotStride)
	dst = le.AppendUint64(dst, m.RingSize)
	return finish(dst, start)
}

// Append implements Message.
func (m Ring) Append(dst []byte) []byte {
	start := len(dst)
	dst = begin(dst, TypeRing)
	dst = le.AppendUint32(dst, m.Slots)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint64(dst, m.SlotStride)
	dst = le.AppendUint64(dst, m.RingSize)
	return finish(dst, start)
}

// Append implements Message.
func (m Start) Append(dst []byte) []byte {
	start := len(dst)
	dst = begin(dst, TypeStart)
	dst = le.AppendUint32(dst, m.Gen)
	dst = le.AppendUint32(dst, 0)
	dst = appendI64(dst, m.Epoch)
	dst = appendI64(dst, m.Row)
	return finish(dst, start)
}

// Append implements Message.
func (m Batch) Append(dst []byte) []byte {
	start := len(dst)
	dst = begin(dst, TypeBatch)
	dst = le.AppendUint32(dst, m.Gen)
	dst = le.AppendUint32(dst, m.Slot)
	dst = le.AppendUint64(dst, m.Lease)
	dst = le.AppendUint32(dst, m.Rows)
	dst = le.AppendUint32(dst, m.Repeated)
	dst = appendI64(dst, m.Epoch)
	dst = appendI64(dst, m.Step)
	dst = appendI64(dst, m.NextEpoch)
	dst = appendI64(dst, m.NextRow)
	return finish(dst, start)
}

// Append implements Message.
func (m EpochEnd) Append(dst []byte) []byte {
	start := len(dst)
	report := clip(m.Report)
	dst = begin(dst, TypeEpochEnd)
	dst = le.AppendUint32(dst, m.Gen)
	dst = le.AppendUint32(dst, uint32(len(report)))
	dst = appendI64(dst, m.Epoch)
	dst = appendI64(dst, m.Skipped)
	dst = append(dst, report...)
	return finish(dst, start)
}

// Append implements Message.
func (m Release) Append(dst []byte) []byte {
	start := len(dst)
	dst = begin(dst, TypeRelease)
	dst = le.AppendUint32(dst, m.Slot)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint64(dst, m.Lease)
	return finish(dst, start)
}

// Append implements Message.
func (m Error) Append(dst []byte) []byte {
	start := len(dst)
	name, reason, hint := clip(m.Name), clip(m.Reason), clip(m.Hint)
	dst = begin(dst, TypeError)
	dst = le.AppendUint32(dst, m.Gen)
	dst = le.AppendUint16(dst, uint16(m.Code))
	dst = le.AppendUint16(dst, uint16(len(name)))
	dst = appendI64(dst, m.Record)
	dst = le.AppendUint32(dst, uint32(len(reason)))
	dst = le.AppendUint32(dst, uint32(len(hint)))
	dst = append(dst, name...)
	dst = append(dst, reason...)
	dst = append(dst, hint...)
	return finish(dst, start)
}

// Append implements Message.
func (m Stats) Append(dst []byte) []byte {
	start := len(dst)
	dst = begin(dst, TypeStats)
	dst = le.AppendUint32(dst, m.Request)
	dst = le.AppendUint32(dst, uint32(len(m.JSON)))
	dst = append(dst, m.JSON...)
	return finish(dst, start)
}

// Append implements Message.
func (m Order) Append(dst []byte) []byte {
	start := len(dst)
	dst = begin(dst, TypeOrder)
	dst = le.AppendUint32(dst, m.Gen)
	flags := uint32(0)
	if m.Whole {
		flags = orderWhole
	}
	dst = le.AppendUint32(dst, flags)
	for _, r := range m.Records {
		dst = appendI64(dst, r)
	}
	return finish(dst, start)
}

// orderWhole is the flag of an ORDER that ends a batch.
const orderWhole = 1

// Append implements Message.
func (m Close) Append(dst []byte) []byte {
	start := len(dst)
	return finish(begin(dst, TypeClose), start)
}

// clip shortens a text to the size limit of a message, between two characters.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	n := maxText - len("...")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

// errProtocol marks messages that a peer may not send.
var errProtocol = errors.New("protocol error")

func protocolErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errProtocol, fmt.Sprintf(format, args...))
}

// First returns the first message of a packet, which has one or more, and the remaining bytes. The message is not
// parsed yet.
func First(packet []byte) (message, rest []byte) {
	if len(packet) < headerSize {
		return packet, nil
	}
	size := le.Uint32(packet[4:])
	if size < headerSize || uint64(size) > uint64(len(packet)) {
		return packet, nil // Parse returns the error
	}
	return packet[:size], packet[size:]
}

// Parse decodes one message. The result does not refer to b. Every length is checked against b before it is used.
func Parse(b []byte) (Message, error) {
	if len(b) < headerSize {
		return nil, protocolErrorf("message of %d bytes, the header alone has %d", len(b), headerSize)
	}
	t := Type(b[0])
	if b[1] != Version {
		return nil, otherVersion(b[1])
	}
	if size := le.Uint32(b[4:]); uint64(size) != uint64(len(b)) || len(b) > MaxMessage {
		return nil, protocolErrorf("%v of %d bytes says it has %d", t, len(b), size)
	}
	if b[2]|b[3] != 0 {
		return nil, protocolErrorf("%v with reserved bytes set", t)
	}
	body := b[headerSize:]
	fixed, variable := bodySize(t)
	if fixed < 0 {
		if t >= TypeJoin && t <= TypeDone {
			return nil, protocolErrorf("%v is for functions of the user, which this engine does not run", t)
		}
		return nil, protocolErrorf("unknown %v", t)
	}
	if len(body) < fixed || !variable && len(body) != fixed {
		return nil, protocolErrorf("%v with a body of %d bytes, it has %d", t, len(body), fixed)
	}
	rest := body[fixed:]
	switch t {
	case TypeOpen:
		return parseOpen(body, rest)
	case TypeReady:
		return parseReady(body)
	case TypeStart:
		m := Start{Gen: le.Uint32(body), Epoch: int64(le.Uint64(body[8:])), Row: int64(le.Uint64(body[16:]))}
		if m.Gen == 0 || m.Epoch < 0 || m.Row < 0 {
			return nil, protocolErrorf("START of generation %d at epoch %d, row %d", m.Gen, m.Epoch, m.Row)
		}
		return m, nil
	case TypeBatch:
		m := Batch{
			Gen: le.Uint32(body), Slot: le.Uint32(body[4:]), Lease: le.Uint64(body[8:]), Rows: le.Uint32(body[16:]), Repeated: le.Uint32(body[20:]),
			Epoch: int64(le.Uint64(body[24:])), Step: int64(le.Uint64(body[32:])),
			NextEpoch: int64(le.Uint64(body[40:])), NextRow: int64(le.Uint64(body[48:])),
		}
		if m.Slot >= 2*MaxSlots || m.Repeated > m.Rows || m.Epoch < 0 || m.Step < 0 || m.NextEpoch < 0 || m.NextRow < 0 {
			return nil, protocolErrorf("BATCH in slot %d of epoch %d, step %d", m.Slot, m.Epoch, m.Step)
		}
		return m, nil
	case TypeEpochEnd:
		if uint64(le.Uint32(body[4:])) != uint64(len(rest)) {
			return nil, protocolErrorf("EPOCH_END whose report has %d bytes of %d", len(rest), le.Uint32(body[4:]))
		}
		return EpochEnd{
			Gen: le.Uint32(body), Epoch: int64(le.Uint64(body[8:])), Skipped: int64(le.Uint64(body[16:])),
			Report: string(rest),
		}, nil
	case TypeRelease:
		return Release{Slot: le.Uint32(body), Lease: le.Uint64(body[8:])}, nil
	case TypeError:
		return parseError(body, rest)
	case TypeStats:
		if uint64(le.Uint32(body[4:])) != uint64(len(rest)) {
			return nil, protocolErrorf("STATS with %d bytes of %d", len(rest), le.Uint32(body[4:]))
		}
		return Stats{Request: le.Uint32(body), JSON: copyOf(rest)}, nil
	case TypeOrder:
		return parseOrder(body, rest)
	case TypeRing:
		m := Ring{Slots: le.Uint32(body), SlotStride: le.Uint64(body[8:]), RingSize: le.Uint64(body[16:])}
		if err := checkRing(t, m.Slots, m.SlotStride, m.RingSize); err != nil {
			return nil, err
		}
		return m, nil
	default: // TypeClose: bodySize accepts no other types
		return Close{}, nil
	}
}

// otherVersion is the error of a message of another version.
func otherVersion(theirs byte) error {
	side := "the stoker package of the training process"
	if theirs > Version {
		side = "this engine, or end it so that a newer one starts"
	}
	return protocolErrorf("the other side speaks version %d of the protocol, this engine version %d: upgrade %s", theirs, Version, side)
}

// bodySize returns the size of the fixed part after the header, -1 for an unknown type. It also reports whether more
// bytes may follow.
func bodySize(t Type) (fixed int, variable bool) {
	switch t {
	case TypeOpen, TypeStats, TypeOrder:
		return 8, true
	case TypeReady, TypeStart, TypeRing:
		return 24, false
	case TypeEpochEnd, TypeError:
		return 24, true
	case TypeBatch:
		return 56, false
	case TypeRelease:
		return 16, false
	case TypeClose:
		return 0, false
	}
	return -1, false
}

func parseOpen(body, rest []byte) (Message, error) {
	flags, size := le.Uint32(body), le.Uint32(body[4:])
	switch {
	case size > MaxConfig:
		return nil, protocolErrorf("OPEN with a configuration of %d bytes, the limit is %d", size, MaxConfig)
	case flags == 1 && len(rest) == 0:
		return Open{InFile: true, FileSize: size}, nil
	case flags == 0 && uint64(size) == uint64(len(rest)):
		return Open{Config: copyOf(rest)}, nil
	}
	return nil, protocolErrorf("OPEN with flags %#x and %d of %d bytes", flags, len(rest), size)
}

func parseReady(body []byte) (Message, error) {
	m := Ready{
		InfoSize: le.Uint32(body), Slots: le.Uint32(body[4:]),
		SlotStride: le.Uint64(body[8:]), RingSize: le.Uint64(body[16:]),
	}
	if err := checkRing(TypeReady, m.Slots, m.SlotStride, m.RingSize); err != nil {
		return nil, err
	}
	return m, nil
}

// checkRing returns an error if slots of this distance do not fit a ring.
func checkRing(t Type, slots uint32, stride, size uint64) error {
	if slots == 0 || slots > MaxSlots || stride == 0 || stride > math.MaxInt64/MaxSlots || size < stride*uint64(slots) || size > math.MaxInt64 {
		return protocolErrorf("%v with %d slots of %d bytes in a ring of %d", t, slots, stride, size)
	}
	return nil
}

func parseOrder(body, rest []byte) (Message, error) {
	flags := le.Uint32(body[4:])
	if flags&^uint32(orderWhole) != 0 || len(rest)%8 != 0 {
		return nil, protocolErrorf("ORDER with flags %#x and %d bytes of records", flags, len(rest))
	}
	m := Order{Gen: le.Uint32(body), Whole: flags&orderWhole != 0}
	if len(rest) > 0 {
		m.Records = make([]int64, len(rest)/8)
	}
	for i := range m.Records {
		m.Records[i] = int64(le.Uint64(rest[8*i:]))
	}
	return m, nil
}

func parseError(body, rest []byte) (Message, error) {
	m := Error{Gen: le.Uint32(body), Code: Code(le.Uint16(body[4:])), Record: int64(le.Uint64(body[8:]))}
	name, reason, hint := uint64(le.Uint16(body[6:])), uint64(le.Uint32(body[16:])), uint64(le.Uint32(body[20:]))
	if name+reason+hint != uint64(len(rest)) {
		return nil, protocolErrorf("ERROR with texts of %d bytes of %d", len(rest), name+reason+hint)
	}
	m.Name, m.Reason, m.Hint = string(rest[:name]), string(rest[name:name+reason]), string(rest[name+reason:])
	return m, nil
}

// copyOf returns nil for an empty slice, so that encoding and parsing are inverse.
func copyOf(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}
