package sink

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/stokerdata/stoker/internal/copyall"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// Records are processed in groups. One goroutine makes groups, several read and convert them, and
// one writes them in order.
const (
	groupBytes   = 2 << 20
	groupRecords = 1024
	// around is the memory that a record takes in addition to its values.
	around = 256
	// times is the number of copies of a record's bytes that can exist at the same time: as read,
	// as a file, and as the format encodes them.
	times = 3

	minMemory = 64 << 20
	maxMemory = 1 << 30
	maxKept   = 1000 // skipped records that are listed
)

// conversion is one run of Write.
type conversion struct {
	src    driver.Source
	info   *driver.Info
	opt    *Options
	format *sinkdriver.Format

	pack   *pack.Reader // set if the source is a pack or a part of a pack
	paths  driver.Pather
	extras bool // the pack holds paths or metadata that the format needs
	from   []int
	parts  []part // of masks fields
	want   []bool
	fields []sinkdriver.Field
	files  []pack.Field // field descriptions that package pack needs to turn values into files

	obj     *recordread.Objects
	sink    sinkdriver.Sink
	encoder sinkdriver.Encoder
	budget  int64
	memory  *semaphore.Weighted
	stored  bool // annotations are for images as they are stored
	done    int64
	skipped []Skipped
	bad     int64 // count of all skipped records
}

func (c *conversion) threads() int {
	if c.opt.Threads > 0 {
		return c.opt.Threads
	}
	return runtime.GOMAXPROCS(0)
}

// choose sets the fields to write.
func (c *conversion) choose() error {
	picks := c.opt.Fields
	if picks == nil {
		for i := range c.info.Fields {
			picks = append(picks, Pick{c.info.Fields[i].Name, c.info.Fields[i].Name})
		}
	}
	c.want = make([]bool, len(c.info.Fields))
	if c.info.Len > 0 && len(c.info.Fields) > 0 {
		under, _, _ := c.origin(0, 0)
		c.pack, _ = under.(*pack.Reader)
	}
	c.paths, _ = driver.As[driver.Pather](c.src)
	seen := map[string]bool{}
	for _, p := range picks {
		i := slices.IndexFunc(c.info.Fields, func(f driver.Field) bool { return f.Name == p.From })
		if i < 0 {
			var names []string
			for k := range c.info.Fields {
				names = append(names, c.info.Fields[k].Name)
			}
			return fmt.Errorf("%s has no field %q: it has %s", c.info.URL, p.From, strings.Join(names, ", "))
		}
		if seen[p.Name] {
			return fmt.Errorf("two fields would have the name %q", p.Name)
		}
		seen[p.Name] = true
		src := &c.info.Fields[i]
		if !slices.Contains(known, src.Kind) {
			return fmt.Errorf("field %q has kind %s, which no format can hold: choose other fields with --field", src.Name, src.Kind)
		}
		f := sinkdriver.Field{Field: *src}
		f.Name = p.Name
		if f.Kind == driver.KindVolume { // other volumes are arrays
			if f.Kind = driver.KindArray; len(f.Shape) == 0 {
				return fmt.Errorf("the volumes of field %q have different sizes: convert patches of them, ?patch=64x64x64", f.Name)
			}
		}
		f.Pixels = c.format.Pixels && raw(src)
		if f.Kind == driver.KindMasks {
			values, shapes := split(f)
			if seen[shapes.Name] {
				return fmt.Errorf("two fields would have the name %q: the field with the sizes of %q, and another one", shapes.Name, f.Name)
			}
			seen[shapes.Name] = true
			c.from, c.parts, c.fields = append(c.from, i), append(c.parts, pixels), append(c.fields, values)
			c.files = append(c.files, pack.Field{Name: src.Name, Kind: src.Kind})
			f = shapes
			c.parts = append(c.parts, shape)
		} else {
			c.parts = append(c.parts, whole)
		}
		c.stored = c.stored || src.Stored
		c.from, c.want[i] = append(c.from, i), true
		c.fields = append(c.fields, f)
		c.files = append(c.files, pack.Field{Name: src.Name, Kind: f.Kind, Classes: src.Classes, DType: src.DType, Shape: src.Shape})
		if c.pack != nil {
			m := c.pack.Manifest()
			_, _, at := c.origin(0, i)
			file := f.Picture() || src.Kind == driver.KindAudio
			c.extras = c.extras || m.Fields[at].Metadata || c.format.Paths && (file || m.Paths)
		}
	}
	if len(c.fields) == 0 {
		return fmt.Errorf("%s has no fields to write", c.info.URL)
	}
	return nil
}

// known lists the kinds that a sink can be asked to write.
var known = []driver.Kind{
	driver.KindImage, driver.KindMask, driver.KindAudio, driver.KindLabel, driver.KindInt, driver.KindFloat, driver.KindText, driver.KindJSON, driver.KindBytes,
	driver.KindArray, driver.KindVolume, driver.KindRagged, driver.KindTokens, driver.KindMultiLabel, driver.KindBoxes, driver.KindKeyPoints, driver.KindMasks,
}

// origin returns the source that a value originally comes from, with the record and field there.
func (c *conversion) origin(id int64, field int) (driver.Source, int64, int) {
	src := c.src
	for {
		d, ok := driver.As[driver.Deriver](src)
		if !ok {
			return src, id, field
		}
		src, id, field = d.Origin(id, field)
	}
}

// raw reports whether all values of a field are raw pixels of one size.
func raw(f *driver.Field) bool {
	return f.Kind == driver.KindImage && f.Width > 0 && f.Height > 0 && f.Channels > 0
}

// others adds a hint to the error of a field: the --field flags that leave the field out.
func (c *conversion) others(err *sinkdriver.FieldError) error {
	var rest []string
	for i := range c.fields {
		if c.fields[i].Name != err.Field {
			rest = append(rest, "--field "+c.fields[i].Name)
		}
	}
	if len(rest) == 0 {
		return err
	}
	return fmt.Errorf("%w; or leave it out: %s", err, strings.Join(rest, " "))
}

// group is a number of records that are processed together.
type group struct {
	ids    []int64
	weight int64
	recs   []sinkdriver.Record
	values []sinkdriver.Value
	raw    []driver.Record // already read, from a sequential source
	mem    arena
	enc    []byte
	bytes  int64
	bad    []Skipped
}

// arena is the memory for the values of a group. The next group reuses it.
type arena struct {
	all  [][]byte
	at   int
	free []byte
}

func (a *arena) take(n int) ([]byte, error) {
	if err := recordread.CheckSize(int64(n)); err != nil {
		return nil, err
	}
	n64 := (n + recordread.Tail + 63) &^ 63
	for len(a.free) < n64 {
		if a.at == len(a.all) {
			a.all = append(a.all, make([]byte, max(n64, 1<<20)))
		} else if len(a.all[a.at]) < n64 {
			a.all[a.at] = make([]byte, n64)
		}
		a.free = a.all[a.at]
		a.at++
	}
	p := a.free[:n:n]
	a.free = a.free[n64:]
	return p, nil
}

// reset makes all memory free for reuse, and releases it if one large group has made it grow.
func (a *arena) reset() {
	size := 0
	for _, b := range a.all {
		size += len(b)
	}
	if size > 4*groupBytes {
		a.all = nil
	}
	a.at, a.free = 0, nil
}

// worker holds the state of one reading goroutine.
type worker struct {
	reader *recordread.Direct
	extras *pack.Extras
}

func (c *conversion) run(ctx context.Context, out *sinkdriver.Out) (sum *Summary, err error) {
	c.sink, err = c.format.Open(ctx, out)
	if err != nil {
		return nil, err
	}
	finished := false
	defer func() {
		if !finished {
			c.sink.Abort()
		}
	}()
	c.encoder, _ = c.sink.(sinkdriver.Encoder)
	_, unordered := c.sink.(sinkdriver.Unordered)
	c.budget = c.opt.Memory
	if c.budget <= 0 {
		c.budget = minMemory
		if free, err := (proc.FS{}).FreeMemory(); err == nil {
			c.budget = min(max(free/4, minMemory), maxMemory)
		}
	}
	c.memory = semaphore.NewWeighted(c.budget)
	c.obj = recordread.NewObjects(c.src, nil)
	defer c.obj.Close()
	if sk, ok := driver.As[driver.Skipper](c.src); ok {
		c.skip(slices.DeleteFunc(slices.Clone(sk.Skipped()), func(s Skipped) bool { return s.Beside })...)
	}

	sum = &Summary{}
	reported := time.Now()
	var bytes int64
	err = (&copyall.Copy[group]{
		Threads: c.threads(), Ahead: 2 * c.threads(), Stage: "convert",
		Feed: func(ctx context.Context, q *copyall.Queue[group]) error {
			if s, ok := driver.As[driver.Sequential](c.src); ok {
				return c.inOrder(ctx, s, q)
			}
			return c.located(ctx, q)
		},
		Worker: func() (func(context.Context, *group) error, func(), error) {
			w, end := &worker{reader: recordread.NewDirect(c.src, c.obj)}, func() {}
			w.reader.Want = c.want
			if c.extras {
				w.extras = c.pack.Extras()
				end = w.extras.Close
			}
			return func(ctx context.Context, j *group) error {
				err := c.load(ctx, w, j)
				if err == nil && unordered {
					err = c.write(ctx, j)
				}
				return err
			}, end, nil
		},
		Take: func(ctx context.Context, j *group) error {
			if !unordered {
				if err := c.write(ctx, j); err != nil {
					return err
				}
			}
			c.skip(j.bad...)
			c.done += int64(len(j.ids))
			sum.Records += int64(len(j.recs))
			bytes += j.bytes
			if c.opt.Progress != nil && (time.Since(reported) > 100*time.Millisecond || c.done == c.info.Len) {
				reported = time.Now()
				c.opt.Progress(Progress{Records: c.done, Total: c.info.Len, Bytes: bytes})
			}
			c.memory.Release(j.weight)
			return nil
		},
	}).Run(ctx)
	if err != nil {
		return nil, err
	}
	if c.bad > 0 && sum.Records == 0 {
		return nil, fmt.Errorf("none of the %d records of %s could be read; the first one is %s: %s", c.info.Len, c.info.URL, c.skipped[0].Path, c.skipped[0].Reason)
	}
	if err := ctx.Err(); err != nil { // sinks need not ask for it between records
		return nil, err
	}
	if err := c.sink.Finish(ctx); err != nil {
		return nil, err
	}
	finished = true
	sum.Skipped, sum.Bad, sum.Beside = c.skipped, c.bad, slices.DeleteFunc(driver.GroupSkipped(c.src), func(g driver.SkippedGroup) bool { return g.Bad })
	for i := range c.fields {
		sum.Fields = append(sum.Fields, c.fields[i].Name)
	}
	return sum, nil
}

// skip adds to the list of skipped records, up to maxKept.
func (c *conversion) skip(s ...Skipped) {
	c.bad += int64(len(s))
	c.skipped = append(c.skipped, s[:min(len(s), max(0, maxKept-len(c.skipped)))]...)
}

// write passes a group to the sink. Its values may be in a mapped file.
func (c *conversion) write(ctx context.Context, j *group) (err error) {
	defer guard(&err)
	return c.sink.Write(ctx, j.recs)
}

// guard turns a panic into an error: a fault on a mapped file that cannot be read, or a bug in a
// format.
func guard(err *error) {
	if p := recover(); p != nil {
		if *err = recordread.Unreadable(p); *err == nil {
			*err = fmt.Errorf("internal error while converting: %v\n%s", p, debug.Stack())
		}
	}
}

// admit waits until the budget has n bytes free for a group.
func (c *conversion) admit(ctx context.Context, j *group, n int64) error {
	j.weight = min(times*n, c.budget)
	return c.memory.Acquire(ctx, j.weight)
}

// begin returns an empty group, with the memory of a written one if there is one.
func begin(q *copyall.Queue[group]) *group {
	j := q.Begin()
	*j = group{ids: j.ids[:0], recs: j.recs[:0], values: j.values[:0], raw: j.raw[:0], mem: j.mem, enc: j.enc[:0]}
	j.mem.reset()
	return j
}

// located makes groups from a source that can locate its records.
func (c *conversion) located(ctx context.Context, q *copyall.Queue[group]) error {
	j, size, least := begin(q), int64(0), c.least()
	flush := func() error {
		if len(j.ids) == 0 {
			return nil
		}
		if err := c.admit(ctx, j, size); err != nil {
			return err
		}
		err := q.Send(j)
		j, size = begin(q), 0
		return err
	}
	err := recordread.Sizes(c.src, c.want, func(id, n int64) error {
		n = max(n, least) + around
		if size > 0 && size+n > groupBytes || len(j.ids) == groupRecords {
			if err := flush(); err != nil {
				return err
			}
		}
		j.ids = append(j.ids, id)
		size += n
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// least returns an estimate of the size of a record if nothing else is known.
func (c *conversion) least() (n int64) {
	for i, w := range c.want {
		if !w {
			continue
		}
		f := &c.info.Fields[i]
		if s := f.Stats; s != nil && s.Count > 0 {
			n += s.Bytes / s.Count
		} else if f.Kind == driver.KindArray || f.Kind == driver.KindVolume && len(f.Shape) > 0 {
			size, _ := driver.ArrayBytes(f.DType, f.Shape)
			n += size
		}
		if f.Kind == driver.KindMasks {
			n += c.mostStacked(f)
		}
	}
	return n
}

// inOrder makes groups from a sequential source.
func (c *conversion) inOrder(ctx context.Context, src driver.Sequential, q *copyall.Queue[group]) error {
	var j *group
	taken := int64(0)
	open := func() error {
		if j != nil {
			return nil
		}
		j, taken = begin(q), 0
		return c.admit(ctx, j, groupBytes)
	}
	alloc := func(_, n int64) ([]byte, error) {
		if err := open(); err != nil {
			return nil, err
		}
		if taken += n; times*taken > j.weight && j.weight < c.budget {
			// The groups before this one release their memory without waiting for it.
			more := min(times*taken, c.budget) - j.weight
			if err := c.memory.Acquire(ctx, more); err != nil {
				return nil, err
			}
			j.weight += more
		}
		return j.mem.take(int(n))
	}
	err := recordread.All(ctx, src, c.obj, 0, c.info.Len, alloc, func(rec *driver.Record) error {
		if err := open(); err != nil {
			return err
		}
		if cap(j.raw) > len(j.raw) { // its values already have memory
			j.raw = j.raw[:len(j.raw)+1]
		} else {
			j.raw = append(j.raw, driver.Record{})
		}
		to := &j.raw[len(j.raw)-1]
		to.ID, to.Err = rec.ID, rec.Err
		to.Values = append(to.Values[:0], rec.Values...)
		j.ids = append(j.ids, rec.ID)
		if taken < groupBytes && len(j.ids) < groupRecords {
			return nil
		}
		full := j
		j = nil
		return q.Send(full)
	})
	if err == nil && j != nil && len(j.ids) > 0 {
		err = q.Send(j)
	}
	return err
}
