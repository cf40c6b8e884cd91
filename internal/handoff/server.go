package handoff

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/runfolder"
	"golang.org/x/sys/unix"
)

// FromFD returns a connection for a descriptor that was inherited from the parent process. The connection owns the
// descriptor.
func FromFD(fd int) (*net.UnixConn, error) {
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "handoff")
	if f == nil {
		return nil, fmt.Errorf("descriptor %d is not open", fd)
	}
	defer f.Close() // FileConn has a copy
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET {
		return nil, fmt.Errorf("descriptor %d is not a SOCK_SEQPACKET socket", fd)
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("descriptor %d is not a Unix socket", fd)
	}
	return unixConn, nil
}

// Server serves any number of clients on a socket in the file system.
type Server struct {
	opt      Options
	path     string
	listener *net.UnixListener
	// file is the socket in the file system. While it is open no other file has its inode number.
	file *os.File
}

// maxPath is the longest socket path that the system accepts.
const maxPath = 107

// Listen creates the socket, for this user alone. It replaces a socket file without a server, as a killed server leaves
// it. It refuses the socket of a live server and any other file. The socket appears only once it is listening, so a
// client that sees it can connect.
func Listen(path string, opt Options) (*Server, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("socket path %q is too long (%d bytes, the system's limit is %d)", path, len(path), maxPath)
	}
	listener, file, err := listenBeside(path)
	if err != nil {
		return nil, err
	}
	return &Server{opt: opt, path: path, listener: listener, file: file}, nil
}

// listenBeside listens under a temporary name in the folder of path and then links the socket to its final name.
func listenBeside(path string) (*net.UnixListener, *os.File, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, nil, fmt.Errorf("making socket %s: %w", path, cause(err))
	}
	defer dir.Close()
	// Through the open folder, because the temporary path may be longer than path.
	hidden := fmt.Sprintf("%s/.stoker-%d-%x", proc.FDPath(int(dir.Fd())), os.Getpid(), rand.Uint32())
	private := runfolder.Private()
	l, err := private.Listen(context.Background(), "unixpacket", hidden)
	if err != nil {
		return nil, nil, fmt.Errorf("making socket %s: %w", path, cause(err))
	}
	listener := l.(*net.UnixListener)
	// The server removes only its own socket, and not another one that has replaced it.
	listener.SetUnlinkOnClose(false)
	defer unix.Unlink(hidden)
	fd, err := unix.Open(hidden, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		listener.Close()
		return nil, nil, fmt.Errorf("making socket %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	// A rename would replace a socket that was created meanwhile.
	place := func() error { return unix.Link(hidden, path) }
	if err = place(); errors.Is(err, unix.EEXIST) {
		err = locked(dir, func() error {
			for range 3 { // other processes may still find no socket there
				if err := removeStale(path); err != nil {
					return err
				}
				if err = place(); !errors.Is(err, unix.EEXIST) {
					break
				}
			}
			return err
		})
	}
	if err == nil {
		return listener, file, nil
	}
	listener.Close()
	file.Close()
	if errno, ok := err.(syscall.Errno); ok {
		err = fmt.Errorf("making socket %s: %w", path, errno)
	}
	return nil, nil, err
}

// lockWait is the maximum wait for a process that is removing a socket.
const lockWait = 5 * time.Second

// locked calls f while no other process removes a socket from a folder. A process that has found a dead socket must not
// remove the new socket that has replaced it. The lock is on the folder, so that no lock file stays. If the file system
// has no locks, f is called without one.
func locked(dir *os.File, f func() error) error {
	for end := time.Now().Add(lockWait); ; {
		switch err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			defer unix.Flock(int(dir.Fd()), unix.LOCK_UN)
			return f()
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			return f()
		case time.Now().After(end):
			return fmt.Errorf("folder %s is locked by another process, and a socket is left in it: remove that by hand", dir.Name())
		default:
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// cause strips the operation and address that net wraps around an error.
func cause(err error) error {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no
	}
	return err
}

func removeStale(path string) error {
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("socket %s: %w", path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err == nil {
		conn.Close()
		return fmt.Errorf("another engine is serving at %s", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("socket %s is in use: %w", path, cause(err))
	}
	if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing the stale socket %s: %w", path, err)
	}
	return nil
}

// shutdownGrace is the time that Serve waits for sessions with blocked reads. After it, the exit of the process ends
// them.
const shutdownGrace = 5 * time.Second

// Serve accepts clients of this user until ctx is done, or until there was no client for Options.Linger. It returns
// when all sessions have ended, and removes the socket.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.listener.Close() })
	defer stop()
	defer s.remove()
	var sessions sync.WaitGroup
	var n int
	var clients idle
	clients.left()
	for {
		if s.opt.Linger > 0 {
			s.listener.SetDeadline(time.Now().Add(min(s.opt.Linger, time.Second)))
		}
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if clients.since() < s.opt.Linger {
				continue
			}
			if left, err := s.leave(); err != nil || left {
				return err
			}
			continue
		}
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
				s.opt.Log.Warn("a client could not be accepted", "error", cause(err))
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
				continue
			}
			s.listener.Close()
			return fmt.Errorf("socket %s: %w", s.path, err)
		}
		n++
		log := s.opt.Log.With("client", n)
		opt := s.opt
		opt.Log = log
		if err := refused(conn); err != nil {
			// A session reads the request and answers it, as for a wrong configuration.
			opt.Open = func(context.Context, []byte) (Pipeline, error) { return nil, err }
		}
		clients.came()
		sessions.Go(func() {
			defer clients.left()
			defer watchPeer(conn)()
			began := time.Now()
			log.Info("client connected")
			if err := NewSession(conn, opt).Run(ctx); err != nil {
				log.Warn("client session failed", "error", err, "after", time.Since(began).Round(time.Millisecond))
				return
			}
			log.Info("client left", "after", time.Since(began).Round(time.Millisecond))
		})
	}
	done := make(chan struct{})
	go func() {
		sessions.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(shutdownGrace):
		return fmt.Errorf("a session is still waiting for a read after %v; leaving it", shutdownGrace)
	}
}

// idle measures for how long there was no client.
type idle struct {
	mu    sync.Mutex
	n     int
	empty time.Time
}

func (i *idle) came() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
}

func (i *idle) left() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n = max(i.n-1, 0)
	i.empty = time.Now()
}

func (i *idle) since() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.n > 0 {
		return 0
	}
	return time.Since(i.empty)
}

// LockSuffix is added to the path of a socket for the name of its lock file. Clients that connect, and that start an
// engine if there is none, hold the lock meanwhile.
const LockSuffix = ".lock"

// leave stops serving if no client is about to connect: clients connect under the lock, so that none finds an engine
// that is about to end.
func (s *Server) leave() (bool, error) {
	lock, err := os.OpenFile(s.path+LockSuffix, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false, fmt.Errorf("socket %s: %w", s.path, cause(err))
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false, nil
	}
	raw, err := s.listener.SyscallConn()
	if err != nil {
		return false, err
	}
	waiting := false
	if err := raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waiting = n > 0 || err != nil
	}); err != nil || waiting {
		return false, err
	}
	s.remove()
	s.listener.Close()
	return true, nil
}

// remove removes the socket, unless another one has replaced it.
func (s *Server) remove() {
	defer s.file.Close()
	dir, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return
	}
	defer dir.Close()
	// If this fails, a socket without a server stays.
	_ = locked(dir, func() error {
		own, err := s.file.Stat()
		if err != nil {
			return err
		}
		if st, err := os.Lstat(s.path); err != nil || !os.SameFile(own, st) {
			return nil
		}
		return unix.Unlink(s.path)
	})
}
