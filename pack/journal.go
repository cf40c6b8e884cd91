package pack

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

// The journal says what an unfinished pack already holds: a header, then one
// line per chunk and per finished shard. Every line carries its own checksum,
// so that a line that was being written when the power went is recognised. It
// is also the lock that keeps two writers apart.

const (
	journalFormat   = "stoker-pack-journal"
	maxJournalLine  = 1 << 28
	maxJournalBytes = 1 << 34
)

type journalHeader struct {
	Format   string   `json:"format"`
	Version  int      `json:"version"`
	Command  string   `json:"command"` // pack or convert
	Source   Source   `json:"source"`
	Options  Settings `json:"options"`
	Labels   bool     `json:"labels"`
	Metadata bool     `json:"metadata"`
}

// command is what finishes the pack.
func (h *journalHeader) command(dir string) string {
	args := []string{"stoker", h.Command, quote(h.Source.Path), quote(dir)}
	if h.Options.Images != "" {
		args = append(args, "--images", h.Options.Images)
	}
	if h.Options.Resize != "" {
		args = append(args, "--resize", h.Options.Resize)
	}
	if h.Options.Metadata {
		args = append(args, "--metadata")
	}
	if h.Options.Check != CheckStructure && h.Options.Check != "" {
		args = append(args, "--check", h.Options.Check)
	}
	if h.Options.ShardBytes != DefaultShardBytes {
		args = append(args, "--shard-size", fmt.Sprint(h.Options.ShardBytes))
	}
	if h.Options.ChunkBytes != DefaultChunkBytes {
		args = append(args, "--chunk-size", fmt.Sprint(h.Options.ChunkBytes))
	}
	return strings.Join(args, " ")
}

// quote makes s one word of a shell command.
func quote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r == '/' || r == '.' || r == '-' || r == '_' || r == ':' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// journalEntry is one line behind the header: a chunk or a finished shard.
type journalEntry struct {
	Shard int    `json:"shard"`
	Chunk *Chunk `json:"chunk,omitempty"`
	// Next is the first input behind the chunk.
	Next    int64       `json:"next,omitempty"`
	Skipped []Skipped   `json:"skipped,omitempty"`
	Stats   *chunkStats `json:"stats,omitempty"`
	// Done is the size of the shard that is finished with this line.
	Done int64 `json:"done,omitempty"`

	end int64 // position in the journal behind this line
}

// journal is the open journal of the one writer of a pack.
type journal struct {
	f    *os.File
	path string
}

// errNoJournal means that there is none.
var errNoJournal = errors.New("no journal")

// lockJournal opens the journal of dir, makes it when there is none, and locks
// it. A second writer gets an error at once.
func lockJournal(dir string) (*journal, error) {
	path := filepath.Join(dir, JournalName)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			return nil, writeError("cannot create "+path, err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("%s is being packed by another process: wait for it or stop it", dir)
			}
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		// The writer before may have finished and removed the file between
		// the two calls.
		mine, err1 := f.Stat()
		now, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, now) {
			return &journal{f: f, path: path}, nil
		}
		f.Close()
		if err2 != nil && !errors.Is(err2, os.ErrNotExist) {
			return nil, fmt.Errorf("cannot open %s: %w", path, plain(err2))
		}
	}
}

// remove deletes the journal and ends the lock.
func (j *journal) remove() error {
	err := os.Remove(j.path)
	return errors.Join(err, j.f.Close())
}

func (j *journal) close() error { return j.f.Close() }

func (j *journal) append(v any) error {
	line, err := encodeJournalLine(v)
	if err != nil {
		return err
	}
	if _, err := j.f.Write(line); err != nil {
		return writeError("cannot write "+j.path, err)
	}
	return nil
}

// sync makes all lines durable.
func (j *journal) sync() error {
	if err := j.f.Sync(); err != nil {
		return writeError("cannot write "+j.path, err)
	}
	return nil
}

// truncate forgets everything behind position end.
func (j *journal) truncate(end int64) error {
	if err := j.f.Truncate(end); err != nil {
		return writeError("cannot write "+j.path, err)
	}
	return nil
}

// read returns the header and the lines of the journal, up to the first one
// that is torn. An empty journal gives errNoJournal.
func (j *journal) read() (*journalHeader, []journalEntry, error) {
	if _, err := j.f.Seek(0, io.SeekStart); err != nil {
		return nil, nil, plain(err)
	}
	h, entries, err := parseJournal(j.f)
	if err != nil && !errors.Is(err, errNoJournal) {
		err = fmt.Errorf("%s: %w", j.path, err)
	}
	return h, entries, err
}

func readJournalHeader(path string) (*journalHeader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h, _, err := parseJournal(io.LimitReader(f, 1<<20))
	return h, err
}

func parseJournal(r io.Reader) (*journalHeader, []journalEntry, error) {
	sc := bufio.NewScanner(io.LimitReader(r, maxJournalBytes))
	sc.Buffer(make([]byte, 64<<10), maxJournalLine)
	sc.Split(splitJournalLines)
	var h *journalHeader
	var entries []journalEntry
	end := int64(0)
	for sc.Scan() {
		line := sc.Bytes()
		end += int64(len(line)) + 1
		if h == nil {
			h = new(journalHeader)
			if !decodeJournalLine(line, h) {
				return nil, nil, errNoJournal
			}
			if h.Format != journalFormat || h.Version != Version {
				return nil, nil, fmt.Errorf("was written by another version of stoker: use that one to finish, or start anew with --restart")
			}
			continue
		}
		e := journalEntry{}
		if !decodeJournalLine(line, &e) {
			break
		}
		e.end = end
		entries = append(entries, e)
	}
	if h == nil {
		return nil, nil, errNoJournal
	}
	return h, entries, nil
}

// splitJournalLines gives whole lines only.
func splitJournalLines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

func encodeJournalLine(v any) ([]byte, error) {
	b, err := marshalLine(v)
	if err != nil {
		return nil, err
	}
	line := fmt.Appendf(nil, "%016x ", xxh3.Hash(b))
	return append(append(line, b...), '\n'), nil
}

func decodeJournalLine(line []byte, v any) bool {
	if len(line) < 18 || line[16] != ' ' {
		return false
	}
	if string(line[:16]) != fmt.Sprintf("%016x", xxh3.Hash(line[17:])) {
		return false
	}
	return json.Unmarshal(line[17:], v) == nil
}
