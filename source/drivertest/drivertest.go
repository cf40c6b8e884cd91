// Package drivertest is the test suite that every source passes:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, func(t testing.TB) driver.Source {
//			s, err := mysource.Open(t.Context(), url, nil)
//			if err != nil {
//				t.Fatal(err)
//			}
//			return s
//		})
//	}
package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/source/driver"
)

// Open opens the source under test. It is called several times and must return the same records
// each time. The source should have 20 records or more.
type Open func(t testing.TB) driver.Source

// Opener turns a function that returns an error into an Open, which fails the test instead.
func Opener(open func(ctx context.Context) (driver.Source, error)) Open {
	return func(t testing.TB) driver.Source {
		t.Helper()
		s, err := open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// Run runs the suite.
func Run(t *testing.T, open Open) {
	t.Run("Info", func(t *testing.T) { testInfo(t, open) })
	t.Run("ReadAgain", func(t *testing.T) { testReadAgain(t, open) })
	t.Run("AnyOrder", func(t *testing.T) { testAnyOrder(t, open) })
	t.Run("Concurrent", func(t *testing.T) { Concurrent(t, open, 10) })
	t.Run("Memory", func(t *testing.T) { testMemory(t, open) })
	t.Run("NothingToRead", func(t *testing.T) { testNothing(t, open) })
	t.Run("Places", func(t *testing.T) { testPlaces(t, open) })
	t.Run("Sizes", func(t *testing.T) { testSizes(t, open) })
	t.Run("OutOfRange", func(t *testing.T) { testOutOfRange(t, open) })
	t.Run("AllocFails", func(t *testing.T) { testAllocFails(t, open) })
	t.Run("Cancelled", func(t *testing.T) { testCancelled(t, open) })
	t.Run("Names", func(t *testing.T) { testNames(t, open) })
	t.Run("Close", func(t *testing.T) { testClose(t, open) })
	t.Run("InOrder", func(t *testing.T) { testInOrder(t, open) })
}

// Bench benchmarks reading records in order and at random, in groups of the sizes that the engine
// uses.
func Bench(b *testing.B, open Open) {
	for _, order := range []string{"sequential", "random"} {
		for _, group := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/group=%d", order, group), func(b *testing.B) {
				s := start(b, open)
				defer s.Close()
				n := s.Info().Len
				rng := rand.New(rand.NewPCG(1, 2))
				buf := newBuffer(true)
				ids := make([]int64, group)
				var size int64
				at := int64(0)
				b.ResetTimer()
				for range b.N {
					for k := range ids {
						ids[k] = at % n
						at++
						if order == "random" {
							ids[k] = rng.Int64N(n)
						}
					}
					buf.reset()
					if err := s.Read(b.Context(), ids, buf); err != nil {
						b.Fatal(err)
					}
					for k := range buf.Records {
						if buf.Records[k].Err != nil {
							b.Fatal(buf.Records[k].Err)
						}
						for _, v := range buf.Records[k].Values {
							size += int64(len(v.Bytes))
						}
					}
				}
				b.SetBytes(size / int64(b.N))
				b.ReportMetric(float64(b.N*group)/b.Elapsed().Seconds(), "records/s")
				b.ReportAllocs()
			})
		}
	}
}

// opened is a source together with a direct reader, which does the I/O.
type opened struct {
	driver.Source
	obj *recordread.Objects
}

func start(t testing.TB, open Open) *opened {
	s := open(t)
	return &opened{s, recordread.NewObjects(s, nil)}
}

func (o *opened) Close() error {
	err := o.obj.Close()
	return errors.Join(err, o.Source.Close())
}

// Read reads the records ids into memory of b.
func (o *opened) Read(ctx context.Context, ids []int64, b *buffer) error {
	r := b.reader
	if r == nil {
		r = recordread.NewDirect(o.Source, o.obj)
		b.reader = r
	}
	r.Alloc, r.Place = b.alloc, b.Place
	recs, err := r.Read(ctx, ids)
	b.Records = recs
	return err
}

// Records reads records of a source. The source stays open until the test ends.
func Records(t testing.TB, s driver.Source, ids ...int64) []driver.Record {
	t.Helper()
	obj := recordread.NewObjects(s, &retry.Options{Attempts: 1})
	t.Cleanup(func() { obj.Close() })
	recs, err := recordread.NewDirect(s, obj).Read(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

// buffer provides memory, and records how it is used.
type buffer struct {
	Records []driver.Record
	Place   func(k, field int, n int64) []byte

	reader *recordread.Direct
	arena  []byte
	blocks [][]byte
	reuse  bool
	used   int
	budget int  // bytes that Alloc can still return
	failed bool // Alloc has failed
}

const unlimited = 1 << 40

func newBuffer(reuse bool) *buffer { return &buffer{reuse: reuse, budget: unlimited} }

var errBudget = errors.New("the budget of the test is used up")

func (b *buffer) alloc(n int) ([]byte, error) {
	if n < 0 {
		return nil, fmt.Errorf("Alloc of %d bytes", n)
	}
	if n > b.budget {
		b.failed = true
		return nil, errBudget
	}
	b.budget -= n
	if b.reuse {
		if b.used+n+128 > len(b.arena) {
			b.arena, b.used = make([]byte, 2*len(b.arena)+n+1<<20), 0
		}
		p := b.arena[b.used : b.used+n]
		b.used += (n + 64 + 63) &^ 63
		return p, nil
	}
	p := make([]byte, n+64)
	for i := range p {
		p[i] = 0xA5
	}
	b.blocks = append(b.blocks, p)
	return p[:n], nil
}

// reset prepares the buffer for another read.
func (b *buffer) reset() {
	b.used = 0
}

// mangle overwrites all memory that the buffer has provided, as the next read would.
func (b *buffer) mangle() {
	for _, p := range b.blocks {
		for i := range p {
			p[i] = 0x5A
		}
	}
}

// read reads ids into a new buffer and fails the test on any error.
func read(t testing.TB, s *opened, ids []int64) *buffer {
	t.Helper()
	b := newBuffer(false)
	if err := s.Read(t.Context(), ids, b); err != nil {
		t.Fatalf("Read(%v): %v", ids, err)
	}
	for k, id := range ids {
		r := &b.Records[k]
		if r.Err != nil {
			t.Fatalf("record %d: %v", id, r.Err)
		}
		if r.ID != id {
			t.Fatalf("record %d of the request has ID %d, want %d", k, r.ID, id)
		}
		checkRecord(t, s.Info(), r)
	}
	for _, p := range b.blocks {
		for i := len(p) - 64; i < len(p); i++ {
			if p[i] != 0xA5 {
				t.Fatalf("Read wrote behind the memory that Alloc gave")
			}
		}
	}
	return b
}

func checkRecord(t testing.TB, info *driver.Info, r *driver.Record) {
	t.Helper()
	for i, f := range info.Fields {
		v := &r.Values[i]
		switch f.Kind {
		case driver.KindImage:
			if len(v.Bytes) == 0 {
				t.Errorf("record %d: image %q is empty", r.ID, f.Name)
			}
			if f.MaxBytes > 0 && int64(len(v.Bytes)) > f.MaxBytes {
				t.Errorf("record %d: %q has %d bytes, Field.MaxBytes is %d", r.ID, f.Name, len(v.Bytes), f.MaxBytes)
			}
			if f.Width > 0 && v.Width > 0 && (v.Width != f.Width || v.Height != f.Height) {
				t.Errorf("record %d: %q is %d x %d, the field says all are %d x %d", r.ID, f.Name, v.Width, v.Height, f.Width, f.Height)
			}
			if f.MaxWidth > 0 && (v.Width > f.MaxWidth || v.Height > f.MaxHeight) {
				t.Errorf("record %d: %q is %d x %d, the field says at most %d x %d", r.ID, f.Name, v.Width, v.Height, f.MaxWidth, f.MaxHeight)
			}
			if v.Codec == driver.CodecRaw && int64(len(v.Bytes)) != int64(v.Width)*int64(v.Height)*int64(v.Channels) {
				t.Errorf("record %d: raw %q of %d x %d x %d has %d bytes", r.ID, f.Name, v.Width, v.Height, v.Channels, len(v.Bytes))
			}
		case driver.KindArray:
			if n, _ := driver.ArrayBytes(f.DType, f.Shape); int64(len(v.Bytes)) != n {
				t.Errorf("record %d: array %q has %d bytes, its field says %d", r.ID, f.Name, len(v.Bytes), n)
			}
		case driver.KindVolume:
			shape := f.Shape
			if len(shape) == 0 {
				shape = slices.Concat(f.Most[:len(f.Most)-3], []int{int(v.Depth), int(v.Height), int(v.Width)})
			}
			if n, _ := driver.ArrayBytes(f.DType, shape); int64(len(v.Bytes)) != n {
				t.Errorf("record %d: volume %q has %d bytes, its shape is %v", r.ID, f.Name, len(v.Bytes), shape)
			}
		case driver.KindBytes:
			if int64(len(v.Bytes)) > f.MaxBytes {
				t.Errorf("record %d: %q has %d bytes, Field.MaxBytes is %d", r.ID, f.Name, len(v.Bytes), f.MaxBytes)
			}
		case driver.KindRagged, driver.KindMultiLabel, driver.KindBoxes, driver.KindKeyPoints:
			if f.MaxBytes > 0 && int64(len(v.Bytes)) > f.MaxBytes {
				t.Errorf("record %d: %q has %d bytes, Field.MaxBytes is %d", r.ID, f.Name, len(v.Bytes), f.MaxBytes)
			}
			if n, of := rows(info, r, f.Name), rows(info, r, f.Boxes); f.Boxes != "" && n != of {
				t.Errorf("record %d: %q has %d rows for %d boxes", r.ID, f.Name, n, of)
			}
		case driver.KindMasks:
			masks, _, _, err := mask.Stack(v.Bytes, nil)
			if err != nil || len(masks) > f.Most[0] || int64(len(v.Bytes)) > f.MaxBytes {
				t.Errorf("record %d: %q has %d bytes and %d masks, the field says at most %d and %v: %v", r.ID, f.Name, len(v.Bytes), len(masks), f.MaxBytes, f.Most, err)
			}
			if of := rows(info, r, f.Boxes); f.Boxes != "" && len(masks) != of {
				t.Errorf("record %d: %q has %d masks for %d boxes", r.ID, f.Name, len(masks), of)
			}
		case driver.KindLabel:
			if f.Classes != nil && (v.Int < 0 || v.Int >= int64(len(f.Classes))) {
				t.Errorf("record %d: label %d of %d classes", r.ID, v.Int, len(f.Classes))
			}
		}
	}
}

// rows returns the number of rows of a ragged field in a record, -1 if there is no such field.
func rows(info *driver.Info, r *driver.Record, name string) int {
	for i, f := range info.Fields {
		if f.Name == name && f.Kind == driver.KindMultiLabel {
			return len(r.Values[i].Bytes) / 8
		} else if f.Name == name {
			n, _ := driver.ArrayBytes(f.DType, f.Shape)
			return len(r.Values[i].Bytes) / int(max(n, 1))
		}
	}
	return -1
}

// copied is a copy of a record that does not depend on its buffer.
type copied []driver.Value

func copyRecord(r *driver.Record) copied {
	out := make(copied, len(r.Values))
	for i, v := range r.Values {
		out[i] = v
		out[i].Bytes = bytes.Clone(v.Bytes)
	}
	return out
}

func same(a, b copied) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if !bytes.Equal(x.Bytes, y.Bytes) {
			return false
		}
		x.Bytes, y.Bytes = nil, nil
		if x.Int != y.Int || x.Codec != y.Codec || x.Width != y.Width || x.Height != y.Height || x.Channels != y.Channels {
			return false
		}
	}
	return true
}

// few returns some records from the start and the end, which the tests read.
func few(info *driver.Info) []int64 {
	var ids []int64
	for i := int64(0); i < min(info.Len, 32); i++ {
		ids = append(ids, i)
	}
	for i := max(32, info.Len-32); i < info.Len; i++ {
		ids = append(ids, i)
	}
	return ids
}

// all reads the records one by one.
func all(t testing.TB, s *opened, ids []int64) map[int64]copied {
	out := map[int64]copied{}
	for _, id := range ids {
		out[id] = copyRecord(&read(t, s, []int64{id}).Records[0])
	}
	return out
}

func testInfo(t *testing.T, open Open) {
	s, s2 := start(t, open), start(t, open)
	defer s.Close()
	defer s2.Close()
	info := s.Info()
	if info.Len <= 0 || info.Len > 1<<40 {
		t.Errorf("Len is %d", info.Len)
	}
	if info.URL == "" || info.Format == "" || strings.ContainsAny(info.Format, " /") {
		t.Errorf("URL is %q, Format is %q", info.URL, info.Format)
	}
	if n := len(info.Fingerprint); n == 0 || n > 32 {
		t.Errorf("the fingerprint %q has %d characters", info.Fingerprint, n)
	}
	if info.Fingerprint != s2.Info().Fingerprint {
		t.Errorf("opened twice, the fingerprint was %q and %q", info.Fingerprint, s2.Info().Fingerprint)
	}
	if len(info.Fields) == 0 {
		t.Errorf("no fields")
	}
	names := map[string]bool{}
	for _, f := range info.Fields {
		if f.Name == "" || names[f.Name] {
			t.Errorf("field name %q is empty or there twice", f.Name)
		}
		names[f.Name] = true
		switch f.Kind {
		case driver.KindImage, driver.KindLabel, driver.KindInt, driver.KindFloat, driver.KindText, driver.KindJSON, driver.KindBytes,
			driver.KindAudio, driver.KindMultiLabel:
		case driver.KindMasks:
			if f.DType != driver.Uint8 || len(f.Most) != 1 {
				t.Errorf("field %q is masks of %q, at most %v", f.Name, f.DType, f.Most)
			}
		case driver.KindFrames:
			if len(f.Shape) != 1 || f.Shape[0] < 1 {
				t.Errorf("field %q is clips of %v frames", f.Name, f.Shape)
			}
		case driver.KindMask:
			if f.DType != driver.Uint8 && f.DType != driver.Uint16 {
				t.Errorf("field %q is a mask of %q", f.Name, f.DType)
			}
		case driver.KindTokens:
			if f.DType != driver.Uint16 && f.DType != driver.Uint32 || len(f.Shape) > 0 {
				t.Errorf("field %q is tokens of %q with shape %v", f.Name, f.DType, f.Shape)
			}
		case driver.KindArray, driver.KindRagged, driver.KindBoxes, driver.KindKeyPoints:
			if (f.Kind == driver.KindBoxes) != slices.Contains(driver.BoxFormats, f.Format) {
				t.Errorf("field %q is %s of format %q", f.Name, f.Kind, f.Format)
			}
			if _, err := driver.ArrayBytes(f.DType, f.Shape); err != nil {
				t.Errorf("field %q: %v", f.Name, err)
			}
		case driver.KindVolume:
			if n := max(len(f.Shape), len(f.Most)); n < 3 || len(f.Shape) == 0 && len(f.Least) != n || f.DType.Size() == 0 {
				t.Errorf("field %q is volumes of %q and shape %v, from %v to %v", f.Name, f.DType, f.Shape, f.Least, f.Most)
			}
		default:
			t.Errorf("field %q has kind %q", f.Name, f.Kind)
		}
		if f.MaxBytes < 0 || (f.Width == 0) != (f.Height == 0) {
			t.Errorf("field %q: MaxBytes %d, Width %d, Height %d", f.Name, f.MaxBytes, f.Width, f.Height)
		}
	}
}

func testReadAgain(t *testing.T, open Open) {
	s, s2 := start(t, open), start(t, open)
	defer s.Close()
	defer s2.Close()
	ids := few(s.Info())
	first := all(t, s, ids)
	for id, r := range all(t, s, ids) {
		if !same(first[id], r) {
			t.Errorf("record %d is not the same when it is read again", id)
		}
	}
	for id, r := range all(t, s2, ids) {
		if !same(first[id], r) {
			t.Errorf("record %d is not the same when the source is opened again", id)
		}
	}
}

func testAnyOrder(t *testing.T, open Open) {
	s := start(t, open)
	defer s.Close()
	ids := few(s.Info())
	first := all(t, s, ids)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		// Records may repeat, in any order, in groups of any size.
		group := make([]int64, 1+rng.IntN(40))
		for k := range group {
			group[k] = ids[rng.IntN(len(ids))]
		}
		b := read(t, s, group)
		for k, id := range group {
			if !same(first[id], copyRecord(&b.Records[k])) {
				t.Fatalf("record %d is not the same as part of %v", id, group)
			}
		}
	}
}

// Concurrent reads from eight goroutines, rounds times in each. It is part of Run.
func Concurrent(t *testing.T, open Open, rounds int) {
	ref := start(t, open)
	ids := few(ref.Info())
	first := all(t, ref, ids)
	ref.Close()
	s := start(t, open) // with an empty cache and no index
	defer s.Close()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			for range rounds {
				group := make([]int64, 16)
				for k := range group {
					group[k] = ids[rng.IntN(len(ids))]
				}
				b := newBuffer(false)
				if err := s.Read(t.Context(), group, b); err != nil {
					t.Errorf("Read: %v", err)
					return
				}
				for k, id := range group {
					if b.Records[k].Err != nil || !same(first[id], copyRecord(&b.Records[k])) {
						t.Errorf("record %d is not the same when it is read by several goroutines (%v)", id, b.Records[k].Err)
						return
					}
				}
				_ = s.Name(group[0])
			}
		}()
	}
	wg.Wait()
}

// testMemory finds sources that keep memory of a buffer after the read.
func testMemory(t *testing.T, open Open) {
	s := start(t, open)
	defer s.Close()
	ids := few(s.Info())
	first := all(t, s, ids)
	b := read(t, s, ids)
	b.mangle()
	again := read(t, s, ids)
	for k, id := range ids {
		if !same(first[id], copyRecord(&again.Records[k])) {
			t.Fatalf("record %d changed when the buffer of an earlier read was used again", id)
		}
	}
}

// testPlaces provides slots in the batch for arrays, bytes and text: for all values, or for every
// second one.
func testPlaces(t *testing.T, open Open) {
	s := start(t, open)
	defer s.Close()
	ids := few(s.Info())
	first := all(t, s, ids)
	for every := 1; every <= 2; every++ {
		b := newBuffer(false)
		var places [][]byte
		asked := 0
		b.Place = func(k, field int, n int64) []byte {
			if k < 0 || k >= len(ids) || field < 0 || field >= len(s.Info().Fields) {
				t.Errorf("Place of record %d, field %d", k, field)
				return nil
			}
			switch kind := s.Info().Fields[field].Kind; kind {
			case driver.KindImage, driver.KindMask, driver.KindLabel, driver.KindInt, driver.KindFloat:
				t.Errorf("Place of a field of kind %q", kind)
				return nil
			}
			if asked++; asked%every != 0 {
				return nil
			}
			p := bytes.Repeat([]byte{0xA5}, int(n)+64)
			places = append(places, p)
			return p[:n:n]
		}
		if err := s.Read(t.Context(), ids, b); err != nil {
			t.Fatal(err)
		}
		for k, id := range ids {
			if b.Records[k].Err != nil || !same(first[id], copyRecord(&b.Records[k])) {
				t.Fatalf("record %d is not the same when it has a place (%v)", id, b.Records[k].Err)
			}
		}
		for _, p := range places {
			if !bytes.Equal(p[len(p)-64:], bytes.Repeat([]byte{0xA5}, 64)) {
				t.Fatalf("Read wrote behind a place")
			}
		}
	}
}

// testSizes compares the results of a Sizer with the values.
func testSizes(t *testing.T, open Open) {
	s := start(t, open)
	defer s.Close()
	sizer, ok := driver.As[driver.Sizer](s.Source)
	if !ok {
		t.Skip("the source is not a Sizer")
	}
	ids := few(s.Info())
	records := all(t, s, ids)
	sizes := make([]int64, len(ids))
	for i, f := range s.Info().Fields {
		if !sizer.Sizes(i, ids, sizes) {
			continue
		}
		for k, id := range ids {
			if n := int64(len(records[id][i].Bytes)); n != sizes[k] {
				t.Errorf("record %d: %q has %d bytes, Sizes says %d", id, f.Name, n, sizes[k])
			}
		}
	}
}

func testNothing(t *testing.T, open Open) {
	s := start(t, open)
	defer s.Close()
	b := newBuffer(false)
	if err := s.Read(t.Context(), nil, b); err != nil {
		t.Errorf("Read of no records: %v", err)
	}
}

func testOutOfRange(t *testing.T, open Open) {
	s := start(t, open)
	defer s.Close()
	far := int64(1 << 50)
	if driver.EpochsOf(s.Source) {
		far += s.Info().Len // add Len again, since the bits above it hold the epoch
	}
	for _, id := range []int64{-1, s.Info().Len, far} {
		b := newBuffer(false)
		err := s.Read(t.Context(), []int64{id, 0}, b)
		if err == nil && b.Records[0].Err == nil {
			t.Errorf("Read(%d) succeeded with %d records", id, s.Info().Len)
		}
		if err == nil && b.Records[1].Err != nil {
			t.Errorf("record 0 failed together with record %d: %v", id, b.Records[1].Err)
		}
		_ = s.Name(id) // must not panic
	}
}

func testAllocFails(t *testing.T, open Open) {
	s := start(t, open)
	defer s.Close()
	b := newBuffer(false)
	b.budget = 0
	err := s.Read(t.Context(), []int64{0, 1, 2, 3}, b)
	if slices.ContainsFunc(b.blocks, func(p []byte) bool { return len(p) > 64 }) {
		t.Fatalf("Alloc gave memory without a budget")
	}
	// A source that returns its own memory does not call Alloc.
	if err != nil && !errors.Is(err, errBudget) || err == nil && b.failed {
		t.Errorf("Read without memory returned %v, want the error of Alloc", err)
	}
	read(t, s, []int64{0, 1, 2, 3}) // the source must still work
}

func testCancelled(t *testing.T, open Open) {
	s := start(t, open)
	defer s.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("the test ended it")
	cancel(why)
	b := newBuffer(false)
	if err := s.Read(ctx, []int64{0}, b); !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
		t.Errorf("Read with a cancelled context returned %v", err)
	}
	read(t, s, []int64{0})
}

func testNames(t *testing.T, open Open) {
	s := start(t, open)
	defer s.Close()
	seen := map[string]int64{}
	for _, id := range few(s.Info()) {
		n := s.Name(id)
		if n == "" || strings.Contains(n, "\n") {
			t.Errorf("the name of record %d is %q", id, n)
		}
		if other, ok := seen[n]; ok {
			t.Errorf("records %d and %d have the same name %q", other, id, n)
		}
		seen[n] = id
	}
}

// testClose checks that no goroutine and no open file is left.
func testClose(t *testing.T, open Open) {
	before := openFiles(t)
	ignore := goleak.IgnoreCurrent()
	s := start(t, open)
	read(t, s, few(s.Info()))
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := goleak.Find(ignore); err != nil {
		t.Errorf("after Close: %v", err)
	}
	deadline := time.Now().Add(2 * time.Second)
	for openFiles(t) > before && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if n := openFiles(t); n > before {
		t.Errorf("%d files are open after Close, %d were before Open", n, before)
	}
}

func openFiles(t testing.TB) int {
	fds, err := proc.Live.Numbers("self", "fd")
	if err != nil {
		t.Skip(err)
	}
	return len(fds)
}
