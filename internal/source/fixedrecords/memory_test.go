package fixedrecords

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// zeros is a stream without an end, which counts what is read.
type zeros struct{ n int64 }

func (z *zeros) Read(p []byte) (int, error) {
	z.n += int64(len(p))
	return len(p), nil
}

func TestReadAllStopsAtTheLimit(t *testing.T) {
	for _, limit := range []int64{100 << 10, 3 << 20} {
		var m Memory
		m.Use(WithLimit(t.Context(), limit))
		var z zeros
		_, err := m.ReadAll(&z, 1000)
		if err == nil || !strings.Contains(err.Error(), "more memory than the limit of") || !strings.Contains(err.Error(), "set a larger memory") {
			t.Error(err)
		}
		if z.n > limit+1 {
			t.Errorf("%d bytes are read, the limit is %d", z.n, limit)
		}
		b, err := m.ReadAll(io.LimitReader(&z, limit), 1)
		if err != nil || int64(len(b)) != limit || m.Total() != limit {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		if _, err := m.ReadAll(strings.NewReader("x"), 1); err == nil {
			t.Error("more than the limit is held")
		}
		m.Free()
	}
}

func TestReadAll(t *testing.T) {
	var m Memory
	m.Use(t.Context())
	defer m.Free()
	for _, n := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, 1<<20 + 7} {
		want := bytes.Repeat([]byte("0123456"), n/7+1)[:n]
		b, err := m.ReadAll(bytes.NewReader(want), int64(n/5))
		if err != nil || b == nil || !bytes.Equal(b, want) {
			t.Errorf("%d bytes: got %d, %v", n, len(b), err)
		}
	}
	// Without a limit of the user, what cannot be data is refused early.
	var z zeros
	if _, err := m.ReadAll(&z, 1000); err == nil || z.n > usualHeld+1 {
		t.Errorf("%d bytes are read, %v", z.n, err)
	}
}
