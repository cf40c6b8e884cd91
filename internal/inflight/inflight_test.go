package inflight

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// noted returns the records of the file.
func noted(t *testing.T, f *os.File) (ids []int64) {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	for ; len(b) > 0; b = b[8:] {
		if x := int64(binary.LittleEndian.Uint64(b)); x != 0 {
			ids = append(ids, x-1)
		}
	}
	return ids
}

func TestRows(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "inflight"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table := Open(int(f.Fd()))
	a, err := table.Row(3)
	if err != nil {
		t.Fatal(err)
	}
	b, err := table.Row(1000)
	if err != nil {
		t.Fatal(err)
	}
	a.Set(0, 0)
	a.Set(2, 7)
	a.Set(1<<20, 8) // not in the row
	b.Set(999, 1<<40)
	if got := noted(t, f); !slices.Equal(got, []int64{0, 7, 1 << 40}) {
		t.Errorf("noted: %v", got)
	}
	a.Clear(1)
	if got := noted(t, f); !slices.Equal(got, []int64{7, 1 << 40}) {
		t.Errorf("after Clear: %v", got)
	}
	a.Close()
	b.Close()
	b.Set(0, 1)
	if got := noted(t, f); got != nil {
		t.Errorf("after Close: %v", got)
	}
}

func TestNoTable(t *testing.T) {
	var none *Table
	row, err := none.Row(4)
	if err != nil {
		t.Fatal(err)
	}
	row.Set(0, 1)
	row.Clear(4)
	row.Close()
}

func TestFileThatCannotGrow(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := Open(int(w.Fd())).Row(1); err == nil {
		t.Error("a pipe was made longer")
	}
}
