package pipeline

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
)

// everyField has a field of each kind that is not decoded.
func everyField() []driver.Field {
	return []driver.Field{
		{Name: "score", Kind: driver.KindFloat},
		{Name: "caption", Kind: driver.KindText, MaxBytes: 64},
		{Name: "boxes", Kind: driver.KindRagged, DType: driver.Float32, Shape: []int{4}, MaxBytes: 16 * 6},
		{Name: "label", Kind: driver.KindLabel, Classes: []string{"cat", "dog"}},
		{Name: "x", Kind: driver.KindArray, DType: driver.Float64, Shape: []int{2}},
		{Name: "tags", Kind: driver.KindMultiLabel, Classes: []string{"a", "b", "c"}, MaxBytes: 8 * 4},
		{Name: "meta", Kind: driver.KindJSON, MaxBytes: 64},
		{Name: "doc", Kind: driver.KindTokens, DType: driver.Uint32, MaxBytes: 4 * 10},
		{Name: "sound", Kind: driver.KindAudio, MaxBytes: 20},
		{Name: "data", Kind: driver.KindBytes, MaxBytes: 20},
		{Name: "n", Kind: driver.KindInt},
		{Name: "half", Kind: driver.KindRagged, DType: driver.Float16, MaxBytes: 2 * 5},
	}
}

// everyValue sets the values of record id.
func everyValue(id int64, v []driver.Value) error {
	var boxes, x, tags, doc, half []byte
	for k := range 4 * (id % 7) {
		boxes = binary.LittleEndian.AppendUint32(boxes, math.Float32bits(float32(id)+float32(k)/4))
	}
	for k := range 2 {
		x = binary.LittleEndian.AppendUint64(x, math.Float64bits(float64(id)*1.5+float64(k)))
	}
	for k := range id % 4 {
		tags = binary.LittleEndian.AppendUint64(tags, uint64((id+k)%3))
	}
	for k := range id % 11 {
		doc = binary.LittleEndian.AppendUint32(doc, uint32(id*1000+k))
	}
	for k := range id % 6 {
		half = binary.LittleEndian.AppendUint16(half, uint16(id+k))
	}
	for i, b := range [][]byte{
		nil, []byte(strings.Repeat("ä", int(id%9)) + fmt.Sprint(id)), boxes, nil, x, tags, []byte(fmt.Sprintf(`{"id": %d}`, id)), doc,
		[]byte(strings.Repeat("s", int(id%21))), []byte(strings.Repeat("d", int(id*7%21))), nil, half,
	} {
		v[i] = driver.Value{Bytes: b}
	}
	v[0].Float, v[3].Int, v[10].Int = float64(id)/3, id%2, -id
	return nil
}

// slotReader reads the arrays of a batch as specified in docs/reference/protocol.md.
type slotReader struct {
	slot   []byte
	arrays map[string]item.Array
}

func newSlotReader(p *Pipeline, ev Event) slotReader {
	r := slotReader{p.Ring().Slot(ev.Slot), map[string]item.Array{}}
	for _, a := range p.Info().Arrays {
		r.arrays[a.Name] = a
	}
	return r
}

// row returns the bytes of a row.
func (r slotReader) row(name string, i int) []byte {
	a := r.arrays[name]
	if !a.Ragged {
		return r.slot[a.Offset+int64(i)*a.RowBytes:][:a.RowBytes]
	}
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(r.slot[a.Offsets+8*int64(i):])) }
	return r.slot[a.Offset+at(i)*a.ElementBytes() : a.Offset+at(i+1)*a.ElementBytes()]
}

func (r slotReader) int(name string, i int) int64 {
	return int64(binary.LittleEndian.Uint64(r.row(name, i)))
}

// Every kind comes into batches automatically, with its type and shape, numbers last.
func TestEveryKind(t *testing.T) {
	for _, copied := range []bool{false, true} {
		src := sourcetest.NewMemory(101, everyField(), everyValue)
		if copied {
			src = src.Copied()
		}
		p := mustOpen(t, Config{BatchSize: 16, Shuffle: true, Threads: 3, OpenSource: use(src)})
		var got []string
		for _, a := range p.Info().Arrays {
			dims := fmt.Sprint(a.Shape)
			if a.Ragged {
				dims = fmt.Sprint("ragged ", a.Shape)
			}
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", a.Name, a.Kind, a.DType, dims)))
		}
		want := []string{
			"caption text uint8 ragged []", "boxes ragged float32 ragged [4]", "x array float64 [2]", "tags multilabel int64 ragged []",
			"meta json uint8 ragged []", "doc tokens uint32 ragged []", "sound audio uint8 ragged []", "data bytes uint8 ragged []",
			"half ragged float16 ragged []", "score float float64 []", "label label int64 []", "n int int64 []", "index  int64 []",
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the arrays are %q", got)
		}
		if c := p.Info().Classes; len(c) != 2 || len(c["label"]) != 2 || len(c["tags"]) != 3 {
			t.Errorf("classes are %v", c)
		}
		p.Start(item.Position{})
		seen := 0
		for {
			ev, err := p.Next(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == EventEpochEnd {
				break
			}
			r := newSlotReader(p, ev)
			for i := range ev.Rows {
				id := r.int("index", i)
				v := make([]driver.Value, len(everyField()))
				if err := everyValue(id, v); err != nil {
					t.Fatal(err)
				}
				for k, f := range everyField() {
					switch f.Kind {
					case driver.KindLabel, driver.KindInt:
						if r.int(f.Name, i) != v[k].Int {
							t.Errorf("%s of record %d is %d", f.Name, id, r.int(f.Name, i))
						}
					case driver.KindFloat:
						if got := math.Float64frombits(uint64(r.int(f.Name, i))); got != v[k].Float {
							t.Errorf("%s of record %d is %v", f.Name, id, got)
						}
					default:
						if string(r.row(f.Name, i)) != string(v[k].Bytes) {
							t.Errorf("%s of record %d is %q, want %q", f.Name, id, r.row(f.Name, i), v[k].Bytes)
						}
					}
				}
				seen++
			}
			p.Release(ev.Slot)
		}
		if seen != 101 {
			t.Errorf("%d records came", seen)
		}
	}
}

func TestFieldsOfKindsChosen(t *testing.T) {
	p := mustOpen(t, Config{BatchSize: 4, Fields: []string{"n", "caption"}, OpenSource: use(sourcetest.NewMemory(20, everyField(), everyValue))})
	var names []string
	for _, a := range p.Info().Arrays {
		names = append(names, a.Name)
	}
	if want := []string{"caption", "n", "index"}; !slices.Equal(names, want) {
		t.Errorf("the arrays are %v, want %v", names, want)
	}
}

// A value that breaks the rules of its kind is an error of its record.
func TestValuesOfKindsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		field           driver.Field
		good, bad, want string
	}{
		"text":   {driver.Field{Name: "t", Kind: driver.KindText, MaxBytes: 9}, "ä", "a\xff", `field "t" is not UTF-8`},
		"json":   {driver.Field{Name: "t", Kind: driver.KindJSON, MaxBytes: 9}, "1", "\"\xc3", `field "t" is not UTF-8`},
		"ragged": {driver.Field{Name: "t", Kind: driver.KindRagged, DType: driver.Int16, Shape: []int{3}, MaxBytes: 60}, "", "1234567", "7 bytes, which is not a number of elements of 6 bytes each"},
		"labels": {driver.Field{Name: "t", Kind: driver.KindMultiLabel, MaxBytes: 60}, "", "1234567", "not a number of elements of 8"},
		"long":   {driver.Field{Name: "t", Kind: driver.KindTokens, DType: driver.Uint16, MaxBytes: 4}, "1234", "123456", "6 bytes, more than the 4"},
		"array":  {driver.Field{Name: "t", Kind: driver.KindArray, DType: driver.Uint16, Shape: []int{2}}, "1234", "123", "3 bytes and not 4"},
	} {
		t.Run(name, func(t *testing.T) {
			make := func(id int64, v []driver.Value) error {
				v[0].Bytes = []byte(c.good)
				if id == 3 {
					v[0].Bytes = []byte(c.bad)
				}
				return nil
			}
			p := mustOpen(t, Config{BatchSize: 8, OpenSource: use(sourcetest.NewMemory(8, []driver.Field{c.field}, make))})
			p.Start(item.Position{})
			if _, err := p.Next(testContext(t)); err == nil || !strings.Contains(err.Error(), "record 3 ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			p = mustOpen(t, Config{BatchSize: 8, OnError: OnErrorSkip, OpenSource: use(sourcetest.NewMemory(8, []driver.Field{c.field}, make))})
			p.Start(item.Position{})
			ev, err := p.Next(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			if r := newSlotReader(p, ev); r.int("index", 3) != 4 {
				t.Errorf("record %d is in the place of record 3", r.int("index", 3))
			}
		})
	}
}

func TestFieldsOfKindsRefused(t *testing.T) {
	field := func(f driver.Field) Config {
		f.Name = "t"
		return Config{BatchSize: 4, OpenSource: use(sourcetest.NewMemory(8, []driver.Field{f}, func(int64, []driver.Value) error { return nil }))}
	}
	asked := func(c Config, op string) Config {
		c.Outputs = imageOps(op)
		c.Outputs[0].Field = "t"
		return c
	}
	unknown := field(driver.Field{Kind: "smell"})
	unknown.Fields = []string{"t"}
	follows := field(driver.Field{Kind: driver.KindInt})
	follows.Outputs = imageOps()
	follows.Outputs[0].Field, follows.Outputs[0].Follow = "t", "image"
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{unknown, `field "t" of memory: is of kind "smell", which this engine does not know`},
		{field(driver.Field{Kind: driver.KindText}), `field "t": memory: does not say how large its values can get`},
		{field(driver.Field{Kind: driver.KindTokens, DType: driver.Int64, MaxBytes: 8}), `field "t": tokens of type "int64"`},
		{field(driver.Field{Kind: driver.KindRagged, DType: "complex64", MaxBytes: 8}), `field "t": unknown element type "complex64"`},
		{field(driver.Field{Kind: driver.KindRagged, DType: driver.Int8, Shape: []int{0}, MaxBytes: 8}), `field "t": a int8 array of shape [0] is out of range`},
		{asked(field(driver.Field{Kind: driver.KindText, MaxBytes: 9}), opFlip), `output "image": field "t" is text, which takes no operations; operations work on images, masks and arrays`},
		{asked(field(driver.Field{Kind: driver.KindLabel}), opFlip), `output "image": field "t" is label, which takes no operations`},
		{follows, `output "image": field "t" is int; mask and follow are for images and masks`},
	} {
		if _, err := Open(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	// By default, fields of kinds that there are not stay out.
	p := mustOpen(t, field(driver.Field{Kind: "smell"}))
	if n := len(p.Info().Arrays); n != 1 {
		t.Errorf("%d arrays", n)
	}
}

// steps is a kind that exists only in this test: the stored value is a number n, and a row has n pairs (k, k/2). It
// shows that a kind with its own decoding, ragged rows and a cost needs no changes in this package.
var steps = kind.Kind{Name: "steps", Decoded: true, Plan: func(_ *kind.Planner, wants []kind.Want) ([]kind.Maker, error) {
	m := &stepsMaker{}
	for _, w := range wants {
		c := w.Column(item.F32, []int{2})
		c.Ragged, c.Capacity, c.MaxRow = true, 8*9*4, 8*9
		m.wants, m.cols = append(m.wants, w), append(m.cols, c)
	}
	return []kind.Maker{m}, nil
}}

type stepsMaker struct {
	wants []kind.Want
	cols  []kind.Column
}

func (m *stepsMaker) Columns() []kind.Column                       { return m.cols }
func (m *stepsMaker) Cost() kind.Cost                              { return kind.Cost{ValueBytes: 72} }
func (m *stepsMaker) NewWorker(t *kind.Tools) (kind.Worker, error) { return &stepsWorker{m: m}, nil }

type stepsWorker struct {
	m   *stepsMaker
	row []byte
}

func (w *stepsWorker) Close() {}

func (w *stepsWorker) Make(g *kind.RowGroup) {
	for i := range w.m.wants {
		for k := range g.Records {
			if g.Errs[k] != nil {
				continue
			}
			n := g.Records[k].Values[w.m.wants[i].Field].Bytes[0]
			if n == 99 {
				panic("no such step")
			}
			w.row = w.row[:0]
			for s := range n {
				w.row = binary.LittleEndian.AppendUint32(w.row, math.Float32bits(float32(s)))
				w.row = binary.LittleEndian.AppendUint32(w.row, math.Float32bits(float32(s)/2))
			}
			g.Errs[k] = g.Batch.Put(w.m.wants[i].Array, g.First+k, w.row)
		}
	}
}

func TestKindOfItsOwn(t *testing.T) {
	fields := []driver.Field{{Name: "s", Kind: "steps"}, {Name: "n", Kind: driver.KindInt}}
	src := sourcetest.NewMemory(40, fields, func(id int64, v []driver.Value) error {
		v[0].Bytes, v[1].Int = []byte{byte(id % 9)}, id
		if id == 17 {
			v[0].Bytes = []byte{99}
		}
		return nil
	})
	p := mustOpen(t, Config{BatchSize: 4, OnError: OnErrorSkip, OpenSource: use(src), Kinds: append(kind.All(), steps)})
	if a := p.Info().Arrays[0]; a.Kind != "steps" || !a.Ragged || a.DType != item.F32 {
		t.Fatalf("%+v", a)
	}
	p.Start(item.Position{})
	rows := 0
	for {
		ev, err := p.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == EventEpochEnd {
			if ev.Skipped != 1 {
				t.Errorf("%d records were replaced", ev.Skipped)
			}
			break
		}
		r := newSlotReader(p, ev)
		for i := range ev.Rows {
			id := r.int("index", i)
			row := r.row("s", i)
			if int64(len(row)) != id%9*8 || id == 17 {
				t.Fatalf("record %d has %d bytes", id, len(row))
			}
			for s := range int(id % 9) {
				if got := math.Float32frombits(binary.LittleEndian.Uint32(row[8*s+4:])); got != float32(s)/2 {
					t.Errorf("step %d of record %d is %v", s, id, got)
				}
			}
			rows++
		}
		p.Release(ev.Slot)
	}
	if rows != 40 {
		t.Errorf("%d rows", rows)
	}
}
