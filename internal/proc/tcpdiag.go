package proc

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// The kernel's answer about TCP sockets (linux/inet_diag.h).
const (
	inetDiagRequest = 56 // family, protocol, extensions, padding, states, and the identity below
	inetDiagMessage = 72 // family, state, timer, retransmissions, identity, expires, queues, user, inode
	inetDiagID      = 48 // ports, addresses, interface, cookie
	inetEstablished = 1
)

// Connection returns the two ends of the TCP connection of a process's descriptor. It needs the right to trace the
// process.
func Connection(pid, fd int) (local, remote netip.AddrPort, err error) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return local, remote, err
	}
	defer unix.Close(process)
	own, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return local, remote, err
	}
	defer unix.Close(own)
	here, err := unix.Getsockname(own)
	if err != nil {
		return local, remote, err
	}
	there, err := unix.Getpeername(own)
	if err != nil {
		return local, remote, err
	}
	local, remote = addressOf(here), addressOf(there)
	if !local.IsValid() || !remote.IsValid() {
		return local, remote, errors.New("no internet socket")
	}
	return local, remote, nil
}

func addressOf(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// ConnectedInode returns the inode of the socket of this network namespace with the given own and remote ends, 0 if
// there is none. The kernel finds it by its addresses. /proc/net/tcp would walk through the whole table, which takes
// milliseconds.
func ConnectedInode(local, remote netip.AddrPort) (uint64, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return 0, err
	}
	if err := unix.Sendto(fd, inetRequest(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(fd, answer, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		default:
			return parseInetDiag(answer[:n]), nil
		}
	}
}

func inetRequest(local, remote netip.AddrPort) []byte {
	const size = unix.NLMSG_HDRLEN + inetDiagRequest
	b := make([]byte, size)
	native := binary.NativeEndian
	native.PutUint32(b, size)
	native.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[unix.NLMSG_HDRLEN:]
	r[0], r[1] = unix.AF_INET, unix.IPPROTO_TCP
	native.PutUint32(r[4:], ^uint32(0)) // in every state
	id := r[8:]
	binary.BigEndian.PutUint16(id, local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	from, to := local.Addr().Unmap(), remote.Addr().Unmap()
	if from.Is4() && to.Is4() {
		a, z := from.As4(), to.As4()
		copy(id[4:], a[:])
		copy(id[20:], z[:])
	} else {
		r[0] = unix.AF_INET6
		a, z := from.As16(), to.As16()
		copy(id[4:], a[:])
		copy(id[20:], z[:])
	}
	native.PutUint64(id[40:], ^uint64(0)) // whatever its cookie is
	return b
}

// parseInetDiag returns the inode in an answer, 0 if the answer names no connection.
func parseInetDiag(data []byte) uint64 {
	native := binary.NativeEndian
	if len(data) < unix.NLMSG_HDRLEN+inetDiagMessage || native.Uint16(data[4:]) != unix.SOCK_DIAG_BY_FAMILY {
		return 0
	}
	m := data[unix.NLMSG_HDRLEN:]
	if m[1] != inetEstablished {
		return 0 // a listening socket is not a connection's end
	}
	return uint64(native.Uint32(m[4+inetDiagID+16:]))
}

// SameNetwork reports whether a process is in this program's network namespace.
func (fs FS) SameNetwork(pid int) bool {
	own, err := os.Readlink(fs.Path(Self, "ns/net"))
	if err != nil {
		return false
	}
	theirs, err := os.Readlink(fs.Path(pid, "ns/net"))
	return err == nil && own == theirs
}
