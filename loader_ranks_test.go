package stoker_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/internal/store/httpfaulttest"
	"github.com/stokerdata/stoker/pack"
)

// keyServer serves credentials that expire soon, like those of the machine's own role.
type keyServer struct {
	life time.Duration

	mu    sync.Mutex
	given int
	used  int // how many of them somebody has signed with
	ended map[int]bool
	young bool // the last one has more than half of its time left
	early []string
}

const secretOfRole = "SECRETOFTHEROLE"

func (k *keyServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.young {
		k.early = append(k.early, fmt.Sprintf("fetch %d while the last one had more than half of its time left", k.given+1))
	}
	n := k.given
	k.given, k.young = n+1, true
	time.AfterFunc(k.life/2, func() { k.set(func() { k.young = k.young && k.given > n+1 }) })
	time.AfterFunc(k.life, func() { k.set(func() { k.ended[n] = true }) })
	fmt.Fprintf(w, `{"AccessKeyId":"ROLEKEY%d","SecretAccessKey":%q,"Token":"TOKENOFTHEROLE%d","Expiration":%q}`,
		n, secretOfRole, n, time.Now().Add(k.life).UTC().Format(time.RFC3339Nano))
}

func (k *keyServer) set(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// refuse reports whether the credentials of a request have expired.
func (k *keyServer) refuse(r *http.Request) (int, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=ROLEKEY")
	number, _, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(number)
	if err == nil {
		k.used = max(k.used, n+1)
	}
	switch {
	case err != nil || n >= k.given:
		return http.StatusForbidden, "InvalidAccessKeyId"
	case k.ended[n]:
		return http.StatusBadRequest, "ExpiredToken"
	}
	return 0, ""
}

// shared returns the number of credentials that were fetched and used. The other processes can also have these, even
// if the process that fetched them is killed.
func (k *keyServer) shared() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.used
}

// TestRank is the body of each process of TestRanksShareCredentials: it loads until its input ends.
func TestRank(t *testing.T) {
	rank, err := strconv.Atoi(os.Getenv("STOKER_TEST_RANK"))
	if err != nil {
		t.Skip("this is for processes of another test")
	}
	world, err := strconv.Atoi(os.Getenv("STOKER_TEST_WORLD"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("STOKER_CACHE_DIR", os.Getenv("STOKER_TEST_CACHE")) // of all ranks: TestMain has set one of its own
	opt := &stoker.Options{BatchSize: 4, Shuffle: true, Window: 16, Ranks: stoker.Ranks{Rank: rank, WorldSize: world}, Limits: stoker.Limits{Memory: 32 << 20, Threads: 1}}
	l, err := stoker.Open(t.Context(), os.Getenv("STOKER_TEST_URL"), opt)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	go func() {
		defer close(end)
		_, _ = io.Copy(io.Discard, os.Stdin) // until it ends
	}()
	for n := 0; ; {
		b, err := l.Next(t.Context())
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if err == nil {
			n++
			b.Release()
			if n == 1 {
				fmt.Println("loads")
			}
		}
		select {
		case <-end:
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			fmt.Println("loaded", n)
			os.Exit(0) // connections are open still
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// The ranks of a machine fetch credentials once for all of them, and again once shortly before they expire, even if
// one rank is killed. No batch is lost by that. The manifest is also fetched only once.
func TestRanksShareCredentials(t *testing.T) {
	const ranks = 16
	dir := filepath.Join(t.TempDir(), "bucket")
	npy := filepath.Join(t.TempDir(), "x.npy")
	writeRows(t, npy, 512, 4<<10)
	packRows(t, npy, filepath.Join(dir, "train"), &pack.Options{ChunkBytes: 64 << 10})
	keys := &keyServer{life: 4 * time.Second, ended: map[int]bool{}}
	role := httptest.NewServer(keys)
	defer role.Close()
	bucket := &httpfaulttest.Folder{Dir: filepath.Dir(dir), Refuse: keys.refuse}
	server := httptest.NewServer(bucket)
	defer server.Close()
	defer server.CloseClientConnections()

	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "AWS_") {
			env = append(env, v)
		}
	}
	env = append(env, "AWS_CONTAINER_CREDENTIALS_FULL_URI="+role.URL+"/role", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE="+filepath.Join(t.TempDir(), "none"), "AWS_SHARED_CREDENTIALS_FILE="+filepath.Join(t.TempDir(), "none"),
		"STOKER_TEST_CACHE="+t.TempDir(), "STOKER_RUNTIME_DIR="+filepath.Join(t.TempDir(), "run"), "STOKER_TEST_WORLD="+strconv.Itoa(ranks),
		"STOKER_TEST_URL=s3://bucket/train?endpoint="+server.URL)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	type process struct {
		cmd *exec.Cmd
		in  io.Closer
		out *bufio.Scanner
	}
	var all []process
	for rank := range ranks {
		cmd := exec.Command(exe, "-test.run=^TestRank$")
		cmd.Env = append(env, "STOKER_TEST_RANK="+strconv.Itoa(rank))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill() }() // it has exited if all is well
		all = append(all, process{cmd, in, bufio.NewScanner(out)})
	}
	for rank, p := range all {
		if !p.out.Scan() || p.out.Text() != "loads" {
			t.Fatalf("rank %d says %q", rank, p.out.Text())
		}
	}
	until := func(n int) {
		for keys.shared() < n {
			select {
			case <-t.Context().Done():
				t.Fatal(t.Context().Err())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	from := keys.shared()
	until(from + 1)
	killed := all[ranks-1]
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.cmd.Wait() // it was killed
	until(from + 3)
	for _, p := range all[:ranks-1] {
		if err := p.in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for rank, p := range all[:ranks-1] {
		text := ""
		for p.out.Scan() {
			text += p.out.Text() + "\n"
		}
		if err := p.cmd.Wait(); err != nil || !strings.Contains(text, "loaded ") || strings.Contains(text, secretOfRole) {
			t.Errorf("rank %d: %v\n%s", rank, err, text)
		}
	}
	keys.mu.Lock()
	defer keys.mu.Unlock()
	t.Logf("%d fetches", keys.given)
	if n := bucket.Asked()["GET "+pack.ManifestName]; n != 1 {
		t.Errorf("the manifest was fetched %d times", n)
	}
	for _, text := range keys.early {
		t.Error(text)
	}
}
