package source_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/wrap/clips"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/source/view"
	"github.com/stokerdata/stoker/store"
)

// row is a format in the table, or a variant of one. Every statement of the suite is tested with every row.
type row struct {
	// name is the name of the format, for variants with a slash and more: "tar", "tar/gzip".
	name string
	// write writes a dataset and returns its path.
	write func(t testing.TB) string
	// query is the part of the URL after the path, such as "?split=train".
	query string
	// len is the number of records, fields are the fields as drivertest.Fields returns them, "" for a variant.
	len    int64
	fields string
	// want returns values of a record, as sinktest.Text returns them.
	want func(t testing.TB, id int64) values
	// checked is set if checksums cover all bytes of a record.
	checked bool
	// bad describes a folder whose files are records. The folder and the function Open are set by the suite.
	bad *drivertest.BadFiles
	// splits has the number of records of each split.
	splits map[string]int64
	// cut has files that may end anywhere, each with the reason.
	cut map[string]string
	// not has the statements that do not hold for the row, each with the reason.
	not map[string]string
}

// values are values of fields by name.
type values map[string]string

// dataset is a row that was written.
type dataset struct {
	*row
	format *format.Format
	path   string
}

// statement is a test of the suite.
type statement struct {
	name string
	// inParallel says that it reads from several goroutines. With -short, for the race detector, only these are tested.
	inParallel bool
	test       func(d *dataset, t *testing.T)
}

// Each row passes all statements, except those that it names in row.not.
var statements = []statement{
	{"Records", false, (*dataset).records},
	{"Contract", true, (*dataset).contract},
	{"Uncached", false, (*dataset).uncached},
	{"Faults", false, func(d *dataset, t *testing.T) { drivertest.Faults(t, d.store(), d.checked, d.openAt) }},
	{"BadFiles", true, (*dataset).badFiles},
	{"Damaged", false, (*dataset).damaged},
	{"Named", false, (*dataset).named},
	{"Served", false, (*dataset).served},
	{"Changed", false, (*dataset).changed},
	{"Packed", false, (*dataset).packed},
	{"Loaded", true, (*dataset).loaded},
	{"Splits", false, (*dataset).split},
}

// TestFormats tests every statement with every row of the table.
func TestFormats(t *testing.T) {
	for i := range table {
		t.Run(table[i].name, func(t *testing.T) {
			d := &dataset{row: &table[i], format: formatOf(table[i].name), path: table[i].write(t)}
			for _, s := range statements {
				if d.not[s.name] == "" && (s.inParallel || !testing.Short()) {
					t.Run(s.name, func(t *testing.T) { s.test(d, t) })
				}
			}
		})
	}
}

// contract runs the suite that every source passes. With -short it reads from several goroutines only.
func (d *dataset) contract(t *testing.T) {
	if testing.Short() {
		drivertest.Concurrent(t, opener(d.url()), 3)
		return
	}
	drivertest.Run(t, opener(d.url()))
}

// TestTableIsWhole checks that every format has a row, and that the table is consistent.
func TestTableIsWhole(t *testing.T) {
	names, split := map[string]bool{}, map[string]bool{}
	for _, r := range table {
		f := formatOf(r.name)
		if f == nil || names[r.name] {
			t.Fatalf("row %q: no such format, or it is there twice", r.name)
		}
		names[r.name] = true
		split[f.Name] = split[f.Name] || r.splits != nil
		if r.fields == "" && r.name == f.Name {
			t.Errorf("%s: it has no fields", r.name)
		}
		if r.want == nil && r.not["Values"] == "" {
			t.Errorf("%s: it has neither values nor the place where they are tested", r.name)
		}
		if r.bad == nil && r.not["BadFiles"] == "" {
			t.Errorf("%s: it has neither a bad file nor the reason why there is none", r.name)
		}
		for name, why := range r.not {
			if why == "" || name != "Values" && name != "Found" && name != "Extension" && !slices.ContainsFunc(statements, func(s statement) bool { return s.name == name }) {
				t.Errorf("%s: %q is not a statement, or has no reason", r.name, name)
			}
		}
	}
	for _, f := range source.Formats() {
		if !names[f.Name] {
			t.Errorf("the format %s has no row in the table: CONTRIBUTING.md says how to add it", f.Name)
		}
		if f.Param("split") != nil && !split[f.Name] {
			t.Errorf("the format %s has splits, and no row of it has some", f.Name)
		}
	}
}

func formatOf(name string) *format.Format {
	name, _, _ = strings.Cut(name, "/")
	for _, f := range source.Formats() {
		if f.Name == name {
			return f
		}
	}
	return nil
}

func (d *dataset) dir() bool {
	i, err := os.Stat(d.path)
	return err == nil && i.IsDir()
}

// url returns the URL of the dataset. It begins with the name of a format that is not detected.
func (d *dataset) url() string { return d.at(d.path) }

func (d *dataset) at(path string) string {
	if d.not["Found"] != "" {
		path = d.format.Name + ":" + path
	}
	return path + d.query
}

// store returns the folder that holds the dataset, or the dataset if it is a folder.
func (d *dataset) store() store.Store { return localstore.New(d.path) }

// openAt opens the dataset in another store, such as one with faults.
func (d *dataset) openAt(ctx context.Context, st store.Store) (driver.Source, error) {
	v, err := d.format.Parse(strings.TrimPrefix(d.query, "?"))
	if err != nil {
		return nil, err
	}
	r := &format.Request{URL: st.Path(""), Store: st, Dir: d.dir(), Values: v, Threads: 1, Probed: st}
	if d.format.Has(format.Clips) {
		return clips.OpenTable(ctx, d.format, r)
	}
	return d.format.Open(ctx, r)
}

// texts returns the values of a record, or its error.
func texts(s driver.Source, r *driver.Record) []string {
	if r.Err != nil {
		return []string{"error: " + r.Err.Error()}
	}
	var all []string
	for i := range s.Info().Fields {
		all = append(all, sinktest.Text(&s.Info().Fields[i], &r.Values[i]))
	}
	return all
}

// all returns the values of all records.
func all(t testing.TB, s driver.Source) [][]string {
	t.Helper()
	var out [][]string
	for id := range s.Info().Len {
		out = append(out, texts(s, &drivertest.Records(t, s, id)[0]))
	}
	return out
}

// open opens a URL and closes it at the end of the test.
func open(t testing.TB, url string) driver.Source {
	t.Helper()
	s := opener(url)(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// clean returns the values of all records of the dataset.
func (d *dataset) clean(t testing.TB) [][]string { return all(t, open(t, d.url())) }

// uncached tests the contract again, of a source that caches decompressed data, without that cache.
func (d *dataset) uncached(t *testing.T) {
	if _, ok := driver.As[driver.Cacher](open(t, d.url())); !ok {
		return
	}
	drivertest.Run(t, func(t testing.TB) driver.Source {
		s := opener(d.url())(t)
		c, _ := driver.As[driver.Cacher](s)
		c.Keep(0)
		return s
	})
}

// records checks that the path is recognised, and that the records are the known ones, in order, each once.
func (d *dataset) records(t *testing.T) {
	s := open(t, d.url())
	info := s.Info()
	if info.Format != d.format.Name {
		t.Errorf("it is opened as %s", info.Format)
	}
	if got := drivertest.Fields(s); d.fields != "" && got != d.fields {
		t.Errorf("fields %s, want %s", got, d.fields)
	}
	if info.Len != d.len || info.BadFiles != 0 {
		t.Fatalf("%d records, want %d; bad files %v", info.Len, d.len, info.Bad)
	}
	for id, got := range all(t, s) {
		if strings.HasPrefix(got[0], "error: ") {
			t.Fatal(got[0])
		}
		if d.want == nil {
			continue
		}
		for name, want := range d.want(t, int64(id)) {
			i := slices.IndexFunc(info.Fields, func(f driver.Field) bool { return f.Name == name })
			if i < 0 || got[i] != want {
				t.Fatalf("record %d, field %s (number %d): %.200q, want %.200q", id, name, i, got, want)
			}
		}
	}
}

// badFiles checks what becomes of a file among others that is bad.
func (d *dataset) badFiles(t *testing.T) {
	b := *d.bad
	b.Folder, b.Open = d.path, d.openAt
	if b.Content == nil {
		b.Content = must(os.ReadFile(filepath.Join(d.path, files(t, d.path)[1])))
	}
	b.Run(t)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// files returns the names of the files of a folder, "." for a file.
func files(t testing.TB, path string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(path, p)
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// copied copies the dataset under the same name, with its times.
func (d *dataset) copied(t testing.TB) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(d.path))
	for _, name := range files(t, d.path) {
		from, at := filepath.Join(d.path, name), filepath.Join(to, name)
		info := must(os.Stat(from))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, at, must(os.ReadFile(from)), info.ModTime())
	}
	return to
}

// largest returns the name of the largest file.
func (d *dataset) largest(t testing.TB) string {
	return slices.MaxFunc(files(t, d.path), func(a, b string) int {
		return int(must(os.Stat(filepath.Join(d.path, a))).Size() - must(os.Stat(filepath.Join(d.path, b))).Size())
	})
}

// damaged cuts files. Opening fails with an error that names the file, or the records that cannot be read have such
// errors. The others are what they were. A file of pixels or sound that is cut may reach the decoder, which refuses it.
func (d *dataset) damaged(t *testing.T) {
	known := map[string]bool{}
	for _, r := range d.clean(t) {
		known[strings.Join(r, "\n")] = true
	}
	path := d.copied(t)
	names := files(t, path)
	for _, name := range slices.Compact([]string{names[0], d.largest(t), names[len(names)-1]}) {
		file := filepath.Join(path, name)
		whole, info := must(os.ReadFile(file)), must(os.Stat(file))
		for _, n := range slices.Compact([]int{0, 1, len(whole) / 2, len(whole) - 1}) {
			if n >= 0 && n < len(whole) && d.cut[name] == "" {
				write(t, file, whole[:n], info.ModTime())
				d.cutAt(t, path, fmt.Sprintf("%s of %d bytes is cut after %d", name, len(whole), n), known, media[filepath.Ext(name)])
			}
		}
		write(t, file, whole, info.ModTime())
	}
	empty := t.TempDir()
	if _, err := source.Open(t.Context(), d.format.Name+":"+empty, nil); err == nil || !strings.Contains(err.Error(), empty) || strings.Contains(err.Error(), "\n") {
		t.Errorf("an empty folder: %v", err)
	}
}

// media are extensions of files that are one value of a record.
var media = map[string]bool{".jpg": true, ".jpeg": true, ".png": true, ".wav": true}

func (d *dataset) cutAt(t *testing.T, path, what string, known map[string]bool, decoded bool) {
	check := func(what string, err error) {
		if text := err.Error(); !strings.Contains(text, path) || strings.Contains(text, "\n") || strings.Contains(text, "internal error") {
			t.Errorf("%s: %v", what, err)
		}
	}
	s, err := source.Open(t.Context(), d.at(path), nil)
	if err != nil {
		check(what+": opening", err)
		return
	}
	defer s.Close()
	if s.Info().Format != d.format.Name || s.Info().Len == 0 {
		t.Errorf("%s: it is opened as %s with %d records", what, s.Info().Format, s.Info().Len)
		return
	}
	strange := 0
	for id := range s.Info().Len {
		r := &drivertest.Records(t, s, id)[0]
		if r.Err != nil {
			check(fmt.Sprintf("%s: record %d", what, id), r.Err)
		} else if got := strings.Join(texts(s, r), "\n"); !known[got] {
			if strange++; strange > 1 || !decoded {
				t.Errorf("%s: record %d is a new one, without an error: %.200q", what, id, got)
				return
			}
		}
	}
}

func write(t testing.TB, file string, b []byte, at time.Time) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file, b, 0o644), os.Chtimes(file, at, at)); err != nil {
		t.Fatal(err)
	}
}

// same checks that a URL has the records of the dataset.
func (d *dataset) same(t *testing.T, url string) {
	t.Helper()
	s, err := source.Open(t.Context(), url, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	if s.Info().Format != d.format.Name {
		t.Errorf("%s: opened as %s", url, s.Info().Format)
		return
	}
	compare(t, url, all(t, s), d.clean(t))
}

func compare(t *testing.T, what string, got, want [][]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d records, want %d", what, len(got), len(want))
		return
	}
	for id := range got {
		if !slices.Equal(got[id], want[id]) {
			t.Errorf("%s: record %d is %.300q, want %.300q", what, id, got[id], want[id])
			return
		}
	}
}

// named opens the dataset by the name of its format, by a file: URL, relative to the working directory, and a single
// file under a name that no format knows.
func (d *dataset) named(t *testing.T) {
	d.same(t, d.format.Name+":"+d.path+d.query)
	if d.query == "" && d.not["Found"] == "" {
		d.same(t, "file://"+d.path)
	}
	t.Chdir(filepath.Dir(d.path))
	d.same(t, d.format.Name+":"+filepath.Base(d.path)+d.query)
	if d.dir() || d.not["Extension"] != "" {
		return
	}
	other := filepath.Join(t.TempDir(), "data.unknown")
	if err := os.WriteFile(other, must(os.ReadFile(d.path)), 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, d.format.Name+":"+other+d.query)
	if got := all(t, s); len(got) != int(d.len) {
		t.Errorf("under another name it has %d records", len(got))
	}
}

// served reads the dataset from a web server that lists its folders.
func (d *dataset) served(t *testing.T) {
	root := filepath.Dir(d.path)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := filepath.Join(root, r.URL.Path)
		info, err := os.Stat(path)
		switch {
		case err != nil:
			http.NotFound(w, r)
		case !info.IsDir():
			f, err := os.Open(path)
			if err != nil {
				http.NotFound(w, r)
				return
			}
			defer f.Close()
			http.ServeContent(w, r, "x", info.ModTime(), f)
		case !strings.HasSuffix(r.URL.Path, "/"):
			http.Redirect(w, r, r.URL.Path+"/", http.StatusMovedPermanently)
		default:
			_, _ = fmt.Fprint(w, "<html><head><title>Index of /</title></head><body><a href=\"../\">../</a>\n")
			for _, e := range must(os.ReadDir(path)) {
				name := e.Name()
				if e.IsDir() {
					name += "/"
				}
				_, _ = fmt.Fprintf(w, "<a href=%q>%s</a>\n", (&url.URL{Path: name}).String(), html.EscapeString(name))
			}
			_, _ = fmt.Fprint(w, "</body></html>")
		}
	}))
	defer server.Close()
	query, end := d.query, ""
	if query != "" {
		query = "#" + query // what follows a ? alone is for the server
	}
	if d.dir() {
		end = "/"
	}
	d.same(t, d.format.Name+":"+server.URL+"/"+filepath.Base(d.path)+end+query)
}

// changed checks that the fingerprint is that of the data: it is the same for a copy, and another one after a change.
func (d *dataset) changed(t *testing.T) {
	before := open(t, d.url()).Info().Fingerprint
	path := d.copied(t)
	if got := open(t, d.at(path)).Info().Fingerprint; got != before {
		t.Errorf("the fingerprint of a copy is %s, want %s", got, before)
	}
	for _, name := range files(t, path) {
		file := filepath.Join(path, name)
		then := must(os.Stat(file)).ModTime().Add(-time.Hour)
		if err := os.Chtimes(file, then, then); err != nil {
			t.Fatal(err)
		}
	}
	if got := open(t, d.at(path)).Info().Fingerprint; got == before {
		t.Errorf("all files have changed, and the fingerprint is still %s", got)
	}
}

// packed checks that a pack has the same records.
func (d *dataset) packed(t *testing.T) {
	out := filepath.Join(t.TempDir(), "pack")
	src, opt := open(t, d.url()), &pack.Options{}
	if slices.ContainsFunc(src.Info().Fields, func(f driver.Field) bool { return f.Kind == driver.KindImage || f.Kind == driver.KindMask }) {
		opt.Images, opt.Metadata = pack.ImagesKeep, true
	}
	if _, err := pack.WriteSource(t.Context(), src, out, opt); err != nil {
		t.Fatal(err)
	}
	compare(t, "the pack", all(t, open(t, out)), d.clean(t))
}

// loaded reads batches. Two ranks get each record of an epoch once, also after both start again in the middle. In the
// order of the data, numbers are those of the records.
func (d *dataset) loaded(t *testing.T) {
	src := open(t, d.url())
	opt := stoker.Options{BatchSize: 3, Limits: stoker.Limits{Memory: 64 << 20, Threads: 2}, View: view.Spec{}}
	for i := range src.Info().Fields {
		switch f := &src.Info().Fields[i]; f.Kind {
		case driver.KindImage:
			if f.DType != "" {
				continue
			}
			opt.Outputs = append(opt.Outputs, stoker.Output{Name: f.Name, Ops: []stoker.Op{stoker.NewOp("Resize", map[string]any{"size": []int{8, 8}})}})
		case driver.KindMask, driver.KindMasks, driver.KindFrames, driver.KindBoxes, driver.KindKeyPoints:
			continue
		case driver.KindVolume:
			if len(f.Shape) == 0 {
				continue
			}
		}
		if f := &src.Info().Fields[i]; f.Boxes == "" {
			opt.View.Select = append(opt.View.Select, f.Name)
		}
	}
	epoch := func(l *stoker.Loader, steps int) (ids []int64) {
		for range steps {
			b, err := l.Next(t.Context())
			if err == io.EOF {
				return ids
			}
			if err != nil {
				t.Fatal(err)
			}
			batch := b.Ints("index")
			ids = append(ids, batch...)
			for i, rec := range drivertest.Records(t, src, batch...) {
				for k, f := range src.Info().Fields {
					if (f.Kind == driver.KindLabel || f.Kind == driver.KindInt) && b.Ints(f.Name)[i] != rec.Values[k].Int {
						t.Fatalf("record %d: %s is %d, want %d", batch[i], f.Name, b.Ints(f.Name)[i], rec.Values[k].Int)
					}
				}
			}
			b.Release()
		}
		return ids
	}
	start := func(opt stoker.Options) *stoker.Loader {
		l, err := stoker.Open(t.Context(), d.url(), &opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	once := func(what string, ids []int64) {
		counts := map[int64]int{}
		for _, id := range ids {
			counts[id]++
		}
		if len(counts) != int(d.len) || len(ids) != int(d.len) {
			t.Errorf("%s: %d records of %d, %d different ones", what, len(ids), d.len, len(counts))
		}
	}
	const whole = 1 << 30
	ids := epoch(start(opt), whole)
	if once("in order", ids); !slices.IsSorted(ids) {
		t.Errorf("the order is %v", ids)
	}
	opt.Shuffle, opt.Seed, opt.Ranks.WorldSize = !src.Info().Sequential, 3, 2
	ids = nil
	for rank := range 2 {
		opt.Ranks.Rank = rank
		l := start(opt)
		ids = append(ids, epoch(l, 1)...)
		state := l.State()
		if state.Epoch > 0 {
			continue
		}
		again := start(opt)
		if err := again.Restore(state); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, epoch(again, whole)...)
	}
	once("two ranks, resumed", ids)
}

// split reads each split by its parameter and by the option. A format without splits refuses them.
func (d *dataset) split(t *testing.T) {
	bare := *d
	bare.row = &row{not: d.not}
	url := bare.at(d.path)
	if d.format.Param("split") == nil || d.splits != nil {
		if s, err := source.Open(t.Context(), url, &source.Options{Split: "nosuch"}); err == nil {
			s.Close()
			t.Error("a split that does not exist gives no error")
		} else if strings.Contains(err.Error(), "\n") {
			t.Error(err)
		}
	}
	for name, want := range d.splits {
		s := open(t, url+"?split="+name)
		if s.Info().Len != want {
			t.Errorf("split %s has %d records, want %d", name, s.Info().Len, want)
		}
		other, err := source.Open(t.Context(), url, &source.Options{Split: name})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "the option split="+name, all(t, other), all(t, s))
		other.Close()
	}
}
