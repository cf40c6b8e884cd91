package proc

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// inodeOf is the inode of a descriptor.
func inodeOf(t *testing.T, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// TestEnds asks the kernel about a pipe and a pair of sockets of this process.
func TestEnds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	writes, reads := map[uint64]int{}, map[uint64]int{}
	if err := Live.Ends(os.Getpid(), func(inode uint64, write bool) {
		if write {
			writes[inode]++
		} else {
			reads[inode]++
		}
	}); err != nil {
		t.Fatal(err)
	}
	pipe, a, b := inodeOf(t, int(r.Fd())), inodeOf(t, pair[0]), inodeOf(t, pair[1])
	if writes[pipe] != 1 || reads[pipe] != 1 || writes[a] != 1 || writes[b] != 1 {
		t.Errorf("pipe: %d that write, %d that read; sockets %d and %d", writes[pipe], reads[pipe], writes[a], writes[b])
	}
	if err := Live.Ends(1<<30, func(uint64, bool) {}); err == nil {
		t.Error("nobody has descriptors")
	}
	peers, err := UnixPeers()
	if err != nil {
		t.Skipf("this kernel does not tell which sockets are connected: %v", err)
	}
	if peers[a] != b || peers[b] != a {
		t.Errorf("the other end of %d is %d, of %d it is %d", a, peers[a], b, peers[b])
	}
}
