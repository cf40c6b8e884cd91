package counters

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden counters anew")

const golden = "testdata/golden.bin"

func example() Snapshot {
	s := Snapshot{Engine: 100, Client: 42, Opened: 7_000_000, At: 9_000_000}
	for i, v := range s.Counters.fields() {
		*v = uint64(i+1) * 1_000_003
	}
	return s
}

func TestGolden(t *testing.T) {
	want := example()
	var b [headerSize + 8*numCounters]byte
	want.encode(b[:])
	le.PutUint64(b[seqAt:], 6)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, b[:], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, b[:]) {
		t.Error("the bytes differ from the golden ones: other versions would misread them")
	}
	got, err := ReadSnapshot(bytes.NewReader(data))
	if err != nil || got != want {
		t.Errorf("read %+v, %v", got, err)
	}
	// From a later version with more counters, the known ones are read.
	longer := append(bytes.Clone(data), make([]byte, 80)...)
	le.PutUint32(longer[12:], numCounters+10)
	if got, err := ReadSnapshot(bytes.NewReader(longer)); err != nil || got != want {
		t.Errorf("with more counters: %+v, %v", got, err)
	}
	// A writer that stopped half way is an error, not a wait without end.
	le.PutUint64(data[seqAt:], 7)
	if _, err := ReadSnapshot(bytes.NewReader(data)); err == nil {
		t.Error("half written counters are no error")
	}
	for i, at := range []int{0, 8, 14} {
		bad := bytes.Clone(b[:])
		bad[at] = 0xff
		if _, err := ReadSnapshot(bytes.NewReader(bad)); err == nil {
			t.Errorf("damage %d is not an error", i)
		}
	}
}

func TestSub(t *testing.T) {
	before, after := example(), example()
	after.Records += 50
	after.Decoded += 60
	after.SlotsFree = 3
	d := after.Sub(before)
	if d.Records != 50 || d.Decoded != 60 || d.Decode != 0 || d.SlotsFree != 3 || d.Client != 42 {
		t.Errorf("%+v", d)
	}
	if after.Records == 50 {
		t.Error("Sub has changed its receiver")
	}
}

func TestPublish(t *testing.T) { synctest.Test(t, testPublish) }

func testPublish(t *testing.T) {
	if _, err := OpenStages(os.Getpid()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a pipeline: %v", err)
	}
	var n atomic.Uint64
	p, err := Publish(42, func() Counters { return Counters{Batches: n.Add(1), Slots: 5} })
	if err != nil {
		t.Skip(err)
	}
	defer p.Close()
	s, err := OpenStages(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		all, err := s.Read()
		if err != nil || len(all) != 1 || all[0].Slots != 5 || all[0].Client != 42 || all[0].Engine != os.Getpid() {
			t.Fatalf("%+v, %v", all, err)
		}
		if i > 0 && (all[0].Batches < 2 || all[0].At <= all[0].Opened) {
			t.Fatalf("nothing is written anew: %+v", all)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Read(); err != nil || len(all) != 0 {
		t.Errorf("after Close: %v, %v", all, err)
	}
	if _, err := OpenStages(1 << 30); err == nil {
		t.Error("a process that is not there is no error")
	}
}

func FuzzSnapshot(f *testing.F) {
	s := example()
	var b [headerSize + 8*numCounters]byte
	s.encode(b[:])
	f.Add(b[:])
	f.Add(b[:70])
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse(data)
		if err == nil {
			s.Sub(Snapshot{})
		}
	})
}

func BenchmarkPublish(b *testing.B) {
	p, err := Publish(0, func() Counters { return Counters{} })
	if err != nil {
		b.Skip(err)
	}
	defer p.Close()
	q := &Publisher{f: p.f, counted: p.counted}
	for b.Loop() {
		if err := q.write(); err != nil {
			b.Fatal(err)
		}
	}
}
