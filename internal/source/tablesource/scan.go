package tablesource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/store"
)

var nan = math.NaN()

const (
	// window is the number of bytes read in one step.
	window = 1 << 20
	// maxRowBytes limits a row. Without a limit, an unclosed quote would turn the rest of a file
	// into one row.
	maxRowBytes = 64 << 20
	// offsetBytes is the size of the offset of a row.
	offsetBytes = 8
)

// prefix checks the start of a file. It returns the length of a byte order mark, and an error if
// the file is not UTF-8 text.
func prefix(b []byte) (int, error) {
	has := func(magic string) bool { return bytes.HasPrefix(b, []byte(magic)) }
	switch {
	case has("\xEF\xBB\xBF"):
		return 3, nil
	case has("\xFF\xFE") || has("\xFE\xFF"):
		return 0, errors.New("it is UTF-16: convert it to UTF-8")
	case has("\x1F\x8B"), has("BZh"), has("\xFD7zXZ"):
		return 0, errors.New("its compression is not supported: decompress it, or use gzip or zstd")
	}
	return 0, nil
}

// larger returns the buffer size to try if a row does not fit n bytes, at most one byte more than
// the limit of a row.
func larger(n int64) int64 {
	if 4*n >= maxRowBytes {
		return maxRowBytes + 1
	}
	return 4 * n
}

// firstRow returns the first row of a file that is not blank, and its offset. The row is nil if
// there is none.
func (s *source) firstRow(ctx context.Context, f int) (row []byte, at int64, err error) {
	o, err := s.open(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	defer o.Close()
	for n := int64(64 << 10); ; n = larger(n) {
		b := make([]byte, min(n, o.Size()))
		if err := o.ReadAt(ctx, b, 0); err != nil {
			return nil, 0, err
		}
		skip, err := prefix(b)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", s.list.Path(f), err)
		}
		last := int64(len(b)) == o.Size()
		for skip < len(b) {
			size := s.reader.next(b[skip:], last)
			if size < 0 {
				break
			}
			if row := b[skip : skip+size]; !s.reader.blank(row) {
				return row, int64(skip), nil
			}
			skip += size
		}
		switch {
		case last && skip == len(b):
			return nil, 0, nil
		case last:
			return nil, 0, fmt.Errorf("%s, byte %d: a quoted cell has no closing quote", s.list.Path(f), skip)
		case len(b) > maxRowBytes:
			return nil, 0, s.tooLong(f, int64(skip))
		}
	}
}

func (s *source) tooLong(f int, at int64) error {
	return fmt.Errorf("%s, byte %d: the row that starts here has more than %d bytes: look for an unclosed quote or a missing line break", s.list.Path(f), at, maxRowBytes)
}

// scan reads several tables at a time, and passes their rows to inference on all cores.
func (s *source) scan(ctx context.Context) (*inference, error) {
	all := &looks{s: s, workers: make(chan struct{}, runtime.GOMAXPROCS(0))}
	offsets := make([][]int64, s.list.Len())
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(min(s.opt.Threads, 16))
	for f := range offsets {
		g.Go(func() error {
			var err error
			offsets[f], err = s.scanFile(gctx, f, all)
			return err
		})
	}
	err := g.Wait()
	all.wg.Wait()
	if err != nil {
		return nil, err
	}
	for f, at := range offsets {
		s.first = append(s.first, s.info.Len)
		if s.at == nil {
			s.at = at
		} else {
			s.at = append(s.at, at...)
		}
		s.info.Len += int64(len(at) - 1)
		offsets[f] = nil
	}
	if s.info.Len == 0 {
		return nil, s.empty()
	}
	out := all.fresh()
	for _, in := range all.done {
		out.merge(in)
	}
	switch {
	case out.err != nil:
		return nil, out.err
	case out.good == 0:
		return nil, out.bad
	}
	return out, nil
}

// looks are the goroutines that run inference, and their results.
type looks struct {
	s       *source
	workers chan struct{} // one per goroutine
	wg      sync.WaitGroup
	mu      sync.Mutex
	free    []*inference
	done    []*inference
}

// fresh returns an empty inference.
func (l *looks) fresh() *inference {
	in := &inference{csv: l.s.format != JSONL, byName: map[string]*seen{}, wanted: l.s.opt.Columns}
	for i, name := range l.s.names {
		in.columns = append(in.columns, in.newSeen(name, int64(i)))
		in.byName[name] = in.columns[i]
	}
	in.cells = make([]cell, len(in.columns))
	if !in.csv {
		in.cells = nil
	}
	return in
}

// block is a number of whole rows of a file.
type block struct {
	file int
	b    []byte
	from int64 // offset of b
	rows []int64
	ends []int64
	row  int64 // number of its first row in the file
}

// look passes a block to a goroutine.
func (l *looks) look(ctx context.Context, bl block) error {
	if len(bl.rows) == 0 {
		return nil
	}
	select {
	case l.workers <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	var in *inference
	if n := len(l.free); n > 0 {
		in, l.free = l.free[n-1], l.free[:n-1]
	} else {
		in = l.fresh()
		l.done = append(l.done, in)
	}
	l.mu.Unlock()
	l.wg.Go(func() {
		for i, at := range bl.rows {
			in.row(l.s.reader, bl.b[at-bl.from:bl.ends[i]-bl.from], int64(bl.file)<<40|at&(1<<40-1), func() string {
				return fmt.Sprintf("%s, row %d (byte %d)", l.s.list.Path(bl.file), bl.row+int64(i), at)
			})
		}
		l.mu.Lock()
		l.free = append(l.free, in)
		l.mu.Unlock()
		<-l.workers
	})
	return nil
}

// scanFile returns the start offsets of the rows of a file, and the end offset of the last one.
func (s *source) scanFile(ctx context.Context, f int, all *looks) ([]int64, error) {
	o, err := s.open(ctx, f)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	size := o.Size()
	var offsets []int64
	head := s.headed
	buf := make([]byte, 0, min(window, size))
	var from int64 // offset of buf in the file
	for from < size {
		n := min(int64(cap(buf)), size-from)
		have := int64(len(buf))
		buf = buf[:n]
		if err := o.ReadAt(ctx, buf[have:], from+have); err != nil {
			return nil, err
		}
		last := from+n == size
		at := 0
		if from == 0 {
			if at, err = prefix(buf); err != nil {
				return nil, fmt.Errorf("%s: %w", s.list.Path(f), err)
			}
		}
		bl := block{file: f, b: buf, from: from, row: int64(len(offsets))}
		for at < len(buf) {
			size := s.reader.next(buf[at:], last)
			if size < 0 {
				break
			}
			row := buf[at : at+size]
			switch {
			case s.reader.blank(row):
			case head:
				if err := s.sameHeader(f, row); err != nil {
					return nil, err
				}
				head = false
			default:
				begin := from + int64(at)
				offsets = append(offsets, begin)
				bl.rows, bl.ends = append(bl.rows, begin), append(bl.ends, begin+int64(size))
			}
			at += size
		}
		if at == 0 || last && at < len(buf) {
			if last {
				return nil, fmt.Errorf("%s, row %d (byte %d): a quoted cell has no closing quote", s.list.Path(f), len(offsets), from+int64(at))
			}
			if len(buf) > maxRowBytes {
				return nil, s.tooLong(f, from)
			}
			buf = slices.Grow(buf, int(larger(int64(len(buf))))-len(buf)) // a row does not fit the buffer
			continue
		}
		if s.held[f] != nil {
			if err := s.memory.Fits(offsetBytes * int64(len(offsets))); err != nil {
				return nil, fmt.Errorf("%s: %w", s.list.Path(f), err)
			}
		}
		if err := all.look(ctx, bl); err != nil {
			return nil, err
		}
		rest := buf[at:]
		from += int64(at)
		if from < size {
			buf = append(make([]byte, 0, max(int64(window), 2*int64(len(rest)))), rest...)
		}
	}
	if o, ok := o.(store.Object); ok {
		err = store.Check(ctx, o)
	}
	return append(offsets, size), err
}

// sameHeader checks that a table has the same columns as the first one.
func (s *source) sameHeader(f int, row []byte) error {
	var names []string
	r := *s.reader.(*csvReader)
	r.columns = 0
	err := r.cells(row, nil, func(_ []byte, c cell) {
		if len(names) <= maxColumns {
			names = append(names, string(c.appendText(nil)))
		}
	})
	if err != nil {
		return fmt.Errorf("%s: row of column names: %w", s.list.Path(f), err)
	}
	if names = column.Named(names); !slices.Equal(names, s.names) {
		return fmt.Errorf("%s has the columns %s, %s has %s: tables that are read together must have the same columns", s.list.Path(f), column.Listed(names), s.list.Path(0), column.Listed(s.names))
	}
	return nil
}
