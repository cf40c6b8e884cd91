package litdatasource

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/offsetshards"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// LitData wrote the files in testdata (scripts/fixtures/litdata_chunks.py), together with the values that it reads
// from them.

func opener(dir, query string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return open(ctx, dir, query) })
}

func open(ctx context.Context, dir, query string) (driver.Source, error) {
	opt := &Options{}
	if query != "" {
		var err error
		if opt.Columns, err = column.ParseQuery(query); err != nil {
			return nil, err
		}
	}
	return Open(ctx, dir, localstore.New(dir), opt)
}

// Every serializer gives the values that LitData reads.
func TestValues(t *testing.T) {
	b, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var want []map[string]any
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dir string }{{"testdata/plain"}, {"testdata/batch"}, {"testdata/chunk"}, {"testdata/sample"}} {
		s := opener(c.dir, "")(t)
		defer s.Close()
		if int(s.Info().Len) != len(want) {
			t.Fatalf("%d records", s.Info().Len)
		}
		for id := range want {
			rec := &drivertest.Records(t, s, int64(id))[0]
			if rec.Err != nil {
				t.Fatal(rec.Err)
			}
			for i, f := range s.Info().Fields {
				v := rec.Values[i]
				w, ok := want[id][f.Name]
				if !ok {
					continue
				}
				var got any
				switch f.Kind {
				case driver.KindInt, driver.KindLabel:
					got = float64(v.Int)
				case driver.KindFloat:
					got = v.Float
				case driver.KindArray, driver.KindRagged:
					d, _ := dtype.Parse(string(f.DType))
					var list []any
					for b := v.Bytes; len(b) > 0; b = b[d.Size():] {
						list = append(list, d.Float(b))
					}
					if got = list; f.DType == driver.Bool {
						got = v.Bytes[0] == 1
					}
				case driver.KindImage:
					var list []any
					for _, c := range v.Bytes {
						list = append(list, float64(c))
					}
					got = list
				case driver.KindJSON:
					if err := json.Unmarshal(v.Bytes, &got); err != nil {
						t.Fatal(err)
					}
				case driver.KindBytes:
					got = base64.StdEncoding.EncodeToString(v.Bytes)
				default:
					got = string(v.Bytes)
				}
				if !reflect.DeepEqual(got, w) {
					t.Fatalf("%s, record %d, %s: %v, LitData has %v", c.dir, id, f.Name, got, w)
				}
			}
		}
	}
}

func TestSchema(t *testing.T) {
	for _, c := range []struct{ dir, query, want string }{
		{"plain", "", "jpeg:image[] pil:image[] label:int[] score:float[] text:text[] raw:bytes[] flag:array/bool[] nest.list:ragged/int64[] " +
			"nest.tensor:array/float32[2 3] nest.line:ragged/int16[] nest.numpy:array/uint8[2 2]"},
		{"tokens", "", "data:ragged/int64[]"},
		{"tokens", "t:tokens=data", "t:tokens/uint16[]"},
		{"tuples", "", "0:int[] 1.0:text[]"},
	} {
		s := opener("testdata/"+c.dir, c.query)(t)
		if got := drivertest.Fields(s); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.dir, got, c.want)
		}
		s.Close()
	}
}

func TestErrors(t *testing.T) {
	edit := func(from, file string, change func(b []byte) []byte) string {
		dir := drivertest.Copied(t, from)
		name := filepath.Join(dir, file)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, change(b), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	index := func(old, new string) string {
		return edit("testdata/plain", IndexName, func(b []byte) []byte {
			if !strings.Contains(string(b), old) {
				t.Fatalf("the index has no %s", old)
			}
			return []byte(strings.ReplaceAll(string(b), old, new))
		})
	}
	chunk := "chunk-0-0.bin"
	for what, c := range map[string]struct{ dir, want string }{
		"pickle":     {"testdata/pickled", `"b" is pickled (unpickling can run any code), which is not read; choose others, such as ?a`},
		"truncated":  {edit("testdata/plain", chunk, func(b []byte) []byte { return b[:len(b)-1] }), chunk + ": byte 44: record 10 begins at byte"},
		"items":      {index(`"chunk_size": 4`, `"chunk_size": 5`), "records, but the index 5"},
		"no file":    {index("chunk-0-1.bin", "chunk-x"), "chunk-x"},
		"path":       {index(`"chunk-0-1.bin"`, `"../passwd"`), "expected a path below the folder of the index"},
		"serializer": {index(`"no_header_tensor:18"`, `"what"`), `leaf "nest.list": unknown serializer "what"`},
		"type":       {index(`"no_header_tensor:18"`, `"no_header_tensor:4"`), `leaf "nest.list": unsupported element type "no_header_tensor:4"`},
		"encrypted":  {index(`"encryption": null`, `"encryption": {"a": 1}`), "its chunks are encrypted"},
		"loader":     {index("PyTreeLoader", "ParquetLoader"), "unsupported item loader ParquetLoader"},
		"size": {edit("testdata/plain", chunk, func(b []byte) []byte {
			at := binary.LittleEndian.Uint32(b[4:])
			binary.LittleEndian.PutUint32(b[at:], 0xFFFFFFF0)
			return b
		}), `chunk-0-0.bin, record 0: leaf "jpeg" has 4294967280 bytes, but its item has`},
		"frames": {edit("testdata/batch", chunk, func(b []byte) []byte { b[20] = 200; return b }), "chunk-0-0.bin: "},
		"frame":  {edit("testdata/batch", chunk, func(b []byte) []byte { b[len(b)-20] ^= 0xFF; return b }), "chunk-0-0.bin, record "},
		"item":   {edit("testdata/sample", chunk, func(b []byte) []byte { b[52] |= 8; return b }), "chunk-0-0.bin, record 0: cannot decompress it"},
	} {
		_, err := open(t.Context(), c.dir, "")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
}

func FuzzItem(f *testing.F) {
	b, err := os.ReadFile("testdata/plain/index.json")
	if err != nil {
		f.Fatal(err)
	}
	var x index
	if err := json.Unmarshal(b, &x); err != nil {
		f.Fatal(err)
	}
	columns, err := x.leaves()
	if err != nil {
		f.Fatal(err)
	}
	if b, err = os.ReadFile("testdata/plain/chunk-0-0.bin"); err != nil {
		f.Fatal(err)
	}
	for k := range binary.LittleEndian.Uint32(b) {
		f.Add(b[binary.LittleEndian.Uint32(b[4+4*k:]):binary.LittleEndian.Uint32(b[8+4*k:])])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, head := range []bool{true, false} {
			w := offsetshards.NewWork(len(columns))
			w.Head = head
			w.View.All(b)
			_ = split(columns, false, w, func(i int, v *dynvalue.Value) error {
				dynvalue.Add(column.New("x", nil), v)
				if n := int64(len(v.Bytes)); n > v.Size || !head && v.Form != column.Other && n != v.Size {
					t.Fatalf("column %d: %d bytes of %d", i, n, v.Size)
				}
				return nil
			})
		}
	})
}
