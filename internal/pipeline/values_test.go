package pipeline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// valueSource has an array of 3 x 5 uint16 and bytes of different lengths. It
// reads into places unless own is set, and knows sizes as a sizedSource.
type valueSource struct {
	driver.InMemory
	n    int64
	own  bool
	bad  map[int64]bool
	max  int64
	wide int // bytes of a value at most
}

type sizedSource struct{ *valueSource }

func (s sizedSource) Sizes(_ int, ids, sizes []int64) bool {
	for i, id := range ids {
		sizes[i] = int64(len(s.value(id)))
	}
	return true
}

func (s *valueSource) value(id int64) []byte {
	rng := rand.New(rand.NewPCG(uint64(id), 7))
	b := make([]byte, rng.IntN(s.wide+1))
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		copy(b[i:], word[:])
	}
	return b
}

func array(id int64) []byte {
	var b []byte
	for i := range 15 {
		b = binary.LittleEndian.AppendUint16(b, uint16(id*31+int64(i)))
	}
	return b
}

func (s *valueSource) Info() *driver.Info {
	return &driver.Info{URL: "test:", Format: "test", Len: s.n, Fingerprint: "1", Fields: []driver.Field{
		{Name: "x", Kind: driver.KindArray, DType: driver.Uint16, Shape: []int{3, 5}},
		{Name: "data", Kind: driver.KindBytes, MaxBytes: s.max},
		{Name: "n", Kind: driver.KindInt},
	}}
}

func (s *valueSource) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		if s.bad[id] {
			g.Records[k].Err = errors.New("bad")
			continue
		}
		for f, v := range [][]byte{array(id), s.value(id)} {
			if !s.own {
				b, err := g.Take(k, f, int64(len(v)))
				if err != nil {
					return err
				}
				copy(b, v)
				v = b
			}
			g.Records[k].Values[f].Bytes = v
		}
		g.Records[k].Values[2].Int = id
	}
	return nil
}

func (s *valueSource) Name(id int64) string { return fmt.Sprint("value ", id) }
func (s *valueSource) Close() error         { return nil }

func variants(n int64, wide int, bad ...int64) map[string]driver.Source {
	out := map[string]driver.Source{}
	for _, own := range []bool{false, true} {
		s := &valueSource{n: n, own: own, max: int64(wide), wide: wide, bad: map[int64]bool{}}
		for _, id := range bad {
			s.bad[id] = true
		}
		out[fmt.Sprint("own=", own)] = s
		out[fmt.Sprint("sized, own=", own)] = sizedSource{s}
	}
	return out
}

// checkValues compares a batch with its records.
func checkValues(t *testing.T, p *Pipeline, src *valueSource, ev Event) (ids []int64) {
	t.Helper()
	defer p.Release(ev.Slot)
	slot := p.Ring().Slot(ev.Slot)
	arr := map[string]item.Array{}
	for _, a := range p.Info().Arrays {
		arr[a.Name] = a
	}
	x, data, index := arr["x"], arr["data"], arr["index"]
	if !data.Ragged || x.DType != item.U16 || len(x.Shape) != 2 {
		t.Fatalf("arrays are %+v", p.Info().Arrays)
	}
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(slot[data.Offsets+8*int64(i):])) }
	if at(0) != 0 {
		t.Errorf("the first offset is %d", at(0))
	}
	for i := range ev.Rows {
		id := int64(binary.LittleEndian.Uint64(slot[index.Offset+8*int64(i):]))
		ids = append(ids, id)
		if !bytes.Equal(slot[x.Offset+int64(i)*x.RowBytes:][:x.RowBytes], array(id)) {
			t.Errorf("row %d: the array of record %d is wrong", i, id)
		}
		if !bytes.Equal(slot[data.Offset+at(i):data.Offset+at(i+1)], src.value(id)) {
			t.Errorf("row %d: the bytes of record %d are wrong", i, id)
		}
	}
	for i := ev.Rows; i <= p.Info().BatchSize; i++ {
		if at(i) != at(ev.Rows) {
			t.Errorf("offset %d behind the last row is %d, not %d", i, at(i), at(ev.Rows))
		}
	}
	return ids
}

func valuesOf(s driver.Source) *valueSource {
	if z, ok := s.(sizedSource); ok {
		return z.valueSource
	}
	return s.(*valueSource)
}

func TestValues(t *testing.T) {
	for _, wide := range []int{0, 40, 9000} {
		for name, src := range variants(203, wide) {
			if wide == 0 && !strings.HasPrefix(name, "sized") {
				continue
			}
			t.Run(fmt.Sprint(name, " wide=", wide), func(t *testing.T) {
				p := mustOpen(t, Config{BatchSize: 20, Shuffle: true, Threads: 3, OpenSource: use(src)})
				p.Start(item.Position{})
				seen := map[int64]int{}
				for {
					ev, err := p.Next(testContext(t))
					if err != nil {
						t.Fatal(err)
					}
					if ev.Kind == EventEpochEnd {
						break
					}
					for _, id := range checkValues(t, p, valuesOf(src), ev) {
						seen[id]++
					}
				}
				if len(seen) != 203 {
					t.Errorf("%d records of 203 came", len(seen))
				}
				// Begun in the middle, the batches are the same.
				p.Start(item.Position{Epoch: 2, Row: 100})
				ev, err := p.Next(testContext(t))
				if err != nil || ev.Step != 5 {
					t.Fatalf("%+v, %v", ev, err)
				}
				checkValues(t, p, valuesOf(src), ev)
			})
		}
	}
}

// Replacements of bad records have other sizes.
func TestValuesSkipped(t *testing.T) {
	bad := []int64{0, 3, 4, 17, 18, 19, 20, 55, 59}
	for name, src := range variants(60, 300, bad...) {
		t.Run(name, func(t *testing.T) {
			p := mustOpen(t, Config{BatchSize: 20, Shuffle: true, Threads: 2, OnError: OnErrorSkip, OpenSource: use(src)})
			p.Start(item.Position{})
			for {
				ev, err := p.Next(testContext(t))
				if err != nil {
					t.Fatal(err)
				}
				if ev.Kind == EventEpochEnd {
					if ev.Skipped != int64(len(bad)) {
						t.Errorf("%d records were replaced, not %d", ev.Skipped, len(bad))
					}
					break
				}
				for _, id := range checkValues(t, p, valuesOf(src), ev) {
					if valuesOf(src).bad[id] {
						t.Errorf("record %d is in a batch", id)
					}
				}
			}
		})
	}
}

func TestValuesRefused(t *testing.T) {
	huge := &valueSource{n: 50, max: 1 << 30, wide: 10}
	endless := &valueSource{n: 50, max: 0, wide: 10}
	for _, c := range []struct {
		src  driver.Source
		cfg  Config
		want string
	}{
		{huge, Config{BatchSize: 20, Memory: 256 << 20}, "set memory to that or more, or lower batch_size"},
		{endless, Config{BatchSize: 20}, `field "data": test: does not say how large its values can get`},
		{huge, Config{BatchSize: 1 << 20}, "do not fit a batch of a terabyte"},
	} {
		c.cfg.OpenSource = use(c.src)
		if _, err := Open(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	// Omitted fields do not matter; known sizes limit a batch by the actual values.
	mustOpen(t, Config{BatchSize: 20, Fields: []string{"x", "n"}, OpenSource: use(huge)})
	p := mustOpen(t, Config{BatchSize: 20, OpenSource: use(sizedSource{huge})})
	for _, a := range p.Info().Arrays {
		if a.Ragged && a.Capacity > 20*10 {
			t.Errorf("there is room for %d bytes", a.Capacity)
		}
	}
}

// A value that is larger than reported by the source fails its batch.
func TestValuesTooLarge(t *testing.T) {
	for _, own := range []bool{false, true} {
		src := &valueSource{n: 50, max: 5, wide: 200, own: own}
		p := mustOpen(t, Config{BatchSize: 20, OpenSource: use(src)})
		p.Start(item.Position{})
		_, err := p.Next(testContext(t))
		var re *RecordError
		if !errors.As(err, &re) || !strings.Contains(re.Reason, "more than the 5 that the source spoke of") {
			t.Errorf("got %v", err)
		}
	}
}
