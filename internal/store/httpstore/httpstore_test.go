package httpstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	ranged.CloseIdle()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// web is a web server of objects in memory.
type web struct {
	html, weak, noTags bool
	heads              atomic.Int64

	mu      sync.Mutex
	objects map[string][]byte
	at      map[string]time.Time
	odd     map[string][]string // names in listings that are not valid, by folder
}

func (s *web) put(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name], s.at[name] = data, s.at[name].Add(time.Second)
}

func (s *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		s.heads.Add(1)
	}
	name := strings.TrimPrefix(r.URL.Path, "/data")
	name = strings.TrimPrefix(name, "/")
	s.mu.Lock()
	data, ok := s.objects[name]
	at := s.at[name]
	s.mu.Unlock()
	if ok {
		switch tag := fmt.Sprintf("\"%x-%x\"", at.Unix(), len(data)); {
		case s.weak:
			w.Header().Set("ETag", "W/"+tag)
		case !s.noTags:
			w.Header().Set("ETag", tag)
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", at, bytes.NewReader(data))
		return
	}
	items := s.folder(strings.TrimSuffix(name, "/"))
	for _, own := range s.odd[strings.TrimSuffix(name, "/")] {
		items = append(items, item{own: own, modified: at})
	}
	switch {
	case name != "" && items == nil:
		http.NotFound(w, r)
	case !strings.HasSuffix(r.URL.Path, "/"):
		http.Redirect(w, r, (&url.URL{Path: r.URL.Path + "/"}).String(), http.StatusMovedPermanently)
	case s.html:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprint(w, "<html><head><title>Index of /</title></head><body><a href=\"?C=N;O=D\">Name</a><a href=\"../\">../</a>\n")
		for _, it := range items {
			_, _ = fmt.Fprintf(w, "<A class=x HREF='%s'>%s</a>  1K\n", (&url.URL{Path: "./" + it.key()}).String(), "name")
		}
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("["))
		for i, it := range items {
			if i > 0 {
				_, _ = w.Write([]byte(","))
			}
			quoted, err := json.Marshal(strings.ReplaceAll(it.own, "\xff\xfe", "RAW"))
			if err != nil {
				panic(err)
			}
			kind := "directory"
			if !it.dir {
				kind = "file"
			}
			_, _ = fmt.Fprintf(w, "\n{\"name\":%s, \"type\":%q, \"mtime\":%q", strings.ReplaceAll(string(quoted), "RAW", "\xff\xfe"), kind, it.modified.UTC().Format(http.TimeFormat))
			if !it.dir {
				_, _ = fmt.Fprintf(w, ", \"size\":%d", it.size)
			}
			_, _ = w.Write([]byte("}"))
		}
		_, _ = w.Write([]byte("]"))
	}
}

func (s *web) folder(dir string) (items []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, data := range s.objects {
		rest := name
		if dir != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(name, dir+"/"); !ok {
				continue
			}
		}
		own, _, deeper := strings.Cut(rest, "/")
		it := item{own: own, dir: deeper, size: int64(len(data)), modified: s.at[name]}
		if !slices.ContainsFunc(items, func(o item) bool { return o.key() == it.key() }) {
			items = append(items, it)
		}
	}
	return items
}

func serve(t *testing.T, s *web, objects map[string][]byte) *httptest.Server {
	t.Helper()
	s.objects, s.at = map[string][]byte{}, map[string]time.Time{}
	for name, data := range objects {
		s.objects[name], s.at[name] = data, time.Unix(1_700_000_000, 0)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		ranged.CloseIdle()
		srv.Close()
	})
	return srv
}

func open(t *testing.T, rawURL string) *Store {
	t.Helper()
	st, err := New(rawURL, &Options{backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestStore(t *testing.T) {
	for name, kind := range map[string]func() *web{
		"json":       func() *web { return &web{} },
		"html":       func() *web { return &web{html: true} },
		"weak tags":  func() *web { return &web{weak: true} },
		"no tags":    func() *web { return &web{noTags: true} },
		"html, none": func() *web { return &web{html: true, noTags: true} },
	} {
		t.Run(name, func(t *testing.T) {
			var now *web
			storetest.Run(t, storetest.Suite{
				Open: func(t *testing.T, objects map[string][]byte) store.Store {
					now = kind()
					srv := serve(t, now, nil)
					for name, data := range objects {
						if name == "" {
							name = "one"
						}
						now.put(name, data)
					}
					if _, one := objects[""]; one {
						return open(t, srv.URL+"/data/one?token=secret")
					}
					return open(t, srv.URL+"/data/?token=secret")
				},
				Change: func(_ *testing.T, _ store.Store, name string, data []byte) { now.put(name, data) },
				Spoil: func(t *testing.T, _ store.Store) []string {
					if now.html {
						t.Skip("links to other places are not in the folder")
					}
					now.mu.Lock()
					defer now.mu.Unlock()
					now.odd = map[string][]string{"": {"/lead", "../up", "sub//x"}, "d": {"/x", "./x", "x/.."}}
					return []string{"/lead", "../up", "sub//x", "d//x", "d/./x", "d/x/.."}
				},
			})
		})
	}
}

// Listed objects are opened without a request, and only one object of an nginx listing is probed.
func TestFewQuestions(t *testing.T) {
	objects := map[string][]byte{}
	for i := range 500 {
		objects[fmt.Sprintf("d%d/%d", i%5, i)] = []byte("abc")
	}
	w := &web{}
	st := open(t, serve(t, w, objects).URL+"/")
	n := 0
	if err := st.List(t.Context(), "", nil, func(e store.Entry) error {
		n++
		o, err := store.OpenEntry(t.Context(), st, e)
		if err != nil {
			return err
		}
		b := make([]byte, 3)
		return o.ReadAt(t.Context(), b, 0)
	}); err != nil || n != 500 || w.heads.Load() != 1 {
		t.Errorf("%d entries, %d questions, %v", n, w.heads.Load(), err)
	}
}

func TestNames(t *testing.T) {
	for in, want := range map[string]string{
		"https://user:pw@h/a%20b/?sig=1#view": "https://h/a b", "http://h": "http://h", "http://h/": "http://h", "HTTP://h/x": "http://h/x",
	} {
		st := open(t, in)
		if st.String() != want {
			t.Errorf("%s: %s", in, st)
		}
	}
	st := open(t, "http://h/a%2Fb/c?sig=1")
	if got := st.url("x y/ü?").String(); got != "http://h/a%2Fb/c/x%20y/%C3%BC%3F?sig=1" {
		t.Error(got)
	}
	for place, want := range map[string]string{
		"http://h/a/": "http://h/a/x?sig=1", "http://h/a b": "http://h/a%20b/x?sig=1", "http://h": "http://h/x?sig=1", "http://h/../a/../b": "http://h/b/x?sig=1",
	} {
		if got := st.At(place).(*Store).url("x").String(); got != want {
			t.Errorf("%s: %s", place, got)
		}
	}
	for _, place := range []string{"http://h2/a", "http://hh", "https://h/a", "/etc", "http://h@evil/"} {
		if _, err := st.At(place).Stat(t.Context(), "x"); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("%s: %v", place, err)
		}
	}
	for _, bad := range []string{"http://", "ftp://h/x", "http://h\x00/", "h/x"} {
		if _, err := New(bad, nil); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Servers without ranges or listings give an error with a solution.
func TestPoorServers(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/whole", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write(make([]byte, 100))
	})
	mux.HandleFunc("/page/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<html><a href=\"https://elsewhere/page/x\">hello</a></html>")
	})
	mux.HandleFunc("/closed/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	srv := httptest.NewServer(mux)
	defer srv.Close()
	defer ranged.CloseIdle()
	if _, err := open(t, srv.URL+"/whole").Open(t.Context(), ""); !errors.Is(err, ranged.ErrNoRanges) || !strings.Contains(err.Error(), "copy it to this machine first") {
		t.Error(err)
	}
	for _, at := range []string{"/page/", "/closed/"} {
		st := open(t, srv.URL+at+"?sig=hunter2")
		if e, err := st.Stat(t.Context(), ""); err != nil || !e.Dir {
			t.Errorf("%+v, %v", e, err)
		}
		err := st.List(t.Context(), "", nil, func(store.Entry) error { return nil })
		if !errors.Is(err, errNoList) || strings.Contains(err.Error(), "hunter2") {
			t.Error(err)
		}
	}
	if _, err := open(t, srv.URL+"/closed/x").Open(t.Context(), ""); !errors.Is(err, store.ErrPermission) {
		t.Error(err)
	}
}

func FuzzList(f *testing.F) {
	f.Add([]byte(`[{"name":"a","type":"file","mtime":"Wed, 21 Oct 2015 07:28:00 GMT","size":5},{"name":"..","type":"directory"}]`), true)
	f.Add([]byte("<title>Index of</title><a href='a%2Fb'><a href=\"x/\"><a href=\"//h/d/../../etc\">"), false)
	at, err := url.Parse("http://h/d/")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, isJSON bool) {
		kind := "text/html"
		if isJSON {
			kind = "application/json; charset=utf-8"
		}
		items, _ := parseList(body, kind, at)
		for _, it := range items {
			if strings.Contains(it.own, "/") || store.CheckName(it.own) != nil || it.own == "" || it.size < 0 {
				t.Errorf("%+v", it)
			}
		}
	})
}
