package recordread

import (
	"context"
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/source/driver"
)

// Records calls Records of a source; a panic of it becomes an error.
func Records(ctx context.Context, src driver.Sequential, token string, in *driver.InOrder) (err error) {
	defer guard("reading in order", &err)
	return src.Records(ctx, token, in)
}

// MaxValue is the size of the largest value that is read when all records are.
const MaxValue = 1 << 31

// CheckSize refuses a value of n bytes that is larger than the limit.
func CheckSize(n int64) error {
	if n < 0 || n > MaxValue {
		return fmt.Errorf("a value of %d bytes is larger than the limit of %d", n, int64(MaxValue))
	}
	return nil
}

// All reads the records from number from to before number to, from a source that yields them in order. alloc returns
// memory for a value of a record. each gets the record, which is valid until it returns.
func All(ctx context.Context, src driver.Sequential, obj *Objects, from, to int64, alloc func(id, n int64) ([]byte, error), each func(rec *driver.Record) error) error {
	if from >= to {
		return nil
	}
	next := from
	err := Records(ctx, src, src.Token(from), &driver.InOrder{
		Read: obj.Read,
		Alloc: func(id int64, _ int, n int64) ([]byte, error) {
			if err := CheckSize(n); err != nil {
				return nil, err
			}
			return alloc(id, n)
		},
		Record: func(rec *driver.Record) (int64, error) {
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			if err := each(rec); err != nil {
				return 0, err
			}
			if next = rec.ID + 1; next == to {
				return src.Info().Len, nil
			}
			return next, nil
		},
	})
	if err == nil && next != to {
		err = fmt.Errorf("internal error: %s ended before record %d", src.Info().Format, next)
	}
	return err
}

// inOrder reads the records of the group from a source that yields them in order. It goes through the source once, from
// the first of them to the last. That suits few records, or many consecutive ones.
func (r *Direct) inOrder(ctx context.Context, src driver.Sequential) error {
	g, info := &r.g, src.Info()
	var sorted []int // places in the group
	for k, id := range g.IDs {
		if id < 0 || id >= info.Len {
			g.Records[k].Err = fmt.Errorf("record %d is outside of the %d records of %s", id, info.Len, info.URL)
			continue
		}
		sorted = append(sorted, k)
	}
	slices.SortStableFunc(sorted, func(a, b int) int { return int(g.IDs[a] - g.IDs[b]) })
	if len(sorted) == 0 {
		return nil
	}
	at := 0
	var noMemory error
	err := Records(ctx, src, src.Token(g.IDs[sorted[0]]), &driver.InOrder{
		Read: r.obj.Read,
		Alloc: func(id int64, field int, n int64) ([]byte, error) {
			take := func() ([]byte, error) { return g.Take(sorted[at], field, n) }
			if kind := info.Fields[field].Kind; kind == driver.KindImage || kind == driver.KindMask {
				take = func() ([]byte, error) { return g.Alloc(int(n)) } // it is decoded
			}
			b, err := take()
			if err != nil {
				noMemory = fmt.Errorf("no memory for %d bytes of %s: %w", n, src.Name(id), err)
			}
			return b, err
		},
		Record: func(rec *driver.Record) (int64, error) {
			if noMemory != nil {
				return 0, noMemory
			}
			for at < len(sorted) && g.IDs[sorted[at]] == rec.ID {
				to := &g.Records[sorted[at]]
				to.Err = rec.Err
				copy(to.Values, rec.Values)
				at++
			}
			if at == len(sorted) {
				return info.Len, nil
			}
			return g.IDs[sorted[at]], nil
		},
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil && at < len(sorted) {
		err = fmt.Errorf("internal error: %s ended before record %d", info.Format, g.IDs[sorted[at]])
	}
	return err
}

// Good reads the first good record among n records from an id on, for a source that yields them in order. If none is
// good, it returns the error of the last one.
func (r *Direct) Good(ctx context.Context, id, n int64) ([]driver.Record, error) {
	src := r.seq
	if src == nil || n < 1 {
		return nil, fmt.Errorf("internal error: %d records of %s in order", n, r.src.Info().Format)
	}
	g, end := &r.g, src.Info().Len
	g.Alloc, g.Place, g.Want = r.Alloc, nil, r.Want
	g.Begin([]int64{id}, len(src.Info().Fields))
	err := Records(ctx, src, src.Token(id), &driver.InOrder{
		Read:  r.obj.Read,
		Alloc: func(_ int64, _ int, size int64) ([]byte, error) { return g.Alloc(int(size)) },
		Record: func(rec *driver.Record) (int64, error) {
			to := &g.Records[0]
			to.ID, to.Err = rec.ID, rec.Err
			copy(to.Values, rec.Values)
			if rec.Err == nil || rec.ID+1 >= min(id+n, end) {
				return end, nil
			}
			return rec.ID + 1, nil
		},
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return g.Records, err
}
