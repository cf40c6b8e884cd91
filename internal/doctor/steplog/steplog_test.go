package steplog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// golden was written by Python with a clock that counts by 1,000 from 5,000,000, with capacity for 8 records.
// python/tests/test_step.py also compares it. Its process number is 4242.
const golden = "testdata/golden.bin"

func open(t testing.TB) (*Log, []byte) {
	t.Helper()
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return l, data
}

func TestGolden(t *testing.T) {
	l, _ := open(t)
	if l.PID() != 4242 || l.Start() != 5_000_000 {
		t.Errorf("log of process %d, made at %d", l.PID(), l.Start())
	}
	records, next, lost, err := l.Read(0)
	if err != nil {
		t.Fatal(err)
	}
	// 11 were written: wait, batch of 32, forward, augment, step, wait, batch of 7.
	want := []Record{
		// The oldest one in the ring may be under the writer's hand.
		{5_005_000, StageEnd, 1},
		{5_006_000, StageBegin, 32},
		{5_007_000, StageEnd, 32},
		{5_008_000, Step, 0},
		{5_009_000, WaitBegin, 0},
		{5_010_000, WaitEnd, 7},
		{5_011_000, WaitBegin, 0},
	}
	if !slices.Equal(records, want) {
		t.Errorf("records %v, want %v", records, want)
	}
	if next != 11 || lost != 4 {
		t.Errorf("next %d, lost %d; want 11 and 4", next, lost)
	}
	names := l.Stages()
	if names[1] != "forward" || names[32] != "augment" || names[5] != "copy back" {
		t.Errorf("stages %v", names)
	}
	if again, _, _, err := l.Read(next); err != nil || len(again) != 0 {
		t.Errorf("reading on gives %v, %v", again, err)
	}
	if _, _, _, err := l.Read(12); err == nil {
		t.Error("reading from beyond the end is no error")
	}
}

func TestUnfinishedRecordIsReadLater(t *testing.T) {
	_, data := open(t)
	// Record 10, of slot 2, as its writer's processor shows it after the count.
	binary.LittleEndian.PutUint64(data[headerSize+2*recordSize:], 5_003_000)
	l, err := New(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	records, next, _, err := l.Read(4)
	if err != nil || next != 10 || len(records) != 6 {
		t.Errorf("read %d records up to %d, %v", len(records), next, err)
	}
}

func TestDamage(t *testing.T) {
	_, data := open(t)
	for name, spoil := range map[string]func([]byte){
		"begin as one":     func(b []byte) { b[0] = 'X' },
		"version 9":        func(b []byte) { b[8] = 9 },
		"room for 9":       func(b []byte) { b[12] = 9 },
		"room for 0":       func(b []byte) { b[12] = 0 },
		"room for 2147483": func(b []byte) { binary.LittleEndian.PutUint32(b[12:], 1<<31) },
	} {
		b := bytes.Clone(data)
		spoil(b)
		if _, err := New(bytes.NewReader(b)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q, got %v", name, err)
		}
	}
	if _, err := New(bytes.NewReader(data[:40])); err == nil {
		t.Error("a torn header is no error")
	}
	l, err := New(bytes.NewReader(data[:100]))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := l.Read(0); err == nil {
		t.Error("a torn ring is no error")
	}
}

func TestOpen(t *testing.T) {
	_, data := open(t)
	fd, err := unix.MemfdCreate(Name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Skip(err)
	}
	f := os.NewFile(uintptr(fd), Name)
	defer f.Close()
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	// The log names another process, as in a forked child.
	if _, err := Open(os.Getpid()); !errors.Is(err, ErrNone) {
		t.Errorf("opening a parent's log: %v", err)
	}
	binary.LittleEndian.PutUint32(data[24:], uint32(os.Getpid()))
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	l, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if records, lost, err := l.Next(); len(records) != 7 || lost != 4 || err != nil {
		t.Errorf("Next: %d records, %d lost, %v", len(records), lost, err)
	}
	if records, _, err := l.Next(); len(records) != 0 || err != nil {
		t.Errorf("Next again: %d records, %v", len(records), err)
	}
	if _, err := Open(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process that is not there: %v", err)
	}
}

func TestSummarise(t *testing.T) {
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	records := []Record{
		{ms(1), WaitBegin, 0}, {ms(3), WaitEnd, 32}, {ms(3), StageBegin, 1}, {ms(8), StageEnd, 1}, {ms(10), Step, 0},
		{ms(10), WaitBegin, 0}, {ms(15), WaitEnd, 16}, {ms(20), Step, 0}, {ms(21), WaitBegin, 0},
	}
	s := Summarise(records)
	if !s.Marked || s.Rows != 48 || s.WaitingSince != ms(21) {
		t.Errorf("%+v", s)
	}
	if want := []time.Duration{10 * time.Millisecond}; !slices.Equal(s.Steps, want) {
		t.Errorf("steps %v", s.Steps)
	}
	if want := []time.Duration{2 * time.Millisecond, 5 * time.Millisecond}; !slices.Equal(s.Waits, want) {
		t.Errorf("waits %v", s.Waits)
	}
	if got := s.Stages[1]; got != (StageTime{5 * time.Millisecond, 1}) {
		t.Errorf("forward %+v", got)
	}
	// Without marks, a step is from batch to batch.
	records = slices.DeleteFunc(records, func(r Record) bool { return r.Kind == Step })
	if s := Summarise(records); s.Marked || len(s.Steps) != 1 || s.Steps[0] != 12*time.Millisecond {
		t.Errorf("%+v", s)
	}
	Summarise(nil)
	// The end of an epoch is not a step: its wait belongs to the first batch of the next one.
	s = Summarise([]Record{
		{ms(1), WaitBegin, 0}, {ms(2), WaitEnd, 4}, {ms(5), WaitBegin, 0}, {ms(7), WaitEnd, NoBatch},
		{ms(8), WaitBegin, 0}, {ms(11), WaitEnd, 4}, {ms(12), WaitBegin, 0}, {ms(13), WaitEnd, NoBatch},
	})
	if len(s.Steps) != 1 || s.Steps[0] != 9*time.Millisecond || !slices.Equal(s.Waits, []time.Duration{time.Millisecond, 5 * time.Millisecond}) || s.Rows != 8 {
		t.Errorf("%+v", s)
	}
}

func FuzzLog(f *testing.F) {
	_, data := open(f)
	f.Add(data, uint64(0))
	f.Add(data[:200], uint64(3))
	f.Fuzz(func(t *testing.T, data []byte, since uint64) {
		l, err := New(bytes.NewReader(data))
		if err != nil {
			return
		}
		records, next, lost, err := l.Read(since)
		if err == nil && next < since+lost {
			t.Fatalf("read from %d, lost %d, goes on at %d", since, lost, next)
		}
		Summarise(records)
		for _, name := range l.Stages() {
			if strings.ContainsAny(name, "\x00\n\x1b") {
				t.Fatalf("stage named %q", name)
			}
		}
	})
}
