package pathsource

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/drivertest"
)

type at struct {
	file         uint32
	offset, size uint64
}

func partsOf(paths []string, places ...at) []byte {
	out := []byte(PartsMagic + strings.Join(paths, "\x00") + "\x00\x00")
	for _, p := range places {
		out = binary.LittleEndian.AppendUint32(out, p.file)
		out = binary.LittleEndian.AppendUint64(out, p.offset)
		out = binary.LittleEndian.AppendUint64(out, p.size)
	}
	return out
}

// inFiles writes two files and a list of their parts. Some parts overlap.
func inFiles(t testing.TB) (dir, name string) {
	dir = t.TempDir()
	var paths []string
	for i := range 2 {
		p := filepath.Join(dir, fmt.Sprintf("%d.arrow", i))
		b := make([]byte, 50_000)
		for k := range b {
			b[k] = byte(k*7 + i)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	var places []at
	for i := range uint64(40) {
		places = append(places, at{uint32(i % 2), i * i * 10, i*800 + 1})
	}
	name = filepath.Join(dir, "list")
	if err := os.WriteFile(name, partsOf(paths, places...), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, name
}

func TestPartsConformance(t *testing.T) {
	_, name := inFiles(t)
	drivertest.Run(t, opener(name))
	recs := drivertest.Records(t, opener(name)(t), 3)
	if b := recs[0].Values[0].Bytes; len(b) != 2401 || b[0] != byte(90*7%256+1) {
		t.Errorf("got %d bytes that begin with %d", len(b), b[0])
	}
}

func TestPartsFaults(t *testing.T) { faults(t, inFiles) }

func TestPartsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("\xff\xd8 and \xff\xd9\xff\xd8 and no more"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, content := range map[string][]byte{
		"paths have no end":     []byte(PartsMagic + "/a\x00"),
		"not a multiple of 20":  append(partsOf([]string{file}, at{}), 1),
		"not absolute":          partsOf([]string{"a"}),
		"no such file":          partsOf([]string{filepath.Join(dir, "none")}),
		"is a folder":           partsOf([]string{dir}),
		"in file 1,":            partsOf([]string{file}, at{0, 0, 1}, at{1, 0, 1}),
		"20 bytes from 9":       partsOf([]string{file}, at{0, 9, 20}),
		"which is out of range": partsOf([]string{file}, at{0, ^uint64(0), 2}),
	} {
		name := filepath.Join(dir, "list")
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), name, localstore.New(name), local, 0)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	name := filepath.Join(dir, "list")
	if err := os.WriteFile(name, partsOf([]string{file}, at{0, 0, 9}, at{0, 9, 14}), 0o644); err != nil {
		t.Fatal(err)
	}
	recs := drivertest.Records(t, opener(name)(t), 0, 1)
	if recs[0].Err != nil || recs[1].Err == nil || !strings.Contains(recs[1].Err.Error(), "at byte 9: the JPEG does not end") {
		t.Errorf("got %v and %v", recs[0].Err, recs[1].Err)
	}
}

func FuzzParts(f *testing.F) {
	f.Add(partsOf([]string{"/a/b.arrow", "/c"}, at{1, 2, 3}))
	f.Add([]byte(PartsMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		names, places, err := parseParts(b)
		if err != nil {
			return
		}
		again := []byte(PartsMagic)
		for _, n := range names {
			again = append(append(append(again, '/'), n...), 0)
		}
		if again = append(append(again, 0), places...); !bytes.Equal(again, b) {
			t.Fatalf("%q is read as %q", b, again)
		}
	})
}
