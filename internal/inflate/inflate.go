// Package inflate decompresses deflate data (RFC 1951), bare or in the frames of zlib (RFC 1950) and gzip (RFC 1952).
// All bytes must be in memory and the size known. It is several times as fast as a reader that decompresses in pieces.
package inflate

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/stokerdata/stoker/internal/cdec"
)

// Errors of data that is damaged.
var (
	ErrData     = cdec.ErrDeflate
	ErrShort    = cdec.ErrDeflateShort
	ErrSize     = cdec.ErrDeflateSize
	ErrChecksum = errors.New("the checksum of deflate data is wrong")
)

// Zlib fills dst with the data in a zlib frame, which must have that size.
func Zlib(dst, src []byte) error {
	if len(src) < 6 {
		return ErrShort
	}
	if src[0]&15 != 8 || (uint(src[0])<<8|uint(src[1]))%31 != 0 || src[1]&32 != 0 {
		return ErrData
	}
	n, used, err := Raw(dst, src[2:])
	if err != nil {
		return err
	}
	if n != len(dst) {
		return ErrSize
	}
	if used+6 > len(src) {
		return ErrShort
	}
	if cdec.Adler32(dst) != binary.BigEndian.Uint32(src[2+used:]) {
		return ErrChecksum
	}
	return nil
}

// Gzip fills dst with the data in the members of a gzip file, which must have that
// size together.
func Gzip(dst, src []byte) error {
	for first := true; first || len(src) > 0; first = false {
		head, err := gzipHead(src)
		if err != nil {
			return err
		}
		n, used, err := Raw(dst, src[head:])
		if err != nil {
			return err
		}
		src = src[head+used:]
		if len(src) < 8 {
			return ErrShort
		}
		if crc32.ChecksumIEEE(dst[:n]) != binary.LittleEndian.Uint32(src) || uint32(n) != binary.LittleEndian.Uint32(src[4:]) {
			return ErrChecksum
		}
		dst, src = dst[n:], src[8:]
	}
	if len(dst) != 0 {
		return ErrSize
	}
	return nil
}

// gzipHead is the size of the header of a gzip member.
func gzipHead(b []byte) (int, error) {
	if len(b) < 18 {
		return 0, ErrShort
	}
	if b[0] != 0x1F || b[1] != 0x8B || b[2] != 8 || b[3]&0xE0 != 0 {
		return 0, ErrData
	}
	at := 10
	if b[3]&4 != 0 {
		at += 2 + int(binary.LittleEndian.Uint16(b[10:]))
	}
	for _, flag := range []byte{8, 16} { // a name, a comment
		if b[3]&flag == 0 {
			continue
		}
		for at < len(b) && b[at] != 0 {
			at++
		}
		at++
	}
	if b[3]&2 != 0 {
		at += 2
	}
	if at > len(b) {
		return 0, ErrShort
	}
	return at, nil
}

// Raw writes deflate data to dst. It returns the number of bytes written and the number of bytes of src used. Data that
// does not fit is ErrSize. Like Go code that reads src, it panics with an error if src is part of a mapped file that
// cannot be read.
func Raw(dst, src []byte) (n, used int, err error) { return cdec.Inflate(dst, src) }
