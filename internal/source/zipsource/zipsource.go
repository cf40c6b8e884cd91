// Package zipsource reads zip files at random, without unpacking them. It reads samples whose members share a key,
// and zips of any other files. Package archive documents the meaning of member names. Members are stored or
// deflated. Deflated ones are inflated at each read. zip64 files are supported.
//
// The directory at the end of a zip file has the offsets of the members. It is read once, when the file is opened.
// The checksum of a member is verified at each read, and its name is compared with the one in the directory.
package zipsource

import (
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/internal/source/archive"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// The magic numbers of the parts of a zip file, and the sizes of the parts without variable data.
const (
	localMagic   = "PK\x03\x04"
	entryMagic   = "PK\x01\x02"
	endMagic     = "PK\x05\x06"
	end64Magic   = "PK\x06\x06"
	locatorMagic = "PK\x06\x07"

	localBytes   = 30
	entryBytes   = 46
	endBytes     = 22
	end64Bytes   = 56
	locatorBytes = 20

	maxComment = math.MaxUint16
	// window is the read size for the directory. It is larger than any entry.
	window = 1 << 20
	// maxRatio is above the maximum compression ratio of deflate.
	maxRatio = 1100
)

var archives = archive.Format{Name: "zip", Is: IsName, Scan: scan, Unpack: unpack}

// Open lists the zip files of st (or takes the single object that st is) and reads their directories.
func Open(ctx context.Context, url string, st store.Store, opt *archive.Options) (driver.Source, error) {
	return archive.Open(ctx, url, st, &archives, opt)
}

// IsName reports whether a path has the extension of a zip file.
func IsName(path string) bool { return strings.HasSuffix(strings.ToLower(path), ".zip") }

// IsFile reports whether an object begins like a zip file.
func IsFile(ctx context.Context, st store.Store, name string) bool {
	o, err := st.Open(ctx, name)
	if err != nil {
		return false
	}
	defer o.Close()
	var b [4]byte
	return o.Size() >= endBytes && o.ReadAt(ctx, b[:], 0) == nil && (string(b[:]) == localMagic || string(b[:]) == endMagic)
}

var (
	u16 = binary.LittleEndian.Uint16
	u32 = binary.LittleEndian.Uint32
	u64 = binary.LittleEndian.Uint64
)

func damage(at int64, format string, a ...any) error {
	return &archive.Damage{At: at, Err: fmt.Errorf(format, a...)}
}

// directory is the position of the entries in a zip file.
type directory struct {
	at, size int64
	entries  uint64
	// base is added to offsets in the file. It is the size of data prepended to the zip file, such as a
	// self-extractor.
	base int64
}

// findDirectory reads the end record of a zip file.
func findDirectory(r io.ReaderAt, size int64) (*directory, error) {
	n := min(size, endBytes+maxComment)
	tail := make([]byte, n)
	if _, err := r.ReadAt(tail, size-n); err != nil {
		return nil, err
	}
	end := -1
	for i := len(tail) - endBytes; i >= 0; i-- {
		if string(tail[i:i+4]) == endMagic && int(u16(tail[i+20:])) <= len(tail)-i-endBytes {
			end = i
			break
		}
	}
	if end < 0 {
		return nil, damage(size, "it has no directory at its end: the file is cut off, or is not a zip file")
	}
	e := tail[end:]
	at := size - n + int64(end)
	d := &directory{size: int64(u32(e[12:])), entries: uint64(u16(e[10:])), at: int64(u32(e[16:]))}
	if u16(e[4:]) != u16(e[6:]) || u16(e[4:]) != 0 && u16(e[4:]) != math.MaxUint16 {
		return nil, damage(at, "it is one part of a split zip file: join the parts first")
	}
	if u16(e[10:]) == math.MaxUint16 || u32(e[12:]) == math.MaxUint32 || u32(e[16:]) == math.MaxUint32 {
		var err error
		if at, err = d.zip64(r, at); err != nil {
			return nil, err
		}
	}
	switch {
	case d.size < 0 || d.at < 0 || d.size > at || d.at > at-d.size:
		return nil, damage(at, "its directory of %d bytes at %d does not fit before its end record: the file is damaged", d.size, d.at)
	case d.entries > uint64(d.size)/entryBytes:
		return nil, damage(at, "a directory of %d bytes is too small for %d members: the file is damaged", d.size, d.entries)
	}
	d.base = at - d.size - d.at
	d.at += d.base
	return d, nil
}

// zip64 reads the zip64 end record, if there is one before the normal end record at offset end. It returns the
// offset of the first of the two.
func (d *directory) zip64(r io.ReaderAt, end int64) (int64, error) {
	var loc [locatorBytes]byte
	if end < locatorBytes {
		return end, nil
	}
	if _, err := r.ReadAt(loc[:], end-locatorBytes); err != nil {
		return 0, err
	}
	if string(loc[:4]) != locatorMagic {
		return end, nil // the directory happens to have this size
	}
	at := u64(loc[8:])
	if at > uint64(end) || uint64(end)-at < end64Bytes+locatorBytes {
		return 0, damage(end-locatorBytes, "invalid offset %d of the zip64 end record: the file is damaged", at)
	}
	var e [end64Bytes]byte
	if _, err := r.ReadAt(e[:], int64(at)); err != nil {
		return 0, err
	}
	size, from := u64(e[40:]), u64(e[48:])
	if string(e[:4]) != end64Magic || size > math.MaxInt64 || from > math.MaxInt64 {
		return 0, damage(int64(at), "expected the zip64 end record: the file is damaged")
	}
	d.entries, d.size, d.at = u64(e[32:]), int64(size), int64(from)
	return int64(at), nil
}

// scan reads the directory of a zip file.
func scan(ctx context.Context, r io.ReaderAt, size int64, add func(m *archive.Member) error) error {
	d, err := findDirectory(r, size)
	if err != nil {
		return err
	}
	members, err := d.read(ctx, r)
	if err != nil {
		return err
	}
	extents(members, d.at)
	for i := range members {
		m := &members[i]
		if need := localBytes + int64(len(m.Name)) + m.Packed; m.Extent < need {
			return damage(m.At, "the member %q needs %d bytes and has %d: the file is damaged", m.Name, need, m.Extent)
		}
		if strings.HasSuffix(m.Name, "/") && m.Size == 0 {
			continue // a folder
		}
		if err := add(m); err != nil {
			return err
		}
	}
	return nil
}

// read reads all entries.
func (d *directory) read(ctx context.Context, r io.ReaderAt) ([]archive.Member, error) {
	var members []archive.Member // not sized by the untrusted count
	buf := make([]byte, 0, min(window, d.size))
	at, end := d.at, d.at+d.size
	from := at // offset of buf
	need := func(n int64) ([]byte, error) {
		if n > end-at {
			return nil, damage(at, "its directory ends within an entry: the file is damaged")
		}
		if at+n > from+int64(len(buf)) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			buf, from = buf[:min(window, end-at)], at
			if _, err := r.ReadAt(buf, at); err != nil {
				return nil, err
			}
		}
		return buf[at-from:][:n], nil
	}
	for range d.entries {
		b, err := need(entryBytes)
		if err != nil {
			return nil, err
		}
		if string(b[:4]) != entryMagic {
			return nil, damage(at, "expected an entry of the directory: the file is damaged")
		}
		names, extras, comment := int64(u16(b[28:])), int64(u16(b[30:])), int64(u16(b[32:]))
		if b, err = need(entryBytes + names + extras + comment); err != nil {
			return nil, err
		}
		m, err := d.entry(b, int(names), int(extras))
		if err != nil {
			return nil, &archive.Damage{At: at, Err: err}
		}
		members = append(members, m)
		at += int64(len(b))
	}
	return members, nil
}

// entry parses an entry of the directory.
func (d *directory) entry(b []byte, names, extras int) (archive.Member, error) {
	raw := b[entryBytes:][:names]
	m := archive.Member{Name: string(raw), CRC: u32(b[16:]), NameSum: archive.NameSum(raw)}
	packed, size, at := uint64(u32(b[20:])), uint64(u32(b[24:])), uint64(u32(b[42:]))
	extra := b[entryBytes+names:][:extras]
	for len(extra) >= 4 {
		id, n := u16(extra), int(u16(extra[2:]))
		if n > len(extra)-4 {
			break // other programs' extra fields do not matter
		}
		if id == 1 { // zip64: the values that do not fit in 32 bits, in this order
			v := extra[4:][:n]
			for _, p := range []*uint64{&size, &packed, &at} {
				if *p == math.MaxUint32 {
					if len(v) < 8 {
						return m, fmt.Errorf("the entry of the member %q is damaged", m.Name)
					}
					*p, v = u64(v), v[8:]
				}
			}
		}
		extra = extra[4+n:]
	}
	method := u16(b[10:])
	switch {
	case strings.HasSuffix(m.Name, "/"):
	case u16(b[8:])&1 != 0:
		return m, fmt.Errorf("the member %q is encrypted, which is not supported: unpack the file and write it again without a password", m.Name)
	case method != 0 && method != 8:
		return m, fmt.Errorf("the member %q is compressed with method %d, which is not supported: write the zip file again with deflate", m.Name, method)
	}
	m.Deflated = method == 8
	if at > math.MaxInt64 || int64(at) > d.at-d.base || packed > uint64(d.at) || size > math.MaxInt64 {
		return m, fmt.Errorf("the member %q of %d bytes has offset %d, outside of the file: the file is damaged", m.Name, packed, at)
	}
	m.At, m.Packed, m.Size = int64(at)+d.base, int64(packed), int64(size)
	if !m.Deflated && m.Packed != m.Size || m.Deflated && m.Size/maxRatio > m.Packed {
		return m, fmt.Errorf("the member %q cannot have %d bytes, compressed to %d: the file is damaged", m.Name, m.Size, m.Packed)
	}
	return m, nil
}

// extents sets how many bytes are read for each member. The length of its local header is unknown before it is
// read, so the extent ends at the next member.
func extents(members []archive.Member, end int64) {
	order := make([]int32, len(members))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(members[a].At, members[b].At) })
	next := end
	for k, i := range slices.Backward(order) {
		m := &members[i]
		if k+1 < len(order) && members[order[k+1]].At > m.At {
			next = members[order[k+1]].At
		}
		m.Extent = min(next-m.At, localBytes+2*math.MaxUint16+m.Packed)
	}
}

// unpack returns the content of a member. Its errors are errors of damage.
func unpack(m *archive.Member, b []byte, take func(n int64) ([]byte, error)) ([]byte, error) {
	out, err := content(m, b, take)
	return out, driver.Damaged(err)
}

// content returns the content of a member from its local header and the bytes after it.
func content(m *archive.Member, b []byte, take func(n int64) ([]byte, error)) ([]byte, error) {
	if len(b) < localBytes || string(b[:4]) != localMagic {
		return nil, errors.New("expected a member here: the file is damaged")
	}
	from := localBytes + int64(u16(b[26:])) + int64(u16(b[28:]))
	if from > int64(len(b)) || m.Packed > int64(len(b))-from {
		return nil, errors.New("the header of the member is damaged")
	}
	if archive.NameSum(b[localBytes:][:u16(b[26:])]) != m.NameSum {
		return nil, errors.New("it is damaged: the name before its content is not the name in the directory")
	}
	b = b[from : from+m.Packed : from+m.Packed]
	if m.Deflated {
		out, err := take(m.Size)
		if err != nil {
			return nil, err
		}
		if err := inflate(out, b); err != nil {
			return nil, err
		}
		b = out
	}
	if crc := crc32.ChecksumIEEE(b); crc != m.CRC {
		return nil, fmt.Errorf("it is damaged: the checksum is %08x, expected %08x", crc, m.CRC)
	}
	return b, nil
}

// inflater is pooled: the tables of package flate are much larger than most members.
type inflater struct {
	in bytes.Reader
	io.Reader
}

var inflaters = sync.Pool{New: func() any {
	f := &inflater{}
	f.Reader = flate.NewReader(&f.in)
	return f
}}

// inflate decompresses b into out.
func inflate(out, b []byte) error {
	r := inflaters.Get().(*inflater)
	r.in.Reset(b)
	if err := r.Reader.(flate.Resetter).Reset(&r.in, nil); err != nil {
		return err
	}
	err := r.inflate(out)
	r.in.Reset(nil) // the pool must not keep b
	inflaters.Put(r)
	return err
}

func (r *inflater) inflate(out []byte) error {
	if _, err := io.ReadFull(r, out); err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	var more [1]byte
	if n, err := r.Read(more[:]); n != 0 || err != io.EOF {
		return errors.New("it is damaged: it is longer than the size in the directory")
	}
	return nil
}
