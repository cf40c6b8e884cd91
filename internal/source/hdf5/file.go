// Package hdf5 parses the structure of HDF5 files: the data sets, their types and shapes, and the positions of
// their bytes. It reads no data. Sizes from a file are checked before memory is allocated for them.
//
// It implements version 3.0 of the format's specification: superblocks 0 to 3, object headers 1 and 2, all indexes
// of chunks.
package hdf5

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// signature starts a file, after the user block if it has one.
const signature = "\x89HDF\r\n\x1a\n"

// Object is the file to read.
type Object interface {
	Size() int64
	ReadAt(ctx context.Context, p []byte, off int64) error
}

// File is an open file.
type File struct {
	ctx  context.Context
	o    Object
	size int64
	// base is the size of the user block. Addresses are relative to it.
	base int64
	// offsets and lengths are the sizes of addresses and of lengths, in bytes.
	offsets, lengths int
	root             int64
	// objects counts the objects that were read, against maxObjects.
	objects int
}

const (
	// maxBlock is the size limit of a structure.
	maxBlock = 64 << 20
	// maxObjects limits the groups and data sets of a file.
	maxObjects = 1 << 20
	// maxDepth limits the nesting of groups.
	maxDepth = 64
)

// undefined is the address of a structure that does not exist.
const undefined = int64(-1)

// damaged returns an error about the content at an address.
func (f *File) damaged(addr int64, format string, args ...any) error {
	return fmt.Errorf("damaged at byte %d: %s", f.base+max(addr, 0), fmt.Sprintf(format, args...))
}

// IsFile reports whether an object is an HDF5 file, with or without a user block.
func IsFile(ctx context.Context, o Object) bool {
	_, err := find(ctx, o)
	return err == nil
}

// find returns the offset of the signature.
func find(ctx context.Context, o Object) (int64, error) {
	b := make([]byte, len(signature))
	for at := int64(0); at+int64(len(b)) <= o.Size(); at = max(512, 2*at) {
		if err := o.ReadAt(ctx, b, at); err != nil {
			return 0, err
		}
		if string(b) == signature {
			return at, nil
		}
	}
	return 0, errors.New("not an HDF5 file: it has no signature at byte 0, 512, 1024, ...")
}

// Open reads the superblock of a file. The File uses ctx and is not safe for concurrent use.
func Open(ctx context.Context, o Object) (*File, error) {
	f := &File{ctx: ctx, o: o, size: o.Size()}
	var err error
	if f.base, err = find(ctx, o); err != nil {
		return nil, err
	}
	head, err := f.read(0, min(f.size-f.base, 128), "superblock")
	if err != nil {
		return nil, err
	}
	head = head[len(signature):]
	if len(head) < 8 {
		return nil, f.damaged(0, "the superblock is cut off")
	}
	version := head[0]
	switch version {
	case 0, 1:
		f.offsets, f.lengths = int(head[5]), int(head[6])
	case 2, 3:
		f.offsets, f.lengths = int(head[1]), int(head[2])
	default:
		return nil, fmt.Errorf("unsupported version %d of its superblock (supported: 0 to 3)", version)
	}
	for _, n := range []int{f.offsets, f.lengths} {
		if n != 2 && n != 4 && n != 8 {
			return nil, f.damaged(0, "addresses of %d bytes and lengths of %d", f.offsets, f.lengths)
		}
	}
	d := f.decode(head)
	if version < 2 {
		d.skip(16)
		if version == 1 {
			d.skip(4)
		}
		d.skip(2 * f.offsets)
		end := d.offset()
		d.skip(f.offsets) // driver information
		d.skip(f.offsets) // name of the root
		f.root = d.offset()
		err = f.ends(end)
	} else {
		d.skip(4 + 2*f.offsets)
		end := d.offset()
		f.root = d.offset()
		n := len(signature) + d.at
		if sum := d.u32(); !d.bad {
			b, rerr := f.read(0, int64(n), "superblock")
			if rerr != nil {
				return nil, rerr
			}
			if got := checksum(b); got != sum {
				return nil, f.damaged(0, "the superblock's checksum is %08x, expected %08x", got, sum)
			}
		}
		err = f.ends(end)
	}
	if d.bad {
		return nil, f.damaged(0, "the superblock is cut off")
	}
	return f, err
}

// ends compares the size of the file with the size in the superblock. Files may be longer.
func (f *File) ends(end int64) error {
	if end == undefined || end > f.size {
		return fmt.Errorf("the file is cut off: it has %d bytes, its superblock says %d", f.size, max(end, 0))
	}
	return nil
}

// read reads n bytes at an address.
func (f *File) read(addr, n int64, what string) ([]byte, error) {
	if n > maxBlock {
		return nil, f.damaged(addr, "%s of %d bytes, the limit is %d", what, n, int64(maxBlock))
	}
	if err := f.within(addr, n, what); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	return b, f.o.ReadAt(f.ctx, b, f.base+addr)
}

// within returns an error if n bytes at an address are not in the file.
func (f *File) within(addr, n int64, what string) error {
	if addr == undefined {
		return fmt.Errorf("damaged: its %s has no address", what)
	}
	if left := f.size - f.base; addr < 0 || n < 0 || addr > left || n > left-addr {
		return fmt.Errorf("damaged: its %s is at bytes %d to %d, but the file has %d", what, f.base+addr, f.base+addr+n, f.size)
	}
	return nil
}

// signed reads n bytes that begin with a signature of four letters.
func (f *File) signed(addr, n int64, name, what string) (*decoder, error) {
	b, err := f.read(addr, n, what)
	if err != nil {
		return nil, err
	}
	if len(b) < 4 || string(b[:4]) != name {
		return nil, f.damaged(addr, "expected a %s (%s)", what, name)
	}
	d := f.decode(b)
	d.skip(4)
	return d, nil
}

// checked reads n bytes that begin with a signature of four letters and end with a checksum, which it verifies and
// removes.
func (f *File) checked(addr, n int64, name, what string) (*decoder, error) {
	if n < 8 {
		return nil, f.damaged(addr, "%s of %d bytes", what, n)
	}
	d, err := f.signed(addr, n, name, what)
	if err != nil {
		return nil, err
	}
	b := d.b[:n-4]
	if got, want := checksum(b), binary.LittleEndian.Uint32(d.b[n-4:]); got != want {
		return nil, f.damaged(addr, "the checksum of the %s is %08x, expected %08x", what, got, want)
	}
	d.b = b
	return d, nil
}

func (f *File) decode(b []byte) *decoder {
	return &decoder{b: b, offsets: f.offsets, lengths: f.lengths}
}

// decoder reads numbers in sequence. After the end it sets bad and returns zeros.
type decoder struct {
	b                []byte
	at               int
	bad              bool
	offsets, lengths int
}

func (d *decoder) left() int { return len(d.b) - d.at }

// bytes returns the next n bytes, or nil if there are fewer.
func (d *decoder) bytes(n int) []byte {
	if d.bad || n < 0 || n > d.left() {
		d.bad = true
		return nil
	}
	d.at += n
	return d.b[d.at-n : d.at]
}

func (d *decoder) skip(n int) { d.bytes(n) }

// number reads a little-endian number of at most 8 bytes.
func (d *decoder) number(n int) uint64 {
	b := d.bytes(n)
	var v uint64
	for i := len(b) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

func (d *decoder) u8() int     { return int(d.number(1)) }
func (d *decoder) u16() int    { return int(d.number(2)) }
func (d *decoder) u32() uint32 { return uint32(d.number(4)) }

// offset reads an address. Addresses that no file can have are undefined.
func (d *decoder) offset() int64 {
	v := d.number(d.offsets)
	if d.bad || v > 1<<62 || d.offsets < 8 && v == 1<<(8*d.offsets)-1 {
		return undefined
	}
	return int64(v)
}

// length reads a length. Lengths that no file can have become 1<<62.
func (d *decoder) length() int64 { return int64(min(d.number(d.lengths), 1<<62)) }

// name reads a string up to a zero byte, and the padding after it to a multiple of pad.
func (d *decoder) name(pad int) string {
	from := d.at
	for !d.bad {
		if b := d.bytes(1); b == nil || b[0] == 0 {
			break
		}
	}
	if d.bad {
		return ""
	}
	s := string(d.b[from : d.at-1])
	if n := (d.at - from) % pad; n != 0 {
		d.skip(pad - n)
	}
	return s
}

// checksum is Bob Jenkins' lookup3, the checksum of all newer structures.
func checksum(b []byte) uint32 {
	a := 0xdeadbeef + uint32(len(b))
	c, e := a, a // b and c of the original
	rot := func(x uint32, k uint) uint32 { return x<<k | x>>(32-k) }
	mix := func(x, y, z *uint32, k uint) {
		*x -= *z
		*x ^= rot(*z, k)
		*z += *y
	}
	last := func(x, z *uint32, k uint) {
		*x ^= *z
		*x -= rot(*z, k)
	}
	for len(b) > 12 {
		a += binary.LittleEndian.Uint32(b)
		c += binary.LittleEndian.Uint32(b[4:])
		e += binary.LittleEndian.Uint32(b[8:])
		mix(&a, &c, &e, 4)
		mix(&c, &e, &a, 6)
		mix(&e, &a, &c, 8)
		mix(&a, &c, &e, 16)
		mix(&c, &e, &a, 19)
		mix(&e, &a, &c, 4)
		b = b[12:]
	}
	if len(b) == 0 {
		return e
	}
	var rest [12]byte
	copy(rest[:], b)
	a += binary.LittleEndian.Uint32(rest[0:])
	c += binary.LittleEndian.Uint32(rest[4:])
	e += binary.LittleEndian.Uint32(rest[8:])
	last(&e, &c, 14)
	last(&a, &e, 11)
	last(&c, &a, 25)
	last(&e, &c, 16)
	last(&a, &e, 4)
	last(&c, &a, 14)
	last(&e, &c, 24)
	return e
}

// bytesFor returns the number of bytes needed for numbers up to n.
func bytesFor(n uint64) int {
	k := 1
	for n >>= 8; n > 0; n >>= 8 {
		k++
	}
	return k
}
