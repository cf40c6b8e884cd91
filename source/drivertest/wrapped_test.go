package drivertest

import (
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
)

func mixed(testing.TB) driver.Source { return sourcetest.Mixed(20).Copied() }

// The suite passes for a wrapper that changes nothing. For others it names the lost abilities.
func TestWrapped(t *testing.T) {
	Wrapped(t, Wrapping{Open: mixed, Wrap: func(_ testing.TB, base driver.Source) driver.Source {
		return &plain{Mapped: driver.Mapped{Wrapper: driver.Wrapper{Base: base}}}
	}})
	base := newAble(t, mixed, nil)
	bare := struct{ driver.Source }{base}
	all := &plain{Mapped: driver.Mapped{Wrapper: driver.Wrapper{Base: base}}}
	hidden := &plain{Mapped: driver.Mapped{Wrapper: driver.Wrapper{Base: base, Without: []any{(*driver.Leaver)(nil)}}}}
	for _, c := range []struct {
		src   driver.Source
		lacks map[string]string
		want  []string
	}{
		{all, nil, nil},
		{bare, map[string]string{"Sizer": "sizes change"}, []string{
			"Skipper", "Leaver", "Holder", "Cacher", "Seeded", "Turned", "Indexer", "Shaper", "Pather", "Finder", "Cutter", "Varied", "Epochs", "Chunker",
		}},
		{hidden, nil, []string{"loses Leaver"}},
		{hidden, map[string]string{"Leaver": "it has no files"}, nil},
		{hidden, map[string]string{"Leaver": ""}, []string{`Lacks["Leaver"]`}},
		{all, map[string]string{"Leaver": "it has no files"}, []string{`Lacks["Leaver"]`}},
		{all, map[string]string{"Left": "it has no files"}, []string{`not abilities: ["Left"]`}},
	} {
		w := Wrapping{Lacks: c.lacks}
		got := w.lost(base, c.src)
		if len(got) != len(c.want) {
			t.Errorf("%v: %q", c.lacks, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%v: %q does not name %s", c.lacks, got[i], c.want[i])
			}
		}
	}
}

type plain struct{ driver.Mapped }

func (p *plain) Info() *driver.Info          { return p.Base.Info() }
func (p *plain) Locate(g *driver.Group)      { p.Base.Locate(g) }
func (p *plain) Parse(g *driver.Group) error { return p.Base.Parse(g) }
