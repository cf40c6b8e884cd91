package handoff

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A client that sees the socket can connect: it is never refused between the creation of the name and the start of
// listening.
func TestListenIsThereWhenItListens(t *testing.T) {
	dir := t.TempDir()
	path := func(i int) string { return filepath.Join(dir, strconv.Itoa(i)) }
	const sockets = 300
	var wg sync.WaitGroup
	refused := make([]error, 2)
	for g := range refused {
		wg.Go(func() {
			for i := range sockets {
				for {
					conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path(i), Net: "unixpacket"})
					if errors.Is(err, unix.ENOENT) {
						continue // the listener's turn; it makes all of them
					}
					if err != nil {
						refused[g] = err
					} else {
						conn.Close()
					}
					break
				}
			}
		})
	}
	var servers []*Server
	for i := range sockets {
		s, err := Listen(path(i), Options{})
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
	}
	wg.Wait()
	for _, s := range servers {
		s.listener.Close()
	}
	if err := errors.Join(refused...); err != nil {
		t.Error(err)
	}
}

// If servers start at the same path, one serves, whatever was there before. No other file stays next to its socket.
func TestListenTogether(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("p", maxPath-len(dir)-1)) // as long as it can be
	var wg sync.WaitGroup
	servers, errs := make([]*Server, 8), make([]error, 8)
	for i := range servers {
		wg.Go(func() { servers[i], errs[i] = Listen(path, Options{}) })
	}
	wg.Wait()
	serving := 0
	for i, s := range servers {
		if s == nil {
			if !strings.Contains(errs[i].Error(), "another engine is serving at") {
				t.Error(errs[i])
			}
			continue
		}
		serving++
		defer s.listener.Close()
	}
	entries, err := os.ReadDir(dir)
	if err != nil || serving != 1 || len(entries) != 1 {
		t.Errorf("%d servers, in the folder: %v, %v", serving, entries, err)
	}
}

// The same if the socket of a killed server is left, and that of a server that exits at that moment.
func TestListenTogetherOverStale(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	for round := range 300 {
		old, err := Listen(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		old.listener.Close()
		var wg sync.WaitGroup
		if round%2 == 1 {
			wg.Go(old.remove)
		}
		servers := make([]*Server, 6)
		for i := range servers {
			wg.Go(func() { servers[i], _ = Listen(path, Options{}) })
		}
		wg.Wait()
		serving := 0
		for _, s := range servers {
			if s != nil {
				serving++
			}
		}
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil || serving != 1 {
			t.Fatalf("round %d: %d servers, connecting: %v", round, serving, err)
		}
		conn.Close()
		for _, s := range servers {
			if s != nil {
				s.listener.Close()
				s.remove()
			}
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Fatalf("left in the folder: %v, %v", entries, err)
		}
	}
}

func TestListenWhereThereIsNoFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "s")
	if _, err := Listen(path, Options{}); err == nil || err.Error() != "making socket "+path+": no such file or directory" {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s, err := Listen(filepath.Join(t.TempDir(), "s"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ctx); err != nil {
		t.Error(err)
	}
}

// serveFakes serves fake pipelines until there was no client for linger.
func serveFakes(t *testing.T, path string, linger time.Duration) <-chan error {
	t.Helper()
	s, err := Listen(path, Options{Linger: linger, Log: slog.New(slog.DiscardHandler), Open: func(context.Context, []byte) (Pipeline, error) { return newFake(t), nil }})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context()) }()
	return done
}

func ended(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server does not end")
	}
}

// A server without clients ends, but not while a client holds the lock or has a connection.
func TestServeUntilIdle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	lock, err := os.Create(path + LockSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	done := serveFakes(t, path, time.Millisecond)
	select {
	case err := <-done:
		t.Fatal("the server ended under a lock:", err)
	case <-time.After(50 * time.Millisecond):
	}
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := c.Open([]byte("{}"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Next(time.Minute); err != nil {
		t.Fatal("a client of a server that lingers:", err)
	}
	c.Close()
	ended(t, done)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("the socket stays:", err)
	}
}

// asOther connects to the socket in os.Args as another user, and prints the engine's answer.
func asOther() {
	c, err := Dial(context.Background(), os.Getenv("STOKER_TEST_SOCKET"))
	if err == nil {
		err = c.Open([]byte("{}"), time.Minute)
	}
	fmt.Print(err)
	os.Exit(0)
}

// Another user who reaches the socket, such as root, is refused.
func TestOtherUsersAreRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "refused") // the folder of t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	done := serveFakes(t, path, time.Millisecond)
	own, err := Dial(t.Context(), path) // keeps it alive
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666), own.Open([]byte("{}"), time.Minute)); err != nil {
		t.Fatal(err)
	}
	bin, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "client"), bin, 0o755); err != nil { //nolint:gosec // another user runs it
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "client"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "STOKER_TEST_SOCKET="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if want := "the engine belongs to user 0, and user 65534 may not use it"; err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
	own.Close()
	ended(t, done)
}
