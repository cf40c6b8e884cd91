package pack

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// changeName is the lock of a process that changes a finished pack.
const changeName = "change.journal"

// changing locks the finished pack in st for a change of its manifest, and reads that.
// The lock ends with done.
func changing(ctx context.Context, st store.WriteStore) (m *Manifest, done func(), err error) {
	if _, err = readManifest(ctx, st); err != nil {
		return nil, nil, err // and a folder that is no pack stays unchanged
	}
	lock, err := lockJournal(ctx, st, changeName)
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = lock.remove() }
	if m, err = readManifest(ctx, st); err != nil {
		done()
		return nil, nil, err
	}
	return m, done, nil
}

// replaceManifest replaces the manifest of the pack atomically.
func replaceManifest(ctx context.Context, st store.WriteStore, m *Manifest) error {
	removed := int64(0)
	m.Records, m.Bytes = 0, 0
	for i := range m.Shards {
		m.Records += m.Shards[i].Records
		m.Bytes += m.Shards[i].Bytes
		for k := range m.Shards[i].Chunks {
			removed += m.Shards[i].Chunks[k].removed()
		}
	}
	m.Records -= removed
	b, err := m.finish()
	if err != nil {
		return err
	}
	if len(b) > maxManifestBytes {
		return fmt.Errorf("%s would have %d bytes, more than the limit of %d: write another pack of the records that are to stay", ManifestName, len(b), int64(maxManifestBytes))
	}
	return writeError(store.WriteFile(ctx, st, ManifestName, b))
}

// Remove removes the records ids, in ascending order, from the pack in the folder dir. It only writes a new manifest.
// Open readers continue as before, and the data stays in the shards until Compact. fingerprint identifies the pack to
// which ids refer.
func Remove(ctx context.Context, dir, fingerprint string, ids []int64) (*Manifest, error) {
	st, err := stores.OpenWrite(ctx, dir)
	if err != nil {
		return nil, err
	}
	return RemoveFrom(ctx, st, fingerprint, ids)
}

// RemoveFrom is Remove for any store.
func RemoveFrom(ctx context.Context, st store.WriteStore, fingerprint string, ids []int64) (*Manifest, error) {
	m, done, err := changing(ctx, st)
	if err != nil {
		return nil, err
	}
	defer done()
	switch {
	case m.Fingerprint != fingerprint:
		return nil, fmt.Errorf("%s was changed while its records were looked at: run the command again", st)
	case len(ids) == 0:
		return m, nil
	case int64(len(ids)) >= m.Records:
		return nil, fmt.Errorf("that would remove all %d records of %s: delete the folder instead", m.Records, st)
	}
	r, err := newReader(st, m, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	rows := make([]int64, len(ids))
	for i, id := range ids {
		if id < 0 || id >= m.Records || i > 0 && id <= ids[i-1] {
			return nil, fmt.Errorf("record %d of %d, in place %d of those to remove", id, m.Records, i)
		}
		rows[i] = r.gone.stored(id)
	}
	for i := range m.Shards {
		if r.entries[i], err = r.shard(ctx, i, nil); err != nil {
			return nil, err
		}
	}
	stats, err := r.statsOf(ctx, rows)
	if err != nil {
		return nil, err
	}
	c := 0
	for i := range m.Shards {
		for k := range m.Shards[i].Chunks {
			n, _ := slices.BinarySearch(rows, r.find.first[c+1])
			if n > 0 {
				m.Shards[i].Chunks[k].remove(rows[:n], r.find.first[c])
			}
			rows = rows[n:]
			c++
		}
	}
	for i := range m.Fields {
		subtractStats(&m.Fields[i].Stats, &stats[i])
	}
	return m, replaceManifest(ctx, st, m)
}

// remove adds rows to the removed rows of the chunk. The rows are counted in the pack, and the chunk begins with row
// first. None of them is removed yet.
func (c *Chunk) remove(rows []int64, first int64) {
	old := c.Removed
	var runs []int64
	add := func(at, n int64) {
		if k := len(runs); k > 0 && runs[k-2]+runs[k-1] == at {
			runs[k-1] += n
			return
		}
		runs = append(runs, at, n)
	}
	for _, row := range rows {
		for len(old) > 0 && old[0] < row-first {
			add(old[0], old[1])
			old = old[2:]
		}
		add(row-first, 1)
	}
	for ; len(old) > 0; old = old[2:] {
		add(old[0], old[1])
	}
	c.Removed = runs
}

// statsOf returns the statistics of some rows, in ascending order, by field.
func (r *Reader) statsOf(ctx context.Context, rows []int64) ([]driver.FieldStats, error) {
	var chunks [][]driver.FieldStats
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for len(rows) > 0 {
		c := r.find.chunk(rows[0])
		n, _ := slices.BinarySearch(rows, r.find.first[c+1])
		some := rows[:n]
		rows = rows[n:]
		stats := make([]driver.FieldStats, len(r.sch.fields))
		chunks = append(chunks, stats)
		g.Go(func() error {
			o, v, err := r.openChunk(gctx, c, nil)
			if err != nil {
				return err
			}
			defer o.Close()
			var rec Record
			for _, row := range some {
				if err := v.record(gctx, o, row-r.find.first[c], &rec, everything); err != nil {
					return err
				}
				for i := range rec.Values {
					val := stored(&rec.Values[i])
					if err := val.count(&r.sch.fields[i]); err != nil {
						return fmt.Errorf("%s: field %q: %w", r.place(c, row-r.find.first[c]), r.sch.fields[i].Name, err)
					}
					observe(&stats[i], &r.sch.fields[i], &val)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := make([]driver.FieldStats, len(r.sch.fields))
	for _, stats := range chunks {
		for i := range stats {
			MergeStats(&all[i], &stats[i], r.sch.fields[i].Classes != nil)
		}
	}
	return all, nil
}

// stored returns an unchanged value of a pack on its way into a chunk.
func stored(v *Value) value {
	return value{Value: v.Value, depth: v.Depth, path: v.Path, exif: v.EXIF, icc: v.ICC}
}

// count counts the elements of a stored value, and the pixels of a mask.
func (v *value) count(f *Field) (err error) {
	switch f.Kind {
	case driver.KindArray, driver.KindRagged, driver.KindTokens, driver.KindBoxes, driver.KindKeyPoints:
		v.ints, v.floats = elementStats(f.DType, v.Bytes)
	case driver.KindMultiLabel:
		v.ints, v.floats = elementStats(driver.Int64, v.Bytes)
	case driver.KindMask:
		m := &mask.Mask{Width: int(v.Width), Height: int(v.Height), Size: f.DType.Size()}
		if int64(v.Width)*int64(v.Height) > maxValueBytes {
			return errors.New("it is too large")
		}
		m.Pix = make([]byte, m.Size*m.Width*m.Height)
		if err := mask.Box(m.Pix, m.Size, &v.Value, item.Rect{W: v.Width, H: v.Height}); err != nil {
			return err
		}
		v.classes, err = countClasses(m, f.Classes)
	}
	return err
}

// subtractStats subtracts o, the statistics of some of the values, from s. Counts and sums are exact. Bounds do not
// change, and still hold for the remaining values.
func subtractStats(s, o *driver.FieldStats) {
	s.Count -= o.Count
	s.Bytes -= o.Bytes
	subtractCounts(s.Sizes, o.Sizes)
	subtractCounts(s.Classes, o.Classes)
	if s.Ints != nil && o.Ints != nil {
		s.Ints.Mean = meanWithout(s.Ints.Mean, s.Ints.Count, o.Ints.Mean, o.Ints.Count)
		s.Ints.Count -= o.Ints.Count
	}
	if s.Floats != nil && o.Floats != nil {
		s.Floats.Mean = meanWithout(s.Floats.Mean, s.Floats.Count, o.Floats.Mean, o.Floats.Count)
		s.Floats.Count -= o.Floats.Count
		s.Floats.NotFinite -= o.Floats.NotFinite
	}
	if s.Rows != nil && o.Rows != nil {
		s.Rows.Total -= o.Rows.Total
	}
	if a, b := s.Images, o.Images; a != nil && b != nil {
		for name, c := range b.Codecs {
			t := a.Codecs[name]
			a.Codecs[name] = driver.CodecStats{Number: c.Number, Count: t.Count - c.Count, Bytes: t.Bytes - c.Bytes}
		}
		subtractCounts(a.Sides, b.Sides)
		a.Width -= b.Width
		a.Height -= b.Height
		a.Pixels -= b.Pixels
		a.Turned -= b.Turned
	}
}

func subtractCounts(from, what map[int64]int64) {
	for k, n := range what {
		if from[k] -= n; from[k] <= 0 {
			delete(from, k)
		}
	}
}

// meanWithout returns the mean of n numbers after some of them are removed.
func meanWithout(mean float64, n int64, gone float64, of int64) float64 {
	if n <= of {
		return 0
	}
	w := share(of, n)
	return (mean - gone*w) / (1 - w)
}
