package pread

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReads(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("0123456789"); err != nil {
		t.Fatal(err)
	}
	fd := int(f.Fd())
	for _, c := range []struct {
		size int
		off  int64
		want string
		full error
	}{
		{4, 3, "3456", nil},
		{0, 3, "", nil},
		{4, 8, "89", io.ErrUnexpectedEOF},
		{4, 10, "", io.ErrUnexpectedEOF},
		{4, 99, "", io.ErrUnexpectedEOF},
		{4, -1, "", unix.EINVAL},
	} {
		b := make([]byte, c.size)
		n, err := Once(fd, b, c.off)
		if (err != nil) != (c.full == unix.EINVAL) || string(b[:n]) != c.want {
			t.Errorf("Once of %d bytes at %d: %q, %v", c.size, c.off, b[:n], err)
		}
		b = make([]byte, c.size)
		if err := Full(fd, b, c.off); err != c.full || err == nil && !bytes.Equal(b, []byte(c.want)) {
			t.Errorf("Full of %d bytes at %d: %q, %v", c.size, c.off, b, err)
		}
	}
	if _, err := Once(-1, make([]byte, 1), 0); err != unix.EBADF {
		t.Error(err)
	}
}
