package pathsource

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

// list writes files and a list of them in another order than that of their names.
func list(t testing.TB) (dir, name string) {
	dir = t.TempDir()
	out := []byte(Magic)
	for i := range 40 {
		p := filepath.Join(dir, fmt.Sprintf("%02d.bin", (i*7)%40))
		if err := os.WriteFile(p, bytes.Repeat([]byte{byte(i)}, i*i*11+1), 0o644); err != nil {
			t.Fatal(err)
		}
		out = append(append(out, p...), 0)
	}
	name = filepath.Join(dir, "list")
	if err := os.WriteFile(name, out, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, name
}

func local(folder string) store.Store { return localstore.New(folder) }

func opener(name string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, name, localstore.New(name), local, 0)
	})
}

func TestConformance(t *testing.T) {
	_, name := list(t)
	drivertest.Run(t, opener(name))
}

func TestFaults(t *testing.T) { faults(t, list) }

// faults runs the fault tests on a list of files in a folder.
func faults(t *testing.T, list func(testing.TB) (dir, name string)) {
	dir, name := list(t)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(t.TempDir(), "list") // paths relative to dir
	if err := os.WriteFile(name, bytes.ReplaceAll(b, []byte(dir), nil), 0o644); err != nil {
		t.Fatal(err)
	}
	drivertest.Faults(t, localstore.New(dir), false, func(ctx context.Context, st store.Store) (driver.Source, error) {
		return Open(ctx, "test", localstore.New(name), func(string) store.Store { return st }, 1)
	})
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	whole, cut := write("whole.jpg", "\xff\xd8 and \xff\xd9"), write("cut.jpg", "\xff\xd8 and no more")
	paths := []string{whole, cut, filepath.Join(dir, "none.jpg"), dir, filepath.Join(dir, "a", "..", "whole.jpg"), whole}
	paths[4] = dir + "/a/../whole.jpg"
	chunk := func(kind, body string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + kind + body + "sum."
	}
	packed := func(n int) string {
		var b bytes.Buffer
		w := zlib.NewWriter(&b)
		_, _ = w.Write(make([]byte, n))
		_ = w.Close()
		return b.String()
	}
	const png = "\x89PNG\r\n\x1a\n"
	paths = append(paths,
		write("a.pam", "P7\nWIDTH 1\nHEIGHT 1\nDEPTH 1\nMAXVAL 255\nENDHDR\n1"), write("a.pfm", "PF\n1 1\n-1\n"),
		write("text.png", png+chunk("zTXt", "name\x00\x00"+packed(1<<20+1))),
		write("profile.png", png+chunk("IEND", "")+chunk("iCCP", "name\x00\x00"+packed(2<<20))),
		write("long.png", png+chunk("iTXt", "name\x00\x01\x00en\x00name\x00"+packed(2<<20))),
		write("gap.png", png+chunk("IDAT", "1")+chunk("tEXt", "")+chunk("IDAT", "2")),
		write("good.png", png+chunk("zTXt", "name\x00\x00"+packed(1<<20))+chunk("tEXt", strings.Repeat("x", 2<<20))),
	)
	name := write("list", Magic+strings.Join(paths, "\x00")+"\x00")
	recs := drivertest.Records(t, opener(name)(t), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	for i, want := range []string{
		"", "end marker", "no such file", "is a folder", "..", "", "does not read", "does not read", "long texts", "", "long texts", "two places",
		"",
	} {
		if err := recs[i].Err; err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("record %d: got %v, want %q", i, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	for content, want := range map[string]string{
		"":                   "not a list of paths",
		Magic + "/a":         "cut off",
		Magic + "a\x00":      "not absolute",
		Magic + "/a\x00\x00": "not absolute",
		Magic + "/" + strings.Repeat("x", 5000) + "\x00": "more than 4096 bytes",
	} {
		if _, err := parse([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %q", content, err, want)
		}
	}
}

func TestFolder(t *testing.T) {
	for _, c := range [][]string{
		{""}, {"", "a"}, {"a/", "a/b"}, {"a/b/", "a/b/c", "a/b/d"}, {"a/", "a/b/c", "a/bc/d"}, {"", "ab/c", "a/c"}, {"a/", "a/b/c/d/e", "a/x"},
	} {
		var names [][]byte
		for _, name := range c[1:] {
			names = append(names, []byte(name))
		}
		if got := common(names); got != c[0] {
			t.Errorf("%q: got %q, want %q", c[1:], got, c[0])
		}
	}
}

func FuzzList(f *testing.F) {
	f.Add([]byte(Magic + "/a/b.jpg\x00/c.jpg\x00"))
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		names, err := parse(b)
		if err != nil {
			return
		}
		again := []byte(Magic)
		for _, n := range names {
			again = append(append(append(again, '/'), n...), 0)
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%q is read as %q", b, again)
		}
	})
}
