package column

import (
	"bytes"
	"encoding/gob"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

func TestSizes(t *testing.T) {
	for _, n := range []int64{-1, 0, 1, 2, 3, 4, 5, 9, 10, 19, 20, 1023, 4999, 5000, 1 << 40, math.MaxInt64} {
		for _, n := range []int64{n, max(n, 1) - 1} {
			if got, want := bounds[position(n)], driver.SizeBound(n); got != want {
				t.Errorf("%d counts as %d, want %d", n, got, want)
			}
		}
	}
	var a, b, all Sizes
	for i := range int64(100) {
		all.Add(i * i)
		[]*Sizes{&a, &b}[i%2].Add(i * i)
	}
	b.Merge(&a)
	if got, want := b.Stats(103), all.Stats(103); !reflect.DeepEqual(got, want) || got.Count != 103 || got.Sizes[0] != 4 || got.Sizes[5000] != 29 {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// part makes a Seen of some values.
type part func(s *Seen)

func number(t driver.DType, n int64) part { return func(s *Seen) { s.Number(t, n) } }

func list(rows int, inner ...int) part {
	return func(s *Seen) { s.List(List, driver.Int64, rows, inner, rows > 0, int64(8*rows)) }
}

func text(f Form, b string) part { return func(s *Seen) { s.String(f, []byte(b), int64(len(b))) } }

const jpeg = "\xff\xd8\xff\xe0\x00\x10JFIF"

func TestDecide(t *testing.T) {
	csv, lines, untyped := func(s *Seen) { s.Written = driver.KindText }, func(s *Seen) { s.Written = driver.KindJSON }, func(s *Seen) { s.Untyped = true }
	none := func(*Seen) {}
	for _, c := range []struct {
		of      part
		values  []part
		records int64
		want    driver.Kind
	}{
		{none, []part{number(driver.Int8, 1), number(driver.Int8, -1)}, 2, driver.KindInt},
		{none, []part{number(driver.Int64, 1)}, 2, driver.KindFloat},
		{none, []part{number(driver.Int64, 1<<53+1)}, 2, driver.KindInt},
		{none, []part{number(driver.Float32, 0)}, 2, driver.KindFloat},
		{none, []part{number(driver.Bool, 1)}, 1, driver.KindArray},
		{func(s *Seen) { s.Class = true }, []part{number(driver.Int64, 1)}, 1, driver.KindLabel},
		{func(s *Seen) { s.Class = true }, []part{number(driver.Int64, -1)}, 1, driver.KindInt},
		{none, []part{list(2), list(2)}, 2, driver.KindArray},
		{none, []part{list(2), list(2)}, 3, driver.KindRagged},
		{none, []part{list(2, 3), list(0)}, 2, driver.KindRagged},
		{none, []part{text(Bytes, jpeg), text(Bytes, jpeg), text(Bytes, "x"), text(Bytes, "")}, 4, driver.KindImage},
		{none, []part{text(Bytes, "x")}, 1, driver.KindBytes},
		{untyped, []part{text(Bytes, "x"), text(Bytes, "")}, 2, driver.KindText},
		{untyped, []part{text(Bytes, "x"), text(Bytes, jpeg)}, 2, driver.KindBytes},
		{csv, nil, 2, driver.KindText},
		{lines, nil, 2, driver.KindJSON},
		{csv, []part{number(driver.Int64, 1), number(driver.Float64, 0)}, 2, driver.KindFloat},
		{csv, []part{number(driver.Int64, 1), number(driver.Bool, 0)}, 2, driver.KindText},
		{lines, []part{number(driver.Int64, 1), number(driver.Bool, 0)}, 2, driver.KindJSON},
		{csv, []part{list(2), list(2, 3)}, 2, driver.KindJSON},
		{csv, []part{list(2), number(driver.Int64, 3)}, 2, driver.KindText},
		{csv, []part{text(Text, "a"), number(driver.Int64, 3)}, 2, driver.KindText},
	} {
		// Two goroutines see the same as one, and what was written down is the same.
		whole, one, two := New("x", nil), New("x", nil), New("x", nil)
		for _, s := range []*Seen{whole, one, two} {
			c.of(s)
		}
		for i, add := range c.values {
			add(whole)
			add([]*Seen{one, two}[i%2])
		}
		one.Merge(two)
		var b bytes.Buffer
		again := &Seen{}
		if err := gob.NewEncoder(&b).Encode(one); err != nil {
			t.Fatal(err)
		}
		if err := gob.NewDecoder(&b).Decode(again); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*Seen{whole, one, again} {
			f, err := s.Field(Want{Name: "x", From: "x"}, c.records)
			if got := s.Decide("x", c.records); got != c.want || err != nil || f.Kind != c.want {
				t.Errorf("%+v: %s, want %s (%v)", s, got, c.want, err)
			}
		}
	}
	masks := New("x", []Want{{Name: "mask", From: "x"}})
	masks.String(Bytes, []byte(jpeg), int64(len(jpeg)))
	if got := masks.Decide("mask", 1); got != driver.KindMask {
		t.Error(got)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		values []part
		kind   driver.Kind
		want   string // "" if the kind is possible
	}{
		{[]part{number(driver.Int64, 1)}, driver.KindImage, hasNumbers},
		{[]part{number(driver.Int64, 1)}, driver.KindRagged, noLists},
		{[]part{number(driver.Int64, 1)}, driver.KindArray, ""},
		{[]part{number(driver.Float64, 1)}, driver.KindLabel, fractions},
		{[]part{number(driver.Bool, 1)}, driver.KindLabel, ""},
		{[]part{list(2), list(3)}, driver.KindArray, "its lists have 2 to 3 elements"},
		{[]part{list(2), list(3)}, driver.KindLabel, noNumber},
		{[]part{list(1), list(1)}, driver.KindLabel, ""},
		{[]part{list(2, 2)}, driver.KindTokens, noWholes},
		{[]part{list(2)}, driver.KindText, hasNumbers},
		{[]part{text(Text, "cat"), text(Text, "")}, driver.KindLabel, ""},
		{[]part{text(Text, "cat")}, driver.KindArray, noNumbers},
		{[]part{text(Bytes, jpeg)}, driver.KindLabel, "it has neither class numbers nor names"},
	} {
		w := Want{Name: "y", From: "x", Kind: c.kind}
		s := New("x", []Want{w})
		for _, add := range c.values {
			add(s)
		}
		f, err := s.Field(w, int64(len(c.values)))
		if c.want == "" {
			if err != nil || f.Kind != c.kind {
				t.Errorf("%s of %+v: %v", c.kind, s, err)
			}
			continue
		}
		guess := s.Decide("y", int64(len(c.values)))
		want := `column "x" cannot be ` + string(c.kind) + ": " + c.want + "; without :" + string(c.kind) + " it is read as " + string(guess)
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	s := New("x", nil)
	list(2)(s)
	text(Text, "a")(s)
	if _, err := s.Field(Want{Name: "x", From: "x"}, 2); err == nil || !strings.Contains(err.Error(), `column "x" has numbers in some records and bytes in others, which is not read`) {
		t.Error(err)
	}
}
