package pack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// The journal lists the contents of an unfinished pack: a header, then one line per chunk and per finished shard.
// Every line has its own checksum, so a line that was cut off by a power failure is recognised. The journal is an
// upload that is never committed, and therefore also the lock that keeps two writers apart. A store whose uploads do
// not outlive the process has no journal, and packing starts over.

const (
	journalFormat   = "stoker-pack-journal"
	maxJournalLine  = 1 << 28
	maxJournalBytes = 1 << 32
)

type journalHeader struct {
	Format  string   `json:"format"`
	Version int      `json:"version"`
	Command string   `json:"command"` // pack or convert
	Source  Source   `json:"source"`
	Options Settings `json:"options"`
	// Part and Parts identify the share of the inputs that a piece has.
	Part  int `json:"part,omitempty"`
	Parts int `json:"parts,omitempty"`
	// Append is true for a piece that is appended to a finished pack.
	Append bool `json:"append,omitempty"`
}

// manifest returns what the manifest of the finished piece will say about its origin.
func (h *journalHeader) manifest() *Manifest {
	return &Manifest{Source: h.Source, Options: h.Options, Parts: h.Parts}
}

// command returns the command that finishes the pack.
func (h *journalHeader) command(dir string) string {
	args := []string{"stoker", h.Command, units.Shell(h.Source.Path), units.Shell(dir)}
	if h.Options.Images != "" {
		args = append(args, "--images", h.Options.Images)
	}
	args = append(args, h.Options.pixels()...)
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
	if h.Parts > 0 {
		args = append(args, "--part", fmt.Sprintf("%d/%d", h.Part, h.Parts))
	}
	if h.Append {
		args = append(args, "--append")
	}
	return strings.Join(args, " ")
}

// journalEntry is one line after the header: a chunk or a finished shard.
type journalEntry struct {
	Shard int    `json:"shard"`
	Chunk *Chunk `json:"chunk,omitempty"`
	// Next is the first input after the chunk.
	Next    int64     `json:"next,omitempty"`
	Skipped []Skipped `json:"skipped,omitempty"`
	// Stats are the chunk's, by field.
	Stats []driver.FieldStats `json:"stats,omitempty"`
	// Done is the size of the shard that is finished with this line.
	Done int64 `json:"done,omitempty"`
	// Frame is the FrameXXH3 of that shard.
	Frame Checksum `json:"frame,omitzero"`

	end int64 // position in the journal after this line
}

// journal is the open journal of the only writer of a pack, nil if the store has none.
type journal struct{ store.Partial }

// errNoJournal means that there is none.
var errNoJournal = errors.New("no journal")

// lockJournal opens or creates the journal and locks it. A second writer gets an error immediately.
func lockJournal(ctx context.Context, st store.WriteStore, name string) (*journal, error) {
	return waitJournal(ctx, st, name, 0)
}

// partWait limits the time that a part waits for the end of another process that writes the same part. A scheduler repeats a
// part whose machine is lost, and on some stores the lock of a lost process ends after two minutes.
var partWait = 3 * time.Minute

// waitJournal is lockJournal that waits for a writer.
func waitJournal(ctx context.Context, st store.WriteStore, name string, patience time.Duration) (*journal, error) {
	r, ok := store.As[store.Resumer](st)
	if !ok {
		return nil, nil
	}
	p, err := r.Resume(ctx, name)
	for end := time.Now().Add(patience); errors.Is(err, store.ErrLocked) && time.Now().Before(end) && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
			p, err = r.Resume(ctx, name)
		}
	}
	switch {
	case errors.Is(err, store.ErrLocked):
		return nil, fmt.Errorf("%s is being packed by another process: wait for it or stop it", st)
	case err != nil:
		return nil, writeError(err)
	}
	return &journal{p}, nil
}

// remove deletes the journal and ends the lock.
func (j *journal) remove() error {
	if j == nil {
		return nil
	}
	return j.Abort()
}

// suspend makes the journal durable and keeps it for the next run.
func (j *journal) suspend(ctx context.Context) error {
	if j == nil {
		return nil
	}
	return writeError(leave(ctx, j.Partial))
}

func (j *journal) append(v any) error {
	if j == nil {
		return nil
	}
	line, err := encodeJournalLine(v)
	if err != nil {
		return err
	}
	_, err = j.Write(line)
	return writeError(err)
}

// sync makes all lines durable.
func (j *journal) sync(ctx context.Context) error {
	if j == nil {
		return nil
	}
	return writeError(j.Sync(ctx))
}

// truncate discards everything after position end.
func (j *journal) truncate(end int64) error {
	if j == nil {
		return nil
	}
	return writeError(j.Truncate(end))
}

// read returns the header and the lines of the journal, up to the first incomplete one. An empty journal gives
// errNoJournal.
func (j *journal) read(ctx context.Context) (*journalHeader, []journalEntry, error) {
	if j == nil {
		return nil, nil, errNoJournal
	}
	h, entries, err := parseJournal(&section{ctx: ctx, r: j, end: j.Size()})
	if err != nil && !errors.Is(err, errNoJournal) {
		err = fmt.Errorf("the journal %w", err)
	}
	return h, entries, err
}

// section is an io.Reader of a part of a reader.
type section struct {
	ctx     context.Context
	r       reader
	at, end int64
}

func (s *section) Read(p []byte) (int, error) {
	p = p[:min(int64(len(p)), s.end-s.at)]
	if len(p) == 0 {
		return 0, io.EOF
	}
	if err := s.r.ReadAt(s.ctx, p, s.at); err != nil {
		return 0, err
	}
	s.at += int64(len(p))
	return len(p), nil
}

func readJournalHeader(ctx context.Context, st store.Store, name string) (*journalHeader, error) {
	o, err := st.Open(ctx, name+store.PartialSuffix)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	h, _, err := parseJournal(&section{ctx: ctx, r: o, end: min(o.Size(), 1<<20)})
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
				return nil, nil, fmt.Errorf("was written by another version of stoker: use that one to finish, or start over with --restart")
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

// splitJournalLines returns only whole lines.
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
