package pack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/stokerdata/stoker/internal/direct"
	"github.com/stokerdata/stoker/pack/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
)

// input is what a pack is made from: a folder of images, another pack, or a
// source without images.
type input interface {
	// source describes the input; its fingerprint decides whether an
	// interrupted run may go on.
	source() Source
	// command is the name of the command that reads this kind of input.
	command() string
	// classes are the names of the labels, nil for none.
	classes() []string
	// len is the number of inputs, bytes the size of input i.
	len() int64
	bytes(i int64) int64
	// skipped are inputs that are already known to be bad.
	skipped() []Skipped
	// load reads input i into the job. A *BadInput is listed and left out;
	// any other error ends the run.
	load(ctx context.Context, i int64, w *worker, j *job) error
}

// BadInput is the error of an input that cannot be packed.
type BadInput struct{ Path, Reason string }

func (e *BadInput) Error() string { return e.Path + ": " + e.Reason }

// job is one input on its way through a worker.
type job struct {
	i      int64
	weight int64
	rec    record
	buf    []byte // holds rec.image
	err    error
	done   chan struct{}
}

// worker is what one goroutine that loads inputs keeps for itself.
type worker struct {
	opt    *Options
	src    []byte // the bytes of the file
	enc    encoder
	cursor packCursor
	reader *direct.Reader // of sources without images
}

// ErrInterrupted is in the error of a run that was cancelled. What it leaves
// is gone on with by the same call.
var ErrInterrupted = errors.New("interrupted")

// Write packs the images below the folder src into the new folder dst. Labels
// are the first folder of each path, in sorted order, as torchvision's
// ImageFolder has them.
//
// Inputs that are no whole image are left out and listed in the manifest of
// the summary; everything else that goes wrong is an error, after which dst is
// an unfinished pack that the same call goes on with.
func Write(ctx context.Context, src, dst string, opt *Options) (*Summary, error) {
	o, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	in, err := openFolderInput(ctx, src, dst)
	if err != nil {
		return nil, err
	}
	return run(ctx, in, dst, o)
}

// writer is one run.
type writer struct {
	in     input
	dst    string
	opt    *Options
	man    *Manifest
	cols   []arrowipc.Column
	jnl    *journal
	shards *shardWriter
	chunk  *chunkBuilder
	stats  chunkStats

	next      int64 // first input that is not in a written chunk
	pending   []Skipped
	skipped   []Skipped // of written chunks
	before    int64     // inputs done by an earlier run
	bytesDone int64
	bytesOld  int64
	total     int64
	reported  time.Time
}

func run(ctx context.Context, in input, dst string, opt *Options) (*Summary, error) {
	w := &writer{in: in, dst: dst, opt: opt, stats: newChunkStats()}
	if sum, err := w.unchanged(); sum != nil || err != nil {
		return sum, err
	}
	if in.len() == 0 {
		return nil, fmt.Errorf("nothing to pack: no file in %s", in.source().Path)
	}
	if err := w.prepareFolder(); err != nil {
		return nil, err
	}
	jnl, err := lockJournal(dst)
	if err != nil {
		return nil, err
	}
	w.jnl = jnl
	finished := false
	defer func() {
		if !finished {
			_ = jnl.close()
		}
	}()
	// Another process may have finished it between the first look and the lock.
	if sum, err := w.unchanged(); sum != nil || err != nil {
		finished = true
		return sum, errors.Join(err, jnl.remove())
	}

	w.man = &Manifest{Format: FormatName, Version: Version, Writer: opt.Writer, Source: in.source(), Options: opt.settings()}
	if records, ok := in.(*sourceInput); ok {
		w.man.Version, w.man.Fields = RecordsVersion, records.fields
	} else {
		metadata := opt.Metadata && opt.Images != ImagesKeep
		w.man.Fields = newFields(in.classes() != nil, metadata, in.classes())
	}
	w.cols = w.man.columns()
	w.chunk = newChunkBuilder(w.cols, opt.ChunkBytes)
	w.shards = newShardWriter(opt.fs, dst, w.man, opt.ShardBytes)
	for i := range in.len() {
		w.total += in.bytes(i)
	}
	if err := w.resume(ctx); err != nil {
		return nil, w.ended(ctx, err)
	}
	if err := w.packAll(ctx); err != nil {
		return nil, w.ended(ctx, err)
	}
	if len(w.shards.shards) == 0 {
		finished = true
		_ = jnl.remove()
		_ = os.Remove(dst)
		return nil, w.nothing()
	}
	if err := w.finish(); err != nil {
		return nil, err
	}
	finished = true
	return &Summary{Manifest: w.man, Resumed: w.before}, w.jnl.remove()
}

// unchanged handles a dst that is a finished pack: of the same input with the
// same options there is nothing to do, of anything else it is not touched.
func (w *writer) unchanged() (*Summary, error) {
	m, err := ReadManifest(w.dst)
	if err != nil {
		if _, serr := os.Stat(filepath.Join(w.dst, ManifestName)); serr == nil {
			return nil, fmt.Errorf("%s holds a pack already, and it cannot be read: %w", w.dst, err)
		}
		return nil, nil
	}
	if m.Source.Fingerprint == w.in.source().Fingerprint && m.Options == w.opt.settings() {
		return &Summary{Manifest: m, Unchanged: true}, nil
	}
	return nil, fmt.Errorf("%s is a finished pack of something else: choose another folder or delete it first", w.dst)
}

// prepareFolder makes dst, and refuses a folder with other things in it.
func (w *writer) prepareFolder() error {
	if err := os.MkdirAll(w.dst, 0o755); err != nil {
		return writeError("cannot create "+w.dst, err)
	}
	entries, err := os.ReadDir(w.dst)
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", w.dst, plain(err))
	}
	ours := w.opt.Restart
	for _, e := range entries {
		ours = ours || e.Name() == JournalName
	}
	for _, e := range entries {
		n := e.Name()
		if n == JournalName || n == manifestTemp {
			continue
		}
		if strings.HasPrefix(n, "shard-") && (strings.HasSuffix(n, shardSuffix) || strings.HasSuffix(n, shardSuffix+partialSuffix)) {
			if !ours {
				return fmt.Errorf("%s has shards of a pack that was not finished and whose journal is gone: start anew with --restart", w.dst)
			}
			continue
		}
		return fmt.Errorf("%s is not empty (%s is in it): choose a new folder", w.dst, n)
	}
	return nil
}

// ended turns the error of a cancelled run into one that says how to go on.
func (w *writer) ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w after %d of %d inputs: run the same command again, it goes on from here", ErrInterrupted, w.next, w.in.len())
}

// packAll loads the inputs from w.next on with all workers and writes them in
// order. It returns after all of its goroutines have ended.
func (w *writer) packAll(ctx context.Context) error {
	n := w.opt.Threads
	// The memory of a run: the inputs between the first one that is not
	// written and the last one that is loaded.
	budget := int64(n) * (16 << 20)
	sem := semaphore.NewWeighted(budget)
	jobs := make(chan *job)
	order := make(chan *job, 16*n)
	free := make(chan *job, 17*n)

	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { // hands out the inputs in order
		defer close(jobs)
		defer close(order)
		for i := w.next; i < w.in.len(); i++ {
			weight := min(budget, max(w.in.bytes(i), 4<<10)*w.expansion())
			if err := sem.Acquire(gctx, weight); err != nil {
				return context.Cause(gctx)
			}
			var j *job
			select {
			case j = <-free:
			default:
				j = new(job)
			}
			*j = job{i: i, weight: weight, buf: j.buf[:0], done: make(chan struct{})}
			select {
			case order <- j:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
			select {
			case jobs <- j:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
		}
		return nil
	})
	var workers sync.WaitGroup
	for range n {
		workers.Add(1)
		g.Go(func() error {
			defer workers.Done()
			wk, err := newWorker(w.opt)
			if err != nil {
				return err
			}
			defer wk.close()
			var failed error
			pprof.Do(gctx, pprof.Labels("stage", "pack"), func(context.Context) {
				for j := range jobs {
					j.err = w.in.load(gctx, j.i, wk, j)
					var bad *BadInput
					if j.err != nil && !errors.As(j.err, &bad) {
						failed = j.err
						close(j.done)
						return
					}
					close(j.done)
				}
			})
			return failed
		})
	}
	g.Go(func() error { // writes them in order
		for {
			var j *job
			var ok bool
			select {
			case j, ok = <-order:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
			if !ok {
				return nil
			}
			select {
			case <-j.done:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
			if err := w.accept(j); err != nil {
				return err
			}
			sem.Release(j.weight)
			if cap(j.buf) <= 4<<20 {
				select {
				case free <- j:
				default:
				}
			}
		}
	})
	err := g.Wait()
	workers.Wait()
	if err == nil && w.chunk.rows > 0 {
		err = w.writeChunk(w.in.len())
	}
	if err != nil {
		// What was written stays, for the next run.
		if w.shards.open() {
			if serr := w.shards.suspend(); serr != nil && ctx.Err() != nil {
				err = serr
			}
		}
		_ = w.jnl.sync()
		return err
	}
	if w.shards.open() {
		return w.finishShard()
	}
	return nil
}

// expansion estimates how much more memory an input needs than its bytes.
func (w *writer) expansion() int64 {
	if w.opt.Images == ImagesRaw {
		return 16
	}
	return 2
}

// accept takes the next input in order.
func (w *writer) accept(j *job) error {
	var bad *BadInput
	switch {
	case errors.As(j.err, &bad):
		w.pending = append(w.pending, Skipped{Path: strings.ToValidUTF8(bad.Path, "\uFFFD"), Reason: bad.Reason})
	case j.err != nil:
		return j.err
	default:
		if !w.chunk.fits(&j.rec) {
			if err := w.writeChunk(j.i); err != nil {
				return err
			}
		}
		w.chunk.add(&j.rec)
	}
	w.bytesDone += w.in.bytes(j.i)
	w.progress("packing", j.i+1, false)
	return nil
}

// writeChunk writes the chunk that is being built; next is the first input
// that is not in it.
func (w *writer) writeChunk(next int64) error {
	batch := w.chunk.batch()
	size := int64(0)
	for i := range batch.Values {
		size += int64(len(batch.Values[i]) + len(batch.Offsets[i]))
	}
	if w.shards.full(size) {
		if err := w.finishShard(); err != nil {
			return err
		}
	}
	if !w.shards.open() {
		if err := w.shards.begin(); err != nil {
			return err
		}
	}
	c, err := w.shards.add(batch)
	if err != nil {
		return err
	}
	err = w.jnl.append(journalEntry{Shard: len(w.shards.shards) - 1, Chunk: &c, Next: next, Skipped: w.pending, Stats: &w.chunk.stats})
	if err != nil {
		return err
	}
	w.took(next, w.pending, &w.chunk.stats)
	w.pending = nil
	w.chunk.reset()
	return nil
}

// took counts a chunk that is written.
func (w *writer) took(next int64, skipped []Skipped, stats *chunkStats) {
	w.next = next
	w.skipped = append(w.skipped, skipped...)
	w.stats.merge(stats)
}

func (w *writer) finishShard() error {
	if err := w.shards.finish(); err != nil {
		return err
	}
	i := len(w.shards.shards) - 1
	return w.jnl.append(journalEntry{Shard: i, Done: w.shards.shards[i].Bytes})
}

// nothing is the error of a run in which every input was bad.
func (w *writer) nothing() error {
	first := append(w.skipped, w.pending...)[0]
	return fmt.Errorf("none of the %d files in %s could be packed; the first one is %s: %s", w.in.len(), w.in.source().Path, first.Path, first.Reason)
}

const manifestTemp = ManifestName + ".tmp"

// finish writes the manifest, the last thing of all.
func (w *writer) finish() error {
	m := w.man
	m.Shards = w.shards.shards
	for _, s := range m.Shards {
		m.Records += s.Records
		m.Bytes += s.Bytes
	}
	m.Skipped = append(append(append([]Skipped{}, w.in.skipped()...), w.skipped...), w.pending...)
	w.fillStats()
	m.Fingerprint = m.computeFingerprint()
	if err := m.check(); err != nil {
		return fmt.Errorf("the new manifest does not pass its own checks: %w", err)
	}
	b, err := m.marshal()
	if err != nil {
		return err
	}
	if err := w.jnl.sync(); err != nil {
		return err
	}
	tmp, name := filepath.Join(w.dst, manifestTemp), filepath.Join(w.dst, ManifestName)
	what := "cannot write " + name
	f, err := w.opt.fs.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return writeError(what, err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		// The shards must be there before the manifest says so.
		err = w.opt.fs.SyncDir(w.dst)
	}
	if err == nil {
		err = w.opt.fs.Rename(tmp, name)
	}
	if err != nil {
		_ = w.opt.fs.Remove(tmp)
		return writeError(what, err)
	}
	if err := w.opt.fs.SyncDir(w.dst); err != nil {
		return writeError(what, err)
	}
	w.progress("packing", w.in.len(), true)
	return nil
}

func (w *writer) fillStats() {
	s := &w.stats
	if w.man.Version == RecordsVersion {
		s.values(len(w.man.Fields))
		for i, v := range s.Values[:len(w.man.Fields)] {
			if f := &w.man.Fields[i]; f.Kind == KindBytes || f.Kind == string(driver.KindText) {
				f.Bytes, f.MaxBytes = v.Bytes, v.Max
			}
		}
		return
	}
	im := &ImageStats{
		Codecs: s.Codecs, CodecNumbers: map[string]uint8{}, NotDCT: s.NotDCT,
		MinWidth: s.MinW, MaxWidth: s.MaxW, MinHeight: s.MinH, MaxHeight: s.MaxH,
		Bytes: s.Bytes, MaxBytes: s.MaxBytes,
	}
	for c, name := range codecNames {
		if s.Codecs[name] > 0 {
			im.CodecNumbers[name] = uint8(c)
		}
	}
	for i := range w.man.Fields {
		f := &w.man.Fields[i]
		switch f.Name {
		case colPath:
			f.MaxBytes = s.MaxPath
		case colImage:
			f.Images, f.MaxBytes = im, s.MaxBytes
		case colExif:
			f.MaxBytes = s.MaxExif
		case colICC:
			f.MaxBytes = s.MaxICC
		}
	}
}

// progress reports at most ten times a second, and at the end.
func (w *writer) progress(step string, files int64, last bool) {
	if w.opt.Progress == nil || !last && time.Since(w.reported) < 100*time.Millisecond {
		return
	}
	w.reported = time.Now()
	w.opt.Progress(Progress{
		Step: step, Files: files, Total: w.in.len(), Before: w.before,
		Bytes: w.bytesOld + w.bytesDone, TotalBytes: w.total, BytesBefore: w.bytesOld, BytesDone: w.bytesDone,
		Skipped: int64(len(w.skipped) + len(w.pending) + len(w.in.skipped())),
	})
}
