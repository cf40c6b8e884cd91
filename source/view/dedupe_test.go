package view

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/tablesource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
)

// The first of equal records stays. Dedupe is applied after where and before split.
func TestDedupe(t *testing.T) {
	lines := []string{"n,text"}
	for i := range 500 {
		lines = append(lines, fmt.Sprintf("%d,text %d", i%90, i%70))
	}
	name := filepath.Join(t.TempDir(), "t.csv")
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		spec Spec
		want []int64 // some of the records, by number in the table
		n    int64
	}{
		{Spec{Dedupe: []string{"text"}}, []int64{0, 1, 69}, 70},
		{Spec{Dedupe: []string{"n", "n"}}, []int64{0, 89}, 90},
		{Spec{Dedupe: []string{AllFields}}, []int64{0, 100, 499}, 500}, // lcm(90, 70) is 630
		{Spec{Dedupe: []string{"text"}, Where: "n >= 50"}, []int64{50, 89, 160, 250}, 70},
	} {
		base := openCSV(t, name)
		s, err := Open(context.Background(), base, &test.spec, &Options{NoCache: true})
		if err != nil {
			t.Fatal(err)
		}
		var ids []int64
		d, _ := driver.As[driver.Deriver](s)
		for i := range s.Info().Len {
			_, id, _ := d.Origin(i, 0)
			ids = append(ids, id)
		}
		if s.Info().Len != test.n || !slices.IsSorted(ids) {
			t.Errorf("%+v: %d records, want %d", test.spec, s.Info().Len, test.n)
		}
		for _, id := range test.want {
			if !slices.Contains(ids, id) {
				t.Errorf("%+v: record %d is missing", test.spec, id)
			}
		}
		if v := s.(Viewer); v.Repeated() != v.Matched()-test.n {
			t.Errorf("%d repeated of %d", v.Repeated(), v.Matched())
		}
		_ = s.Close()
	}
	base := openCSV(t, name)
	defer base.Close()
	if _, err := Open(context.Background(), base, &Spec{Dedupe: []string{"x"}}, nil); err == nil || !strings.Contains(err.Error(), `dedupe: `) {
		t.Errorf("%v", err)
	}
}

func TestPrints(t *testing.T) {
	p := printOf(xxh3.Uint128{Hi: 1, Lo: 1<<64 - 1}, 1<<idBits-1)
	q := printOf(xxh3.Uint128{Hi: 1, Lo: 1<<64 - 1}, 5)
	if p.id() != 1<<idBits-1 || q.id() != 5 || !p.same(q) || q.compare(p) >= 0 || p.same(printOf(xxh3.Uint128{Hi: 1, Lo: 1 << 40}, 5)) {
		t.Errorf("%x %x", p, q)
	}
}

func openCSV(t *testing.T, name string) driver.Source {
	t.Helper()
	s, err := tablesource.Open(t.Context(), name, tablesource.CSV, localstore.New(name), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
