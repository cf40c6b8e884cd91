// Package serverstest starts real object servers for tests, each on its own port with an empty folder, and stops
// them. `make servers` builds them into bin/tools. A test of a missing server is skipped.
package serverstest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server is one that runs.
type Server struct {
	// URL is http://127.0.0.1:PORT.
	URL string
	// Dir is the folder with its data.
	Dir string
	// Access and Secret are its credentials.
	Access, Secret string
}

// The credentials of all servers. Tests check that the secret does not appear in other places.
const (
	access  = "STOKERTESTACCESS"
	account = "stokertest"
	secret  = "stokertestsecret0123456789abcdef"
)

// S3 starts a server of S3 with a bucket.
func S3(t testing.TB, bucket string) *Server {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	for _, d := range []string{filepath.Join(data, bucket), filepath.Join(dir, "meta")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return start(t, data, "versitygw", []string{"ROOT_ACCESS_KEY_ID=" + access, "ROOT_SECRET_ACCESS_KEY=" + secret}, func(port string) []string {
		return []string{"--port", "127.0.0.1:" + port, "--keep-alive", "--quiet", "posix", "--sidecar", filepath.Join(dir, "meta"), data}
	})
}

// MinIO starts another server of S3, with a bucket.
func MinIO(t testing.TB, bucket string) *Server {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, bucket), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"MINIO_ROOT_USER=" + access, "MINIO_ROOT_PASSWORD=" + secret, "MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_CALLHOME_ENABLE=off"}
	return start(t, dir, "minio", env, func(port string) []string {
		return []string{"server", "--quiet", "--address", "127.0.0.1:" + port, dir}
	})
}

// GCS starts a server of Google's storage with a bucket.
func GCS(t testing.TB, bucket string) *Server {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, bucket), 0o755); err != nil {
		t.Fatal(err)
	}
	return start(t, dir, "fake-gcs-server", nil, func(port string) []string {
		return []string{"-scheme", "http", "-host", "127.0.0.1", "-port", port, "-public-host", "127.0.0.1:" + port, "-backend", "memory", "-data", dir, "-log-level", "error"}
	})
}

// Azure starts a server of Blob Storage with a container. Its account is Access, and
// Secret is the key.
func Azure(t testing.TB, container string) *Server {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not there, which azurite needs")
	}
	dir := t.TempDir()
	key := base64.StdEncoding.EncodeToString([]byte(secret))
	s := run(t, dir, node, []string{"AZURITE_ACCOUNTS=" + account + ":" + key, "AZURITE_TELEMETRY=false"}, func(port string) []string {
		return []string{tool(t, "azurite/node_modules/azurite/dist/src/blob/main.js"), "--blobHost", "127.0.0.1", "--blobPort", port, "--location", dir, "--silent", "--disableTelemetry"}
	})
	s.Access, s.Secret = account, key
	makeContainer(t, s, container)
	return s
}

// makeContainer makes a container; the request is signed with the account's key.
func makeContainer(t testing.TB, s *Server, name string) {
	t.Helper()
	at := "/" + s.Access + "/" + name
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+at+"?restype=container", nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Format(http.TimeFormat)
	r.Header.Set("X-Ms-Date", now)
	r.Header.Set("X-Ms-Version", "2021-12-02")
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "PUT%sx-ms-date:%s\nx-ms-version:2021-12-02\n/%s%s\nrestype:container", strings.Repeat("\n", 12), now, s.Access, at)
	r.Header.Set("Authorization", "SharedKey "+s.Access+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("making the container: %s", resp.Status)
	}
}

// TCPFaults starts toxiproxy, which breaks connections in ways that are chosen over its
// HTTP interface at the URL.
func TCPFaults(t testing.TB) *Server {
	t.Helper()
	return start(t, t.TempDir(), "server", nil, func(port string) []string {
		return []string{"-host", "127.0.0.1", "-port", port}
	})
}

// Toxic sends a request to toxiproxy, and returns its answer.
func Toxic(t testing.TB, method, url string, body any) map[string]any {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode > 299 {
		t.Fatalf("%s: %d %s, %v", url, resp.StatusCode, text, err)
	}
	var out map[string]any
	_ = json.Unmarshal(text, &out) // a removal has no response body
	return out
}

// tool returns the path of a program that make servers built.
func tool(t testing.TB, name string) string {
	t.Helper()
	root, err := os.Getwd() // tests run in the folder of their package
	for err == nil && root != "/" {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Dir(root)
	}
	path := filepath.Join(root, "bin", "tools", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there: make servers builds it", name)
	}
	return path
}

// tries is the number of attempts to find a port, because another program may take it first.
const tries = 5

func start(t testing.TB, dir, name string, env []string, args func(port string) []string) *Server {
	t.Helper()
	return run(t, dir, tool(t, name), env, args)
}

func run(t testing.TB, dir, path string, env []string, args func(port string) []string) *Server {
	t.Helper()
	name := filepath.Base(path)
	for range tries {
		port := freePort(t)
		p := &process{done: make(chan struct{})}
		cmd := exec.Command(path, args(port)...)
		cmd.Env = append(os.Environ(), env...)
		cmd.Stdout, cmd.Stderr = p, p
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := p.run(cmd); err != nil {
			t.Fatal(err)
		}
		if p.answers(t.Context(), port) {
			t.Cleanup(p.stop)
			return &Server{URL: "http://127.0.0.1:" + port, Dir: dir, Access: access, Secret: secret}
		}
		p.stop()
		t.Logf("%s: %s", name, p.said())
	}
	t.Fatalf("%s does not start", name)
	return nil
}

// process is a server and its output.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text.Len() < 64<<10 {
		p.text.Write(b)
	}
	return len(b), nil
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.TrimSpace(p.text.String())
}

// run starts it from a thread that stays, since it is killed when that ends.
func (p *process) run(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed in the end
		}
		close(p.done)
	}()
	p.cmd = cmd
	return <-started
}

func (p *process) stop() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// answers waits until it takes connections, or has ended.
func (p *process) answers(ctx context.Context, port string) bool {
	for {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
			return true
		}
		select {
		case <-p.done:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}
