// Package pick wraps a source so that it has some of its records, in any order: a range, or a list
// of numbers. A number may be in the list several times.
package pick

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Rows are record numbers.
type Rows struct {
	start, step, n int64
	list           []int64 // instead, if there are some
}

// hint ends all errors of Parse.
const hint = "write it like rows=0:1000, rows=0:1000:2, rows=5,3,8 or rows=@list.npy"

const (
	// maxRows is the largest number of records.
	maxRows = 1 << 40
	// maxList is the size of the largest list.
	maxList = 16 << 30
)

// Parse reads rows: "start:stop", "start:stop:step", "5,3,8", or "@" and the path of a .npy file of
// whole numbers (int64).
func Parse(ctx context.Context, text string) (Rows, error) {
	fail := func(err error) (Rows, error) { return Rows{}, fmt.Errorf("rows=%s: %w; %s", text, err, hint) }
	if path, ok := strings.CutPrefix(text, "@"); ok {
		list, err := readList(ctx, path)
		if err != nil {
			return fail(err)
		}
		return Rows{list: list}, nil
	}
	if strings.Contains(text, ":") {
		var at [3]int64
		at[2] = 1
		parts := strings.Split(text, ":")
		if len(parts) > 3 {
			return fail(errors.New("it has more than three numbers"))
		}
		for i, part := range parts {
			n, err := strconv.ParseInt(part, 10, 64)
			if err != nil || n > maxRows || n < -maxRows || n < -1 && i < 2 {
				return fail(fmt.Errorf("%q is not a number in range", part))
			}
			at[i] = n
		}
		start, stop, step := at[0], at[1], at[2]
		r := Rows{start: start, step: step}
		switch {
		case step > 0 && stop > start:
			r.n = (stop - start + step - 1) / step
		case step < 0 && stop < start:
			r.n = (start - stop - step - 1) / -step
		case step == 0:
			return fail(errors.New("the step is 0"))
		}
		return r, nil
	}
	r := Rows{list: []int64{}}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n < 0 {
			return fail(fmt.Errorf("%q is not the number of a record", part))
		}
		r.list = append(r.list, n)
	}
	return r, nil
}

func readList(ctx context.Context, path string) ([]int64, error) {
	st, err := stores.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	b, err := store.ReadFile(ctx, st, "", maxList)
	if err != nil {
		return nil, store.Cause(err)
	}
	h, err := npy.Read(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	if h.DType != driver.Int64 || len(h.Shape) != 1 {
		return nil, fmt.Errorf("%s is an array of %s with %d axes; a list of records is int64 with one axis", path, h.DType, len(h.Shape))
	}
	list := make([]int64, h.Shape[0])
	for i := range list {
		list[i] = int64(binary.LittleEndian.Uint64(b[h.Offset+8*int64(i):]))
	}
	return list, nil
}

// Len returns the number of records.
func (r *Rows) Len() int64 {
	if r.list != nil {
		return int64(len(r.list))
	}
	return r.n
}

// At returns the k-th record.
func (r *Rows) At(k int64) int64 {
	if r.list != nil {
		return r.list[k]
	}
	return r.start + k*r.step
}

// Source has some of the records of another source.
type Source struct {
	driver.Mapped
	rows   Rows
	info   driver.Info
	varied bool
	spare  sync.Pool
}

// Open returns a source with the records of rows, as text, and takes ownership of base. If Open
// fails, base stays open.
func Open(ctx context.Context, base driver.Source, text string) (driver.Source, error) {
	rows, err := Parse(ctx, text)
	if err != nil {
		return nil, err
	}
	in := base.Info()
	if in.Sequential {
		return nil, fmt.Errorf("rows=%s: the records of %s can only be read in order; stoker pack makes a pack whose records can be read in any order", text, in.URL)
	}
	for k, n := int64(0), rows.Len(); k < n; k++ {
		if rows.list == nil && k > 0 && k < n-1 { // a range is in range if its ends are
			k = n - 2
			continue
		}
		if at := rows.At(k); at < 0 || at >= in.Len {
			return nil, fmt.Errorf("rows=%s: record %d is out of range: there are %d records in %s", text, at, in.Len, in.URL)
		}
	}
	s := &Source{rows: rows, info: *in, varied: driver.VariantsOf(base) > 1 || driver.EpochsOf(base)}
	s.Base, s.Record = base, s.record
	s.info.URL, s.info.Len = in.URL+"#rows="+text, rows.Len()
	s.info.Fields = append([]driver.Field{}, in.Fields...)
	for i := range s.info.Fields { // limits still hold, counts do not
		if f := &s.info.Fields[i]; f.Stats != nil {
			if f.MaxBytes == 0 {
				f.MaxBytes = max(f.Stats.MaxBytes, 1)
			}
			f.Stats = nil
		}
	}
	s.info.Fingerprint = rows.fingerprint(in.Fingerprint)
	s.spare.New = func() any { return new(group) }
	return s, nil
}

func (r *Rows) fingerprint(of string) string {
	h := xxh3.New()
	_, _ = fmt.Fprintf(h, "%s\x00rows\x00%d %d %d\x00", of, r.start, r.step, r.n)
	var b [8]byte
	for _, n := range r.list {
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		_, _ = h.Write(b[:])
	}
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:])
}

// record returns the number in the base of a record, -1 for none.
func (s *Source) record(id int64) int64 {
	epoch := int64(0)
	if s.varied {
		epoch, id = driver.OfEpoch(id)
	}
	if id < 0 || id >= s.info.Len {
		return -1
	}
	if id = s.rows.At(id); epoch != 0 {
		return driver.InEpoch(epoch, id)
	}
	return id
}

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return &s.info }

// Name implements driver.Source.
func (s *Source) Name(id int64) string {
	if n := s.record(id); n >= 0 {
		return s.Base.Name(n)
	}
	return fmt.Sprintf("%s, record %d", s.info.URL, id)
}

// group is the state of a group while the base processes it.
type group struct {
	inner driver.Group
	ids   []int64
}

func (s *Source) begin(g *driver.Group) *group {
	w := s.spare.Get().(*group)
	w.ids = w.ids[:0]
	for _, id := range g.IDs {
		w.ids = append(w.ids, s.record(id))
	}
	w.inner.Want, w.inner.Box = g.Want, g.Box
	w.inner.BeginIn(g, w.ids, len(s.info.Fields))
	for k := range w.ids {
		if w.ids[k] < 0 && g.Records[k].Err == nil {
			w.inner.Records[k].Err = fmt.Errorf("record %d is out of range: there are %d records in %s", g.IDs[k], s.info.Len, s.info.URL)
		}
	}
	return w
}

func (s *Source) end(w *group) {
	w.inner.Release()
	w.inner.Box = nil
	s.spare.Put(w)
}

// Locate implements driver.Source.
func (s *Source) Locate(g *driver.Group) {
	w := s.begin(g)
	s.Base.Locate(&w.inner)
	g.Hand(&w.inner, nil)
	s.end(w)
}

// Parse implements driver.Source.
func (s *Source) Parse(g *driver.Group) error {
	w := s.begin(g)
	in := &w.inner
	in.HandBytes(g, nil)
	in.Place = g.Place
	err := s.Base.Parse(in)
	if err == nil {
		for k := range g.Records {
			g.Records[k].Err = in.Records[k].Err
			copy(g.Records[k].Values, in.Records[k].Values)
		}
	}
	s.end(w)
	return err
}
