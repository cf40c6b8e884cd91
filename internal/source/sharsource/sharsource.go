// Package sharsource reads the folders of Lhotse Shar, a format of speech data. Each shard has a file with a line of
// JSON per cut, and a tar file for each field with the values of the same cuts, in the same order. A cut is a record.
//
// Opening reads the lines, which stay in memory as a table of JSON Lines, and the headers of the tar files. Reading a
// record then reads its values from the tar files. If a cut has only a part of a value, the rest is cut off.
package sharsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/audio"
	"github.com/stokerdata/stoker/internal/csound"
	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/tablesource"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// listed is a field with its files, by shard.
type listed struct {
	name  string
	files []int
}

// stored is a column of tar files that becomes one field or more.
type stored struct {
	listed
	class class
	// at has a span for each record, parts those records that have only a part of it.
	at    []span
	parts map[int64]part
}

type source struct {
	info    driver.Info
	list    *filelist.List
	cuts    []int // files, by shard
	tars    []listed
	lists   []listed
	named   map[string]bool // names of tars and lists
	left    []driver.Skipped
	skipped []driver.Skipped

	first []int64   // number of the first record of each shard
	kept  [][]int32 // lines of records, by shard; nil if all lines are records

	columns []*stored
	schema  *dynvalue.Schema // of columns
	// table has the values that are not in tar files, nil if no field needs them.
	table driver.Source
	// of has for each field its column and its number in schema, or -1 and its number in table.
	of    []place
	spare sync.Pool
}

type place struct{ column, field int }

// Open reads a folder.
func Open(ctx context.Context, url string, st store.Store, opt *format.Options) (driver.Source, error) {
	var o format.Options
	if opt != nil {
		o = *opt
	}
	if o.Threads <= 0 {
		o.Threads = 4 * runtime.GOMAXPROCS(0)
	}
	s := &source{info: driver.Info{URL: url, Format: "shar"}, named: map[string]bool{}}
	if err := s.open(ctx, st, &o); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("cannot open %s: %w", url, err)
	}
	return s, nil
}

func (s *source) open(ctx context.Context, st store.Store, o *format.Options) error {
	var err error
	if s.list, err = filelist.Scan(ctx, st, func(name string) bool { _, ok := parseName(name); return ok }, o.Threads); err != nil {
		return err
	}
	if err := s.group(o.Columns); err != nil {
		return err
	}
	shards := make([]*shard, len(s.cuts))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(min(o.Threads, 16))
	for n := range shards {
		g.Go(func() error {
			var err error
			shards[n], err = s.read(gctx, n)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := s.choose(shards, o.Columns); err != nil {
		return err
	}
	rows, err := s.collect(shards)
	if err != nil {
		return err
	}
	keys := map[string]bool{}
	for _, sh := range shards {
		maps.Copy(keys, sh.keys)
	}
	if err := s.fields(ctx, rows, keys, o); err != nil {
		return err
	}
	s.info.Objects = int64(s.list.Len())
	of := []string{"shar"}
	for i := range s.info.Fields {
		f := &s.info.Fields[i]
		of = append(of, f.Name, string(f.Kind), string(f.DType), fmt.Sprint(f.Shape), fmt.Sprint(s.of[i]))
	}
	s.info.Fingerprint = s.list.Fingerprint(of...)
	return nil
}

// group sorts the files by field and shard. As in Lhotse, the files of a field belong to the shards in the order of
// their names.
func (s *source) group(wants []column.Want) error {
	by := map[string][]int{}
	tar := map[string]bool{}
	for i := range s.list.Len() {
		f, _ := parseName(s.list.Name(i))
		if f.ext == "tar.gz" && wanted(wants, f.field) {
			return fmt.Errorf("%s is compressed, and is not read: decompress it with gunzip", s.list.Path(i))
		}
		if len(by[f.field]) > 0 && tar[f.field] == f.lines() {
			return fmt.Errorf("%s: the field has both tar files and files with lines", s.list.Path(i))
		}
		by[f.field], tar[f.field] = append(by[f.field], i), !f.lines()
	}
	if s.cuts = by[cuts]; len(s.cuts) == 0 {
		return fmt.Errorf("there is no file cuts.*.jsonl.gz or cuts.*.jsonl in %s", s.list.Store)
	}
	delete(by, cuts)
	for _, name := range slices.Sorted(maps.Keys(by)) {
		s.named[name] = true
		switch f := (listed{name, by[name]}); {
		case !wanted(wants, name):
		case len(f.files) != len(s.cuts):
			return fmt.Errorf("there are %s of the field %q, and %s of cuts: copy the missing ones, or choose other fields", units.Plural(len(f.files), "file"), name, units.Plural(len(s.cuts), "file"))
		case tar[name]:
			s.tars = append(s.tars, f)
		default:
			s.lists = append(s.lists, f)
		}
	}
	return nil
}

// wanted reports whether a column becomes a field, named whether the user asks for it by its name.
func wanted(wants []column.Want, name string) bool {
	return len(wants) == 0 || named(wants, name) || slices.ContainsFunc(wants, func(w column.Want) bool { return w.Name == column.Rest })
}

func named(wants []column.Want, name string) bool {
	return slices.ContainsFunc(wants, func(w column.Want) bool { return w.Name != column.Rest && w.From == name })
}

// choose sets the columns of tar files, and marks cuts without a needed sound as skipped.
func (s *source) choose(shards []*shard, wants []column.Want) error {
	for t, f := range s.tars {
		c := &stored{listed: f, parts: map[int64]part{}}
		cutsSeen, have := 0, 0
		for n, sh := range shards {
			for i := range sh.values[t] {
				if sh.skip[i] != "" {
					continue
				}
				if cutsSeen++; sh.values[t][i].size >= 0 {
					have++
				}
			}
			if c.class != none && sh.classes[t] != none && c.class != sh.classes[t] {
				return fmt.Errorf("%s has values of another format than the files before it", s.list.Path(f.files[n]))
			}
			c.class = max(c.class, sh.classes[t])
		}
		why := ""
		switch {
		case c.class == none:
			why = "no cut has a value"
		case c.class == lilcom:
			why = `its arrays are compressed with lilcom, which is not read: write the field with "numpy" instead of "lilcom"`
		case c.class == sound && 2*have <= cutsSeen && !named(wants, f.name):
			why = fmt.Sprintf("only %s of %s cuts have it; ?%s reads these cuts", units.Int(int64(have)), units.Int(int64(cutsSeen)), f.name)
		}
		if why != "" && named(wants, f.name) {
			return fmt.Errorf("field %q: %s", f.name, why)
		}
		if why != "" {
			s.left = append(s.left, driver.Skipped{Path: f.name + ".*.tar", Reason: why})
			continue
		}
		s.columns = append(s.columns, c)
		for _, sh := range shards {
			for i, v := range sh.values[t] {
				if c.class == sound && v.size < 0 && sh.skip[i] == "" {
					sh.skip[i] = "the cut has no " + f.name
				}
			}
		}
	}
	return nil
}

// collect numbers the records, and returns the rows of each shard.
func (s *source) collect(shards []*shard) (rows [][]byte, err error) {
	s.kept = make([][]int32, len(shards))
	for n, sh := range shards {
		s.first = append(s.first, s.info.Len)
		begin, b := 0, sh.rows
		if len(sh.skip) > 0 {
			b = []byte{}
		}
		for i, end := range sh.ends {
			row := sh.rows[begin:end]
			begin = end
			if why := sh.skip[i]; why != "" {
				s.skipped = append(s.skipped, driver.Skipped{Path: s.line(n, int64(i)), Reason: why})
				continue
			}
			if len(sh.skip) > 0 {
				b = append(b, row...)
				s.kept[n] = append(s.kept[n], int32(i))
			}
			for _, c := range s.columns {
				t := slices.IndexFunc(s.tars, func(f listed) bool { return f.name == c.name })
				c.at = append(c.at, sh.values[t][i])
				if p, ok := sh.parts[t][i]; ok {
					c.parts[s.info.Len] = p
				}
			}
			s.info.Len++
		}
		rows = append(rows, slices.Clip(b))
	}
	if s.info.Len == 0 && len(s.skipped) > 0 {
		return nil, fmt.Errorf("none of its cuts is a record; the first: %s: %s", s.skipped[0].Path, s.skipped[0].Reason)
	}
	if s.info.Len == 0 {
		return nil, errors.New("it has no cuts")
	}
	return rows, nil
}

// fields makes the fields in the order of the wanted columns.
func (s *source) fields(ctx context.Context, rows [][]byte, keys map[string]bool, o *format.Options) error {
	isTar := func(name string) bool {
		return slices.ContainsFunc(s.columns, func(c *stored) bool { return c.name == name })
	}
	for _, f := range s.lists {
		keys[f.name] = true
	}
	var ofTars, ofTable []column.Want
	for _, w := range o.Columns {
		switch {
		case w.Name == column.Rest:
			ofTars, ofTable = append(ofTars, w), append(ofTable, w)
		case isTar(w.From):
			ofTars = append(ofTars, w)
		case keys[w.From]:
			ofTable = append(ofTable, w)
		default:
			maps.Copy(keys, s.named)
			return fmt.Errorf("there is no column %q: the columns are %s", w.From, column.Listed(slices.Sorted(maps.Keys(keys))))
		}
	}
	all := len(o.Columns) == 0
	if all || len(ofTable) > 0 {
		list := &filelist.List{Store: s.list.Store}
		for _, f := range s.cuts {
			list.Add(s.list.Entry(f))
		}
		var err error
		if s.table, err = tablesource.Rows(ctx, s.info.URL, list, rows, &format.Options{Columns: ofTable}); err != nil {
			return err
		}
	}
	if len(s.columns) > 0 && (all || len(ofTars) > 0) {
		if err := s.describe(ctx, ofTars); err != nil {
			return err
		}
	}
	tars, table := s.spread()
	take := func(from *[]place, match func(name string) bool) {
		*from = slices.DeleteFunc(*from, func(p place) bool {
			f := s.field(p)
			if match(f.Name) {
				s.of, s.info.Fields = append(s.of, p), append(s.info.Fields, *f)
				return true
			}
			return false
		})
	}
	for _, w := range o.Columns {
		if w.Name != column.Rest {
			take(&tars, func(name string) bool { return name == w.Name && isTar(w.From) })
			take(&table, func(name string) bool { return name == w.Name && !isTar(w.From) })
		}
	}
	take(&tars, func(string) bool { return true })
	take(&table, func(string) bool { return true })
	var names []string
	for i := range s.info.Fields {
		if slices.Contains(names, s.info.Fields[i].Name) {
			return fmt.Errorf("field %q has the name of another column: give it another name", s.info.Fields[i].Name)
		}
		names = append(names, s.info.Fields[i].Name)
	}
	return nil
}

// spread returns the places of all fields of tar files and of the table.
func (s *source) spread() (tars, table []place) {
	if s.schema != nil {
		for i := range s.schema.Fields {
			c := slices.IndexFunc(s.columns, func(c *stored) bool { return c.name == s.schema.Columns[i].From })
			tars = append(tars, place{c, i})
		}
	}
	if s.table != nil {
		for i := range s.table.Info().Fields {
			table = append(table, place{-1, i})
		}
	}
	return tars, table
}

func (s *source) field(p place) *driver.Field {
	if p.column < 0 {
		return &s.table.Info().Fields[p.field]
	}
	return &s.schema.Fields[p.field]
}

// describe makes the fields of the tar files. The first array of a field shows the type of all, and the sizes of the
// members show their lengths.
func (s *source) describe(ctx context.Context, wants []column.Want) error {
	all := dynvalue.NewColumns(wants, false)
	all.Records = s.info.Len
	var names []string
	for _, c := range s.columns {
		seen := all.Of([]byte(c.name))
		if seen == nil {
			continue
		}
		if c.class == sound {
			seen.Files = driver.KindAudio
			for id, v := range c.at {
				if v.size >= 0 {
					seen.Count[column.Bytes]++
					seen.Size.Add(max(v.size, c.parts[int64(id)].most))
				}
			}
		} else if err := s.arrays(ctx, c, seen); err != nil {
			if named(wants, c.name) || !errors.Is(err, npy.ErrFormat) {
				return err
			}
			s.left = append(s.left, driver.Skipped{Path: c.name + ".*.tar", Reason: err.Error()})
			continue
		}
		names = append(names, c.name)
	}
	if len(names) == 0 {
		return nil
	}
	var err error
	s.schema, err = all.Schema(names)
	return err
}

// arrays adds the arrays of a column.
func (s *source) arrays(ctx context.Context, c *stored, seen *column.Seen) error {
	first := slices.IndexFunc(c.at, func(v span) bool { return v.size >= 0 })
	b, err := s.head(ctx, s.file(c, int64(first)), c.at[first])
	if err != nil {
		return err
	}
	h, err := npy.ParseHeader(b)
	if err != nil {
		return fmt.Errorf("%s: %w", s.where(c, int64(first)), err)
	}
	size := int64(h.DType.Size())
	var inner []int
	for i, n := range h.Shape {
		if i > 0 {
			inner, size = append(inner, int(min(n, driver.MaxArrayBytes))), min(size*n, driver.MaxArrayBytes)
		}
	}
	if size == 0 {
		return fmt.Errorf("%s: %w: an array of shape %v has no elements", s.where(c, int64(first)), npy.ErrFormat, h.Shape)
	}
	for id, v := range c.at {
		rows := max(v.size-h.Offset, 0) / size
		if p, ok := c.parts[int64(id)]; ok {
			rows = p.rows
		}
		switch {
		case v.size < 0:
		case len(h.Shape) == 0:
			seen.Number(h.DType, 0)
		default:
			seen.List(column.List, h.DType, int(rows), inner, true, rows*size)
		}
	}
	return nil
}

// shardOf returns the shard of a record. A shard without records has the first record of the next one.
func (s *source) shardOf(id int64) int { return filelist.Find(s.first, id) }

func (s *source) file(c *stored, id int64) int { return c.files[s.shardOf(id)] }

// where describes the position of a value.
func (s *source) where(c *stored, id int64) string {
	return fmt.Sprintf("%s, byte %d", s.list.Path(s.file(c, id)), c.at[id].at)
}

// line describes a line of a file of cuts.
func (s *source) line(n int, i int64) string {
	return fmt.Sprintf("%s, cut %d", s.list.Path(s.cuts[n]), i)
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object { return s.list.Object(n, true) }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	n := s.shardOf(id)
	i := id - s.first[n]
	if s.kept[n] != nil {
		i = int64(s.kept[n][i])
	}
	return s.line(n, i)
}

// Left implements driver.Leaver.
func (s *source) Left() []driver.Skipped { return s.left }

// Skipped implements driver.Skipper.
func (s *source) Skipped() []driver.Skipped { return s.skipped }

// Held implements driver.Holder.
func (s *source) Held() (n int64) {
	if s.table != nil {
		n = driver.Held(s.table)
	}
	const spanBytes = 16
	for _, c := range s.columns {
		n += spanBytes * int64(len(c.at))
	}
	return n
}

func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(_ int, id int64) {
		for i, p := range s.of {
			if p.column < 0 || !g.Wants(i) {
				continue
			}
			if c := s.columns[p.column]; c.at[id].size >= 0 {
				g.Extents = append(g.Extents, driver.Extent{Object: int64(s.file(c, id)), Offset: c.at[id].at, Size: c.at[id].size, Field: -1, Tail: c.class == sound})
			}
		}
	})
}

func (s *source) Parse(g *driver.Group) error {
	if err := s.parseTable(g); err != nil {
		return err
	}
	for k, id := range g.IDs {
		rec := &g.Records[k]
		next := int(g.First[k])
		for i, p := range s.of {
			if rec.Err != nil {
				break
			}
			if p.column < 0 || !g.Wants(i) {
				continue
			}
			c := s.columns[p.column]
			var b []byte
			if c.at[id].size >= 0 {
				b = g.Bytes[next]
				next++
			}
			if err := s.value(g, k, i, c, b); err != nil {
				var m *driver.MemoryError
				if errors.As(err, &m) {
					return fmt.Errorf("no memory for %s of %s: %w", s.info.Fields[i].Name, s.Name(id), m.Err)
				}
				rec.Err = fmt.Errorf("%s: %s: %w", s.Name(id), s.where(c, id), err)
			}
		}
	}
	return nil
}

// parseTable sets the values that are in memory.
func (s *source) parseTable(g *driver.Group) error {
	var want []bool
	for i, p := range s.of {
		if p.column < 0 && g.Wants(i) {
			if want == nil {
				want = make([]bool, len(s.table.Info().Fields))
			}
			want[p.field] = true
		}
	}
	if want == nil {
		return nil
	}
	in, _ := s.spare.Get().(*driver.Group)
	if in == nil {
		in = &driver.Group{}
	}
	defer func() {
		in.Release()
		s.spare.Put(in)
	}()
	in.BeginIn(g, g.IDs, len(want))
	in.Want, in.Alloc = want, g.Alloc
	if g.Place != nil {
		in.Place = func(k, field int, n int64) []byte {
			return g.Place(k, slices.Index(s.of, place{-1, field}), n)
		}
	}
	s.table.Locate(in)
	if err := s.table.Parse(in); err != nil {
		return err
	}
	for k := range g.Records {
		rec := &g.Records[k]
		rec.Err = cmp.Or(rec.Err, in.Records[k].Err)
		for i, p := range s.of {
			if p.column < 0 && g.Wants(i) {
				rec.Values[i] = in.Records[k].Values[p.field]
			}
		}
	}
	return nil
}

// value makes the value of a field from the bytes of its member, nil if the cut has none.
func (s *source) value(g *driver.Group, k, i int, c *stored, b []byte) error {
	id := g.IDs[k]
	v := dynvalue.Value{}
	p, cutOff := c.parts[id]
	switch {
	case b == nil && c.at[id].size < 0: // the form of a missing value is zero
	case c.class == sound && cutOff:
		out, err := cutSound(g, k, i, &p, b)
		if err != nil {
			return err
		}
		v = dynvalue.Strings(column.Bytes, out)
	case c.class == sound:
		v = dynvalue.Strings(column.Bytes, b)
	default:
		h, err := npy.ParseHeader(b)
		if err != nil {
			return err
		}
		if have := int64(len(b)) - h.Offset; h.Bytes != have {
			return fmt.Errorf("a %s array of shape %v needs %d bytes, the member has %d", h.DType, h.Shape, h.Bytes, have)
		}
		v = dynvalue.Value{Form: column.List, DType: h.DType, Bytes: b[h.Offset:]}
		for _, n := range h.Shape {
			v.Shape = append(v.Shape, int(n))
		}
		if len(h.Shape) == 0 {
			v.Form = column.Number
		} else if cutOff && h.Shape[0] > 0 {
			row := h.Bytes / h.Shape[0]
			from := min(p.from, h.Shape[0])
			n := min(p.rows, h.Shape[0]-from)
			v.Bytes, v.Shape[0] = v.Bytes[from*row:(from+n)*row], int(n)
		}
		v.Size = int64(len(v.Bytes))
	}
	// The schema has other numbers of fields than the record.
	to := dynvalue.Sink{Group: g, K: k, Rec: &driver.Record{Values: make([]driver.Value, len(s.schema.Fields))}}
	f := s.of[i].field
	if err := s.schema.Put(&to, f, &v); err != nil {
		return err
	}
	g.Records[k].Values[i] = to.Rec.Values[f]
	return nil
}

// cutSound returns a part of a recording as WAV with the decoded samples.
func cutSound(g *driver.Group, k, i int, p *part, b []byte) ([]byte, error) {
	var d audio.Decoder
	defer d.Close()
	if err := d.Open(b); err != nil {
		return nil, err
	}
	pick := p.channels
	for ch := range d.Channels {
		if p.channels == nil {
			pick = append(pick, ch)
		}
	}
	if most := slices.Max(pick); most >= d.Channels {
		return nil, fmt.Errorf("the cut has channel %d of the recording, which has %d", most, d.Channels)
	}
	from := min(samples(p.start, float64(d.Rate)), d.Frames)
	n := min(samples(p.duration, float64(d.Rate)), d.Frames-from)
	alloc := func(n int64) ([]byte, error) {
		m, err := g.Alloc(int(n))
		if err != nil {
			err = &driver.MemoryError{Err: err}
		}
		return m, err
	}
	all, err := alloc(4 * n * int64(d.Channels))
	if err != nil {
		return nil, err
	}
	if n > 0 {
		if err := d.Decode(csound.Floats(all), int(n), from, n); err != nil {
			return nil, err
		}
	}
	for to, ch := range pick {
		if to != ch { // channels are in ascending order
			copy(all[4*n*int64(to):][:4*n], all[4*n*int64(ch):])
		}
	}
	out, err := g.Take(k, i, audio.WAVBytes(len(pick), n, false))
	if err != nil {
		return nil, err
	}
	audio.PutWAV(out, all[:4*n*int64(len(pick))], d.Rate, len(pick), true, false)
	return out, nil
}

// Close implements driver.Source.
func (s *source) Close() error {
	if s.table != nil {
		return s.table.Close()
	}
	return nil
}
