package proc

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConnectedInode finds the other end of a connection, and none for an unconnected socket.
func TestConnectedInode(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		listener, err := net.Listen(network, "localhost:0")
		if err != nil {
			t.Logf("%s: %v", network, err)
			continue
		}
		defer listener.Close()
		ours, err := net.Dial(network, listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		theirs, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		end := func(c net.Conn) (inode uint64, fd int) {
			raw, err := c.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if err := raw.Control(func(n uintptr) {
				fd = int(n)
				name, _ := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd)))
				inode, _ = strconv.ParseUint(strings.Trim(strings.TrimPrefix(name, "socket:"), "[]"), 10, 64)
			}); err != nil {
				t.Fatal(err)
			}
			return inode, fd
		}
		want, _ := end(theirs)
		_, fd := end(ours)
		local, remote, err := Connection(os.Getpid(), fd)
		if err != nil {
			t.Skipf("descriptors of this process cannot be had: %v", err)
		}
		got, err := ConnectedInode(remote, local)
		if err != nil {
			t.Skipf("the kernel does not tell: %v", err)
		}
		if got != want || want == 0 {
			t.Errorf("%s: the other end of %s-%s is %d, want %d", network, local, remote, got, want)
		}
		if got, err := ConnectedInode(netip.AddrPortFrom(remote.Addr(), 1), local); err != nil || got != 0 {
			t.Errorf("%s: nobody's is %d, %v", network, got, err)
		}
		if got, _ := ConnectedInode(remote, netip.AddrPortFrom(local.Addr(), 1)); got != 0 {
			t.Errorf("%s: what listens was taken for the other end", network)
		}
	}
	if !Live.SameNetwork(os.Getpid()) {
		t.Error("this process is in another network than itself")
	}
	if _, _, err := Connection(os.Getpid(), 1<<20); err == nil {
		t.Error("a descriptor that is not there is connected")
	}
}

func FuzzInetDiag(f *testing.F) {
	answer := make([]byte, unix.NLMSG_HDRLEN+inetDiagMessage)
	answer[4], answer[unix.NLMSG_HDRLEN+1] = unix.SOCK_DIAG_BY_FAMILY, inetEstablished
	f.Add(answer)
	f.Fuzz(func(_ *testing.T, data []byte) { parseInetDiag(data) })
}
