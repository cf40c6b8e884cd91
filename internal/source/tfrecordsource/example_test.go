package tfrecordsource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// TensorFlow wrote the files in testdata (scripts/fixtures/tfrecord.py), together with the values that it reads
// from them.

func columns(t testing.TB, query string) []column.Want {
	t.Helper()
	if query == "" {
		return nil
	}
	c, err := column.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func openWith(t testing.TB, path, query string) drivertest.Open {
	c := columns(t, query)
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, path, localstore.New(path), &Options{Columns: c})
	})
}

// chosen selects other kinds for some features.
const chosen = "image=image/encoded&label:label=image/class/text&n:int=image/class/label&tokens:tokens&pair:ragged&raw:bytes&score&box:array&*"

// expected returns the values that TensorFlow reads.
func expected(t *testing.T, of string) []map[string]any {
	b, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	return all[of]
}

// sum returns bytes in the form that expected uses.
func sum(b []byte) string {
	s := sha256.Sum256(b)
	return fmt.Sprintf("%d:%s", len(b), hex.EncodeToString(s[:])[:12])
}

// elements returns the elements of an array in the form that JSON has.
func elements(t driver.DType, b []byte) (out []any) {
	d, _ := dtype.Parse(string(t))
	for ; len(b) > 0; b = b[d.Size():] {
		out = append(out, d.Float(b))
	}
	return out
}

// flat flattens nested lists.
func flat(v any) (out []any) {
	if l, ok := v.([]any); ok {
		for _, x := range l {
			out = append(out, flat(x)...)
		}
		return out
	}
	return []any{v}
}

func TestExamples(t *testing.T) {
	want := expected(t, "examples")
	for _, c := range []struct{ name, query string }{{"examples.tfrecord", ""}, {"examples.tfrecord.gz", ""}, {"examples.tfrecord", chosen}, {"sequences.tfrecord", ""}} {
		if c.name == "sequences.tfrecord" {
			want = expected(t, "sequences")
		}
		s := openWith(t, filepath.Join("testdata", c.name), c.query)(t)
		defer s.Close()
		info := s.Info()
		if int(info.Len) != len(want) {
			t.Fatalf("%s: %d records, %d are expected", c.name, info.Len, len(want))
		}
		var schema *dynvalue.Schema
		switch s := s.(type) {
		case *examples:
			schema = s.schema
		case *sized:
			schema = s.schema
		case *ordered:
			schema = s.schema
		}
		for id := range info.Len {
			rec := &drivertest.Records(t, s, id)[0]
			if rec.Err != nil {
				t.Fatal(rec.Err)
			}
			for i, f := range info.Fields {
				v := rec.Values[i]
				var list []any
				if x, ok := want[id][schema.Columns[i].From]; ok {
					list = flat(x)
				}
				var got []any
				switch f.Kind {
				case driver.KindInt:
					got = []any{float64(v.Int)}
				case driver.KindLabel:
					got = []any{float64(v.Int)}
					if f.Classes != nil {
						got = []any{sum([]byte(f.Classes[v.Int]))}
					}
				case driver.KindFloat:
					if !math.IsNaN(v.Float) {
						got = []any{v.Float}
					}
				case driver.KindArray, driver.KindRagged:
					if got = elements(f.DType, v.Bytes); f.DType == driver.Uint8 { // strings in steps
						got = nil
						for b := v.Bytes; len(b) > 0; b = b[f.Shape[0]:] {
							got = append(got, sum(b[:f.Shape[0]]))
						}
					}
				case driver.KindTokens:
					got = elements(f.DType, v.Bytes)
				case driver.KindJSON:
					var texts []string
					if err := json.Unmarshal(v.Bytes, &texts); err != nil {
						t.Fatal(err)
					}
					for _, text := range texts {
						got = append(got, sum([]byte(text)))
					}
				default:
					got = []any{sum(v.Bytes)}
				}
				if !slices.Equal(got, list) {
					t.Fatalf("%s, record %d, %s: %v, TensorFlow has %v", c.name, id, f.Name, got, list)
				}
			}
		}
	}
}

// The kinds of features without a choice by the user.
func TestExampleSchema(t *testing.T) {
	for query, want := range map[string]string{
		"": "box:array/float32[4] boxes:ragged/float32[] image/class/label:int[] image/class/text:text[] image/encoded:image[] negative:int[] " +
			"pair:array/int64[2] raw:bytes[] score:float[] tokens:ragged/int64[] weight:float[] words:json[]",
		"image:image=image/encoded&label:label=image/class/label":                     "image:image[] label:label[]",
		"label:label=image/class/text&t:tokens=tokens&m:multilabel=pair&p:array=pair": "label:label[] t:tokens/uint32[] m:multilabel[] p:array/int64[2]",
		"n:ragged=negative&raw:text":                                                  "n:ragged/int64[] raw:text[]",
		"data:bytes":                                                                  "data:bytes[]",
		"record:bytes":                                                                "record:bytes[]",
	} {
		s := openWith(t, "testdata/examples.tfrecord", query)(t)
		if got := drivertest.Fields(s); got != want {
			t.Errorf("%q:\n%s, want\n%s", query, got, want)
		}
		s.Close()
	}
	s := openWith(t, "testdata/sequences.tfrecord", "")(t)
	defer s.Close()
	if got, want := drivertest.Fields(s), "at:ragged/int64[] id:text[] label:int[] rgb:ragged/uint8[6] said:json[] xy:ragged/float32[2]"; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// message encodes a field of a protocol buffer.
func message(field int, parts ...[]byte) []byte {
	b := bytes.Join(parts, nil)
	return append(binary.AppendUvarint([]byte{byte(field<<3 | 2)}, uint64(len(b))), b...)
}

// exampleOf encodes an Example. features are pairs of a name and the content of its Feature.
func exampleOf(features ...[]byte) []byte {
	var all []byte
	for k := 0; k < len(features); k += 2 {
		all = append(all, message(1, message(1, features[k]), message(2, features[k+1]))...)
	}
	return message(1, all)
}

func ints(v ...uint64) []byte {
	var b []byte
	for _, x := range v {
		b = binary.AppendUvarint(b, x)
	}
	return message(int64List, message(1, b))
}

// Encodings that TensorFlow does not write but other programs do.
func TestForms(t *testing.T) {
	unpacked := func(v ...byte) []byte {
		var b []byte
		for _, x := range v {
			b = append(b, 1<<3, x)
		}
		return message(int64List, b)
	}
	f32 := func(x float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)) }
	var b []byte
	records := [][]byte{
		exampleOf([]byte("a"), unpacked(3, 4), []byte("f"), message(floatList, append([]byte{1<<3 | 5}, f32(1.5)...), message(1, f32(2), f32(3)))),
		nil, // an Example without features
		message(1, message(1, message(2, ints(5, 6)), message(1, []byte("a")))), // the value first
		exampleOf([]byte("a"), message(int64List), []byte("f"), nil),            // an empty list, and a feature of no kind
	}
	for _, r := range records {
		b = AppendRecord(b, r)
	}
	name := filepath.Join(t.TempDir(), "x.tfrecord")
	write(t, name, b)
	s := openWith(t, name, "")(t)
	defer s.Close()
	if got := drivertest.Fields(s); got != "a:ragged/int64[] f:ragged/float32[]" {
		t.Fatal(got)
	}
	for id, want := range [][2]string{{"[3 4]", "[1.5 2 3]"}, {"[]", "[]"}, {"[5 6]", "[]"}, {"[]", "[]"}} {
		rec := &drivertest.Records(t, s, int64(id))[0]
		if rec.Err != nil {
			t.Fatal(rec.Err)
		}
		if got := fmt.Sprint(elements(driver.Int64, rec.Values[0].Bytes)); got != want[0] {
			t.Errorf("record %d: a is %s, want %s", id, got, want[0])
		}
		if got := fmt.Sprint(elements(driver.Float32, rec.Values[1].Bytes)); got != want[1] {
			t.Errorf("record %d: f is %s, want %s", id, got, want[1])
		}
	}
}

// A record that is not an Example among Examples is a bad record. So is one that lacks a feature.
func TestExampleErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, records ...[]byte) string {
		var b []byte
		for _, r := range records {
			b = AppendRecord(b, r)
		}
		write(t, filepath.Join(dir, name), b)
		return filepath.Join(dir, name)
	}
	one := exampleOf([]byte("n"), ints(1), []byte("image"), message(bytesList, message(1, []byte("\xff\xd8\xff\xe0 a picture"))))
	name := file("a.tfrecord", one, one, []byte("something else"), exampleOf([]byte("n"), ints(7)))
	s := openWith(t, name, "")(t)
	defer s.Close()
	recs := drivertest.Records(t, s, 0, 2, 3)
	for k, want := range []string{"", "a.tfrecord, record 2 (byte 118): not a tf.train.Example", "a.tfrecord, record 3 (byte 148): \"image\": it has no value"} {
		if err := recs[k].Err; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("record %d: %v, want %q", recs[k].ID, err, want)
		}
	}
	pictures := exampleOf([]byte("p"), message(bytesList, message(1, []byte("\xff\xd8\xff\xe0")), message(1, []byte("\xff\xd8\xff\xe0"))), []byte("n"), ints(3))
	for _, c := range []struct{ path, query, want string }{
		{file("b.tfrecord", pictures), "", `column "p" has several byte strings per record, which is not read; choose others, such as ?n; ?data:bytes gives the records as bytes`},
		{file("c.tfrecord", one), "n:image", `"n" cannot be image: it has numbers; without :image it is read as int`},
		{file("d.tfrecord", one), "x", `there is no column "x": the columns are "image", "n"`},
		{file("e.tfrecord", []byte("something else")), "x", "e.tfrecord, record 0 (byte 0): not a tf.train.Example: there are no features to choose"},
	} {
		_, err := Open(t.Context(), c.path, localstore.New(c.path), &Options{Columns: columns(t, c.query)})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", c.path, err, c.want)
		}
	}
}

// Opening reads only the beginning of large values.
func TestLargeExamples(t *testing.T) {
	var b []byte
	for i := range 4 {
		picture := append([]byte("\xff\xd8\xff\xe0"), content(0, i, 300_000)...)
		b = AppendRecord(b, exampleOf([]byte("image"), message(bytesList, message(1, picture)), []byte("label"), ints(uint64(i))))
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x.tfrecord"), b)
	s := openWith(t, dir, "")(t)
	defer s.Close()
	if got := drivertest.Fields(s); got != "image:image[] label:int[]" {
		t.Fatal(got)
	}
	for i, rec := range drivertest.Records(t, s, 0, 1, 2, 3) {
		if rec.Err != nil || len(rec.Values[0].Bytes) != 300_004 || rec.Values[1].Int != int64(i) {
			t.Errorf("record %d: %v", i, rec.Err)
		}
	}
}

func FuzzExample(f *testing.F) {
	for _, name := range []string{"examples.tfrecord", "sequences.tfrecord"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		at, err := scan(f.Context(), bytes.NewReader(b), int64(len(b)))
		if err != nil {
			f.Fatal(err)
		}
		for k := range at[1:4] {
			f.Add(b[at[k]+headerBytes : at[k+1]-footerBytes])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// Looking at parts of a record finds the same columns as looking at the whole.
		whole, parts := newSeen(nil), newSeen(nil)
		whole.w.view.All(b)
		parts.w.view.Some(len(b), func(p []byte, off int) error { copy(p, b[off:]); return nil })
		for _, s := range []*seen{whole, parts} {
			if err := s.record(func() string { return "it" }); err != nil {
				t.Fatal(err)
			}
		}
		if whole.examples != parts.examples {
			t.Fatalf("%v, in parts %v", whole.why, parts.why)
		}
		if whole.examples == 0 {
			return
		}
		schema, err := whole.columns.Schema(nil)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatal(err)
			}
			return
		}
		rec := driver.Record{Values: make([]driver.Value, len(schema.Fields))}
		g := &driver.Group{Alloc: func(n int) ([]byte, error) {
			if n > 16*len(b)+64 {
				return nil, errors.New("too much")
			}
			return make([]byte, n), nil
		}}
		w := scratch{plain: true}
		w.view.All(b)
		err = w.put(schema, &dynvalue.Sink{Group: g, Rec: &rec}, nil)
		w.plain = false
		for range 2 { // the second time the features of the previous record are known
			again := driver.Record{Values: make([]driver.Value, len(schema.Fields))}
			if got := w.put(schema, &dynvalue.Sink{Group: g, Rec: &again}, nil); fmt.Sprint(got) != fmt.Sprint(err) {
				t.Fatalf("%v, should be %v", got, err)
			}
			for i := range rec.Values {
				if v, want := again.Values[i], rec.Values[i]; err == nil &&
					(!bytes.Equal(v.Bytes, want.Bytes) || v.Int != want.Int || math.Float64bits(v.Float) != math.Float64bits(want.Float)) {
					t.Fatalf("%+v: %v, should be %v", schema.Fields[i], v, want)
				}
			}
		}
		if err != nil {
			var m *driver.MemoryError
			if errors.As(err, &m) {
				t.Fatal(err)
			}
			return
		}
		for i, f := range schema.Fields {
			n := len(rec.Values[i].Bytes)
			if size, err := driver.ArrayBytes(f.DType, f.Shape); f.Kind == driver.KindArray && (err != nil || int64(n) != size) {
				t.Fatalf("%+v has %d bytes", f, n)
			}
			if f.Kind != driver.KindArray && int64(n) > f.MaxBytes {
				t.Fatalf("%+v has %d bytes", f, n)
			}
		}
		equalCopies(t, b, schema, &rec)
	})
}
