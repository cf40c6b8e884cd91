package pack

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// VerifyOptions are options of Verify. Nil means the defaults.
type VerifyOptions struct {
	// Decode also decodes every image, every mask, every recording and every frame of clips.
	Decode bool
	// Threads is the number of chunks checked at the same time, 0 for one per core.
	Threads int
	// Memory limits the memory for reading and decoding records with Decode, 0 for a quarter of the free memory.
	Memory int64
	// OwnProcess is true if the process does nothing else, so that the run may set its memory limits.
	OwnProcess bool
	// Progress, if set, is called with the records and bytes of every chunk. It may be called concurrently.
	Progress func(records, bytes int64)
}

// Problem is one thing that is wrong with a pack.
type Problem struct {
	// Shard is the file. Chunk and the records are -1 if the whole shard is concerned.
	Shard string `json:"shard"`
	Chunk int64  `json:"chunk"`
	// FirstRecord and LastRecord are the records of the pack that are
	// concerned, numbered from 0.
	FirstRecord int64 `json:"first_record"`
	LastRecord  int64 `json:"last_record"`
	// Path is the path in the source, if a single record is concerned.
	Path   string `json:"path,omitempty"`
	Reason string `json:"reason"`
	// Intact is true if the checksum is right: the value is unchanged since packing, but cannot be decoded.
	Intact bool `json:"intact,omitempty"`
}

// String returns the problem on one line.
func (p Problem) String() string {
	switch {
	case p.Chunk < 0:
		return fmt.Sprintf("%s: %s", p.Shard, p.Reason)
	case p.FirstRecord == p.LastRecord:
		s := fmt.Sprintf("%s, chunk %d, record %d", p.Shard, p.Chunk, p.FirstRecord)
		if p.Path != "" {
			s += " (" + p.Path + ")"
		}
		return s + ": " + p.Reason
	}
	return fmt.Sprintf("%s, chunk %d, records %d to %d: %s", p.Shard, p.Chunk, p.FirstRecord, p.LastRecord, p.Reason)
}

// Report is the result of Verify.
type Report struct {
	Manifest *Manifest
	// Chunks, Records and Bytes count the checked data.
	Chunks, Records, Bytes int64
	// Problems are in the order of the pack. The pack is whole if there are
	// none.
	Problems []Problem
	// TooLarge are the records that were not decoded, since that takes more memory than
	// VerifyOptions.Memory. Their checksums are right.
	TooLarge []Problem
	// Unsupported are the records that are intact and that this program cannot decode: it does not
	// know their format, or a library is missing.
	Unsupported []Problem
	// Stray are files in the folder that look like shards and belong to nothing: an
	// interrupted run has left them. They do no harm.
	Stray []string
}

// Verify checks the pack dir. All shards must exist with their size, the checksum of every chunk must be right, and
// schema, footers and indexes must agree with the manifest. On request, it also decodes every image, recording and
// clip. An error means that Verify could not check, not that something is damaged. The exception is an unreadable
// manifest. Clips of some codecs need a library.
func Verify(ctx context.Context, dir string, opt *VerifyOptions) (*Report, error) {
	st, err := stores.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return VerifyStore(ctx, st, opt)
}

// VerifyStore is Verify for the pack at the root of any store.
func VerifyStore(ctx context.Context, st store.Store, opt *VerifyOptions) (*Report, error) {
	var o VerifyOptions
	if opt != nil {
		o = *opt
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	m, err := readManifest(ctx, st)
	if err != nil {
		return nil, err
	}
	r, err := newReader(st, m, nil)
	if err != nil {
		return nil, err
	}
	v := &verifier{r: r, opt: o, bad: make([]bool, len(m.Shards))}
	defer r.Close()
	if o.Decode {
		if v.memory, err = newVerifyBudget(&o); err != nil {
			return nil, err
		}
		if o.OwnProcess {
			limitHeap(max(v.memory.plan.Budget, v.memory.plan.One))
		}
	}
	for i := range m.Shards {
		if err := v.shard(ctx, i); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			v.bad[i] = true
			v.report(Problem{Shard: m.Shards[i].File, Chunk: -1, FirstRecord: -1, LastRecord: -1, Reason: err.Error()}, i)
		}
	}
	var next atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	for range min(o.Threads, len(v.r.chunks)) {
		g.Go(func() error {
			w, err := newWorker(&Options{})
			if err != nil {
				return err
			}
			defer w.close()
			buf := make([]byte, 1<<20)
			for {
				c := int(next.Add(1) - 1)
				if c >= len(v.r.chunks) {
					return nil
				}
				if err := context.Cause(gctx); err != nil {
					return err
				}
				if err := v.chunk(gctx, c, w, buf); err != nil {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(v.problems, func(a, b placed) int {
		if a.shard != b.shard {
			return a.shard - b.shard
		}
		if a.Chunk != b.Chunk {
			return int(a.Chunk - b.Chunk)
		}
		return int(a.FirstRecord - b.FirstRecord)
	})
	rep := &Report{Manifest: m, Chunks: v.chunks.Load(), Records: v.records.Load(), Bytes: v.bytes.Load(), Problems: []Problem{}}
	if f, err := pieces(ctx, st); err == nil && len(f.names)+len(f.unfinished) == 0 { // no append is in progress
		rep.Stray, _ = strayShards(ctx, st, m) // a store that cannot list returns nothing
	}
	for _, p := range v.problems {
		switch p.fault {
		case faultMemory:
			rep.TooLarge = append(rep.TooLarge, p.Problem)
		case faultUnsupported:
			rep.Unsupported = append(rep.Unsupported, p.Problem)
		default:
			rep.Problems = append(rep.Problems, p.Problem)
		}
	}
	return rep, nil
}

type placed struct {
	Problem
	shard int
	fault fault
}

// fault is the cause of a problem.
type fault int

const (
	faultData fault = iota
	faultMemory
	faultUnsupported
)

// faultOf returns the cause if an intact value cannot be decoded.
func faultOf(err error) fault {
	switch {
	case errors.As(err, new(*tooLarge)):
		return faultMemory
	case unsupported(err):
		return faultUnsupported
	}
	return faultData
}

type verifier struct {
	r   *Reader
	opt VerifyOptions
	// memory is the memory for decoding, nil without decoding.
	memory *verifyBudget
	bad    []bool // shards that are not there, or not of their size

	chunks, records, bytes atomic.Int64

	mu       sync.Mutex
	problems []placed
}

func (v *verifier) report(p Problem, shard int) { v.add(placed{Problem: p, shard: shard}) }

func (v *verifier) add(p placed) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.problems = append(v.problems, p)
}

// shard checks the data around the chunks of a shard, and records the shard's current state.
func (v *verifier) shard(ctx context.Context, i int) error {
	s := &v.r.man.Shards[i]
	e, err := v.r.st.Stat(ctx, s.File)
	if errors.Is(err, store.ErrNotExist) {
		return errors.New("the file is missing")
	}
	if err != nil {
		return store.Cause(err)
	}
	v.r.entries[i] = e
	if e.Size != s.Bytes {
		return fmt.Errorf("it has %d bytes, should have %d", e.Size, s.Bytes)
	}
	o, err := v.r.pool.Open(ctx, e)
	if err != nil {
		return store.Cause(err)
	}
	defer o.Close()
	head := make([]byte, min(s.Bytes, arrowipc.HeaderLimit))
	if err := o.ReadAt(ctx, head, 0); err != nil {
		return store.Cause(err)
	}
	cols, err := arrowipc.ParseHeader(head)
	if err == nil && !arrowipc.Equal(cols, v.r.sch.cols) {
		err = errors.New("it differs from the fields of the manifest")
	}
	if err != nil {
		return fmt.Errorf("the schema is wrong: %w", err)
	}
	if err := v.footer(ctx, o, s); err != nil {
		return fmt.Errorf("the footer is wrong (Stoker does not need it, other readers do): %w", err)
	}
	return nil
}

func (v *verifier) footer(ctx context.Context, o store.Object, s *Shard) error {
	if s.Bytes < 10 {
		return errors.New("there is none")
	}
	var tail [10]byte
	if err := o.ReadAt(ctx, tail[:], s.Bytes-10); err != nil {
		return store.Cause(err)
	}
	n, err := arrowipc.FooterSize(tail[:], s.Bytes)
	if err != nil {
		return err
	}
	b := make([]byte, n)
	if err := o.ReadAt(ctx, b, s.Bytes-n); err != nil {
		return store.Cause(err)
	}
	cols, blocks, err := arrowipc.ParseFooter(b, s.Bytes)
	if err != nil {
		return err
	}
	if !arrowipc.Equal(cols, v.r.sch.cols) || len(blocks) != len(s.Chunks) {
		return fmt.Errorf("%d columns and %d record batches, should be %d and %d", len(cols), len(blocks), len(v.r.sch.cols), len(s.Chunks))
	}
	for k, b := range blocks {
		if b.Offset != s.Chunks[k].Offset || int64(b.MetaBytes)+b.BodyBytes != s.Chunks[k].Bytes {
			return fmt.Errorf("record batch %d lies elsewhere", k)
		}
	}
	return checkFrame(ctx, o, s)
}

// checkFrame compares the checksum of the bytes outside of the chunks of a shard.
func checkFrame(ctx context.Context, r reader, s *Shard) error {
	first, last := s.Bytes, s.Bytes
	if n := len(s.Chunks); n > 0 {
		first, last = s.Chunks[0].Offset, s.Chunks[n-1].Offset+s.Chunks[n-1].Bytes
	}
	h, buf := xxh3.New(), make([]byte, 64<<10)
	if err := errors.Join(hashRange(ctx, r, h, 0, first, buf), hashRange(ctx, r, h, last, s.Bytes-last, buf)); err != nil {
		return store.Cause(err)
	}
	return compareSum(h, s.FrameXXH3)
}

// chunk checks one chunk. Its error is one of the run.
func (v *verifier) chunk(ctx context.Context, c int, w *worker, buf []byte) error {
	r := v.r
	ref := &r.chunks[c]
	o, err := r.pool.Open(ctx, r.entries[ref.shard])
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && v.bad[ref.shard] {
		return nil // reported with its shard
	}
	p := Problem{
		Shard: r.man.Shards[ref.shard].File, Chunk: int64(ref.number),
	}
	p.FirstRecord, _ = r.gone.record(r.find.first[c])
	if p.LastRecord, _ = r.gone.record(r.find.first[c+1]); p.LastRecord > p.FirstRecord {
		p.LastRecord--
	}
	if err == nil {
		defer o.Close()
		err = checkChunk(ctx, o, Chunk{Offset: ref.offset, Bytes: ref.bytes, XXH3: ref.sum}, buf)
	}
	v.chunks.Add(1)
	v.bytes.Add(ref.bytes)
	if err == nil {
		err = v.rows(ctx, c, w, p)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if none := new(noDecoder); errors.As(err, &none) {
		return fmt.Errorf("%w; without --decode checksums are compared", err)
	}
	if err != nil {
		p.Reason = err.Error()
		v.report(p, int(ref.shard))
	}
	live := ref.rows - r.man.Shards[ref.shard].Chunks[ref.number].removed()
	v.records.Add(live)
	if v.opt.Progress != nil {
		v.opt.Progress(live, ref.bytes)
	}
	return nil
}

// rows checks the rows of a chunk whose checksum is right.
func (v *verifier) rows(ctx context.Context, c int, w *worker, p Problem) error {
	o, vw, err := v.r.openChunk(ctx, c, nil)
	if err != nil {
		return err
	}
	defer o.Close()
	for i := range v.r.x.fields {
		for row := range v.r.chunks[c].rows {
			if err := vw.checkRow(&v.r.x.fields[i], row); err != nil {
				return err
			}
		}
	}
	if err := vw.checkTail(ctx, o); err != nil {
		return err
	}
	if v.opt.Decode && slices.ContainsFunc(v.r.man.Fields, func(f Field) bool { return f.Encoded() != "" }) {
		return v.decode(ctx, o, vw, w, p)
	}
	return nil
}

// checkTail checks the offsets that the head does not hold.
func (v *view) checkTail(ctx context.Context, o reader) error {
	for i := range v.r.sch.leaves {
		l, p := &v.r.sch.leaves[i], &v.lay.Leaves[i]
		if !l.inTail() {
			continue
		}
		b := make([]byte, l.OffsetWidth*int64(v.lay.Rows+1)) // the layout has checked that the chunk has as many
		if err := o.ReadAt(ctx, b, v.r.chunks[v.c].offset+p.Offsets.Off); err != nil {
			return err
		}
		if err := arrowipc.CheckOffsets(b, l.OffsetWidth, v.lay.Rows, p.Items); err != nil {
			return fmt.Errorf("column %s: %w", l.Name, err)
		}
	}
	return nil
}

// decode decodes all values of a chunk that are encoded.
func (v *verifier) decode(ctx context.Context, o reader, vw *view, w *worker, p Problem) error {
	var rec Record
	for row := range v.r.chunks[vw.c].rows {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if _, has := v.r.gone.record(v.r.find.first[vw.c] + row); !has {
			continue
		}
		if err := v.decodeRow(ctx, o, vw, w, row, &rec, p); err != nil {
			return err
		}
	}
	return nil
}

// decodeRow decodes the values of a row that are encoded.
func (v *verifier) decodeRow(ctx context.Context, o reader, vw *view, w *worker, row int64, rec *Record, p Problem) error {
	one := p
	one.FirstRecord, _ = v.r.gone.record(v.r.find.first[vw.c] + row)
	one.LastRecord = one.FirstRecord
	wrong := func(path, what string, err error) {
		fault := faultOf(err)
		one.Path, one.Reason, one.Intact = path, what+err.Error(), true
		if fault == faultMemory {
			one.Reason = err.Error()
		}
		v.add(placed{one, int(v.r.chunks[vw.c].shard), fault})
	}
	size := vw.size(row)
	give, err := v.memory.toRead(ctx, size)
	if err != nil {
		if context.Cause(ctx) != nil {
			return err
		}
		wrong("", "", err)
		return nil
	}
	defer give()
	if err := vw.record(ctx, o, row, rec, everything); err != nil {
		return err
	}
	defer func() {
		if size > v.memory.plan.Kept { // its memory is not for the next one
			*rec = Record{}
		}
	}()
	for i := range rec.Values {
		val := &rec.Values[i]
		decode := v.decodeValue
		switch val.Field.Kind {
		case driver.KindImage, driver.KindMask:
		case driver.KindFrames:
			decode = v.decodeClip
		case driver.KindAudio:
			decode = v.decodeSound
		default:
			continue
		}
		if err := decode(ctx, val, w); err != nil {
			if none := new(noDecoder); context.Cause(ctx) != nil || errors.As(err, &none) {
				return err
			}
			wrong(val.Path, fmt.Sprintf("the %s cannot be decoded: ", val.Field.Kind), err)
		}
	}
	return nil
}

// decodeValue decodes a picture when there is the memory for it.
func (v *verifier) decodeValue(ctx context.Context, val *Value, w *worker) error {
	need, heap := val.decoding()
	give, err := v.memory.toDecode(ctx, need, heap)
	if err != nil {
		return err
	}
	defer give()
	w.enc.allow(max(need, 1))
	defer w.enc.trim(v.memory.plan.Kept)
	if val.Field.Kind == driver.KindMask {
		w.enc.pixels, err = checkMask(&val.Value, val.Field, w.enc.pixels)
		return err
	}
	return w.enc.decodeStored(val)
}
