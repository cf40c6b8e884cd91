package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stokerdata/stoker/internal/source/spoolsource"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

// streamMessage is a line of JSON that the Python package sends to stoker pack --stream. Three lines are answered, each
// with a line. The first one gets {"whole": ...} for a pack that exists already, or {"packed": true} if only the view of
// its columns is missing. The second one gets {"start": the number of inputs that are packed}, the last one the summary.
type streamMessage struct {
	// The first line has the name of the data and the bytes of values after which a piece ends. View is the view of the
	// columns that OUT is made of. It is empty if OUT has the records as they come.
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	View  string `json:"view"`
	// The second line has the fields of the records.
	Fields json.RawMessage `json:"fields"`
	// Each further line is followed by the index of these records, and by so many bytes of their values
	// (spoolsource). Inputs is the number of inputs that they were made of.
	Records int64            `json:"records"`
	Inputs  int64            `json:"inputs"`
	Values  int64            `json:"values"`
	Skipped []driver.Skipped `json:"skipped"`
	// End is set in the last line.
	End bool `json:"end"`
}

// packStream packs the records of standard input. It writes them into a spool file of the size of a shard, and packs
// that file as a piece of the pack while the next one is written.
type packStream struct {
	c    *packCommand
	in   *bufio.Reader
	opt  pack.Options // of all pieces
	data streamMessage
	out  string // the pack
	to   string // the pack that the pieces belong to: out, or the columns of its view
	work string // a folder of this machine for the state and for spool files

	state   streamState
	width   int // fields of a record
	at      int64
	file    *os.File // the spool file that is being written; nil if there is none
	spool   *spoolsource.Writer
	packing chan error // the result for the piece that is being packed; nil if there is none
}

// streamState lets a later call continue this one.
type streamState struct {
	// About must be the same then.
	About json.RawMessage `json:"about"`
	// Ends are the numbers of inputs up to the end of each piece.
	Ends []int64 `json:"ends"`
}

// stream packs the records of standard input into out.
func (c *packCommand) stream(cmd *cobra.Command, out string, opt *pack.Options) (err error) {
	ctx, cancel := context.WithCancel(c.app.Context)
	c.app.Context = ctx
	s := &packStream{c: c, in: bufio.NewReaderSize(c.app.Stdin, 1<<20), opt: *opt, out: out}
	defer func() {
		cancel()
		_ = s.wait() // it was cancelled, and err has the reason
		if s.file != nil {
			err = errors.Join(err, s.file.Close())
		}
	}()
	if err := s.read(&s.data); err != nil {
		return err
	}
	packed, whole, err := s.begin()
	if err != nil {
		return err
	}
	if err := s.answer(map[string]any{"packed": packed, "whole": wholeText(whole)}); err != nil || whole != nil {
		return err
	}
	if !packed {
		if err := s.resume(cmd.Flags()); err != nil {
			return err
		}
	}
	for {
		var m streamMessage
		switch err := s.read(&m); {
		case err != nil:
			return err
		case m.End:
			return s.finish(packed)
		}
		if err := s.add(&m); err != nil {
			return err
		}
	}
}

// read reads a line.
func (s *packStream) read(m *streamMessage) error {
	line, err := s.in.ReadBytes('\n')
	if err != nil {
		return &Error{Code: ExitInterrupted, Msg: "the program has ended before its last record"}
	}
	if err := json.Unmarshal(line, m); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	return s.c.app.Context.Err()
}

func (s *packStream) answer(what map[string]any) error {
	return json.NewEncoder(s.c.app.Stdout).Encode(what)
}

// begin chooses the folders. It returns the pack if it exists already, and whether its columns are packed.
func (s *packStream) begin() (packed bool, whole *pack.Manifest, err error) {
	ctx := s.c.app.Context
	work, columns, err := workFolders(s.out)
	if err != nil {
		return false, nil, err
	}
	s.work, s.to = work, s.out
	if s.data.View != "" {
		s.to = columns
	}
	if s.opt.Restart {
		err := errors.Join(pack.Clear(ctx, s.out), os.RemoveAll(s.work))
		if s.to != s.out {
			err = errors.Join(err, os.RemoveAll(s.to))
		}
		return false, nil, err
	}
	if s.to != s.out {
		whole, err = s.whole(s.out, "such tensors", func(source string) bool { return strings.HasPrefix(source, s.to+"#") })
		if err != nil || whole != nil {
			return false, whole, err
		}
	}
	whole, err = s.whole(s.to, s.data.Name, func(source string) bool { return source == s.data.Name })
	if s.to != s.out {
		return whole != nil, nil, err
	}
	return false, whole, err
}

// whole returns a finished pack, nil if there is none. It refuses a pack of other data.
func (s *packStream) whole(dir, of string, same func(source string) bool) (*pack.Manifest, error) {
	b, err := pack.LookAt(s.c.app.Context, dir)
	if err != nil || b.Whole == nil || same(b.Whole.Source.Path) {
		if err != nil {
			return nil, err
		}
		return b.Whole, nil
	}
	return nil, usageError("", "%s is a finished pack of %s, and not of %s: choose another folder, or restart=True writes it again", dir, b.Whole.Source.Path, of)
}

// workFolders returns the folders of this machine for a pack on its way: one for the state and the spool files, and
// one for a pack of columns. They are next to the pack, and on the same disk. For a URL they are in the user's cache.
func workFolders(out string) (work, columns string, err error) {
	if stores.IsURL(out) {
		cache, err := os.UserCacheDir()
		sum := sha256.Sum256([]byte(out)) // by its URL, so that the same call finds it again
		work = filepath.Join(cache, "stoker-packing", hex.EncodeToString(sum[:16]))
		return work, work + ".columns", err
	}
	path, err := filepath.Abs(out)
	base := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	return base + ".spool", base + ".columns", err
}

// resume reads the fields, and finds out which pieces an earlier call has written.
func (s *packStream) resume(flags *pflag.FlagSet) error {
	if err := s.read(&s.data); err != nil {
		return err
	}
	var fields []json.RawMessage
	if err := json.Unmarshal(s.data.Fields, &fields); err != nil {
		return fmt.Errorf("standard input: the fields: %w", err)
	}
	s.width = len(fields)
	options := map[string]string{}
	flags.Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"stream", "restart", "parent", "json", "allow-bad"}, f.Name) {
			options[f.Name] = f.Value.String()
		}
	})
	about, err := json.Marshal(map[string]any{"name": s.data.Name, "bytes": s.data.Bytes, "fields": s.data.Fields, "options": options})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.work, 0o755); err != nil {
		return s.failed(err)
	}
	b, err := pack.LookAt(s.c.app.Context, s.to)
	if err != nil {
		return err
	}
	var before streamState
	text, err := os.ReadFile(s.statePath())
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	s.state = streamState{About: about}
	switch lost := err != nil; {
	case lost && len(b.Pieces) == 0:
	case lost && stores.IsURL(s.to):
		return usageError("", "%s has pieces of a pack, and their state is on another machine, or was in %s: let that call finish, or restart=True starts over", s.to, s.work)
	case lost:
		if err := pack.Clear(s.c.app.Context, s.to); err != nil {
			return err
		}
	case !bytes.Equal(before.About, about):
		return usageError("", "%s was begun of other data or with other arguments: give the same, or restart=True", s.to)
	default:
		for i, end := range before.Ends {
			if !slices.Contains(b.Pieces, i) {
				break
			}
			s.state.Ends = append(s.state.Ends, end)
			s.at = end
		}
	}
	if err := s.save(); err != nil {
		return err
	}
	return s.answer(map[string]any{"start": s.at})
}

func (s *packStream) statePath() string { return filepath.Join(s.work, "state.json") }

func (s *packStream) save() error {
	text, err := json.Marshal(s.state)
	if err != nil {
		return err
	}
	part := s.statePath() + ".part"
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return s.failed(err)
	}
	return s.failed(os.Rename(part, s.statePath()))
}

// failed adds the remedy to an error of the folder for spool files.
func (s *packStream) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; the same call goes on from here", err)
}

func (s *packStream) spoolPath() string {
	return filepath.Join(s.work, fmt.Sprintf("piece-%05d.spool", len(s.state.Ends)))
}

// add writes records into the spool file, and ends the piece if it is large enough.
func (s *packStream) add(m *streamMessage) (err error) {
	if s.file == nil {
		if s.file, err = os.Create(s.spoolPath()); err != nil {
			return s.failed(err)
		}
		if s.spool, err = spoolsource.NewWriter(s.file, s.width); err != nil {
			return err
		}
	}
	if err := s.spool.Add(s.in, m.Records, m.Values, m.Skipped); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return &Error{Code: ExitInterrupted, Msg: "the program has ended within a record"}
		}
		return s.failed(err)
	}
	s.at += m.Inputs
	if s.spool.Size() >= s.data.Bytes {
		return s.endPiece()
	}
	return nil
}

// endPiece completes the spool file, and packs it when the one before is packed.
func (s *packStream) endPiece() error {
	number, path, first := len(s.state.Ends), s.spoolPath(), int64(0)
	if number == pack.MaxPieces {
		return usageError("", "%s would have more than %d pieces: choose a larger shard_size", s.to, pack.MaxPieces)
	}
	if number > 0 {
		first = s.state.Ends[number-1]
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %d", s.state.About, number, s.at, s.spool.Size()))
	err := errors.Join(s.spool.Finish(s.data.Name, hex.EncodeToString(sum[:16]), s.data.Fields), s.file.Close())
	s.file = nil
	if err != nil {
		return s.failed(err)
	}
	if err := s.wait(); err != nil {
		return err
	}
	// The state is saved first: a piece that is there then counts, also if this process is killed meanwhile.
	s.state.Ends = append(s.state.Ends, s.at)
	if err := s.save(); err != nil {
		return err
	}
	opt, variants := s.opt, s.c.variants
	opt.Piece, opt.Restart, variants.first = pack.Piece{Number: number, Whole: true}, true, first
	packing := make(chan error, 1)
	s.packing = packing
	go func() {
		_, err := writePack(s.c.app, path, s.to, 0, nil, viewFlags{}, &variants, &textFlags{}, &opt)
		if err == nil {
			err = os.Remove(path)
		}
		packing <- packFailed(err)
	}()
	return nil
}

// wait waits until the last piece is packed.
func (s *packStream) wait() error {
	if s.packing == nil {
		return nil
	}
	err := <-s.packing
	s.packing = nil
	return err
}

// finish makes one pack of all pieces, and prints its summary.
func (s *packStream) finish(packed bool) error {
	if s.file != nil {
		if err := s.endPiece(); err != nil {
			return err
		}
	}
	if err := s.wait(); err != nil {
		return err
	}
	if !packed && len(s.state.Ends) == 0 {
		return usageError("", "%s gives no records", s.data.Name)
	}
	app := s.c.app
	err := app.runPack(&s.c.packFlags, &s.opt, s.out, "packing", func() (*pack.Summary, error) {
		m, err := pack.Commit(app.Context, s.to, len(s.state.Ends))
		if err != nil || s.to == s.out {
			return &pack.Summary{Manifest: m}, err
		}
		sum, err := writePack(app, s.to+"#"+s.data.View, s.out, 0, nil, viewFlags{}, &augmentFlags{}, &textFlags{}, &s.opt)
		if err == nil {
			sum.Manifest.Skipped = m.Skipped
			err = os.RemoveAll(s.to)
		}
		return sum, err
	})
	if err != nil {
		return err
	}
	return os.RemoveAll(s.work)
}
