package spoolsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

// file returns a file with n records: a label, a float, an array, text and pixels.
func file(n int) []byte {
	var values, index []byte
	word := func(v uint64) { index = binary.LittleEndian.AppendUint64(index, v) }
	add := func(b []byte, mark uint64) {
		values = append(values, b...)
		word(uint64(len(b)) | mark)
	}
	for i := range n {
		word(uint64(len(values)))
		word(uint64(i % 3))
		word(math.Float64bits(float64(i) / 4))
		add([]byte{byte(i), 1, byte(i * 3), 2}, 0)
		add([]byte(strings.Repeat("é", i%5)), 0)
		w, h := 1+i%4, 2
		px := binary.LittleEndian.AppendUint32(nil, uint32(w))
		px = binary.LittleEndian.AppendUint32(px, uint32(h))
		px = binary.LittleEndian.AppendUint32(px, 3)
		for k := range w * h * 3 {
			px = append(px, byte(k*i))
		}
		add(px, raw)
	}
	text, _ := json.Marshal(spool{Name: "digits", Fingerprint: "abc", Skipped: []driver.Skipped{{Path: "record 7", Reason: "no image"}}, Fields: []field{
		{Name: "label", Kind: driver.KindLabel, Classes: []string{"a", "b", "c"}},
		{Name: "weight", Kind: driver.KindFloat},
		{Name: "x", Kind: driver.KindArray, DType: driver.Uint16, Shape: []int{2}},
		{Name: "caption", Kind: driver.KindText},
		{Name: "image", Kind: driver.KindImage},
	}})
	return finish(values, index, text, n)
}

func finish(values, index, text []byte, n int) []byte {
	tail := append(index, text...)
	out := append(values, tail...)
	for _, v := range []uint64{uint64(len(values)), uint64(n), uint64(len(text)), uint64(crc32.ChecksumIEEE(tail))} {
		out = binary.LittleEndian.AppendUint64(out, v)
	}
	return append(out, Magic...)
}

func write(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "piece.spool")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func opener(path string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return Open(ctx, path, localstore.New(path)) })
}

func TestConformance(t *testing.T) { drivertest.Run(t, opener(write(t, file(50)))) }

func TestFaults(t *testing.T) {
	drivertest.Faults(t, localstore.New(write(t, file(20))), false, func(ctx context.Context, st store.Store) (driver.Source, error) {
		return Open(ctx, "test", st)
	})
}

func TestRecords(t *testing.T) {
	path := write(t, file(50))
	if !IsFile(t.Context(), localstore.New(path)) || IsFile(t.Context(), localstore.New(write(t, []byte(Magic)))) {
		t.Error("IsFile is wrong")
	}
	s := opener(path)(t)
	defer s.Close()
	if f := s.Info().Fields; s.Info().Len != 50 || len(f) != 5 || f[2].MaxBytes != 4 || len(f[0].Classes) != 3 || s.Info().URL != "digits" {
		t.Fatalf("%+v", s.Info())
	}
	if sk := s.(driver.Skipper).Skipped(); len(sk) != 1 || sk[0].Reason != "no image" {
		t.Errorf("%v", sk)
	}
	for _, r := range drivertest.Records(t, s, 49, 0, 13) {
		i := int(r.ID)
		v := r.Values
		if r.Err != nil || v[0].Int != r.ID%3 || v[1].Float != float64(i)/4 || !bytes.Equal(v[2].Bytes, []byte{byte(i), 1, byte(i * 3), 2}) {
			t.Errorf("record %d: %v, %v", i, r.Err, v)
		}
		if len(v[3].Bytes) != 2*(i%5) || v[4].Width != int32(1+i%4) || v[4].Height != 2 || v[4].Codec != driver.CodecRaw || len(v[4].Bytes) != (1+i%4)*6 {
			t.Errorf("record %d: %v", i, v)
		}
	}
}

func TestBadFiles(t *testing.T) {
	good := file(10)
	with := func(change func(b []byte) []byte) []byte { return change(bytes.Clone(good)) }
	at := binary.LittleEndian.Uint64(good[len(good)-trailer:])
	index := func(word int, v uint64) []byte {
		return with(func(b []byte) []byte {
			binary.LittleEndian.PutUint64(b[at+8*uint64(word):], v)
			sum := uint64(crc32.ChecksumIEEE(b[at : len(b)-trailer]))
			binary.LittleEndian.PutUint64(b[len(b)-16:], sum)
			return b
		})
	}
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":    {nil, "0 bytes are too few"},
		"cut":      {good[:len(good)-3], "it was cut off"},
		"index":    {with(func(b []byte) []byte { b[at] ^= 1; return b }), "the checksum of its index is"},
		"huge":     {with(func(b []byte) []byte { binary.LittleEndian.PutUint64(b[len(b)-trailer:], 1<<63); return b }), "in a file of"},
		"json":     {finish(nil, nil, []byte("{"), 0), "unexpected end of JSON"},
		"count":    {with(func(b []byte) []byte { binary.LittleEndian.PutUint64(b[len(b)-32:], 1<<61); return b }), "for 2305843009213693952 records"},
		"offset":   {index(6, 1), "record 1 is at byte 1, expected"},
		"size":     {index(3, 1<<40), `field "x" has 1099511627776 bytes`},
		"text":     {index(4, 1<<40), `field "caption" has 1099511627776 bytes`},
		"no field": {finish(nil, nil, []byte(`{"fields":[]}`), 0), "0 fields"},
		"dtype":    {finish(nil, nil, []byte(`{"fields":[{"name":"x","kind":"array","dtype":"u2"}]}`), 0), `unknown element type "u2"`},
	} {
		path := write(t, c.b)
		if _, err := Open(t.Context(), path, localstore.New(path)); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(file(3))
	f.Add(finish(nil, nil, []byte(`{"fields":[{"name":"x","kind":"int"}]}`), 0))
	path := filepath.Join(f.TempDir(), "x")
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > trailer { // so that not only the checksum is tested
			at := binary.LittleEndian.Uint64(b[len(b)-trailer:])
			if at <= uint64(len(b)-trailer) {
				b = bytes.Clone(b)
				binary.LittleEndian.PutUint64(b[len(b)-16:], uint64(crc32.ChecksumIEEE(b[at:len(b)-trailer])))
			}
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), path, localstore.New(path))
		if err != nil {
			return
		}
		defer s.Close()
		for id := range min(s.Info().Len, 3) {
			_ = fmt.Sprint(drivertest.Records(t, s, id))
		}
	})
}
