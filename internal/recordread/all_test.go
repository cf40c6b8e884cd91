package recordread

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// inOrder is a source of n records that yields only the first few in order.
type inOrder struct {
	driver.InOrderOnly
	driver.Source
	n, gives int64
	alloc    int64 // bytes of a value
}

func (s *inOrder) Info() *driver.Info {
	return &driver.Info{Format: "ordered", Len: s.n, Sequential: true}
}
func (s *inOrder) Memory() int64         { return 0 }
func (s *inOrder) Token(id int64) string { return strings.Repeat("x", int(id)) }
func (s *inOrder) Locate(g *driver.Group) {
	s.InOrderOnly.Locate(g)
}
func (s *inOrder) Parse(g *driver.Group) error { return s.InOrderOnly.Parse(g) }

func (s *inOrder) Records(_ context.Context, token string, in *driver.InOrder) error {
	for id := int64(len(token)); id < s.gives; {
		rec := driver.Record{ID: id}
		_, rec.Err = in.Alloc(id, 0, s.alloc)
		var err error
		if id, err = in.Record(&rec); err != nil {
			return err
		}
	}
	return nil
}

func TestAll(t *testing.T) {
	alloc := func(_, n int64) ([]byte, error) { return make([]byte, n), nil }
	read := func(s *inOrder, from, to int64) (got []int64, err, bad error) {
		err = All(t.Context(), s, &Objects{}, from, to, alloc, func(rec *driver.Record) error {
			got, bad = append(got, rec.ID), rec.Err
			return nil
		})
		return got, err, bad
	}
	s := &inOrder{n: 5, gives: 5, alloc: 1}
	if got, err, bad := read(s, 1, 4); err != nil || bad != nil || !slices.Equal(got, []int64{1, 2, 3}) {
		t.Error(got, err, bad)
	}
	if got, err, _ := read(s, 5, 5); err != nil || got != nil {
		t.Error(got, err)
	}
	// A truncated source must not look like a smaller one.
	s.gives = 3
	if _, err, _ := read(s, 0, 5); err == nil || !strings.Contains(err.Error(), "ordered ended before record 3") {
		t.Error(err)
	}
	for _, n := range []int64{-1, MaxValue + 1} {
		if _, err, bad := read(&inOrder{n: 1, gives: 1, alloc: n}, 0, 1); err != nil || bad == nil || !strings.Contains(bad.Error(), "larger than the limit") {
			t.Error(n, err, bad)
		}
	}
}
