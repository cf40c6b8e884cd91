// Package formattest writes small datasets in the formats that Stoker reads, for the table of formats in
// source/formats_table_test.go and for the tests of single formats.
package formattest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
)

// Gzip compresses b.
func Gzip(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b) // a bytes.Buffer does not fail
	_ = z.Close()
	return out.Bytes()
}

// WAV returns a file of sound with one channel and 8,000 samples per second.
func WAV(samples ...int16) []byte {
	le := binary.LittleEndian
	n := uint32(2 * len(samples))
	b := append(le.AppendUint32([]byte("RIFF"), 36+n), "WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"...)
	b = le.AppendUint32(le.AppendUint32(b, 8000), 16000)
	b = le.AppendUint32(append(b, "\x02\x00\x10\x00data"...), n)
	for _, s := range samples {
		b = le.AppendUint16(b, uint16(s))
	}
	return b
}
