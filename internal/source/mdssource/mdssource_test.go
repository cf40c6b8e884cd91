package mdssource

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

// MosaicML Streaming wrote the files in testdata (scripts/fixtures/mds.py), together with the
// values that it reads from them.

func opener(dir, split, query string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return open(ctx, dir, split, query) })
}

func open(ctx context.Context, dir, split, query string) (driver.Source, error) {
	opt := &Options{Split: split}
	if query != "" {
		var err error
		if opt.Columns, err = column.ParseQuery(query); err != nil {
			return nil, err
		}
	}
	return Open(ctx, dir, localstore.New(dir), opt)
}

// Every encoding gives the values that streaming reads.
func TestValues(t *testing.T) {
	b, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var want []map[string]any
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dir, split string }{{"testdata/all", "train"}, {"testdata/zstd", ""}, {"testdata/gz", ""}} {
		s := opener(c.dir, c.split, "")(t)
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
				if !ok || f.Name == "png" {
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
					got = list
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
					t.Fatalf("%s, record %d, %s: %v, streaming has %v", c.dir, id, f.Name, got, w)
				}
			}
		}
	}
}

func TestSchema(t *testing.T) {
	s := opener("testdata/all", "train", "")(t)
	defer s.Close()
	want := "any:array/float64[2 2] big:int[] f16:float[] f32:float[] f64:float[] fixed:array/float32[2 3] gray:image[] i16:int[] i32:int[] i64:int[] i8:int[] " +
		"id:int[] jpeg:image[] label:int[] meta:json[] pil:image[] png:image[] price:text[] raw:bytes[] real:float[] rows:ragged/uint16[] text:text[] " +
		"typed:ragged/int16[2] u16:int[] u32:int[] u64:int[] u8:int[]"
	if got := drivertest.Fields(s); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	s2 := opener("testdata/all", "train", "t:tokens=rows&label:int")(t)
	defer s2.Close()
	if got := drivertest.Fields(s2); got != "t:tokens/uint16[] label:int[]" {
		t.Error(got)
	}
	if _, err := open(t.Context(), "testdata/pickled", "", "id"); err != nil {
		t.Errorf("a column next to a pickled one: %v", err)
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
		return edit("testdata/all/train", IndexName, func(b []byte) []byte { return []byte(strings.ReplaceAll(string(b), old, new)) })
	}
	shard := "shard.00000.mds"
	for what, c := range map[string]struct{ dir, split, want string }{
		"splits":      {"testdata/all", "", "testdata/all has the splits train, val: choose one, such as ?split=train"},
		"no split":    {"testdata/all", "test", `has no split "test": it has train, val`},
		"out":         {"testdata/all", "../all/train", "is not a folder in it"},
		"brotli":      {"testdata/br", "", "shard.00000.mds.br has an unsupported compression"},
		"pickle":      {"testdata/pickled", "", `"text" is pickled (unpickling can run any code), which is not read; choose others, such as ?id`},
		"truncated":   {edit("testdata/all/train", shard, func(b []byte) []byte { return b[:len(b)-1] }), "", shard + " has "},
		"samples":     {index(`"samples": `, `"samples": 1`), "", "records, but the index"},
		"no file":     {index("shard.00001.mds", "shard.x"), "", "shard.x"},
		"path":        {index(`"basename": "shard.00001.mds"`, `"basename": "../../etc/passwd"`), "", "expected a path below the folder of the index"},
		"encoding":    {index(`"str_int"`, `"str_what"`), "", `column "big": unknown encoding "str_what"`},
		"huge column": {index(`"column_sizes": [null, `, `"column_sizes": [99999999999, `), "", `column "any" has 99999999999 bytes`},
		"offset": {edit("testdata/all/train", shard, func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[8:], 0xFFFFFFF0)
			return b
		}), "", "shard.00000.mds: byte 8: record 1 begins at byte 4294967280 of"},
		"size": {edit("testdata/all/train", shard, func(b []byte) []byte {
			at := binary.LittleEndian.Uint32(b[4:])
			binary.LittleEndian.PutUint32(b[at:], 0xFFFFFFF0)
			return b
		}), "", `shard.00000.mds, record 0: column "any" has 4294967280 bytes, but its sample has`},
		"no index": {edit("testdata/all/train", IndexName, func([]byte) []byte { return []byte("{") }), "", "index.json, byte 1: not an index of MDS shards"},
		"cut stream": {edit("testdata/zstd", "shard.00000.mds.zstd", func(b []byte) []byte {
			for i := range b[40:] {
				b[40+i] = 0
			}
			return b
		}), "", "shard.00000.mds.zstd, record 0 (byte "},
	} {
		_, err := open(t.Context(), c.dir, c.split, "")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
}

func FuzzSample(f *testing.F) {
	b, err := os.ReadFile("testdata/all/train/index.json")
	if err != nil {
		f.Fatal(err)
	}
	var x index
	if err := json.Unmarshal(b, &x); err != nil {
		f.Fatal(err)
	}
	columns, err := x.columns()
	if err != nil {
		f.Fatal(err)
	}
	if b, err = os.ReadFile("testdata/all/train/shard.00000.mds"); err != nil {
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
			_ = split(columns, w, func(i int, v *dynvalue.Value) error {
				dynvalue.Add(column.New("x", nil), v)
				if n := int64(len(v.Bytes)); n > v.Size || !head && v.Form != column.Other && n != v.Size {
					t.Fatalf("column %d: %d bytes of %d", i, n, v.Size)
				}
				return nil
			})
		}
	})
}
