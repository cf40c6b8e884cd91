package httpfaulttest

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Web is a web server for the files of a folder, with entity tags like nginx.
type Web struct {
	Dir string
	// Lists is the format of folder listings: "json" for nginx's JSON, "html" for a page, "" for none.
	Lists string
}

// ServeHTTP answers a request.
func (s *Web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := filepath.Join(s.Dir, filepath.FromSlash(path.Clean("/"+r.URL.Path)))
	st, err := os.Stat(at)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	if st.IsDir() {
		if !strings.HasSuffix(r.URL.Path, "/") {
			w.Header().Set("Location", r.URL.Path+"/")
			w.WriteHeader(http.StatusMovedPermanently)
			return
		}
		s.list(w, at)
		return
	}
	f, err := os.Open(at)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	w.Header().Set("ETag", fmt.Sprintf("\"%x-%x\"", st.ModTime().Unix(), st.Size()))
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", st.ModTime(), f)
}

func (s *Web) list(w http.ResponseWriter, dir string) {
	type item struct {
		Name  string `json:"name"`
		Type  string `json:"type"`
		MTime string `json:"mtime"`
		Size  *int64 `json:"size,omitempty"`
	}
	entries, err := os.ReadDir(dir)
	if err != nil || s.Lists == "" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if s.Lists == "html" {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html><head><title>Index of /</title></head><body>")
		for _, e := range entries {
			name := url.PathEscape(e.Name())
			if e.IsDir() {
				name += "/"
			}
			fmt.Fprintf(w, "<a href=\"%s\">%s</a>\n", name, html.EscapeString(e.Name()))
		}
		return
	}
	items := []item{}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			continue // it was removed
		}
		it := item{Name: e.Name(), Type: "directory", MTime: st.ModTime().UTC().Format(http.TimeFormat)}
		if size := st.Size(); !st.IsDir() {
			it.Type, it.Size = "file", &size
		}
		items = append(items, it)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(items) // the client notices if it ends early
}
