// Package formattest writes small datasets in the formats that Stoker reads, for the table of formats in
// source/formats_table_test.go and for the tests of single formats.
package formattest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io/fs"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/stokerdata/stoker/source/drivertest"
)

// pieces calls f for each n bytes of b, or once for all of them if n is not given or 0.
func pieces(b []byte, n []int, f func(i int, p []byte)) {
	size := len(b)
	if len(n) > 0 && n[0] > 0 {
		size = n[0]
	}
	for i := 0; i == 0 || len(b) > 0; i++ {
		p := b[:min(size, len(b))]
		b = b[len(p):]
		f(i, p)
	}
}

// Gzip compresses b, or each n bytes of it as a member of its own.
func Gzip(b []byte, n ...int) []byte {
	var out bytes.Buffer
	pieces(b, n, func(_ int, p []byte) {
		z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // the level is valid
		_, _ = z.Write(p)                                 // a bytes.Buffer does not fail
		_ = z.Close()
	})
	return out.Bytes()
}

// Zstd compresses b, or each n bytes of it as a frame of its own, some of them after a frame that is skipped.
func Zstd(b []byte, n ...int) (out []byte) {
	z, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true)) // the options are valid
	defer z.Close()
	pieces(b, n, func(i int, p []byte) {
		if i%2 == 1 {
			out = append(out, 0x53, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3)
		}
		out = z.EncodeAll(p, out)
	})
	return out
}

// Compressed returns a folder with the files of another one, each compressed in another way.
func Compressed(t testing.TB, plain string) string {
	t.Helper()
	dir, from := t.TempDir(), os.DirFS(plain)
	all, err := fs.ReadDir(from, ".")
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range all {
		b, err := fs.ReadFile(from, e.Name())
		if err != nil {
			t.Fatal(err)
		}
		name := e.Name()
		switch i % 5 {
		case 0:
			b, name = append(Gzip(b, 100_001), Gzip(nil)...), name+".gz"
		case 1:
			b, name = Zstd(b, 30_000), name+".zst"
		case 2: // not compressed
		case 3:
			b, name = Gzip(b, 3001), name+".gz"
		case 4:
			b, name = Zstd(b), name+".zst"
		}
		drivertest.Put(t, dir, name, b)
	}
	return dir
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
