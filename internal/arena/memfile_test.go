package arena

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A sandbox may refuse memfd_create. Other files then replace it, or the error explains what to do.
func TestMemFileWithoutMemfd(t *testing.T) {
	for _, refused := range []error{unix.EPERM, unix.ENOSYS} {
		memfd = func(string, int) (int, error) { return -1, refused }
		t.Cleanup(func() { memfd = unix.MemfdCreate })
		r, err := NewRing(NewBudget(1<<30), 2, 10_000)
		if err != nil {
			t.Fatal(err)
		}
		copy(r.Slot(1), "batch")
		b := make([]byte, 5)
		if _, err := unix.Pread(r.Fd(), b, int64(r.SlotStride())); err != nil || string(b) != "batch" {
			t.Errorf("the file has %q: %v", b, err)
		}
		r.Close()
		t.Setenv("TMPDIR", t.TempDir()+"/none")
		if _, err := MemFile("x", 1<<62); err == nil || !strings.Contains(err.Error(), "memfd_create: "+refused.Error()) ||
			!strings.Contains(err.Error(), "set TMPDIR") {
			t.Errorf("error: %v", err)
		}
	}
	left, _ := os.ReadDir("/dev/shm")
	for _, f := range left {
		if strings.HasPrefix(f.Name(), ".stoker-ring-") {
			t.Errorf("%s is left", f.Name())
		}
	}
}
