package spoolsource

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// parts returns the values, the index and the fields of a file of n records.
func parts(t *testing.T, n int) (values, index []byte, fields json.RawMessage) {
	b := file(n)
	word := func(i int) int { return int(binary.LittleEndian.Uint64(b[len(b)-trailer+8*i:])) }
	at, size := word(0), word(2)
	var about struct{ Fields json.RawMessage }
	text := b[len(b)-trailer-size : len(b)-trailer]
	if err := json.Unmarshal(text, &about); err != nil {
		t.Fatal(err)
	}
	return b[:at], b[at : len(b)-trailer-size], about.Fields
}

// TestWriter writes records that come in two parts. They are the same as those of a file.
func TestWriter(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, 5)
	if err != nil {
		t.Fatal(err)
	}
	var fields json.RawMessage
	for range 2 {
		var values, index []byte
		values, index, fields = parts(t, 25)
		if err := w.Add(io.MultiReader(bytes.NewReader(index), bytes.NewReader(values)), 25, int64(len(values)), []driver.Skipped{{Path: "x", Reason: "y"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish("digits", "abc", fields); err != nil {
		t.Fatal(err)
	}
	got, want := opener(write(t, b.Bytes()))(t), opener(write(t, file(25)))(t)
	defer got.Close()
	defer want.Close()
	if i := got.Info(); i.Len != 50 || i.URL != "digits" || i.Fingerprint != "abc" || len(got.(driver.Skipper).Skipped()) != 2 {
		t.Errorf("%+v", i)
	}
	for id := range int64(25) {
		for _, other := range []int64{id, id + 25} {
			a, b := drivertest.Records(t, got, other)[0], drivertest.Records(t, want, id)[0]
			if a.Err != nil || !reflect.DeepEqual(a.Values, b.Values) {
				t.Errorf("record %d is %v, want %v (%v)", other, a.Values, b.Values, a.Err)
			}
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	if _, err := NewWriter(io.Discard, 0); err == nil {
		t.Error("a file without fields")
	}
	w, err := NewWriter(io.Discard, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range [][2]int64{{-1, 0}, {0, -1}, {1 << 40, 0}} {
		if err := w.Add(bytes.NewReader(nil), n[0], n[1], nil); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%v: %v", n, err)
		}
	}
	if err := w.Add(bytes.NewReader(make([]byte, 20)), 1, 5, nil); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("values that are cut off: %v", err)
	}
}
