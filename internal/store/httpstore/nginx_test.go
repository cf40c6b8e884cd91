package httpstore

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/store/httpfaulttest"
	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
)

// nginx starts a server for the files in a folder and returns its URL.
func nginx(t *testing.T, root, location string) string {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program = "/usr/sbin/nginx"; !isProgram(program) {
			t.Skip("there is no nginx here (Debian: nginx-light)")
		}
	}
	work := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // other users cannot read the test folder
	}
	conf := fmt.Sprintf(`daemon off; %s pid %s/pid; error_log stderr; worker_processes 1;
events { worker_connections 512; }
http { access_log off; client_body_temp_path %s/b; proxy_temp_path %s/p; fastcgi_temp_path %s/f; uwsgi_temp_path %s/u; scgi_temp_path %s/s;
server { listen %s; root "%s"; location / { %s } } }`, user, work, work, work, work, work, work, addr, root, location)
	name := filepath.Join(work, "nginx.conf")
	if err := os.WriteFile(name, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-p", work, "-c", name)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Skip("nginx cannot be started: ", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		ranged.CloseIdle()
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
	})
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return "http://" + addr
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("nginx has ended: %v: %s", err, said.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func isProgram(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode()&0o111 != 0
}

func writeFiles(t *testing.T, files map[string][]byte) string {
	t.Helper()
	root := t.TempDir()
	for name, data := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestNginx(t *testing.T) {
	files := map[string][]byte{"a": []byte("one"), "empty": {}, "d/e": bytes.Repeat([]byte("x"), 3<<20), "d/ü \"&?#%41": []byte("named"), "d/\xff\xfe": []byte("raw"), "d-": []byte("2")}
	want := []string{"a", "d-", "d/e", "d/ü \"&?#%41", "d/\xff\xfe", "empty"}
	slices.Sort(want)
	for name, location := range map[string]string{"json": "autoindex on; autoindex_format json;", "html": "autoindex on;"} {
		t.Run(name, func(t *testing.T) {
			st := open(t, nginx(t, writeFiles(t, files), location))
			var got []string
			if err := st.List(t.Context(), "", nil, func(e store.Entry) error {
				got = append(got, e.Name)
				same, err := st.Stat(t.Context(), e.Name)
				if err != nil || same != e {
					t.Errorf("%+v, then %+v, %v", e, same, err)
				}
				if b, err := store.ReadFile(t.Context(), st, e.Name, 4<<20); err != nil || !bytes.Equal(b, files[e.Name]) {
					t.Errorf("%q: %v", e.Name, err)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if e, err := st.Stat(t.Context(), "d"); err != nil || !e.Dir {
				t.Errorf("%+v, %v", e, err)
			}
		})
	}
	t.Run("no list", func(t *testing.T) {
		root := writeFiles(t, files)
		st := open(t, nginx(t, root, ""))
		if err := st.List(t.Context(), "d", nil, func(store.Entry) error { return nil }); !errors.Is(err, errNoList) {
			t.Error(err)
		}
		o, err := st.Open(t.Context(), "d/e")
		if err != nil {
			t.Fatal(err)
		}
		// Rewrite it while it is open.
		if err := os.Chtimes(filepath.Join(root, "d/e"), time.Unix(1e9, 0), time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
		if err := o.ReadAt(t.Context(), make([]byte, 10), 0); !errors.Is(err, store.ErrChanged) {
			t.Error(err)
		}
	})
}

// Thousands of faults. No byte is ever wrong, and errors that retries could not hide name the object, the bytes and
// the number of attempts.
func TestFaults(t *testing.T) {
	want := 10_000
	if testing.Short() {
		want = 300
	}
	data := make([]byte, 4<<20)
	for i := 0; i < len(data); i += 32 {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d", i))
		copy(data[i:], sum[:])
	}
	target := ""
	if isProgram("/usr/sbin/nginx") {
		target = nginx(t, writeFiles(t, map[string][]byte{"x": data}), "")
	} else {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(data))
		}))
		defer s.Close()
		target = s.URL
	}
	tr := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	defer tr.CloseIdleConnections()
	// Stalled responses take time, and a changed version is never retried: use fewer of those.
	kinds := slices.Concat(slices.Repeat(httpfaulttest.Kinds, 8), slices.Repeat([]httpfaulttest.Kind{httpfaulttest.Truncate, httpfaulttest.Whole, httpfaulttest.Flip, httpfaulttest.Reset, httpfaulttest.Shift, httpfaulttest.Failure}, 16))
	kinds = slices.DeleteFunc(kinds, func(k httpfaulttest.Kind) bool { return k == httpfaulttest.Stall || k == httpfaulttest.Unavailable })
	kinds = append(kinds, httpfaulttest.Stall, httpfaulttest.Unavailable)
	proxy := &httpfaulttest.Proxy{Target: target, Kinds: kinds, Chance: 0.5, Digest: true, Client: &http.Client{Transport: tr}}
	srv := httptest.NewServer(proxy)
	defer srv.Close()
	defer ranged.CloseIdle()
	st, err := New(srv.URL+"/x?sig=hunter2", &Options{backoff: time.Microsecond, stall: 250 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	o, err := st.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var reads, failed, next atomic.Int64
	total := func() (n int) {
		for _, k := range proxy.Done() {
			n += k
		}
		return n
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			buf := make([]byte, 32<<10)
			for total() < want {
				i := next.Add(1)
				p := buf[:1+int(i*7919)%len(buf)]
				off := i * 104_729 % int64(len(data)-len(p))
				clear(p)
				reads.Add(1)
				err := o.ReadAt(t.Context(), p, off)
				switch {
				case err == nil && !bytes.Equal(p, data[off:off+int64(len(p))]):
					t.Errorf("bytes %d to %d differ", off, off+int64(len(p)))
				case err != nil:
					failed.Add(1)
					text := err.Error()
					if !strings.HasPrefix(text, fmt.Sprintf("%s/x, bytes %d to %d: ", srv.URL, off, off+int64(len(p)))) ||
						!strings.Contains(text, "(tried ") && !errors.Is(err, store.ErrChanged) || strings.Contains(text, "hunter2") {
						t.Errorf("%v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d reads, %d of them failed; %v", reads.Load(), failed.Load(), proxy.Done())
	if failed.Load() > reads.Load()/2 {
		t.Errorf("%d of %d reads failed", failed.Load(), reads.Load())
	}
}
