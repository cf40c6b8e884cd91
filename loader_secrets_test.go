package stoker_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
)

// Credentials are in no message, state, manifest or file. The only exception is the file that the processes of a user
// share, which other users cannot read.
func TestSecretsAreKept(t *testing.T) {
	if os.Getenv("STOKER_TEST_SECRETS") == "" {
		// A process looks for the location of credentials only once.
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe, "-test.run=^TestSecretsAreKept$")
		cmd.Env = append(os.Environ(), "STOKER_TEST_SECRETS=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	dir := filepath.Join(t.TempDir(), "bucket")
	npy := filepath.Join(t.TempDir(), "x.npy")
	writeRows(t, npy, 64, 4<<10)
	packRows(t, npy, filepath.Join(dir, "train"), &pack.Options{ChunkBytes: 64 << 10})
	keys := &keyServer{life: time.Hour, ended: map[int]bool{}}
	role := httptest.NewServer(keys)
	defer role.Close()
	folder, url := bucketOf(t, dir)
	var closed atomic.Bool
	folder.Refuse = func(r *http.Request) (int, string) {
		if closed.Load() {
			// A server may repeat the request in its error.
			return http.StatusForbidden, "AccessDenied " + r.Header.Get("Authorization") + " " + r.Header.Get("X-Amz-Security-Token")
		}
		return keys.refuse(r)
	}
	run := filepath.Join(t.TempDir(), "run")
	t.Setenv("STOKER_RUNTIME_DIR", run)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL+"/role")
	at := strings.Replace(fmt.Sprintf(url, "train"), "anonymous=true&", "", 1)

	var said []string
	say := func(v any) {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, string(b), fmt.Sprintf("%+v", v))
	}
	l, err := stoker.Open(t.Context(), at, &stoker.Options{BatchSize: 8, Shuffle: true, Limits: stoker.Limits{Memory: 32 << 20, Threads: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := l.Next(t.Context()); err != nil {
		t.Fatal(err)
	} else {
		b.Release()
	}
	say(l.State())
	say(l.Order())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	src, err := source.Open(t.Context(), at, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	say(src.Info())
	out := filepath.Join(t.TempDir(), "again")
	if _, err := pack.WriteSource(t.Context(), src, out, nil); err != nil {
		t.Fatal(err)
	}
	closed.Store(true)
	if _, err := stoker.Open(t.Context(), at, &stoker.Options{BatchSize: 8}); err == nil {
		t.Error("it can be opened without leave")
	} else {
		said = append(said, err.Error(), fmt.Sprintf("%+v", err))
	}
	if b, err := os.ReadFile("/proc/self/cmdline"); err == nil {
		said = append(said, string(b))
	}
	for _, root := range []string{out, os.Getenv("STOKER_CACHE_DIR")} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			said = append(said, path, string(b))
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	for _, text := range said {
		for _, secret := range []string{secretOfRole, "TOKENOFTHEROLE", "ROLEKEY0", "Signature="} {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in %.300q", secret, text)
			}
		}
	}
	shared := 0
	entries, err := os.ReadDir(run)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
		b, err := os.ReadFile(filepath.Join(run, e.Name()))
		if err == nil && strings.Contains(string(b), secretOfRole) {
			shared++
		}
	}
	if st, err := os.Stat(run); err != nil || st.Mode().Perm() != 0o700 || shared != 1 {
		t.Errorf("%v, %v, %d files have it", st.Mode(), err, shared)
	}
	if len(said) < 10 {
		t.Errorf("only %d texts were looked at", len(said))
	}
}
