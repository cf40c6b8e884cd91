package tfrecordsource

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/source/driver"
)

// placed parses a group of consecutive records of a file. If places is set, all values get places.
func placed(t testing.TB, s *examples, file []byte, at []int64, places bool) *driver.Group {
	t.Helper()
	g := &driver.Group{Alloc: func(n int) ([]byte, error) { return make([]byte, n), nil }}
	if places {
		g.Place = func(_, _ int, n int64) []byte { return make([]byte, n) }
	}
	var ids []int64
	for k := range at[1:] {
		ids = append(ids, int64(k))
	}
	g.Begin(ids, len(s.schema.Fields))
	for k := range ids {
		b := file[at[k]+headerBytes : at[k+1] : at[k+1]]
		g.Extents, g.Bytes = append(g.Extents, driver.Extent{Size: int64(len(b)), Field: -1}), append(g.Bytes, b)
		g.Next()
	}
	if err := s.Parse(g); err != nil {
		t.Fatal(err)
	}
	return g
}

// equalCopies compares the values of a record with the values copied to places.
func equalCopies(t testing.TB, b []byte, schema *dynvalue.Schema, want *driver.Record) {
	t.Helper()
	defer func(n int) { copyFrom = n }(copyFrom)
	copyFrom = 3
	at := []int64{0, int64(headerBytes + len(b) + footerBytes)}
	s := &examples{source: &source{at: at, first: []int64{0}}, schema: schema}
	got := &placed(t, s, AppendRecord(nil, b), at, true).Records[0]
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	for i := range want.Values {
		if w, g := want.Values[i], got.Values[i]; !bytes.Equal(w.Bytes, g.Bytes) || w.Int != g.Int {
			t.Fatalf("%+v: %v, should be %v", schema.Fields[i], g, w)
		}
	}
}

func asExamples(s driver.Source) *examples {
	if s, ok := s.(*sized); ok {
		return s.examples
	}
	return s.(*examples)
}

// Values that are copied together with the checksum equal values that are not, and every changed byte is detected.
func TestCopies(t *testing.T) {
	floats := func(i int) []byte { return message(floatList, message(1, content(1, i, 8000))) }
	text := func(i, n int) []byte { return message(bytesList, message(1, content(2, i, n))) }
	var file []byte
	for i := range 6 {
		features := [][]byte{[]byte("z"), text(i, 20_000+i), []byte("n"), ints(uint64(i)), []byte("f"), floats(i), []byte("small"), text(i+6, 30), []byte("a"), text(i+12, 5000)}
		if i%2 == 1 {
			features = append(features[6:], features[:6]...)
		}
		file = AppendRecord(file, exampleOf(features...))
	}
	name := filepath.Join(t.TempDir(), "x.tfrecord")
	write(t, name, file)
	for query, copies := range map[string]bool{
		"z:bytes&n&f&small:bytes&a:bytes": true,
		"a:bytes&z:bytes&again:bytes=z":   true,
		"n&small:bytes":                   false,
	} {
		s := asExamples(openWith(t, name, query)(t))
		defer s.Close()
		at := make([]int64, 0, 7)
		for i := range int64(6) {
			_, from, _ := s.place(i)
			at = append(at, from-headerBytes)
		}
		at = append(at, int64(len(file)))
		plain, got := placed(t, s, file, at, false), placed(t, s, file, at, true)
		outside := false
		for k := range got.Records {
			if err := got.Records[k].Err; err != nil {
				t.Fatal(err)
			}
			for i, v := range got.Records[k].Values {
				w := plain.Records[k].Values[i]
				if !bytes.Equal(v.Bytes, w.Bytes) || v.Int != w.Int {
					t.Errorf("%s: record %d, %s differs", query, k, s.schema.Fields[i].Name)
				}
				outside = outside || len(v.Bytes) > 0 && &v.Bytes[0] != &w.Bytes[0]
			}
		}
		if outside != copies {
			t.Errorf("%s: copied %v, should be %v", query, outside, copies)
		}
		for _, off := range []int{0, 3, 17, 100, 5_000, 12_000, 19_990, 25_000, 33_000} {
			damaged := bytes.Clone(file)
			damaged[at[2]+headerBytes+int64(off)] ^= 0x40
			for k, rec := range placed(t, s, damaged, at, true).Records {
				if bad := rec.Err != nil && strings.Contains(rec.Err.Error(), "the record is damaged: the checksum is"); bad != (k == 2) {
					t.Errorf("%s, byte %d: record %d: %v", query, off, k, rec.Err)
				}
			}
		}
	}
	// Files written by TensorFlow.
	for _, name := range []string{"examples.tfrecord", "sequences.tfrecord"} {
		path := filepath.Join("testdata", name)
		s := asExamples(openWith(t, path, "")(t))
		defer s.Close()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at, err := scan(t.Context(), bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		for k, rec := range placed(t, s, b, at, false).Records {
			t.Run(fmt.Sprint(name, k), func(t *testing.T) {
				equalCopies(t, b[at[k]+headerBytes:at[k+1]-footerBytes], s.schema, &rec)
			})
		}
	}
}
