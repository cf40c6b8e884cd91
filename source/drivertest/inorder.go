package drivertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

// testInOrder tests the additional promises of Sequential sources.
func testInOrder(t *testing.T, open Open) {
	s := start(t, open)
	defer s.Close()
	src, ok := driver.As[driver.Sequential](s.Source)
	if ok != s.Info().Sequential {
		t.Fatalf("Info.Sequential is %v, the source says otherwise", s.Info().Sequential)
	}
	if !ok {
		t.Skip("its records are located")
	}
	n := s.Info().Len
	want := map[int64]copied{}
	walk := func(ctx context.Context, token string, from int64, step func(id int64) int64) error {
		next := from
		return recordread.Records(ctx, src, token, &driver.InOrder{
			Read: s.obj.Read,
			Alloc: func(id int64, field int, size int64) ([]byte, error) {
				if id != next || field < 0 || field >= len(s.Info().Fields) {
					t.Errorf("Alloc for field %d of record %d, record %d comes next", field, id, next)
				}
				return make([]byte, size+64)[:size], nil
			},
			Record: func(rec *driver.Record) (int64, error) {
				if rec.Err != nil {
					t.Errorf("record %d: %v", rec.ID, rec.Err)
				}
				if rec.ID != next {
					t.Errorf("record %d came where %d was asked for", rec.ID, next)
				}
				if w, ok := want[rec.ID]; !ok {
					checkRecord(t, s.Info(), rec)
					want[rec.ID] = copyRecord(rec)
				} else if !same(w, copyRecord(rec)) {
					t.Errorf("record %d is not the same again", rec.ID)
				}
				next = step(rec.ID)
				return next, nil
			},
		})
	}
	one := func(id int64) int64 { return id + 1 }
	if err := walk(t.Context(), "", 0, one); err != nil || int64(len(want)) != n {
		t.Fatalf("%d of %d records came: %v", len(want), n, err)
	}
	for _, id := range append(few(s.Info()), n) {
		token := src.Token(id)
		if token == "" || len(token) > 256 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("token %q", token)
		}
		seen := 0
		if err := walk(t.Context(), token, id, func(id int64) int64 {
			if seen++; seen == 3 {
				return n
			}
			return id + 1
		}); err != nil || int64(seen) != min(3, n-id) {
			t.Errorf("from record %d on came %d records: %v", id, seen, err)
		}
	}
	for _, stride := range []int64{2, 7, n / 3} {
		seen := int64(0)
		if err := walk(t.Context(), src.Token(1), 1, func(id int64) int64 { seen++; return min(id+max(stride, 1), n) }); err != nil || seen < (n-1)/max(stride, 1) {
			t.Errorf("%d records came with a stride of %d: %v", seen, stride, err)
		}
	}
	token := src.Token(n / 2)
	for _, bad := range []string{token + "x", token[1:], token[:len(token)-1], "\x00", strings.Repeat("9", 1<<16)} {
		if err := walk(t.Context(), bad, 0, one); err == nil {
			t.Errorf("the damaged token %.40q is taken", bad)
		} else if strings.Contains(err.Error(), "\n") || len(err.Error()) > 4096 {
			t.Errorf("the error of a damaged token has several lines or is long: %.100v", err)
		}
	}
	// After Records has ended or Record has failed, nothing may still run.
	ignore := goleak.IgnoreCurrent()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := slices.Max([]int64{0, n / 2})
	err := walk(ctx, "", 0, func(id int64) int64 {
		if id == stopped {
			cancel(why)
		}
		return id + 1
	})
	if !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
		t.Errorf("Records with a context that ended returned %v", err)
	}
	err = recordread.Records(t.Context(), src, "", &driver.InOrder{
		Read:   s.obj.Read,
		Alloc:  func(_ int64, _ int, size int64) ([]byte, error) { return make([]byte, size+64)[:size], nil },
		Record: func(*driver.Record) (int64, error) { return 0, why },
	})
	if !errors.Is(err, why) {
		t.Errorf("Records returned %v, Record failed with %v", err, why)
	}
	if err := goleak.Find(ignore); err != nil {
		t.Error(err)
	}
}
