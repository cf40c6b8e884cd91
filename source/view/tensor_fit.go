package view

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/stokerdata/stoker/internal/scan"
	"github.com/stokerdata/stoker/source/driver"
)

// Some columns need facts about all records: the values of a category, or the mean and the standard
// deviation of numbers. They are computed from the records for which the view's expression holds,
// before the split, so that all parts of a split have the same codes.

// fitTensors plans the tensors and computes what they need.
func (f *finder) fitTensors(ctx context.Context) error {
	v := f.v
	if len(v.spec.Tensors) == 0 && v.spec.TensorsOf == "" {
		return nil
	}
	var err error
	if v.spec.TensorsOf != "" {
		err = f.tensorsOf(ctx)
	} else if v.tensors, err = v.planTensors(f.src.Info().Fields); err == nil {
		err = f.fit(ctx)
	}
	if err != nil {
		return err
	}
	for _, t := range v.tensors {
		if err := t.finish(v.kinds); err != nil {
			return fmt.Errorf("tensors: %q: %w", t.field.Name, err)
		}
	}
	return nil
}

// tensorsOf makes the tensors of another source, from columns with the same names.
func (f *finder) tensorsOf(ctx context.Context) error {
	v, of := f.v, f.v.spec.TensorsOf
	fail := func(err error) error { return fmt.Errorf("tensors_of %s: %w", of, err) }
	if len(v.spec.Tensors) > 0 {
		return fail(errors.New("tensors is also set: use only one of the two"))
	}
	if f.opt.OpenSource == nil {
		return fail(errors.New("another source cannot be opened here"))
	}
	src, err := f.opt.OpenSource(ctx, of)
	if err != nil {
		return fail(err)
	}
	defer src.Close()
	fields := f.src.Info().Fields
	for _, like := range src.Info().Fields {
		if like.Columns == nil {
			continue
		}
		t := &tensor{field: driver.Field{Name: like.Name, Kind: driver.KindArray}, dtype: like.DType}
		for _, c := range like.Columns {
			i := slices.IndexFunc(fields, func(o driver.Field) bool { return o.Name == c.Field })
			if i < 0 {
				return fail(fmt.Errorf("its %q has a column %q, and %s has no such field", like.Name, c.Field, v.in.URL))
			}
			p := part{Column: c, source: i, of: &fields[i], values: c.Width}
			if c.As == driver.AsNumber && c.Flag {
				p.values = c.Width / 2
			}
			n := 1
			if len(p.of.Shape) == 1 {
				n = p.of.Shape[0]
			}
			if c.As == driver.AsNumber && (!isNumber(p.of) || n != p.values) || c.As != driver.AsNumber && !isCategory(p.of) {
				return fail(fmt.Errorf("its %q has the column %q as %s, and in %s it has kind %s", like.Name, c.Field, c.As, v.in.URL, p.of.Kind))
			}
			t.parts = append(t.parts, p)
		}
		if err := t.chooseType(); err != nil {
			return fail(err)
		}
		v.tensors = append(v.tensors, t)
	}
	if v.tensors == nil {
		return fail(errors.New("it has no tensors made of columns: give a pack made with --tensor, or a path that ends with #tensors="))
	}
	return nil
}

// fit computes what the columns need, in one scan of the records.
func (f *finder) fit(ctx context.Context) error {
	v := f.v
	c := newColumns(f.src)
	var open []*part // that need something
	for _, t := range v.tensors {
		for i := range t.parts {
			if p := &t.parts[i]; p.mean || p.normalize || p.classes {
				place(&c.req.Values, p.source)
				open = append(open, p)
			}
		}
	}
	if len(open) == 0 {
		return nil
	}
	spec, err := json.Marshal(v.spec.Tensors)
	if err != nil {
		return err
	}
	where := ""
	if v.spec.Where != "" {
		e, err := parse(v.spec.Where)
		if err != nil {
			return fmt.Errorf("where: %w", err)
		}
		where = e.String()
	}
	key := f.key(c, "tensors", string(spec), where)
	var found []driver.Column
	if b, ok := load(f.opt, key); ok && json.Unmarshal(b, &found) == nil && len(found) == len(open) {
		for i, p := range open {
			p.Classes, p.Fill, p.Mean, p.Std = found[i].Classes, found[i].Fill, found[i].Mean, found[i].Std
			if p.classes && p.Classes == nil {
				p.Classes = []string{}
			}
		}
		return nil
	}
	within, err := f.within(ctx)
	if err != nil {
		return err
	}
	look := newLook(open)
	if err := f.scan(ctx, "tensors", c, func(rows *scan.Rows) error { return look.rows(rows, within) }); err != nil {
		return fmt.Errorf("tensors: %w", err)
	}
	for i, p := range open {
		look.tell(i, p)
		found = append(found, p.Column)
	}
	if b, err := json.Marshal(found); err == nil {
		save(f.opt, key, b)
	}
	return nil
}

// look collects the facts about columns. Numbers are summed in the order of the records,
// independent of the order of reads, since sums of floats depend on the order.
type look struct {
	parts []*part
	mu    sync.Mutex
	next  int64               // the record whose sums come next
	wait  map[int64][]moments // sums that arrived too early
	rowsN map[int64]int
	sums  []moments
	at    []int // index of the sums of each part
	seen  []map[string]int64
	whole []map[int64]int64
	bytes int
}

// moments are the count, the mean and the sum of squared differences of numbers.
type moments struct {
	n        int64
	mean, m2 float64
}

func (m *moments) add(x float64) {
	m.n++
	d := x - m.mean
	m.mean += d / float64(m.n)
	m.m2 += d * (x - m.mean)
}

func (m *moments) merge(o moments) {
	if o.n == 0 {
		return
	}
	n := m.n + o.n
	d := o.mean - m.mean
	m.mean += d * float64(o.n) / float64(n)
	m.m2 += o.m2 + d*d*float64(m.n)*float64(o.n)/float64(n)
	m.n = n
}

func newLook(parts []*part) *look {
	l := &look{parts: parts, wait: map[int64][]moments{}, rowsN: map[int64]int{}}
	total := 0
	for _, p := range parts {
		p.bind()
		l.at = append(l.at, total)
		l.seen, l.whole = append(l.seen, map[string]int64{}), append(l.whole, map[int64]int64{})
		if !p.classes {
			total += p.values
		}
	}
	l.sums = make([]moments, total)
	return l
}

// rows adds some records.
func (l *look) rows(rows *scan.Rows, within *set) error {
	sums := make([]moments, len(l.sums))
	texts, numbers := make([]map[string]int64, len(l.parts)), make([]map[int64]int64, len(l.parts))
	for k := range rows.N {
		if within != nil && !within.has(rows.First+int64(k)) {
			continue
		}
		for i, p := range l.parts {
			v := &rows.Records[k].Values[p.source]
			switch {
			case p.classes && p.number != nil && p.name == nil:
				if numbers[i] == nil {
					numbers[i] = map[int64]int64{}
				}
				numbers[i][p.number(v)]++
			case p.classes:
				if texts[i] == nil {
					texts[i] = map[string]int64{}
				}
				if name, ok := p.name(v); ok {
					texts[i][string(name)]++
				}
			default:
				if err := p.holds(v); err != nil {
					return fmt.Errorf("column %q: %w", p.Field, err)
				}
				for n := range p.values {
					if x := p.read(v, n); !math.IsNaN(x) && !math.IsInf(x, 0) {
						sums[l.at[i]+n].add(x)
					}
				}
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range l.parts {
		for name, n := range texts[i] {
			if _, ok := l.seen[i][name]; !ok {
				l.bytes += len(name)
			}
			l.seen[i][name] += n
		}
		for x, n := range numbers[i] {
			l.whole[i][x] += n
		}
		if n := len(l.seen[i]) + len(l.whole[i]); n > maxClasses || l.bytes > maxClassBytes {
			return fmt.Errorf("column %q has more than %d different values, the limit for categories", p.Field, n-1)
		}
	}
	l.wait[rows.First], l.rowsN[rows.First] = sums, rows.N
	for {
		sums, ok := l.wait[l.next]
		if !ok {
			return nil
		}
		for i := range sums {
			l.sums[i].merge(sums[i])
		}
		n := int64(l.rowsN[l.next])
		delete(l.wait, l.next)
		delete(l.rowsN, l.next)
		l.next += n
	}
}

// tell sets the facts of a part.
func (l *look) tell(i int, p *part) {
	if p.classes {
		p.Classes = l.names(i, p.top)
		return
	}
	mean, std := make([]float64, p.values), make([]float64, p.values)
	for n := range mean {
		m := &l.sums[l.at[i]+n]
		mean[n], std[n] = m.mean, 1
		if m.n > 0 && m.m2 > 0 {
			std[n] = math.Sqrt(m.m2 / float64(m.n))
		}
	}
	if p.mean {
		p.Fill = mean
	}
	if p.normalize {
		p.Mean, p.Std = mean, std
	}
}

// category is a value and its count.
type category struct {
	name   string
	number int64
	n      int64
}

func (c *category) compare(o *category) int {
	return cmp.Or(cmp.Compare(c.number, o.number), cmp.Compare(c.name, o.name))
}

// names returns the values of a column in ascending order, or the most frequent ones.
func (l *look) names(i, top int) []string {
	var all []category
	for name, n := range l.seen[i] {
		all = append(all, category{name: name, n: n})
	}
	for x, n := range l.whole[i] {
		all = append(all, category{name: strconv.FormatInt(x, 10), number: x, n: n})
	}
	if top > 0 && len(all) > top {
		slices.SortFunc(all, func(a, b category) int { return cmp.Or(cmp.Compare(b.n, a.n), a.compare(&b)) })
		all = all[:top]
	}
	slices.SortFunc(all, func(a, b category) int { return a.compare(&b) })
	names := []string{} // not nil, which would mean that it must be computed
	for _, c := range all {
		names = append(names, c.name)
	}
	return names
}

// within returns the records for which the expression holds, nil for all.
func (f *finder) within(ctx context.Context) (*set, error) {
	if f.v.spec.Where == "" || f.held != nil {
		return f.held, nil
	}
	var err error
	f.held, err = f.where(ctx)
	return f.held, err
}

// bind sets the functions that read and encode values.
func (p *part) bind() {
	switch f, t := p.of, p.of.DType.Type(); f.Kind {
	case driver.KindFloat:
		p.read = func(v *driver.Value, _ int) float64 { return v.Float }
	case driver.KindInt, driver.KindLabel:
		p.number = func(v *driver.Value) int64 { return v.Int }
		p.read = func(v *driver.Value, _ int) float64 { return float64(v.Int) }
	case driver.KindArray:
		size := t.Size()
		p.read = func(v *driver.Value, k int) float64 { return t.Float(v.Bytes[k*size:]) }
		if !t.Floating() && len(f.Shape) == 0 {
			p.number = func(v *driver.Value) int64 { return t.Int(v.Bytes) }
		}
	case driver.KindText:
		p.name = func(v *driver.Value) ([]byte, bool) { return v.Bytes, len(v.Bytes) > 0 }
	}
	if f := p.of; f.Kind == driver.KindLabel && f.Classes != nil && p.As != driver.AsNumber {
		p.name = func(v *driver.Value) ([]byte, bool) {
			if v.Int < 0 || v.Int >= int64(len(f.Classes)) {
				return nil, false
			}
			return []byte(f.Classes[v.Int]), true
		}
	}
	if p.As == driver.AsNumber || p.classes && p.Classes == nil {
		return
	}
	if p.name != nil {
		codes := make(map[string]int64, len(p.Classes))
		for i, name := range p.Classes {
			codes[name] = int64(i) + 1
		}
		p.code = func(v *driver.Value) int64 {
			if name, ok := p.name(v); ok {
				return codes[string(name)]
			}
			return 0
		}
		return
	}
	codes := make(map[int64]int64, len(p.Classes))
	for i, name := range p.Classes {
		if n, err := strconv.ParseInt(name, 10, 64); err == nil {
			codes[n] = int64(i) + 1
		}
	}
	p.code = func(v *driver.Value) int64 { return codes[p.number(v)] }
}

// holds returns an error for an array that does not match its field.
func (p *part) holds(v *driver.Value) error {
	if p.of.Kind != driver.KindArray {
		return nil
	}
	if n := p.of.DType.Size() * p.elements(); len(v.Bytes) != n {
		return fmt.Errorf("the value has %d bytes, expected %d", len(v.Bytes), n)
	}
	return nil
}

// elements returns the count of numbers in a value of the field.
func (p *part) elements() int {
	if len(p.of.Shape) == 1 {
		return p.of.Shape[0]
	}
	return 1
}

// sameTensors returns a text that identifies the tensors, for the fingerprint.
func (v *view) sameTensors() string {
	var b bytes.Buffer
	for _, t := range v.tensors {
		columns, err := json.Marshal(t.field.Columns)
		if err != nil {
			columns = fmt.Appendf(nil, "%v", t.field.Columns)
		}
		fmt.Fprintf(&b, "%q %s %s\n", t.field.Name, t.dtype, columns)
	}
	return b.String()
}

// usedByTensors returns the fields that tensors are made of.
func (v *view) usedByTensors() map[int]bool {
	used := map[int]bool{}
	for _, t := range v.tensors {
		for i := range t.parts {
			used[t.parts[i].source] = true
		}
	}
	return used
}
