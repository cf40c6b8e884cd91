package serverstest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stokerdata/stoker/store"
)

// Tokens are issued by a credentials server. Each expires soon.
type Tokens struct {
	// Life is the lifetime of a token.
	Life time.Duration

	mu    sync.Mutex
	ends  []time.Time // of each that was given
	used  int         // how many of them, at least, have served
	early []string
}

const tokenPrefix = "TOKENOFTHEMACHINE"

// Give issues the next token.
func (k *Tokens) Give() (token string, ends time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, now := len(k.ends), time.Now()
	if n > 0 {
		if left := k.ends[n-1].Sub(now); left > k.Life/2 {
			k.early = append(k.early, fmt.Sprintf("fetch %d while the last one had %v left", n+1, left))
		}
	}
	k.ends = append(k.ends, now.Add(k.Life))
	return fmt.Sprint(tokenPrefix, n), k.ends[n]
}

// Serve reports whether a token is valid: it was issued and has not expired.
func (k *Tokens) Serve(token string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := -1
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if _, err := fmt.Sscan(rest, &n); !ok || err != nil || n < 0 || n >= len(k.ends) {
		return false
	}
	k.used = max(k.used, n+1)
	return time.Now().Before(k.ends[n])
}

// Given returns the number of issued tokens.
func (k *Tokens) Given() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.ends)
}

// served reports whether the last issued token has been used.
func (k *Tokens) served() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.used == len(k.ends)
}

// Share runs processes of a test of the calling program until a few tokens have expired, and kills one of them
// meanwhile. All others continue without an error. Each token is fetched once for all of them, shortly before the
// last one expires. env is added to the environment of the processes.
func (k *Tokens) Share(t *testing.T, test string, processes, fetches int, env ...string) {
	t.Helper()
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
	for range processes {
		cmd := exec.Command(exe, "-test.run=^"+test+"$")
		cmd.Env = append(append(os.Environ(), env...), workEnv+"=1")
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
	rest := func(p process) string {
		text := p.out.Text()
		for p.out.Scan() {
			text += "\n" + p.out.Text()
		}
		return text
	}
	for _, p := range all {
		if !p.out.Scan() || p.out.Text() != atWork {
			t.Fatalf("a process says %q", rest(p))
		}
	}
	killed := all[processes-1]
	for from := k.Given(); k.Given() < from+fetches; {
		// A token must be shared before it is used. If a killed process were the only one with a token, the next
		// token would correctly be fetched immediately.
		if killed.cmd != nil && k.Given() > from && k.served() {
			if err := killed.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = killed.cmd.Wait() // it was killed
			killed.cmd = nil
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	for _, p := range all[:processes-1] {
		if err := p.in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range all[:processes-1] {
		text := rest(p)
		if err := p.cmd.Wait(); err != nil || !strings.Contains(text, worked) || strings.Contains(text, tokenPrefix) {
			t.Errorf("%v: %s", err, text)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, text := range k.early {
		t.Error(text)
	}
}

const (
	workEnv = "STOKER_TEST_WORK"
	atWork  = "at work"
	worked  = "worked"
)

// work is the main loop of a process of Share: it repeats step until its input ends. The test then exits the process.
// In another process it skips the test.
func work(t *testing.T, step func() error) {
	t.Helper()
	if os.Getenv(workEnv) == "" {
		t.Skip("this is for processes of another test")
	}
	end := make(chan struct{})
	go func() {
		defer close(end)
		_, _ = io.Copy(io.Discard, os.Stdin) // until it ends
	}()
	for n := 0; ; n++ {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			fmt.Println(atWork)
		}
		select {
		case <-end:
			fmt.Println(worked)
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Read is a process of Share. It opens a store and reads x, which holds "hello", repeatedly until it is told to stop.
func Read(t *testing.T, open func() (store.Store, error)) {
	t.Helper()
	var s store.Store
	work(t, func() (err error) {
		if s == nil {
			if s, err = open(); err != nil {
				return err
			}
		}
		b, err := store.ReadFile(t.Context(), s, "x", 100)
		if err == nil && string(b) != "hello" {
			err = fmt.Errorf("it holds %q", b)
		}
		return err
	})
}
