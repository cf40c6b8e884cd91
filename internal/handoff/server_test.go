package handoff

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

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
