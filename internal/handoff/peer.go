package handoff

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

type peerKey struct{}

// credentials returns the process at the other end of conn and its user: the one that connected, or that created the
// socket pair. It returns nil if the system does not report them.
func credentials(conn *net.UnixConn) *unix.Ucred {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	var cred *unix.Ucred
	if err := raw.Control(func(fd uintptr) { cred, _ = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil
	}
	return cred
}

// withPeer stores in ctx the process at the other end of conn.
func withPeer(ctx context.Context, conn *net.UnixConn) context.Context {
	cred := credentials(conn)
	if cred == nil || cred.Pid <= 0 {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, int(cred.Pid))
}

// PeerPID returns the process that opens a pipeline, inside Options.Open; 0 if the system does not report it.
func PeerPID(ctx context.Context) int {
	pid, _ := ctx.Value(peerKey{}).(int)
	return pid
}

// strangerError is the error of a client of another user.
type strangerError struct{ owner, client int }

func (e *strangerError) Error() string {
	if e.client < 0 {
		return "the system does not tell which user connects, so the engine refuses the connection"
	}
	return fmt.Sprintf("the engine belongs to user %d, and user %d may not use it", e.owner, e.client)
}

// Hint returns the remedy.
func (e *strangerError) Hint() string {
	return "start an engine as this user: stoker serve --socket PATH"
}

// refused returns an error for a client of another user.
func refused(conn *net.UnixConn) error {
	cred := credentials(conn)
	if cred == nil {
		return &strangerError{os.Getuid(), -1}
	}
	if int(cred.Uid) != os.Getuid() {
		return &strangerError{os.Getuid(), int(cred.Uid)}
	}
	return nil
}

// watchPeer closes conn when the process that connected has ended. The end of the connection says the same, unless
// another process holds a copy of the socket. The returned function ends the watch.
func watchPeer(conn *net.UnixConn) (stop func()) {
	cred := credentials(conn)
	if cred == nil || cred.Pid <= 0 {
		return func() {}
	}
	fd, err := unix.PidfdOpen(int(cred.Pid), unix.PIDFD_NONBLOCK)
	if err != nil {
		if err == unix.ESRCH {
			conn.Close()
		}
		return func() {} // the connection has to do
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended := false
		_ = raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			ended = n > 0 && err == nil
			return ended
		})
		if ended {
			conn.Close()
		}
	}()
	return func() {
		file.Close()
		<-done
	}
}
