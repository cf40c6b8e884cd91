package httpfaulttest

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Folder is a read-only S3 server with path-style URLs for the files of a folder. It counts its requests.
type Folder struct {
	// Dir has a folder for each bucket.
	Dir string
	// Refuse returns the status and the S3 error code for a request that fails, or 0. It may be nil.
	Refuse func(r *http.Request) (status int, code string)

	mu    sync.Mutex
	asked map[string]int
}

// Asked returns the number of requests by kind: "LIST", or a method and the name of an object.
func (f *Folder) Asked() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.asked)
}

// ServeHTTP answers a request.
func (f *Folder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := path.Clean("/" + r.URL.Path)
	listing := r.Method == http.MethodGet && r.URL.Query().Has("list-type")
	what := r.Method + " " + path.Base(name)
	if listing {
		what = "LIST"
	}
	f.mu.Lock()
	if f.asked == nil {
		f.asked = map[string]int{}
	}
	f.asked[what]++
	f.mu.Unlock()
	if f.Refuse != nil {
		if status, code := f.Refuse(r); status != 0 {
			refuse(w, status, code)
			return
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
		return
	}
	if listing {
		f.list(w, r, name)
		return
	}
	file, err := os.Open(filepath.Join(f.Dir, filepath.FromSlash(name)))
	if err != nil {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil || st.IsDir() {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.Header().Set("ETag", tag(st))
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", st.ModTime(), file)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", html.EscapeString(code))
}

// tag returns the entity tag of a file.
func tag(st fs.FileInfo) string {
	sum := md5.Sum(fmt.Append(nil, st.Name(), st.Size(), st.ModTime().UnixNano()))
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// list answers a listing in one response, with at most max-keys objects.
func (f *Folder) list(w http.ResponseWriter, r *http.Request, bucket string) {
	q := r.URL.Query()
	root := filepath.Join(f.Dir, filepath.FromSlash(bucket))
	found := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		key, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rest, ok := strings.CutPrefix(filepath.ToSlash(key), q.Get("prefix"))
		if !ok {
			return nil
		}
		if top, _, deep := strings.Cut(rest, "/"); deep && q.Get("delimiter") == "/" {
			folder := q.Get("prefix") + top + "/"
			found[folder] = "<CommonPrefixes><Prefix>" + html.EscapeString(folder) + "</Prefix></CommonPrefixes>"
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		found[filepath.ToSlash(key)] = fmt.Sprintf("<Contents><Key>%s</Key><Size>%d</Size><ETag>%s</ETag><LastModified>%s</LastModified></Contents>",
			html.EscapeString(filepath.ToSlash(key)), st.Size(), html.EscapeString(tag(st)), st.ModTime().UTC().Format("2006-01-02T15:04:05.000Z"))
		return nil
	})
	if err != nil {
		refuse(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	names := slices.Sorted(maps.Keys(found))
	limit, next := 1000, ""
	_, _ = fmt.Sscan(q.Get("max-keys"), &limit) // 1000 if it is missing or not a number
	if at := q.Get("continuation-token"); at != "" {
		i, _ := slices.BinarySearch(names, at)
		names = names[i:]
	}
	if len(names) > limit {
		names, next = names[:limit], names[limit]
	}
	fmt.Fprintf(w, "<ListBucketResult><IsTruncated>%t</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", next != "", html.EscapeString(next))
	for _, name := range names {
		fmt.Fprint(w, found[name])
	}
	fmt.Fprint(w, "</ListBucketResult>")
}
