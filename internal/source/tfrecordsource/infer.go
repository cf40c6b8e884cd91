package tfrecordsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
)

// seen are the statistics of the records of some files.
type seen struct {
	columns *dynvalue.Columns
	// examples counts records that are Examples, others counts those that are not. why is the error of the first
	// one that is not. Empty records are neither.
	examples, others int64
	why              error
	w                scratch
	// sizes gets the sizes of record id, if they are needed.
	sizes sizes
	id    int64
}

func newSeen(columns []column.Want) *seen { return &seen{columns: dynvalue.NewColumns(columns, true)} }

// enough is the number of records that are not Examples after which scanning stops.
const enough = 64

// wants reports whether more records have to be scanned.
func (s *seen) wants() bool { return s.others < enough || s.examples > s.others }

// record adds the record in s.w.view. It fails if the record cannot be read.
func (s *seen) record(place func() string) error {
	if s.w.view.Size == 0 {
		s.columns.Records++
		return nil
	}
	n := 0
	err := s.w.view.features(func(name []byte, f feature) error {
		n++
		c := s.columns.Of(name)
		if c == nil {
			return nil
		}
		v, err := s.w.value(f, true)
		if err == nil {
			dynvalue.Add(c, &v)
			if len(s.sizes) > 0 {
				s.sizes.set(c.Name, s.id, &v) // name may be overwritten
			}
		}
		return err
	})
	var failed *dynvalue.ReadError
	switch {
	case errors.As(err, &failed):
		return failed.Err
	case err != nil:
		if s.others++; s.why == nil {
			s.why = fmt.Errorf("%s: %w", place(), err)
		}
		return nil
	}
	s.columns.Records++
	if n > 0 {
		s.examples++
	}
	return nil
}

// stream adds a record of a stream and returns how many of its bytes were read.
func (s *seen) stream(rd io.Reader, size int64) (int, error) {
	const step = 1 << 20 // allocate stepwise: the size is not trusted
	b := s.w.record[:0]
	for int64(len(b)) < size {
		at := len(b)
		b = slices.Grow(b, int(min(step, size-int64(at))))
		b = b[:min(int64(cap(b)), size)]
		n, err := io.ReadFull(rd, b[at:])
		if err != nil {
			return at + n, err
		}
	}
	s.w.record = b
	s.w.view.All(b)
	return len(b), s.record(func() string { return "a record" })
}

// merge adds the statistics in o.
func (s *seen) merge(o *seen) {
	s.examples += o.examples
	s.others += o.others
	if s.why == nil {
		s.why = o.why
	}
	s.columns.Merge(o.columns)
}

// block is the number of records per work item.
const block = 1024

// lookInto scans the records of all files.
func lookInto(ctx context.Context, list *filelist.List, files []file, columns []column.Want) (*seen, error) {
	type part struct {
		file, from, to int
		id             int64
	}
	var parts []part
	all, records := newSeen(columns), int64(0)
	for i := range files {
		if files[i].seen != nil {
			all.merge(files[i].seen)
			files[i].seen = nil
		}
		for k := 0; k+1 < len(files[i].offsets); k += block {
			parts = append(parts, part{i, k, min(k+block, len(files[i].offsets)-1), records + int64(k)})
		}
		records += int64(max(len(files[i].offsets)-1, 0))
	}
	// Scan the first records alone: in most cases they decide whether there is more to do.
	all.sizes = newSizes(columns, records)
	look := func(ctx context.Context, s *seen, p part) error {
		s.id = p.id
		return s.file(ctx, list, p.file, files[p.file].offsets[p.from:p.to+1], p.from)
	}
	if len(parts) == 0 || !all.wants() {
		return all, nil
	}
	if err := look(ctx, all, parts[0]); err != nil || !all.wants() {
		return all, err
	}
	threads := runtime.GOMAXPROCS(0)
	spare := make(chan *seen, threads)
	for range threads {
		s := newSeen(columns)
		s.sizes = all.sizes
		spare <- s
	}
	err := parallel(ctx, threads, len(parts)-1, func(ctx context.Context, i int) error {
		s := <-spare
		defer func() { spare <- s }()
		return look(ctx, s, parts[i+1])
	})
	for range threads {
		all.merge(<-spare)
	}
	return all, err
}

// file scans records of an uncompressed file. at are their offsets and the end, from is the number of the first
// one.
func (s *seen) file(ctx context.Context, list *filelist.List, f int, at []int64, from int) error {
	if !s.wants() {
		return nil
	}
	o, err := list.Open(ctx, f)
	if err != nil {
		return err
	}
	defer o.Close()
	extent := func(k int) (off, size int64) { return at[k] + headerBytes, at[k+1] - at[k] - headerBytes - footerBytes }
	first := s.id
	return dynvalue.Look(ctx, o, len(at)-1, extent, &s.w.view.View, func(k int) error {
		s.id = first + int64(k)
		return s.record(func() string { return fmt.Sprintf("%s, record %d (byte %d)", list.Path(f), from+k, at[k]) })
	})
}

// schema returns the fields of the records. If the records are bytes, it returns nil and the name of their field.
func (s *seen) schema(list *filelist.List, columns []column.Want) (*dynvalue.Schema, string, error) {
	raw := len(columns) == 1 && columns[0].Name != column.Rest && columns[0].Kind == driver.KindBytes && !s.columns.Has(columns[0].From)
	switch {
	case raw:
		return nil, columns[0].Name, nil
	case s.examples > s.others:
		schema, err := s.columns.Schema(nil)
		if err != nil {
			err = fmt.Errorf("%s: %w; ?%s:bytes gives the records as bytes", list.Store, err, Field)
		}
		return schema, "", err
	case len(columns) > 0 && s.why != nil:
		return nil, "", fmt.Errorf("%w: there are no features to choose", s.why)
	}
	return nil, Field, nil
}

// examples is a source of records that are Examples.
type examples struct {
	*source
	schema *dynvalue.Schema
	spare  sync.Pool // memory for parsing
}

// Parse extracts the features of records.
func (s *examples) Parse(g *driver.Group) error {
	w, _ := s.spare.Get().(*scratch)
	if w == nil {
		w = &scratch{}
		w.hook = w.place
	}
	defer func() {
		w.view.All(nil) // must not keep memory of the group
		clear(w.copies)
		w.copies, w.to = w.copies[:0], dynvalue.Sink{}
		s.spare.Put(w)
	}()
	for k := range g.IDs {
		if k%touched == 0 {
			s.touch(g, k)
		}
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		w.to = dynvalue.Sink{Group: g, K: k, Rec: rec}
		data := w.later(s)
		if data == nil {
			if data = s.data(g, k); rec.Err != nil {
				continue
			}
		}
		w.view.All(data)
		err := w.put(s.schema, &w.to, g.Want)
		w.end(err != nil)
		if err != nil {
			if err := s.failed(g, k, err); err != nil {
				return err
			}
		}
	}
	s.copy(g, w)
	return nil
}

// touched is the number of short records whose memory is prefetched together, so that their cache misses overlap.
const touched = 8

func (s *examples) touch(g *driver.Group, k int) {
	for end := min(k+touched, len(g.IDs)); k < end; k++ {
		if g.Records[k].Err == nil {
			b := bare(g, k)
			touch(b[:min(len(b), ahead/2)])
		}
	}
}

// failed handles a record that cannot be parsed.
func (s *examples) failed(g *driver.Group, k int, err error) error {
	id, rec := g.IDs[k], &g.Records[k]
	var m *driver.MemoryError
	if errors.As(err, &m) {
		return fmt.Errorf("no memory for %s: %w", s.Name(id), m.Err)
	}
	// Verify the checksum, which is delayed for a record with copies: damage is the better error.
	if s.data(g, k); rec.Err == nil {
		rec.Err = fmt.Errorf("%s: %w", s.Name(id), err)
	}
	return nil
}

// put sets the wanted values of a record (nil: all).
func (w *scratch) put(s *dynvalue.Schema, to *dynvalue.Sink, want []bool) error {
	w.found = append(w.found[:0], make([]feature, len(s.Fields))...)
	whole := w.view.Whole()
	if w.plain || !w.outline(s, whole) {
		whole = nil
		clear(w.found)
		err := w.view.features(func(name []byte, f feature) error {
			for _, i := range s.Of(name) {
				w.found[i] = f
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for i := range s.Fields {
		if want != nil && !want[i] {
			continue
		}
		var v dynvalue.Value
		if w.found[i].here {
			if whole != nil {
				if done, err := w.quick(s, to, i, whole, w.found[i]); err != nil {
					return err
				} else if done {
					continue
				}
			}
			var err error
			if v, err = w.value(w.found[i], false); err != nil {
				return fmt.Errorf("%q: %w", s.Columns[i].From, err)
			}
		}
		if err := s.Put(to, i, &v); err != nil {
			return err
		}
	}
	return nil
}
