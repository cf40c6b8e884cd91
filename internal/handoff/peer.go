package handoff

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
)

type peerKey struct{}

// withPeer stores in ctx the process at the other end of conn: the one that connected, or that created the socket pair.
func withPeer(ctx context.Context, conn *net.UnixConn) context.Context {
	raw, err := conn.SyscallConn()
	if err != nil {
		return ctx
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil || pid <= 0 {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, pid)
}

// PeerPID returns the process that opens a pipeline, inside Options.Open; 0 if the system does not report it.
func PeerPID(ctx context.Context) int {
	pid, _ := ctx.Value(peerKey{}).(int)
	return pid
}
