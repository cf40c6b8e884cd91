package source

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/filesource"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Open recognises a format in the list, its parameters are read, and messages name it.
func TestFormatInTheList(t *testing.T) {
	var got *format.Request
	toy := &format.Format{
		Name: "toy", Reads: "toys", Example: "x.toy", Guide: "reference/records.md", Patterns: true,
		Params: []format.Param{format.SplitParam, format.WindowParam},
		Match:  format.MatchFiles(format.Extensions(".toy"), nil, nil),
		Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
			got = r
			return filesource.Open(ctx, r.URL, r.Store)
		},
	}
	old := formats
	formats = slices.Insert(slices.Clone(formats), 0, toy)
	defer func() { formats = old }()

	dir := t.TempDir()
	for _, name := range []string{"a.toy", "b.toy"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		url, name string
		opt       *Options
		dir       bool
		names     int
		split     string
		window    int64
	}{
		{"", "", nil, true, 0, "", 0},
		{"toy:", "/a.toy", nil, false, 0, "", 0},
		{"", "/a.toy?split=x&window=3", nil, false, 0, "x", 3},
		{"", "?split=x", &Options{Split: "y", Window: 4}, true, 0, "x", 4},
		{"", "/{a,b}.toy?window=3", nil, true, 2, "", 3},
		{"", "/*.toy", nil, true, 2, "", 0},
	} {
		s, err := Open(t.Context(), c.url+dir+c.name, c.opt)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		s.Close()
		if got.Dir != c.dir || len(got.Names) != c.names || got.Text("split") != c.split || got.Int("window") != c.window {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if !slices.Contains(Formats(), toy) {
		t.Error("Formats lacks it")
	}
	for url, want := range map[string]string{
		"/a.toy?widow=secret":    `cannot open ` + dir + `/a.toy: unknown parameter "widow": the parameters of toy are split and window; did you mean "window"?`,
		"/a.toy?window=x":        "window=x: expected a whole number, 1 or more",
		"/{a,b}.toy?split=x&a=b": `unknown parameter "a"`,
	} {
		if _, err := Open(t.Context(), dir+url, nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, want := range map[string]string{
		"files:" + dir + "/{a,b}.toy":   "formats that do: toy, npy, tar",
		"files:" + dir + "#split=train": "formats that have one are toy, npz",
	} {
		if _, err := Open(t.Context(), url, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	if _, err := Open(t.Context(), "files:"+dir, &Options{Window: 3}); err == nil || !strings.Contains(err.Error(), "files has no parameter window: formats that have one are toy, npy") {
		t.Error(err)
	}
}
