package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/cache"
)

// Copies by stage= are listed, finished or not, and removed by the name of their data, their folder or their id. One
// call removes all unfinished copies.
func TestCopies(t *testing.T) {
	root, scratch := t.TempDir(), t.TempDir()
	d, err := cache.At(root, 0)
	if err != nil {
		t.Fatal(err)
	}
	folder := func(n string) string { return filepath.Join(scratch, "train-00000000000"+n) }
	put := func(n, end string) {
		t.Helper()
		if err := os.MkdirAll(folder(n)+end, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder(n)+end, "shard"), bytes.Repeat([]byte("x"), 50_000), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.NoteCopy("s3://bucket/train", folder(n), 100_000); err != nil {
			t.Fatal(err)
		}
	}
	run := func(code int, args ...string) string {
		t.Helper()
		var out, bad bytes.Buffer
		if got := Main(append([]string{"cache", "--cache-dir", root}, args...), strings.NewReader(""), &out, &bad); got != code {
			t.Fatalf("%q: exit code %d, want %d: %s", args, got, code, bad.String())
		}
		return out.String() + bad.String()
	}
	if said := run(0, "ls"); strings.Contains(said, "stage=") {
		t.Errorf("%s", said)
	}
	put("1", ".part")
	put("2", "")
	said := run(0, "ls")
	for _, want := range []string{`train-000000000001 .* 5\d%`, `train-000000000002 .* yes`, `do not count for the limit`, `(?m)^0 B of `} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("%q is not in\n%s", want, said)
		}
	}
	var asJSON struct{ Copies []cache.Copy }
	if err := json.Unmarshal([]byte(run(0, "ls", "--json")), &asJSON); err != nil || len(asJSON.Copies) != 2 {
		t.Errorf("%+v, %v", asJSON, err)
	}
	if said := run(0, "rm", "--all"); !strings.Contains(said, "removed the copy "+folder("1")) || strings.Contains(said, folder("2")) {
		t.Errorf("%s", said)
	}
	for _, name := range []func() string{
		func() string { return "s3://bucket/train/?endpoint=http://host" },
		func() string { return folder("2") },
		func() string { return d.Copies()[0].ID[:8] },
	} {
		put("2", "")
		if said := run(0, "rm", name()); !strings.Contains(said, "removed the copy "+folder("2")) {
			t.Errorf("%s", said)
		}
		if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
			t.Errorf("%v are left, %v", left, err)
		}
	}
	put("1", ".part")
	if said := run(0, "rm", folder("1")+".part"); !strings.Contains(said, "of s3://bucket/train") {
		t.Errorf("%s", said)
	}
	if said := run(1, "rm", folder("1")); !strings.Contains(said, "nothing is cached of") {
		t.Errorf("%s", said)
	}
}
