package tfrecordsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// content is record i of file f.
func content(f, i, size int) []byte {
	rng := rand.New(rand.NewPCG(uint64(f), uint64(i)))
	b := make([]byte, size+7)
	for k := 0; k < size; k += 8 {
		binary.LittleEndian.PutUint64(b[k:], rng.Uint64())
	}
	return b[:size]
}

// piece is a size around which records are made: content of slightly smaller and larger ones.
const piece = 256 << 10

// folder makes files of records with sizes around window and piece.
func folder(t testing.TB) (dir string, sizes []int64) {
	dir = t.TempDir()
	for f := range 3 {
		var b []byte
		for i, size := range []int{0, 1, 100, 40_000, 5, piece - 1, piece, piece + 1, 3*piece + 7, 0, 12, 70_000} {
			b = AppendRecord(b, content(f, i, size))
			sizes = append(sizes, int64(size))
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("train.tfrecord-%05d-of-00003", f)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, sizes
}

func opener(path string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, path, localstore.New(path), nil)
	})
}

func BenchmarkRecords(b *testing.B) {
	name := filepath.Join(b.TempDir(), "x.tfrecord")
	var out []byte
	for i := range 400 {
		out = AppendRecord(out, content(1, i, 114_660))
	}
	if err := os.WriteFile(name, out, 0o644); err != nil {
		b.Fatal(err)
	}
	drivertest.Bench(b, opener(name))
}

func TestRecords(t *testing.T) {
	dir, sizes := folder(t)
	s := opener(dir)(t)
	defer s.Close()
	if s.Info().Len != int64(len(sizes)) || s.Info().Fields[0].MaxBytes != 3*piece+7 {
		t.Fatalf("%+v", s.Info())
	}
	for id, size := range sizes {
		rec := &drivertest.Records(t, s, int64(id))[0]
		if rec.Err != nil {
			t.Fatal(rec.Err)
		}
		if want := content(id/12, id%12, int(size)); !bytes.Equal(rec.Values[0].Bytes, want) {
			t.Errorf("record %d is something else", id)
		}
	}
	if got := s.Name(14); !strings.HasSuffix(got, "train.tfrecord-00001-of-00003, record 2 (byte 33)") {
		t.Errorf("its name is %q", got)
	}
}

// The check values of the reference implementation: the masked CRC-32C of length 0 equals the one of eight zero
// bytes.
func TestMasked(t *testing.T) {
	b := AppendRecord(nil, nil)
	if want := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2}; !bytes.Equal(b, want) {
		t.Errorf("an empty record is % x, want % x", b, want)
	}
}

func TestDamage(t *testing.T) {
	var whole []byte
	for i := range 5 {
		whole = AppendRecord(whole, content(0, i, 1000))
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "x.tfrecord")
	for what, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"cut in a record": {whole[:len(whole)-1], "x.tfrecord, byte 4064: a record of 1000 bytes begins here, the file ends 1015 bytes later"},
		"cut in a header": {whole[:1016+5], "x.tfrecord, byte 1016: 5 bytes are left"},
		"length":          {append([]byte{1}, whole[1:]...), "x.tfrecord, byte 0: expected a TFRecord"},
		"empty":           {nil, "have no records"},
	} {
		if err := os.WriteFile(name, c.bytes, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), dir, localstore.New(dir), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
	}
	whole[1016+12+7] ^= 4
	if err := os.WriteFile(name, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	s := opener(dir)(t)
	defer s.Close()
	if r := drivertest.Records(t, s, 0, 1, 2); r[0].Err != nil || r[2].Err != nil || r[1].Err == nil || !strings.Contains(r[1].Err.Error(), "bytes 1028 to 2028: the record is damaged") {
		t.Errorf("%v, %v, %v", r[0].Err, r[1].Err, r[2].Err)
	}
}

func FuzzScan(f *testing.F) {
	var b []byte
	for i := range 4 {
		b = AppendRecord(b, content(0, i, 10*i))
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		at, err := scan(t.Context(), bytes.NewReader(b), int64(len(b)))
		var d *damage
		if err != nil {
			if !errors.As(err, &d) || d.at < 0 || d.at > int64(len(b)) {
				t.Fatalf("%v", err)
			}
			return
		}
		for i := range at[1:] {
			if at[i+1]-at[i] < headerBytes+footerBytes {
				t.Fatalf("records at %v", at)
			}
		}
		if at[len(at)-1] != int64(len(b)) {
			t.Fatalf("the last record ends at %d of %d", at[len(at)-1], len(b))
		}
	})
}

func TestChecksum(t *testing.T) {
	for _, n := range []int{0, 1, ahead - 1, ahead, ahead + 1, 2*ahead + 1, 100_000} {
		b := content(n, 0, n)
		if got, want := checksum(b), masked(crc32.Checksum(b, castagnoli)); got != want {
			t.Errorf("of %d bytes: %08x, want %08x", n, got, want)
		}
	}
}
