package inflight

import (
	"os"

	"github.com/stokerdata/stoker/internal/arena"
)

// New returns a table in a new file without a name.
func New() (*Table, error) {
	f, err := arena.MemFile("stoker-in-flight", 0)
	if err != nil {
		return nil, err
	}
	t := Open(int(f.Fd()))
	t.file = f
	return t, nil
}

// File returns the file of a table that New made.
func (t *Table) File() *os.File { return t.file }

// Close closes the file of a table that New made. Rows stay usable.
func (t *Table) Close() error {
	if t == nil || t.file == nil {
		return nil
	}
	return t.file.Close()
}
