package pack

import (
	"context"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

// lookInOrder records the sizes of the records of a source in order. If the source does not know the sizes of all
// fields, it uses the mean size of the source's objects.
func (in *sourceInput) lookInOrder() {
	const together = 4096 // records

	sizer, ok := driver.As[driver.Sizer](in.s)
	ids, sizes := make([]int64, together), make([]int64, together)
	for at := int64(0); ok && at < in.info.Len; at += together {
		n := min(together, in.info.Len-at)
		for k := range n {
			ids[k] = at + k
		}
		for f := range in.info.Fields {
			if !sizer.Sizes(f, ids[:n], sizes[:n]) {
				switch in.info.Fields[f].Kind {
				case driver.KindLabel, driver.KindInt, driver.KindFloat, driver.KindRagged:
				default:
					ok = false
				}
				continue
			}
			for k := range n {
				in.sizes[at+k] += sizes[k]
			}
		}
	}
	if ok {
		return
	}
	total := int64(0)
	for i := range in.info.Objects {
		total += in.s.Object(i).Entry.Size
	}
	for i := range in.sizes {
		in.sizes[i] = total / in.info.Len
	}
}

// feed implements input. Records that are read in order are read here, once, and
// loaded by the workers.
func (in *sourceInput) feed(ctx context.Context, from, to int64, begin func(i, size int64) (*job, error), send func(*job) error) error {
	src, ok := driver.As[driver.Sequential](in.s)
	if !ok {
		for i := from; i < to; i++ {
			j, err := begin(i, in.sizes[i])
			if err == nil {
				err = send(j)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	var j *job // of the record that is being read
	var free []byte
	start := func(i, n int64) (err error) {
		if j != nil {
			return nil
		}
		n = max(n, in.sizes[i])
		if j, err = begin(i, n); err != nil {
			return err
		}
		// Earlier inputs are already in progress, and their turns come first.
		if err := j.share.toRead(ctx, n); err != nil {
			return err
		}
		j.mem.read = grow(j.mem.read, int(n)+recordread.Tail*len(in.info.Fields))
		free = j.mem.read
		return nil
	}
	alloc := func(id, n int64) ([]byte, error) {
		if err := start(id, n); err != nil {
			return nil, err
		}
		if n+recordread.Tail > int64(len(free)) {
			return make([]byte, n+recordread.Tail)[:n], nil
		}
		p := free[:n:n]
		free = free[n:]
		return p, nil
	}
	return recordread.All(ctx, src, in.obj, from, to, alloc, func(rec *driver.Record) error {
		if err := start(rec.ID, 0); err != nil {
			return err
		}
		j.mem.raw = driver.Record{ID: rec.ID, Err: rec.Err, Values: append(j.mem.raw.Values[:0], rec.Values...)}
		j.raw = &j.mem.raw
		err := send(j)
		j = nil
		return err
	})
}
