package pack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/copyall"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// input is the data that a pack is made from: records of any source, or another pack.
type input interface {
	// source describes the input; its fingerprint decides whether an
	// interrupted run may go on.
	source() Source
	// command is the name of the command that reads this kind of input.
	command() string
	// fields returns the fields of the pack, without statistics. paths is true if the records also have paths.
	fields() (fields []Field, paths bool)
	// len is the number of inputs, bytes the size of input i.
	len() int64
	bytes(i int64) int64
	// skipped are inputs that are already known to be bad.
	skipped() []Skipped
	// beside lists inputs that are not of the kind of the records.
	beside() []driver.SkippedGroup
	// feed sends a job for each input from number from on to before to, in order. begin makes a job for an input of
	// size bytes when memory is available.
	feed(ctx context.Context, from, to int64, begin func(i, size int64) (*job, error), send func(*job) error) error
	// load reads input i into the job. A *BadInput is listed and left out;
	// any other error ends the run.
	load(ctx context.Context, i int64, w *worker, j *job) error
}

// BadInput is the error of an input that cannot be packed.
type BadInput struct{ Path, Reason string }

func (e *BadInput) Error() string { return e.Path + ": " + e.Reason }

// job is one input on its way through a worker.
type job struct {
	i     int64
	share *holding
	rec   record
	raw   *driver.Record // a record that is already read, with its values in mem
	mem   memory         // of rec
	bad   *BadInput
}

// memory has the buffers that a job reuses for the next input: one for each value, and one for the data read.
type memory struct {
	read   []byte
	values [][]byte
	raw    driver.Record
}

// value returns n bytes for value i.
func (m *memory) value(i int) *[]byte {
	for len(m.values) <= i {
		m.values = append(m.values, nil)
	}
	return &m.values[i]
}

// made returns the size of the stored form of the input.
func (m *memory) made() (n int64) {
	for _, v := range m.values {
		n += int64(cap(v))
	}
	return n
}

// trim frees buffers of more than kept bytes.
func (m *memory) trim(kept int64) {
	if m.made()+int64(cap(m.read)) > kept {
		*m = memory{}
	}
}

// worker is the state of one goroutine that loads inputs.
type worker struct {
	opt    *Options
	enc    encoder
	reader *recordread.Direct
	kept   int64 // total size of the reused buffers
}

// ErrInterrupted is in the error of a run that was cancelled. The same call resumes the run.
var ErrInterrupted = errors.New("interrupted")

// writer is one run.
type writer struct {
	in     input
	st     store.WriteStore
	opt    *Options
	man    *Manifest
	sch    *schema
	jnl    *journal
	shards *shardWriter
	chunk  *chunkBuilder
	stats  []driver.FieldStats

	from, to  int64 // inputs of the run
	next      int64 // first input that is not in a written chunk
	pending   []Skipped
	skipped   []Skipped // of written chunks
	before    int64     // inputs done by an earlier run
	bytesDone int64
	bytesOld  int64
	total     int64
	reported  time.Time
}

func run(ctx context.Context, in input, st store.WriteStore, opt *Options) (*Summary, error) {
	w := &writer{in: in, st: st, opt: opt}
	if sum, err := w.unchanged(ctx); sum != nil || err != nil {
		return sum, err
	}
	if in.len() == 0 {
		return nil, fmt.Errorf("nothing to pack: no file in %s", in.source().Path)
	}
	w.from, w.to = opt.Piece.span(in.len())
	w.next = w.from
	if err := w.checkFolder(ctx); err != nil {
		return nil, err
	}
	fields, paths := in.fields()
	w.man = &Manifest{
		Format: FormatName, Version: Version, Writer: opt.Writer, Source: in.source(), Options: opt.settings(), Fields: fields, Paths: paths,
		Parts: opt.Piece.Parts,
	}
	var err error
	if w.sch, err = newSchema(fields, paths); err != nil {
		return nil, fmt.Errorf("%s cannot be packed: %w", in.source().Path, err)
	}
	patience := time.Duration(0)
	if opt.Piece.Parts > 0 {
		patience = partWait
	}
	if w.jnl, err = waitJournal(ctx, st, opt.Piece.journal(), patience); err != nil {
		return nil, err
	}
	finished := false
	defer func() {
		if !finished {
			_ = w.jnl.suspend(ctx)
		}
	}()
	// Another process may have finished it between the first look and the lock.
	if sum, err := w.unchanged(ctx); sum != nil || err != nil {
		finished = true
		return sum, errors.Join(err, w.jnl.remove())
	}
	w.stats = make([]driver.FieldStats, len(fields))
	w.chunk = newChunkBuilder(w.sch, opt.ChunkBytes)
	w.shards = newShardWriter(st, opt.Piece, w.sch, schemaMeta(fields, opt.keeps), opt.ShardBytes)
	for i := w.from; i < w.to; i++ {
		w.total += in.bytes(i)
	}
	if err := w.resume(ctx); err != nil {
		return nil, w.ended(ctx, err)
	}
	// Parts of two packs may have begun at the same time. Each has announced itself in its journal by now.
	if opt.Piece.Parts > 0 {
		names, err := w.list(ctx)
		if err == nil {
			err = w.checkParts(ctx, names)
		}
		if err != nil && w.before == 0 {
			finished = true
			_ = w.jnl.remove()
		}
		if err != nil {
			return nil, w.ended(ctx, err)
		}
	}
	if err := w.packAll(ctx); err != nil {
		return nil, w.ended(ctx, err)
	}
	if len(w.shards.shards) == 0 && !opt.Piece.some() {
		finished = true
		_ = w.jnl.remove()
		return nil, w.nothing()
	}
	if err := w.finish(ctx); err != nil {
		return nil, err
	}
	finished = true
	return &Summary{Manifest: w.man, Resumed: w.before}, w.jnl.remove()
}

// unchanged handles a store with a finished pack: of the same input with the
// same options there is nothing to do, of anything else it is not touched.
func (w *writer) unchanged(ctx context.Context) (*Summary, error) {
	if w.opt.Append {
		return w.unchangedPiece(ctx)
	}
	m, err := readManifest(ctx, w.st)
	if err != nil {
		if _, serr := w.st.Stat(ctx, ManifestName); serr == nil {
			return nil, fmt.Errorf("%s holds a pack already, and it cannot be read: %w", w.st, err)
		}
		return w.unchangedPiece(ctx)
	}
	if m.Source.Fingerprint == w.in.source().Fingerprint && m.Options == w.opt.settings() {
		return &Summary{Manifest: m, Unchanged: true}, nil
	}
	if w.opt.Restart && m.Source.Path == w.in.source().Path {
		return nil, w.clear(ctx)
	}
	return nil, w.another(m)
}

// clear removes a finished pack, which is made again. The manifest is removed first.
func (w *writer) clear(ctx context.Context) error {
	names, err := written(ctx, w.st)
	for _, n := range names {
		if err == nil && n != JournalName+store.PartialSuffix {
			err = w.remove(ctx, n)
		}
	}
	return writeError(err)
}

// another returns the error for a finished pack that is not the one to write.
func (w *writer) another(m *Manifest) error {
	now := w.in.source()
	switch {
	case m.Source.Path != now.Path:
		return fmt.Errorf("%s is a finished pack of %s: choose another folder or delete it first", w.st, m.Source.Path)
	case m.Options != w.opt.settings() && m.Source.Files == now.Files: // some options are a part of the fingerprint
		return fmt.Errorf("%s is a finished pack of %s with other options (%s): make it again with --restart, or choose another folder", w.st, now.Path, m.Options.differs(w.opt.settings()))
	case m.Source.Files != now.Files:
		return fmt.Errorf("%s has changed since it was packed into %s (%s then, %s now): make the pack again with --restart, or add a folder that has only the new files with --append",
			now.Path, w.st, units.Plural(m.Source.Files, "file"), units.Int(now.Files))
	}
	return fmt.Errorf("%s has changed since it was packed into %s (other contents or times of change): make the pack again with --restart, or add a folder that has only the new files with --append",
		now.Path, w.st)
}

// unchangedPiece is unchanged for a finished piece.
func (w *writer) unchangedPiece(ctx context.Context) (*Summary, error) {
	p := w.opt.Piece
	if !p.some() {
		return nil, nil
	}
	if _, err := w.st.Stat(ctx, p.manifest()); err != nil {
		return nil, nil
	}
	m, err := readPiece(ctx, w.st, p.manifest())
	switch {
	case err != nil:
		return nil, err
	case m.Source.Fingerprint == w.in.source().Fingerprint && m.Options == w.opt.settings() && m.Parts == p.Parts:
		return &Summary{Manifest: m, Unchanged: true}, nil
	}
	if w.opt.Restart && m.Source.Path == w.in.source().Path {
		return nil, writeError(w.remove(ctx, p.manifest()))
	}
	return nil, fmt.Errorf("%s is there already: %w; make it again with --restart, or choose another folder", w.st.Path(p.manifest()), differs(m, w.header()))
}

// header describes the run for the journal.
func (w *writer) header() *journalHeader {
	return &journalHeader{
		Format: journalFormat, Version: Version, Command: w.in.command(), Source: w.in.source(), Options: w.opt.settings(), Part: w.opt.Piece.Part, Parts: w.opt.Piece.Parts,
		Append: w.opt.Append,
	}
}

// someBegun is the number of unfinished parts that checkParts reads. With a thousand writers, reading all of them costs too much.
const someBegun = 16

// checkParts refuses to write a part into a folder with parts of another pack. It checks one finished part and some
// unfinished parts. Commit checks all.
func (w *writer) checkParts(ctx context.Context, names []string) error {
	p := w.opt.Piece
	if p.Parts == 0 {
		return nil
	}
	finished, begun := false, 0
	for _, n := range names {
		whole, partial := strings.CutSuffix(n, store.PartialSuffix)
		var theirs *Manifest
		switch {
		case whole == p.manifest() || whole == p.journal():
		case pieceNumber(n) >= p.Base && !finished: // lower ones are in the pack to which this run appends
			m, err := readPiece(ctx, w.st, n)
			if err != nil {
				return err
			}
			finished, theirs = true, m
		case partial && strings.HasPrefix(n, "unfinished-") && begun < someBegun:
			h, err := readJournalHeader(ctx, w.st, whole)
			if err != nil {
				continue // it has not begun, or has ended
			}
			begun++
			theirs = h.manifest()
		}
		if theirs == nil {
			continue
		}
		if err := differs(theirs, w.header()); err != nil {
			return fmt.Errorf("%s has parts of another pack, such as %s: %w; choose another folder, or delete the parts", w.st, n, err)
		}
	}
	return nil
}

// differs returns an error with the differences between a part and another one with the header mine. It returns nil
// for parts of one pack.
func differs(m *Manifest, mine *journalHeader) error {
	switch {
	case m.Parts != mine.Parts:
		return fmt.Errorf("it is one of %s and not of %d", units.Plural(m.Parts, "part"), mine.Parts)
	case m.Options != mine.Options:
		return fmt.Errorf("it has other options (%s)", m.Options.differs(mine.Options))
	case m.Source.Path != mine.Source.Path:
		return fmt.Errorf("it has data of %s", m.Source.Path)
	case m.Source.Fingerprint != mine.Source.Fingerprint:
		return fmt.Errorf("%s has changed since it was written", m.Source.Path)
	}
	return nil
}

// differs names the settings that differ.
func (s Settings) differs(now Settings) string {
	var was, is map[string]any
	for _, x := range []struct {
		of  Settings
		out *map[string]any
	}{{s, &was}, {now, &is}} {
		b, err := json.Marshal(x.of)
		if err == nil {
			err = json.Unmarshal(b, x.out)
		}
		if err != nil {
			return err.Error()
		}
	}
	shown := func(v any) any {
		if v == nil {
			return "default"
		}
		return v
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, ok := is[name]; !ok {
			is[name] = nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if was[name] != is[name] {
			all = append(all, fmt.Sprintf("%s: %v then, %v now", strings.ReplaceAll(name, "_", " "), shown(was[name]), shown(is[name])))
		}
	}
	return strings.Join(all, "; ")
}

// list returns the names of the files in the store.
func (w *writer) list(ctx context.Context) (names []string, err error) {
	err = w.st.List(ctx, "", &store.ListOptions{Shallow: true, Hidden: true}, func(e store.Entry) error {
		names = append(names, e.Name)
		return nil
	})
	if errors.Is(err, store.ErrNotExist) {
		return nil, nil
	}
	return names, writeError(err)
}

// checkFolder refuses a folder with other things in it.
func (w *writer) checkFolder(ctx context.Context) error {
	names, err := w.list(ctx)
	if err != nil {
		return err
	}
	p := w.opt.Piece
	if err := w.checkParts(ctx, names); err != nil {
		return err
	}
	ours := w.opt.Restart || slices.Contains(names, p.journal()+store.PartialSuffix)
	for _, n := range names {
		switch whole := strings.TrimSuffix(n, store.PartialSuffix); {
		case n == p.journal()+store.PartialSuffix, whole == p.manifest():
		case w.opt.Append && (whole == ManifestName || whole == changeName):
		case p.some() && others(n) && !p.isShard(whole):
		case !p.some() && pieceNumber(whole) >= 0:
			return fmt.Errorf("%s has pieces of a pack: finish it with stoker pack --commit %s, or delete it", w.st, units.Shell(w.st.String()))
		case !isShard(whole):
			return fmt.Errorf("%s is not empty (%s is in it): choose a new folder", w.st, n)
		case !ours:
			return fmt.Errorf("%s has shards of a pack that was not finished and whose journal is gone: start over with --restart", w.st)
		}
	}
	return nil
}

// ended converts the error of a cancelled run into an error that explains how to resume.
func (w *writer) ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if w.jnl == nil {
		return fmt.Errorf("%w after %d of %d inputs: %s cannot go on with it, the same command starts over", ErrInterrupted, w.next-w.from, w.to-w.from, w.st)
	}
	return fmt.Errorf("%w after %d of %d inputs: run the same command again, it goes on from here", ErrInterrupted, w.next-w.from, w.to-w.from)
}

// packAll loads the inputs from w.next on with all workers and writes them in
// order. It returns after all of its goroutines have ended.
func (w *writer) packAll(ctx context.Context) error {
	rm, err := newMemoryBudget(w.opt, w.next)
	if err != nil {
		return err
	}
	if w.opt.OwnProcess {
		rm.ownProcess()
	}
	err = (&copyall.Copy[job]{
		Threads: w.opt.Threads, Ahead: budget.PackJobs * w.opt.Threads, Stage: "pack",
		Feed: func(ctx context.Context, q *copyall.Queue[job]) error {
			return w.in.feed(ctx, w.next, w.to, func(i, size int64) (*job, error) {
				share, err := rm.admit(ctx, i, max(size, 4<<10))
				if err != nil {
					return nil, err
				}
				j := q.Begin()
				*j = job{i: i, share: share, mem: j.mem}
				return j, nil
			}, q.Send)
		},
		Worker: func() (func(context.Context, *job) error, func(), error) {
			wk, err := newWorker(w.opt)
			if err != nil {
				return nil, nil, err
			}
			wk.kept = rm.plan.WorkerKept
			return func(ctx context.Context, j *job) error {
				defer j.share.pass()
				err := w.in.load(ctx, j.i, wk, j)
				if errors.As(err, &j.bad) {
					return nil
				}
				return err
			}, wk.close, nil
		},
		Take: func(ctx context.Context, j *job) error {
			err := w.accept(ctx, j)
			j.mem.trim(rm.plan.JobKept)
			j.share.done()
			return err
		},
	}).Run(ctx)
	if err == nil && w.chunk.rows > 0 {
		err = w.writeChunk(ctx, w.to)
	}
	if err == nil && w.shards.open() {
		err = w.finishShard(ctx)
	}
	if err != nil {
		// The written data stays for the next run.
		if serr := w.shards.suspend(ctx); serr != nil && ctx.Err() != nil {
			err = serr
		}
	}
	return err
}

// accept takes the next input in order.
func (w *writer) accept(ctx context.Context, j *job) error {
	if j.bad != nil {
		w.pending = append(w.pending, Skipped{Path: strings.ToValidUTF8(j.bad.Path, "\uFFFD"), Reason: j.bad.Reason})
	} else {
		if !w.chunk.fits(&j.rec) {
			if err := w.writeChunk(ctx, j.i); err != nil {
				return err
			}
		}
		w.chunk.add(&j.rec)
		if w.chunk.size > w.chunk.target { // no record can be added, and the memory is needed
			if err := w.writeChunk(ctx, j.i+1); err != nil {
				return err
			}
		}
	}
	w.bytesDone += w.in.bytes(j.i)
	w.progress("packing", j.i+1, false)
	return nil
}

// writeChunk writes the chunk that is being built; next is the first input
// that is not in it.
func (w *writer) writeChunk(ctx context.Context, next int64) error {
	batch, zones := w.chunk.batch()
	size := int64(0)
	for i := range batch.Leaves {
		size += int64(len(batch.Leaves[i].Values) + len(batch.Leaves[i].Offsets))
	}
	if w.shards.full(size) {
		if err := w.finishShard(ctx); err != nil {
			return err
		}
	}
	if !w.shards.open() {
		if err := w.shards.begin(ctx); err != nil {
			return err
		}
	}
	c, err := w.shards.add(batch, zones)
	if err != nil {
		return err
	}
	err = w.jnl.append(journalEntry{Shard: len(w.shards.shards) - 1, Chunk: &c, Next: next, Skipped: w.pending, Stats: w.chunk.stats})
	if err != nil {
		return err
	}
	w.took(next, w.pending, w.chunk.stats)
	w.pending = nil
	w.chunk.reset()
	return nil
}

// took counts a chunk that is written.
func (w *writer) took(next int64, skipped []Skipped, stats []driver.FieldStats) {
	w.next = next
	w.skipped = append(w.skipped, skipped...)
	for i := range stats {
		MergeStats(&w.stats[i], &stats[i], w.man.Fields[i].Classes != nil)
	}
}

func (w *writer) finishShard(ctx context.Context) error {
	if err := w.shards.finish(ctx); err != nil {
		return err
	}
	i := len(w.shards.shards) - 1
	return w.jnl.append(journalEntry{Shard: i, Done: w.shards.shards[i].Bytes, Frame: w.shards.shards[i].FrameXXH3})
}

var errNothing = errors.New("none")

// nothing returns the error of a run in which every input was bad.
func (w *writer) nothing() error {
	first := append(w.skipped, w.pending...)[0]
	return fmt.Errorf("%w of the %d files in %s could be packed; the first one is %s: %s", errNothing, w.in.len(), w.in.source().Path, first.Path, first.Reason)
}

// finish writes the manifest, the last thing of all.
func (w *writer) finish(ctx context.Context) error {
	m := w.man
	m.Shards = w.shards.shards
	for _, s := range m.Shards {
		m.Records += s.Records
		m.Bytes += s.Bytes
	}
	m.Skipped = []Skipped{}
	if w.opt.Piece.first() {
		m.Skipped = append(m.Skipped, w.in.skipped()...)
		m.Beside = w.in.beside()
	}
	m.Skipped = append(append(m.Skipped, w.skipped...), w.pending...)
	for i := range m.Fields {
		m.Fields[i].Stats = w.stats[i]
	}
	b, err := m.finish()
	if err != nil {
		return err
	}
	if err := w.jnl.sync(ctx); err != nil {
		return err
	}
	if err := store.WriteFile(ctx, w.st, w.opt.Piece.manifest(), b); err != nil {
		return writeError(err)
	}
	w.progress("packing", w.to, true)
	return nil
}

// progress reports at most ten times a second, and at the end.
func (w *writer) progress(step string, files int64, last bool) {
	if w.opt.Progress == nil || !last && time.Since(w.reported) < 100*time.Millisecond {
		return
	}
	w.reported = time.Now()
	w.opt.Progress(Progress{
		Step: step, Files: files - w.from, Total: w.to - w.from, Before: w.before,
		Bytes: w.bytesOld + w.bytesDone, TotalBytes: w.total, BytesBefore: w.bytesOld, BytesDone: w.bytesDone,
		Skipped: int64(len(w.skipped) + len(w.pending) + len(w.in.skipped())),
	})
}
