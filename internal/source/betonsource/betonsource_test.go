package betonsource

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// scripts/fixtures/ffcv_beton.py wrote the file in testdata with FFCV.

// fixture returns the path of the decompressed file.
func fixture(t testing.TB) string {
	f, err := os.Open("testdata/all.beton.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return put(t, b)
}

func put(t testing.TB, b []byte) string {
	name := filepath.Join(t.TempDir(), "x.beton")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t testing.TB, name string) driver.Source {
	s, err := Open(t.Context(), name, localstore.New(name))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The values equal those that FFCV was given.
func TestValues(t *testing.T) {
	s := open(t, fixture(t))
	defer s.Close()
	var want []map[string]any
	b, err := os.ReadFile("testdata/all.json")
	if err != nil || json.Unmarshal(b, &want) != nil {
		t.Fatal(err)
	}
	info := s.Info()
	kinds := map[string]driver.Kind{
		"image": driver.KindImage, "label": driver.KindInt, "weight": driver.KindFloat, "blob": driver.KindBytes, "meta": driver.KindJSON,
		"array": driver.KindArray, "tensor": driver.KindArray, "pixels": driver.KindImage,
	}
	if info.Len != int64(len(want)) || len(info.Fields) != len(kinds) {
		t.Fatalf("%d records of %d fields", info.Len, len(info.Fields))
	}
	if f := info.Fields[5]; f.DType != driver.Float32 || fmt.Sprint(f.Shape) != "[2 3]" {
		t.Errorf("%+v", f)
	}
	if f := info.Fields[6]; f.DType != driver.Int16 || fmt.Sprint(f.Shape) != "[4]" {
		t.Errorf("%+v", f)
	}
	ids := make([]int64, info.Len)
	for i := range ids {
		ids[i] = int64(i)
	}
	for k, rec := range drivertest.Records(t, s, ids...) {
		if rec.Err != nil {
			t.Fatal(rec.Err)
		}
		for i, f := range info.Fields {
			v := &rec.Values[i]
			if f.Kind != kinds[f.Name] {
				t.Errorf("%s is %s", f.Name, f.Kind)
			}
			var got any
			switch f.Kind {
			case driver.KindImage:
				sum := sha256.Sum256(v.Bytes)
				got = hex.EncodeToString(sum[:])
				if float64(v.Width) != want[k]["width"] || float64(v.Height) != want[k]["height"] {
					t.Errorf("record %d: %d x %d", k, v.Width, v.Height)
				}
			case driver.KindInt:
				got = float64(v.Int)
			case driver.KindFloat:
				got = v.Float
			case driver.KindJSON:
				got = string(v.Bytes)
			default:
				got = hex.EncodeToString(v.Bytes)
			}
			if got != want[k][f.Name] {
				t.Errorf("record %d, %s: %v, want %v", k, f.Name, got, want[k][f.Name])
			}
		}
	}
}

// written is a field of a file that these tests write.
type written struct {
	id   typeID
	name string
	args []byte
	rows [][]byte // the metadata of each sample
}

// write writes a file from the description of the format in FFCV's documentation and reader. It can write what FFCV
// does not.
func write(fields []written, data []byte, table [][3]uint64) []byte {
	le := binary.LittleEndian
	b := le.AppendUint16(nil, version)
	b = le.AppendUint16(b, uint16(len(fields)))
	b = le.AppendUint32(b, 1<<21)
	b = le.AppendUint64(b, uint64(len(fields[0].rows)))
	b = le.AppendUint64(b, 0)
	for _, f := range fields {
		b = append(b, byte(f.id))
		b = append(b, append([]byte(f.name), make([]byte, nameBytes)...)[:nameBytes]...)
		b = append(b, append(f.args, make([]byte, argBytes)...)[:argBytes]...)
	}
	begin := len(b)
	for i := range fields[0].rows {
		for _, f := range fields {
			for f.id != imageType && f.id != bytesType && f.id != jsonType && (len(b)-begin)%8 != 0 {
				b = append(b, 0)
			}
			b = append(b, f.rows[i]...)
		}
		for (len(b)-begin)%8 != 0 {
			b = append(b, 0)
		}
	}
	for i := range table {
		table[i][1] += uint64(len(b))
	}
	b = append(b, data...)
	le.PutUint64(b[16:], uint64(len(b)))
	for _, e := range table {
		b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, e[0]), e[1]), e[2])
	}
	return b
}

// small is a file of byte strings and numbers, whose data begin at byte dataAt.
const dataAt = headerBytes + 2*descBytes + 6*24

func small() []byte {
	le := binary.LittleEndian
	blobs, ints := written{id: bytesType, name: "blob"}, written{id: intType, name: "number"}
	var data []byte
	for i := range 6 {
		blobs.rows = append(blobs.rows, le.AppendUint64(le.AppendUint64(nil, uint64(dataAt+len(data))), uint64(3*i)))
		ints.rows = append(ints.rows, le.AppendUint64(nil, uint64(i)))
		data = append(data, bytes.Repeat([]byte{byte(i)}, 3*i)...)
	}
	return write([]written{blobs, ints}, data, nil)
}

func TestBroken(t *testing.T) {
	good := small()
	le := binary.LittleEndian
	change := func(at int, v ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], v)
		return b
	}
	array := written{id: arrayType, name: "a", args: make([]byte, 8*shapeAxes), rows: [][]byte{make([]byte, 8)}}
	le.PutUint64(array.args, math.MaxInt32)
	array.args = append(le.AppendUint64(array.args, 13), `[["", "<f8"]]`...)
	image := written{id: imageType, name: "image", rows: [][]byte{{0, 9, 0, 9, 0, 99, 0, 0, 0, 0, 0, 0, 0}}}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":     {nil, "0 bytes are too few for the header"},
		"short":     {good[:20], "20 bytes are too few for the header"},
		"version":   {change(0, 1), "its version is 1, expected 2"},
		"cut":       {good[:2000], "the file is cut off, or its writer did not finish"},
		"samples":   {change(8, 0, 1), "its header has 256 samples"},
		"many":      {change(8, 0, 0, 0, 0, 0, 1), "its header has 1099511627776 samples in a file of"},
		"none":      {change(8, 0), "it has no samples"},
		"fields":    {change(2, 255, 255), "its header has 65535 fields"},
		"more":      {change(2, 100), "too few for the descriptions of 100 fields"},
		"type":      {change(headerBytes, 255), `field "blob" has the user-defined type 255`},
		"name":      {change(headerBytes+1, 0), `field 0 has the invalid name ""`},
		"twice":     {change(headerBytes+descBytes+1, []byte("blob\x00\x00")...), `two fields have the name "blob"`},
		"array":     {write([]written{array}, nil, nil), "out of range"},
		"no place":  {write([]written{image}, nil, nil), "is at byte 99, which is not in the allocation table"},
		"odd table": {append(write([]written{image}, nil, nil), 1, 2, 3), "not a multiple of 24"},
	} {
		name2 := put(t, c.file)
		_, err := Open(t.Context(), name2, localstore.New(name2))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), name2) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An offset outside of the file is an error of its record.
	s := open(t, put(t, change(headerBytes+2*descBytes+24+8, 0xFF, 0xFF, 0xFF)))
	defer s.Close()
	recs := drivertest.Records(t, s, 0, 1, 2)
	if recs[0].Err != nil || recs[2].Err != nil || recs[1].Err == nil || !strings.Contains(recs[1].Err.Error(), `sample 1: field "blob": 16777215 bytes at byte`) {
		t.Errorf("%v, %v, %v", recs[0].Err, recs[1].Err, recs[2].Err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(small())
	array := written{id: arrayType, name: "a", args: make([]byte, 8*shapeAxes), rows: [][]byte{make([]byte, 8)}}
	array.args = append(binary.LittleEndian.AppendUint64(array.args, 13), `[["", "<f8"]]`...)
	f.Add(write([]written{array}, make([]byte, 8), nil))
	jpeg := make([]byte, 13)
	binary.LittleEndian.PutUint64(jpeg[5:], headerBytes+descBytes+16)
	jpeg[1], jpeg[3] = 5, 4
	f.Add(write([]written{{id: imageType, name: "image", rows: [][]byte{jpeg}}}, make([]byte, 100), [][3]uint64{{0, 0, 100}}))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		name := filepath.Join(dir, "x.beton")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), name, localstore.New(name))
		if err != nil {
			return
		}
		defer s.Close()
		for id := range min(s.Info().Len, 3) {
			drivertest.Records(t, s, id)
		}
	})
}
