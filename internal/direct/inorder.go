package direct

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

// inOrder reads the records of the group of a source that gives them in order: it
// goes through the source once, from the first one of them to the last. That is
// meant for few records, or for many that follow each other.
func (r *Reader) inOrder(ctx context.Context, src driver.Sequential) error {
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
			b, err := g.Take(sorted[at], field, n)
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
