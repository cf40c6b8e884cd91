package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

// A segment begins with a line that identifies it, padded to headBytes. Then come records: a head, the value and the
// record's name for messages, padded to a multiple of align. Its list has the heads of its records in a row and can be
// rebuilt from the segment. Numbers are little-endian:
//
//	0   magic         u32
//	4   size          u32  of the value
//	8   key           16 bytes
//	24  width         u32
//	28  height        u32
//	32  codec         u8   (driver.Codec), 0: there is no form worth keeping
//	33  channels      u8
//	34  orientation   u8
//	35  0             u8
//	36  name          u16  its length
//	38  0             u16
//	40  offset        u64  of the head in the segment
//	48  checksum      u64  XXH3 of value and name
//	56  checksum      u64  XXH3 of the 56 bytes before
const (
	headBytes = 64
	align     = 64
	// tail is the number of readable bytes after the last value.
	tail = 64

	magic   = 0x32525453 // "STR2"
	dropped = 0x30525453 // of a record that was found to be damaged
	maxName = 1 << 12
	// maxValue is the size limit of a cached value.
	maxValue = 1 << 28
)

// firstLine has the version of the segments and their keys. Segments of another version are removed by recoverSegment.
const firstLine = "stoker records 2\n"

// Key identifies a record by its object, the object's version and the byte range.
type Key [16]byte

// Meta describes a value.
type Meta struct {
	Key                          Key
	Width, Height                uint32
	Codec, Channels, Orientation uint8
	// Name is for messages.
	Name string
}

// head is the header before a record.
type head struct {
	Meta
	size   uint32
	name   uint16
	offset int64
	sum    uint64
}

// span returns the size of a record in a segment.
func (h *head) span() int64 { return span(int64(h.size), int(h.name)) }

func span(size int64, name int) int64 {
	return (headBytes + size + int64(name) + align - 1) &^ (align - 1)
}

func (h *head) put(b []byte) {
	clear(b[:headBytes])
	le := binary.LittleEndian
	le.PutUint32(b, magic)
	le.PutUint32(b[4:], h.size)
	copy(b[8:24], h.Key[:])
	le.PutUint32(b[24:], h.Width)
	le.PutUint32(b[28:], h.Height)
	b[32], b[33], b[34] = h.Codec, h.Channels, h.Orientation
	le.PutUint16(b[36:], h.name)
	le.PutUint64(b[40:], uint64(h.offset))
	le.PutUint64(b[48:], h.sum)
	le.PutUint64(b[56:], xxh3.Hash(b[:56]))
}

var errHead = errors.New("it does not begin with the head of a record")

// parse reads a head at an offset of a segment of the given size. The bytes are untrusted: every number is checked.
func (h *head) parse(b []byte, segment int64) error {
	le := binary.LittleEndian
	if len(b) < headBytes || le.Uint32(b) != magic || le.Uint64(b[56:]) != xxh3.Hash(b[:56]) {
		return errHead
	}
	h.size = le.Uint32(b[4:])
	copy(h.Key[:], b[8:24])
	h.Width, h.Height = le.Uint32(b[24:]), le.Uint32(b[28:])
	h.Codec, h.Channels, h.Orientation = b[32], b[33], b[34]
	h.name = le.Uint16(b[36:])
	off := le.Uint64(b[40:])
	h.sum = le.Uint64(b[48:])
	if off < headBytes || off%align != 0 || h.size > maxValue || h.name > maxName || off > uint64(segment) ||
		int64(off)+h.span()+tail > segment {
		return errHead
	}
	h.offset = int64(off)
	return nil
}

// value returns the offset of the value.
func (h *head) value() int64 { return h.offset + headBytes }

func listName(segment string) string { return strings.TrimSuffix(segment, segEnd) + listEnd }

// readList calls f for the heads of a list from an offset on. It returns the offset of the first incomplete or invalid
// head.
func readList(name string, from, segment int64, f func(h *head, at int64)) int64 {
	file, err := os.Open(name)
	if err != nil {
		return from
	}
	defer file.Close()
	buf := make([]byte, 1024*headBytes)
	for {
		n, err := file.ReadAt(buf, from)
		for b := buf[:n]; len(b) >= headBytes; b = b[headBytes:] {
			var h head
			if err := h.parse(b, segment); err != nil {
				if binary.LittleEndian.Uint32(b) != dropped {
					return from
				}
			} else {
				f(&h, from)
			}
			from += headBytes
		}
		if err != nil || n < headBytes {
			return from
		}
	}
}

// recoverSegment completes a segment whose writer has ended. It lists the complete records after the end of the list
// and cuts off the rest. It does nothing if the segment is being written.
func recoverSegment(name string) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if flock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	info, err := f.Stat()
	if err != nil {
		return
	}
	size := info.Size()
	end := int64(headBytes)
	at := readList(listName(name), 0, size, func(h *head, _ int64) { end = max(end, h.offset+h.span()) })
	list, err := os.Stat(listName(name))
	if size == end+tail && err == nil && list.Size() == at {
		return // it was finished
	}
	first := make([]byte, headBytes)
	if _, err := f.ReadAt(first, 0); err != nil || string(first[:len(firstLine)]) != firstLine {
		// Not started, or its writer is just about to take the lock.
		if size > 0 || time.Since(info.ModTime()) > time.Minute {
			_ = os.Remove(listName(name))
			_ = os.Remove(name)
		}
		return
	}
	var more []byte
	var value []byte
	for {
		var b [headBytes]byte
		var h head
		if _, err := f.ReadAt(b[:], end); err != nil || h.parse(b[:], size) != nil || h.offset != end {
			break
		}
		n := int(h.size) + int(h.name)
		if cap(value) < n {
			value = make([]byte, n)
		}
		if _, err := f.ReadAt(value[:n], h.value()); err != nil || xxh3.Hash(value[:n]) != h.sum {
			break
		}
		more = append(more, b[:]...)
		end += h.span()
	}
	l, err := os.OpenFile(listName(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer l.Close()
	if l.Truncate(at) != nil {
		return
	}
	if _, err := l.WriteAt(more, at); err != nil {
		return
	}
	_ = f.Truncate(end + tail)
}

// drop marks a record as damaged in the list, so that no process uses it again.
func drop(segment string, at int64) error {
	l, err := os.OpenFile(listName(segment), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer l.Close()
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], dropped)
	_, err = l.WriteAt(b[:], at)
	return err
}

// readValue reads a value and its name, and verifies their checksum.
func readValue(f io.ReaderAt, h *head, buf []byte) (value []byte, name string, err error) {
	n := int(h.size) + int(h.name)
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := f.ReadAt(buf, h.value()); err != nil {
		return buf, "", err
	}
	name = string(buf[h.size:])
	if xxh3.Hash(buf) != h.sum {
		return buf, name, fmt.Errorf("damaged: its checksum differs from the one written")
	}
	return buf[:h.size], name, nil
}
