// Package scan reads the requested parts of all records of a source: some fields, the sizes of values, or the sizes of
// images. For the size of an image it reads the header of the file only. Several goroutines read chunks of records
// concurrently.
package scan

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

// Request defines the parts to read of each record. Fields are indices of Info.Fields.
type Request struct {
	// Values are the fields whose values are read, Sizes those whose values' sizes in bytes are read, and Shapes those
	// of images whose width and height are read.
	Values, Sizes, Shapes []int
	// Lenient continues after a record that cannot be read. Its Errs has the reason.
	Lenient bool
	// Threads is the number of goroutines that read, 0 for a default.
	Threads int
	// Progress, if set, is called now and then with the number of finished records, by one goroutine at a time.
	Progress func(done, total int64)
}

// Rows are a few records that follow each other, the first one a multiple of Group.
// They are valid until the call that they were given to returns.
type Rows struct {
	First   int64
	N       int
	Records []driver.Record
	// Sizes and Shapes are by place in the Request, then by record.
	Sizes  [][]int64
	Shapes [][]driver.Shape
	Errs   []error
}

// Group is the largest number of Rows.
const Group = 64

// chunk is the number of records that a goroutine takes in one step.
const chunk = 16 * Group

// Run calls each with all records of src, from several goroutines concurrently and in any order. A sequential source is
// read in order.
func Run(ctx context.Context, src driver.Source, req *Request, each func(r *Rows) error) error {
	info := src.Info()
	progress := newProgress(req, info.Len)
	if info.Sequential {
		return inOrder(ctx, src, req, progress, each)
	}
	threads := req.Threads
	if threads <= 0 {
		// Files that are not in memory are waited for: more than one per core.
		threads = 4 * runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	obj := recordread.NewObjects(src, nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(int64(threads), (info.Len+chunk-1)/chunk) {
		wg.Go(func() {
			w := newWorker(src, obj, req)
			for {
				at := next.Add(chunk) - chunk
				if at >= info.Len || ctx.Err() != nil {
					return
				}
				end := min(at+chunk, info.Len)
				for first := at; first < end; first += Group {
					err := w.read(ctx, first, int(min(Group, end-first)))
					if err == nil {
						err = each(&w.rows)
					}
					if err != nil {
						cancel(err)
						return
					}
				}
				progress.add(end - at)
			}
		})
	}
	wg.Wait()
	err := context.Cause(ctx)
	if cerr := obj.Close(); err == nil {
		err = cerr
	}
	return err
}

// FirstShape returns the size of the image of a field in the first record in which it can
// be read. Only the first records of the source are tried.
func FirstShape(ctx context.Context, src driver.Source, field int) (id int64, s driver.Shape, err error) {
	req := &Request{Shapes: []int{field}, Lenient: true}
	found := errors.New("found")
	seen := int64(0)
	last := errors.New("there are no records")
	look := func(r *Rows) error {
		for k := range r.N {
			switch s = r.Shapes[0][k]; {
			case r.Errs[k] != nil:
				last = r.Errs[k]
			case s.Width < 1 || s.Height < 1:
				last = errors.New("the source does not say how large it is")
			default:
				id = r.First + int64(k)
				return found
			}
		}
		if seen += int64(r.N); seen >= Group {
			return fmt.Errorf("none of the first %d records has an image whose size can be read: %w", seen, last)
		}
		return nil
	}
	if src.Info().Sequential {
		err = inOrder(ctx, src, req, newProgress(req, src.Info().Len), look)
	} else {
		obj := recordread.NewObjects(src, nil)
		w := newWorker(src, obj, req)
		for at := int64(0); err == nil && at < src.Info().Len; at++ {
			if err = w.read(ctx, at, 1); err == nil {
				err = look(&w.rows)
			}
		}
		_ = obj.Close() // nothing is written
	}
	switch {
	case errors.Is(err, found):
		err = nil
	case err == nil:
		err = fmt.Errorf("no record has an image whose size can be read: %w", last)
	}
	return id, s, err
}

// progress reports the progress of a scan.
type progress struct {
	req   *Request
	total int64
	mu    sync.Mutex
	done  int64
	told  time.Time
}

func newProgress(req *Request, total int64) *progress {
	return &progress{req: req, total: total, told: time.Now()}
}

func (p *progress) add(n int64) {
	if p.req.Progress == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if now := time.Now(); p.done == p.total || now.Sub(p.told) > 100*time.Millisecond {
		p.told = now
		p.req.Progress(p.done, p.total)
	}
}

// worker reads in one goroutine.
type worker struct {
	src   driver.Source
	info  *driver.Info
	obj   *recordread.Objects
	req   *Request
	sizer driver.Sizer
	shape driver.Shaper

	ids    []int64
	rows   Rows
	values wants
	shapes []wants // by place in the request
	full   wants   // of a record whose header has to be looked for in all of it
	slab   slab
}

// wants are fields that are read together.
type wants struct {
	want []bool
	g    driver.Group
}

func newWorker(src driver.Source, obj *recordread.Objects, req *Request) *worker {
	w := &worker{src: src, info: src.Info(), obj: obj, req: req}
	w.sizer, _ = driver.As[driver.Sizer](src)
	w.shape, _ = driver.As[driver.Shaper](src)
	w.rows = newRows(req)
	w.values.want = make([]bool, len(w.info.Fields))
	for _, f := range req.Values {
		w.values.want[f] = true
	}
	for _, f := range req.Shapes {
		one := wants{want: make([]bool, len(w.info.Fields))}
		one.want[f] = true
		w.shapes = append(w.shapes, one)
	}
	return w
}

func newRows(req *Request) Rows {
	r := Rows{Errs: make([]error, Group), Sizes: make([][]int64, len(req.Sizes)), Shapes: make([][]driver.Shape, len(req.Shapes))}
	for i := range r.Sizes {
		r.Sizes[i] = make([]int64, Group)
	}
	for i := range r.Shapes {
		r.Shapes[i] = make([]driver.Shape, Group)
	}
	return r
}

// read reads n records.
func (w *worker) read(ctx context.Context, first int64, n int) error {
	w.slab.used = 0
	w.ids = w.ids[:0]
	for k := range n {
		w.ids = append(w.ids, first+int64(k))
	}
	r := &w.rows
	r.First, r.N = first, n
	clear(r.Errs)
	want := slices.Clone(w.values.want)
	sized := make([]bool, len(w.req.Sizes))
	for i, f := range w.req.Sizes {
		// It is known, or else it takes the value itself.
		if w.sizer != nil {
			if sized[i] = w.sizer.Sizes(f, w.ids, r.Sizes[i][:n]); !sized[i] {
				if err := w.learn(ctx, f); err != nil {
					return err
				}
				sized[i] = w.sizer.Sizes(f, w.ids, r.Sizes[i][:n])
			}
		}
		want[f] = want[f] || !sized[i]
	}
	if slices.Contains(want, true) {
		if err := w.whole(ctx, &w.values, w.ids, want); err != nil {
			return err
		}
		r.Records = w.values.g.Records
		for k := range r.Records {
			r.Errs[k] = r.Records[k].Err
		}
		for i, f := range w.req.Sizes {
			for k := range r.Records {
				if !sized[i] {
					r.Sizes[i][k] = int64(len(r.Records[k].Values[f].Bytes))
				}
			}
		}
	}
	for i := range w.req.Shapes {
		if err := w.shapesOf(ctx, i); err != nil {
			return err
		}
	}
	if !w.req.Lenient {
		for k, err := range r.Errs[:n] {
			if err != nil {
				return &RecordError{ID: w.ids[k], Name: w.src.Name(w.ids[k]), Err: err}
			}
		}
	}
	return nil
}

// RecordError is the error of a record that could not be read.
type RecordError struct {
	ID   int64
	Name string
	Err  error
}

// Error names the record.
func (e *RecordError) Error() string { return fmt.Sprintf("record %d (%s): %v", e.ID, e.Name, e.Err) }

// Unwrap is the cause.
func (e *RecordError) Unwrap() error { return e.Err }

// learn makes the source learn the position of a field in the records.
func (w *worker) learn(ctx context.Context, field int) error {
	want := make([]bool, len(w.info.Fields))
	want[field] = true
	g := &w.full.g
	g.Want = want
	g.Begin(w.ids, len(w.info.Fields))
	return recordread.Locate(ctx, w.src, g, w.learnt)
}

func (w *worker) learnt(ctx context.Context, e driver.Extent) error {
	b := make([]byte, e.Size+recordread.Tail)[:e.Size]
	if err := w.obj.Read(ctx, e.Object, b, e.Offset); err != nil {
		return err
	}
	return recordread.Learn(w.src, e, b)
}

const (
	// Extents with gaps of at most mergeGap are read together, up to mergeBytes.
	mergeGap   = 4 << 10
	mergeBytes = 1 << 20
	// headBytes is the number of bytes of a file that are read first for its header.
	headBytes = 8 << 10
)

// whole reads fields of some records. It stores a record's error in Errs.
func (w *worker) whole(ctx context.Context, to *wants, ids []int64, want []bool) error {
	g := &to.g
	if err := w.locate(ctx, g, ids, want); err != nil {
		return err
	}
	now := time.Now()
	for k := range ids {
		for i := g.First[k]; i < g.First[k+1]; i++ {
			if g.Bytes[i] == nil && g.Extents[i].Size > 0 && g.Records[k].Err == nil {
				if g.Bytes[i] = w.obj.Resident(&g.Extents[i], now); g.Bytes[i] == nil {
					w.together(ctx, g, k, int(i))
				}
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return recordread.Parse(w.src, g)
}

func (w *worker) locate(ctx context.Context, g *driver.Group, ids []int64, want []bool) error {
	g.Want, g.Alloc, g.Place = want, w.slab.take, nil
	g.Begin(ids, len(w.info.Fields))
	if err := recordread.Locate(ctx, w.src, g, w.learnt); err != nil {
		return err
	}
	g.Bytes = g.Bytes[:0]
	for range g.Extents {
		g.Bytes = append(g.Bytes, nil)
	}
	return nil
}

// together reads extent i, of record k, and the nearby extents after it.
func (w *worker) together(ctx context.Context, g *driver.Group, k, i int) {
	e := g.Extents[i]
	last, end := i, e.Offset+e.Size
	for j := i + 1; j < len(g.Extents); j++ {
		n := &g.Extents[j]
		if n.Object != e.Object || n.Offset < end || n.Offset > end+mergeGap || n.Offset+n.Size > e.Offset+mergeBytes {
			break
		}
		last, end = j, n.Offset+n.Size
	}
	b, err := w.slab.take(int(end - e.Offset))
	if err == nil {
		err = w.obj.Read(ctx, e.Object, b, e.Offset)
	}
	if err != nil && last > i {
		// One of them is to blame.
		if b, err = w.slab.take(int(e.Size)); err == nil {
			err = w.obj.Read(ctx, e.Object, b, e.Offset)
		}
		last = i
	}
	if err != nil {
		g.Records[k].Err = err
		return
	}
	for j := i; j <= last; j++ {
		n := &g.Extents[j]
		from := n.Offset - e.Offset
		g.Bytes[j] = b[from : from+n.Size : from+n.Size]
	}
}

// shapesOf finds the sizes of the images of a field.
func (w *worker) shapesOf(ctx context.Context, i int) error {
	r, field := &w.rows, w.req.Shapes[i]
	to := r.Shapes[i][:r.N]
	clear(to)
	if f := &w.info.Fields[field]; f.Width > 0 && f.Height > 0 && f.Channels > 0 {
		for k := range to {
			to[k] = driver.Shape{Width: f.Width, Height: f.Height, Channels: f.Channels, Orientation: 1}
		}
		return nil
	}
	one := &w.shapes[i]
	g := &one.g
	if err := w.locate(ctx, g, w.ids, one.want); err != nil {
		return err
	}
	if w.shape != nil && w.shape.Shapes(field, w.ids, to) {
		return nil
	}
	now := time.Now()
	for k := range w.ids {
		for x := g.First[k]; x < g.First[k+1] && g.Records[k].Err == nil; x++ {
			e := &g.Extents[x]
			if e.Size == 0 {
				continue
			}
			if g.Bytes[x] = w.obj.Resident(e, now); g.Bytes[x] != nil {
				continue
			}
			// All of its memory, so that the source makes the value of it that it
			// always makes, but only the beginning is read.
			b, err := w.slab.take(int(e.Size))
			if err == nil {
				err = w.obj.Read(ctx, e.Object, b[:min(headBytes, len(b))], e.Offset)
			}
			g.Bytes[x], g.Records[k].Err = b, err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	parsed := recordread.Parse(w.src, g) == nil
	for k := range w.ids {
		rec := &g.Records[k]
		if parsed && rec.Err == nil {
			v := &rec.Values[field]
			var ok bool
			if to[k], ok = shapeOf(v, head(g, k, v.Bytes)); ok {
				continue
			}
		}
		if err := w.fromAll(ctx, k, field, one.want, &to[k]); err != nil {
			return err
		}
	}
	return nil
}

// head returns the known beginning of a value, nil if it is not known.
func head(g *driver.Group, k int, v []byte) []byte {
	_, bytes := g.Of(k)
	for _, b := range bytes {
		if len(b) > 0 && len(v) > 0 && &b[0] == &v[0] {
			return v[:min(len(v), headBytes)]
		}
	}
	return nil
}

// shapeOf is the size of an image, as its source knows it or as its header says.
func shapeOf(v *driver.Value, header []byte) (driver.Shape, bool) {
	s := driver.Shape{Width: v.Width, Height: v.Height, Channels: v.Channels, Orientation: v.Orientation}
	if s.Width > 0 && s.Height > 0 && s.Channels > 0 {
		return s, true
	}
	info, err := imagefile.Probe(header)
	if err != nil {
		return s, false
	}
	return driver.Shape{Width: info.Width, Height: info.Height, Channels: info.Channels, Orientation: int32(info.Orientation)}, true
}

// fromAll finds the size of an image by reading all of it. It is for values that differ from the bytes read, and for
// longer headers.
func (w *worker) fromAll(ctx context.Context, k, field int, want []bool, to *driver.Shape) error {
	ids := [1]int64{w.ids[k]}
	if err := w.whole(ctx, &w.full, ids[:], want); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.rows.Errs[k] = err
		return nil
	}
	rec := &w.full.g.Records[0]
	err := rec.Err
	if err == nil {
		v := &rec.Values[field]
		var ok bool
		if *to, ok = shapeOf(v, v.Bytes); !ok {
			_, err = imagefile.Probe(v.Bytes)
		}
	}
	if w.rows.Errs[k] == nil {
		w.rows.Errs[k] = err
	}
	return nil
}

// slab is memory of a worker, used again for each group.
type slab struct {
	mem  []byte
	used int
}

const slabBytes = 4 << 20

func (s *slab) take(n int) ([]byte, error) {
	if err := recordread.CheckSize(int64(n)); err != nil {
		return nil, err
	}
	need := (n + recordread.Tail + 63) &^ 63
	if need > slabBytes/4 {
		return make([]byte, n+recordread.Tail)[:n], nil
	}
	if s.used+need > len(s.mem) {
		s.mem, s.used = make([]byte, slabBytes), 0 // the old one lives as long as values lie in it
	}
	p := s.mem[s.used : s.used+n : s.used+n]
	s.used += need
	return p, nil
}

// inOrder reads a source that cannot locate its records.
func inOrder(ctx context.Context, src driver.Source, req *Request, progress *progress, each func(r *Rows) error) error {
	seq, ok := driver.As[driver.Sequential](src)
	if !ok {
		return errors.New("internal error: a source that can neither locate its records nor read them in order")
	}
	info := src.Info()
	obj := recordread.NewObjects(src, nil)
	rows := newRows(req)
	fields := len(info.Fields)
	records, values := make([]driver.Record, Group), make([]driver.Value, Group*fields)
	for k := range records {
		records[k].Values = values[k*fields : (k+1)*fields]
	}
	flush := func() error {
		if rows.N == 0 {
			return nil
		}
		rows.Records = records[:rows.N]
		err := each(&rows)
		progress.add(int64(rows.N))
		rows.First, rows.N = rows.First+int64(rows.N), 0
		return err
	}
	alloc := func(_, n int64) ([]byte, error) { return make([]byte, n+recordread.Tail)[:n], nil }
	err := recordread.All(ctx, seq, obj, 0, info.Len, alloc, func(rec *driver.Record) error {
		k := rows.N
		records[k].ID, records[k].Err = rec.ID, rec.Err
		for f, v := range rec.Values {
			// The source may overwrite the values of a record after this returns.
			v.Bytes = slices.Clone(v.Bytes)
			records[k].Values[f] = v
		}
		rows.Errs[k] = rec.Err
		for i, f := range req.Sizes {
			rows.Sizes[i][k] = int64(len(rec.Values[f].Bytes))
		}
		for i, f := range req.Shapes {
			rows.Shapes[i][k] = driver.Shape{}
			if rec.Err == nil {
				v := &rec.Values[f]
				var ok bool
				if rows.Shapes[i][k], ok = shapeOf(v, v.Bytes); !ok {
					_, rows.Errs[k] = imagefile.Probe(v.Bytes)
				}
			}
		}
		if rows.Errs[k] != nil && !req.Lenient {
			return &RecordError{ID: rec.ID, Name: src.Name(rec.ID), Err: rows.Errs[k]}
		}
		if rows.N++; rows.N < Group {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if cerr := obj.Close(); err == nil {
		err = cerr
	}
	return err
}
