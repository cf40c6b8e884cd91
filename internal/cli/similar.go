package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/stokerdata/stoker/internal/phash"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// similarFlags request a list of images that look alike. No image is removed.
type similarFlags struct{ what string }

func (f *similarFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.what, "similar", "", "list images that look alike: up to N of 64 bits apart, `[FIELD:]N` (default 6)")
	fl.Lookup("similar").NoOptDefVal = fmt.Sprint(phash.DefaultDistance)
}

// maxPairs is the number of pairs that are kept, and shownPairs the number listed on a screen.
const (
	maxPairs   = 100_000
	shownPairs = 20
)

// alike is the report on images that look alike.
type alike struct {
	Field    string `json:"field"`
	Distance int    `json:"distance"`
	Images   int64  `json:"images"`
	// Unreadable images have no part in it.
	Unreadable int64       `json:"unreadable"`
	Records    int64       `json:"records"`
	Total      int64       `json:"total"`
	Pairs      []alikePair `json:"pairs"`
}

type alikePair struct {
	Distance int      `json:"distance"`
	Index    [2]int64 `json:"index"`
	Names    []string `json:"names"`
}

// findSimilar finds images of a source that look alike.
func (app *App) findSimilar(src driver.Source, f *similarFlags, threads, listed int) (*alike, error) {
	info := src.Info()
	field, distance, err := phash.Parse(f.what, info)
	if err != nil {
		return nil, err
	}
	tell, stop := app.looking()
	defer stop()
	ids, hashes, err := phash.Hashes(app.Context, src, &phash.Request{
		Field: field, Threads: threads, Progress: func(done, total int64) { tell("images that look alike", done, total) },
	})
	if err != nil {
		return nil, err
	}
	found, err := phash.Find(app.Context, ids, hashes, distance, maxPairs)
	if err != nil {
		return nil, err
	}
	a := &alike{
		Field: info.Fields[field].Name, Distance: distance, Images: found.Images, Unreadable: info.Len - found.Images,
		Records: found.Records, Total: found.Total, Pairs: []alikePair{},
	}
	name := func(id int64) string {
		if f, ok := driver.As[driver.Finder](src); ok {
			return f.Find(app.Context, id)
		}
		return src.Name(id)
	}
	for _, p := range found.Pairs[:min(listed, len(found.Pairs))] {
		a.Pairs = append(a.Pairs, alikePair{p.Distance, [2]int64{p.First, p.Second}, []string{name(p.First), name(p.Second)}})
	}
	return a, nil
}

// print writes the result for people.
func (a *alike) print(w io.Writer) {
	fmt.Fprintf(w, "%s of %s look like one before, up to %d of 64 bits apart: %s\n",
		units.Int(a.Records), units.Plural(int(a.Images), "image"), a.Distance, units.Plural(int(a.Total), "pair"))
	for i, p := range a.Pairs {
		if i == shownPairs {
			break
		}
		names := make([]string, len(p.Names))
		for k, n := range p.Names {
			names[k] = clean(n)
		}
		fmt.Fprintf(w, "  %2d  %s\n", p.Distance, strings.Join(names, "  "))
	}
	if more := a.Total - int64(min(len(a.Pairs), shownPairs)); more > 0 {
		fmt.Fprintf(w, "  ... and %s more\n", units.Int(more))
	}
	if a.Unreadable > 0 {
		fmt.Fprintf(w, "  %s could not be decoded\n", units.Plural(int(a.Unreadable), "image"))
	}
}

// inspectSimilar lists images of any data that look alike.
func (app *App) inspectSimilar(url string, f *similarFlags, asJSON bool) error {
	src, err := app.openSource(url, 0, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	listed := shownPairs
	if asJSON {
		listed = maxPairs
	}
	a, err := app.findSimilar(src, f, 0, listed)
	if err != nil {
		return err
	}
	if !asJSON {
		a.print(app.Stdout)
		return nil
	}
	e := json.NewEncoder(app.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(a)
}
