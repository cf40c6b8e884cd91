package httpfaulttest

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bucket has the objects of a server in memory. Servers of the different protocols stand on it. Its keys may be ones
// that no store takes as a name.
type Bucket struct {
	mu      sync.Mutex
	objects map[string]Blob
	n       int
	uploads map[string]map[string][]byte
}

// Blob is an object. N differs for each version.
type Blob struct {
	Data []byte
	N    int
	Time time.Time
	// Tag is the entity tag.
	Tag string
}

// Put stores an object. tagged follows its number in its entity tag.
func (b *Bucket) Put(key string, data []byte, tagged string) Blob {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects == nil {
		b.objects = map[string]Blob{}
	}
	b.n++
	o := Blob{Data: data, N: b.n, Time: time.Now().Truncate(time.Second), Tag: `"` + strconv.Itoa(b.n) + tagged + `"`}
	b.objects[key] = o
	return o
}

// Get returns an object.
func (b *Bucket) Get(key string) (Blob, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	return o, ok
}

// Delete removes an object and reports whether it existed.
func (b *Bucket) Delete(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.objects[key]
	delete(b.objects, key)
	return ok
}

// Part stores a part of an upload.
func (b *Bucket) Part(upload, part string, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.uploads == nil {
		b.uploads = map[string]map[string][]byte{}
	}
	if b.uploads[upload] == nil {
		b.uploads[upload] = map[string][]byte{}
	}
	if part != "" {
		b.uploads[upload][part] = data
	}
}

// Parts returns the parts of an upload, and false if there is none.
func (b *Bucket) Parts(upload string) (map[string][]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	parts, ok := b.uploads[upload]
	return maps.Clone(parts), ok
}

// End removes an upload.
func (b *Bucket) End(upload string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.uploads, upload)
}

// Uploads returns the uploads that were begun and not ended.
func (b *Bucket) Uploads() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.uploads))
}

// Page returns a page of a listing: keys, and prefixes up to the next slash if folders is set.
func (b *Bucket) Page(prefix string, folders bool, after string, limit int) (keys, prefixes []string, next string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		rest, ok := strings.CutPrefix(key, prefix)
		name := key
		if top, _, deep := strings.Cut(rest, "/"); folders && deep {
			name = prefix + top + "/"
		}
		if !ok || name <= after || len(prefixes) > 0 && prefixes[len(prefixes)-1] == name {
			continue
		}
		if len(keys)+len(prefixes) == limit {
			return keys, prefixes, next
		}
		if next = name; name != key {
			prefixes = append(prefixes, name)
		} else {
			keys = append(keys, name)
		}
	}
	return keys, prefixes, ""
}

// Allows reports whether an object has the state that the headers If-Match and If-None-Match demand.
func (b *Bucket) Allows(key string, h http.Header) bool {
	o, ok := b.Get(key)
	if h.Get("If-None-Match") == "*" && ok {
		return false
	}
	match := h.Get("If-Match")
	return match == "" || ok && match == o.Tag
}

// blobType is the content type of objects.
const blobType = "application/octet-stream"

// Serve sends an object or a part of it.
func (o Blob) Serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", o.Tag)
	w.Header().Set("Content-Type", blobType)
	http.ServeContent(w, r, "", o.Time, bytes.NewReader(o.Data))
}
