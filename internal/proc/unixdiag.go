package proc

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// The kernel's answer about Unix sockets (linux/unix_diag.h).
const (
	unixDiagMessage = 16 // family, type, state, padding, inode, cookie
	unixDiagPeer    = 2  // attribute: the inode of the other end
	unixShowPeer    = 4
)

// UnixPeers returns, for each connected Unix socket of this network namespace, the inode of its other end. It needs no
// rights, but a kernel with unix_diag.
func UnixPeers() (map[uint64]uint64, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return nil, err
	}
	const request = unix.NLMSG_HDRLEN + 24
	b := make([]byte, request)
	native := binary.NativeEndian
	native.PutUint32(b, request)
	native.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b[unix.NLMSG_HDRLEN] = unix.AF_UNIX
	native.PutUint32(b[unix.NLMSG_HDRLEN+4:], ^uint32(0)) // in every state
	native.PutUint32(b[unix.NLMSG_HDRLEN+12:], unixShowPeer)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	peers := map[uint64]uint64{}
	answer := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, answer, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case ParseUnixDiag(answer[:n], peers):
			return peers, nil
		}
	}
}

// maxPeers bounds how many sockets are remembered.
const maxPeers = 1 << 16

// ParseUnixDiag reads the pairs of sockets from one answer of the kernel. It reports whether that was the last answer.
func ParseUnixDiag(data []byte, peers map[uint64]uint64) (last bool) {
	native := binary.NativeEndian
	for len(data) >= unix.NLMSG_HDRLEN {
		size := int(native.Uint32(data))
		kind := native.Uint16(data[4:])
		if size < unix.NLMSG_HDRLEN || size > len(data) || kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR {
			return true
		}
		body := data[unix.NLMSG_HDRLEN:size]
		data = data[min(len(data), (size+3)&^3):]
		if len(body) < unixDiagMessage {
			continue
		}
		inode := uint64(native.Uint32(body[4:]))
		for attrs := body[unixDiagMessage:]; len(attrs) >= 4; {
			n, kind := int(native.Uint16(attrs)), native.Uint16(attrs[2:])
			if n < 4 || n > len(attrs) {
				break
			}
			if kind == unixDiagPeer && n >= 8 && len(peers) < maxPeers {
				peers[inode] = uint64(native.Uint32(attrs[4:]))
			}
			attrs = attrs[min(len(attrs), (n+3)&^3):]
		}
	}
	return false
}
