package storage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/drivertest"
)

// Every shape and format can be read again, with records of the right size that
// differ.
func TestWrite(t *testing.T) {
	for _, w := range Workloads {
		for _, format := range w.Formats {
			t.Run(w.Name+"/"+format, func(t *testing.T) {
				small := w
				small.RecordBytes, small.RecordsPerFile = min(w.RecordBytes, 114_660), min(w.RecordsPerFile, 3)
				dir := t.TempDir()
				d, err := Write(t.Context(), dir, Options{Workload: &small, Format: format, Files: 3}, func(int64) {})
				if err != nil {
					t.Fatal(err)
				}
				again, err := Read(dir)
				if err != nil || again.Records != d.Records || again.Name != w.Name {
					t.Errorf("%+v, %v", again, err)
				}
				url := filepath.Join(dir, "train")
				switch format {
				case Indexed:
					url = "files:" + url
				case TFRecord: // records as they are
					url += "?data:bytes"
				}
				s, err := source.Open(t.Context(), url, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if format == Indexed {
					if s.Info().Len != 9 {
						t.Errorf("%d files", s.Info().Len)
					}
					return
				}
				if s.Info().Len != d.Records {
					t.Fatalf("%d records, not %d", s.Info().Len, d.Records)
				}
				recs := drivertest.Records(t, s, 0, d.Records-1)
				a, b := recs[0], recs[1]
				if a.Err != nil || b.Err != nil {
					t.Fatal(a.Err, b.Err)
				}
				x, y := a.Values[0].Bytes, b.Values[0].Bytes
				if bytes.Equal(x, y) || int64(len(x)) > small.RecordBytes || int64(len(x)) < small.RecordBytes-400 {
					t.Errorf("records of %d and %d bytes", len(x), len(y))
				}
				if format == TFRecord && (int64(len(x)) != small.RecordBytes || !bytes.HasPrefix(x[3:], nil) || !bytes.Contains(x[:40], []byte("\x0a\x05image"))) {
					t.Errorf("an example of %d bytes begins with % x", len(x), x[:40])
				}
			})
		}
	}
}

// The lengths inside of an example add up, at sizes for which they take more bytes.
func TestExample(t *testing.T) {
	for _, n := range []int64{140, 200, 300, 16_500, 114_660, 2_828_486} {
		w := &writer{o: &Options{Workload: &Workload{RecordBytes: n}}}
		w.example(1, 2)
		if d := n - int64(len(w.data)); d < 0 || d > 4 {
			t.Errorf("an example of %d bytes instead of %d", len(w.data), n)
		}
		b := w.data
		for _, tag := range []byte{0x0A, 0x0A} { // features, feature
			b = inner(t, b, tag)
		}
		if !bytes.HasPrefix(b, []byte("\x0a\x05image")) {
			t.Fatalf("begins with % x", b[:20])
		}
		for _, tag := range []byte{0x12, 0x0A, 0x0A} { // value, bytes_list, value
			if tag == 0x12 {
				b = b[7:]
			}
			b = inner(t, b, tag)
		}
	}
}

// inner returns the content of the one field that a message consists of.
func inner(t *testing.T, b []byte, tag byte) []byte {
	t.Helper()
	n, shift, i := 0, 0, 1
	for ; ; i++ {
		n |= int(b[i]&0x7F) << shift
		shift += 7
		if b[i] < 0x80 {
			break
		}
	}
	if b[0] != tag || len(b) != i+1+n {
		t.Fatalf("tag %x and %d bytes, %d follow", b[0], n, len(b)-i-1)
	}
	return b[i+1:]
}

func TestCheck(t *testing.T) {
	w, _ := Find("resnet50")
	for _, c := range []struct {
		o     Options
		files int
		ok    bool
	}{
		{Options{Workload: w, Scale: 0.01}, 10, true},
		{Options{Workload: w, Scale: 0.001, Format: NPZ}, 1281, true},
		{Options{Workload: w, Files: 7}, 7, true},
		{Options{Workload: w}, 0, false},
		{Options{Workload: w, Files: -1}, 0, false},
		{Options{Workload: w, Scale: 1, Format: "hdf5"}, 0, false},
	} {
		if err := c.o.Check(); (err == nil) != c.ok || c.ok && c.o.Files != c.files {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

func TestDeterministic(t *testing.T) {
	w, _ := Find("resnet50")
	small := *w
	small.RecordsPerFile = 2
	var first []byte
	for i := range 2 {
		dir := t.TempDir()
		if _, err := Write(t.Context(), dir, Options{Workload: &small, Files: 2}, func(int64) {}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "train", fmt.Sprintf("img_%06d.tfrecord", 1)))
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 && !bytes.Equal(first, b) {
			t.Error("the second time it has other bytes")
		}
		first = b
	}
}
