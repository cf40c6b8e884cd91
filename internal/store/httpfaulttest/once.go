package httpfaulttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/store/bucket"
	"github.com/stokerdata/stoker/store"
)

// Once is a server that fails one request in a chosen way.
type Once struct {
	// Next is the server.
	Next http.Handler
	// Kind returns the kind of a request, for all kinds that its protocol has.
	Kind func(r *http.Request) string

	mu    sync.Mutex
	kind  string // of the request that fails
	fault string
	seen  map[string]bool
}

// The faults of a request.
const (
	noConnection = "no connection"
	status403    = "403"
	status404    = "404"
	status500    = "500"
	cutBody      = "cut body"
	garbage      = "garbage"
)

var faults = []string{noConnection, status403, status404, status500, cutBody, garbage}

// Fail makes the next request of a kind fail. With "" it forgets which kinds it has seen.
func (o *Once) Fail(kind, fault string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kind, o.fault = kind, fault
	if kind == "" {
		o.seen = map[string]bool{}
	}
}

// Kinds returns the kinds of requests since Fail.
func (o *Once) Kinds() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.seen))
}

// Failed reports whether the request has come.
func (o *Once) Failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kind == ""
}

func (o *Once) turn(r *http.Request) (fault string) {
	kind := o.Kind(r)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen != nil {
		o.seen[kind] = true
	}
	if kind == o.kind {
		o.kind, fault = "", o.fault
	}
	return fault
}

// ServeHTTP answers a request.
func (o *Once) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := o.turn(r)
	switch fault {
	case "":
		o.Next.ServeHTTP(w, r)
		return
	case status403:
		w.WriteHeader(http.StatusForbidden)
		return
	case status404:
		w.WriteHeader(http.StatusNotFound)
		return
	case status500:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case noConnection:
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = conn.Close()
		}
		return
	}
	got := httptest.NewRecorder()
	o.Next.ServeHTTP(got, r)
	body := got.Body.Bytes()
	maps.Copy(w.Header(), got.Header())
	if fault == garbage && len(body) > 0 && got.Header().Get("Content-Type") != blobType { // else it is another object
		body = []byte("{<garbage")
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Length", got.Header().Get("Content-Length"))
	}
	w.WriteHeader(got.Code)
	if fault == cutBody && len(body) > 0 {
		_, _ = w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

// Driver is a kind of bucket to test.
type Driver struct {
	// Serve returns a server with the objects of b.
	Serve func(b *Bucket) http.Handler
	// Kind returns the kind of a request.
	Kind func(r *http.Request) string
	// Open opens the folder "root" of the bucket at a server.
	Open func(t *testing.T, url string) store.WriteStore
}

// partBytes is the size of a part of an upload. It is smaller than usual, since an upload takes most of the test's time.
const partBytes = 1 << 20

// large is more than a part of an upload.
var large = bytes.Repeat([]byte("0123456789abcdef"), partBytes/16+1)

// operations are what stores do. Each gets a bucket with the same objects and returns what it has got, which is the
// same whether or not a request was retried.
var operations = map[string]func(ctx context.Context, s store.WriteStore) (string, error){
	"stat": func(ctx context.Context, s store.WriteStore) (string, error) {
		e, err := s.Stat(ctx, "a")
		return fmt.Sprint(e.Name, e.Size), err
	},
	"stat of a folder": func(ctx context.Context, s store.WriteStore) (string, error) {
		e, err := s.Stat(ctx, "d")
		return fmt.Sprint(e.Name, e.Dir), err
	},
	"stat of the root": func(ctx context.Context, s store.WriteStore) (string, error) {
		e, err := s.Stat(ctx, "")
		return fmt.Sprint(e.Name, e.Dir), err
	},
	"stat of an unfinished upload": func(ctx context.Context, s store.WriteStore) (string, error) {
		e, err := s.Stat(ctx, "left"+store.PartialSuffix)
		return fmt.Sprint(e.Name, e.Size), err
	},
	"read": func(ctx context.Context, s store.WriteStore) (string, error) { return read(ctx, s, "a") },
	"read of a part": func(ctx context.Context, s store.WriteStore) (string, error) {
		o, err := s.Open(ctx, "a")
		if err != nil {
			return "", err
		}
		defer o.Close()
		p := make([]byte, 2)
		err = o.ReadAt(ctx, p, 1)
		return string(p), err
	},
	"read of an unfinished upload": func(ctx context.Context, s store.WriteStore) (string, error) {
		return read(ctx, s, "left"+store.PartialSuffix)
	},
	"read in one request": func(ctx context.Context, s store.WriteStore) (string, error) {
		w, ok := store.As[store.WholeReader](s)
		if !ok {
			return "", errors.ErrUnsupported
		}
		b, e, err := w.ReadWhole(ctx, "a", 100)
		return string(b) + e.Name, err
	},
	"list": func(ctx context.Context, s store.WriteStore) (string, error) { return list(ctx, s, nil) },
	"list a folder": func(ctx context.Context, s store.WriteStore) (string, error) {
		return list(ctx, s, &store.ListOptions{Shallow: true})
	},
	"write": func(ctx context.Context, s store.WriteStore) (string, error) {
		return "", store.WriteFile(ctx, s, "new", []byte("new"))
	},
	"write in parts": func(ctx context.Context, s store.WriteStore) (string, error) {
		return "", store.WriteFile(ctx, s, "new", large)
	},
	"abort": func(ctx context.Context, s store.WriteStore) (string, error) {
		u, err := s.Create(ctx, "new")
		if err != nil {
			return "", err
		}
		_, err = u.Write(large)
		return "", errors.Join(err, u.Abort())
	},
	"resume": func(ctx context.Context, s store.WriteStore) (string, error) { return resume(ctx, s, "new", large) },
	"resume an unfinished upload": func(ctx context.Context, s store.WriteStore) (string, error) {
		return resume(ctx, s, "left", []byte("more"))
	},
	"resume an object": func(ctx context.Context, s store.WriteStore) (string, error) {
		return resume(ctx, s, "a", []byte("more"))
	},
	"remove": func(ctx context.Context, s store.WriteStore) (string, error) { return "", s.Remove(ctx, "a") },
	"examine": func(ctx context.Context, s store.WriteStore) (string, error) {
		e, err := s.Stat(ctx, "a")
		if x, ok := store.As[store.Examiner](s); ok && err == nil {
			_, err = x.Examine(ctx, e)
		}
		return "", err
	},
}

func read(ctx context.Context, s store.WriteStore, name string) (string, error) {
	b, err := store.ReadFile(ctx, s, name, 1<<20)
	return string(b), err
}

func list(ctx context.Context, s store.WriteStore, opt *store.ListOptions) (string, error) {
	var all []string
	err := s.List(ctx, "", opt, func(e store.Entry) error { all = append(all, e.Name); return nil })
	return strings.Join(all, " "), err
}

// resume goes on with an upload, and returns its size before.
func resume(ctx context.Context, s store.WriteStore, name string, data []byte) (string, error) {
	r, ok := store.As[store.Resumer](s)
	if !ok {
		return "", errors.ErrUnsupported
	}
	u, err := r.Resume(ctx, name)
	if err != nil {
		return "", err
	}
	size := u.Size()
	_, err = u.Write(data)
	if err == nil {
		err = u.Sync(ctx)
	}
	if err == nil {
		err = u.Commit(ctx)
	}
	if err != nil {
		err = errors.Join(err, u.Abort())
	}
	return fmt.Sprint(size), err
}

// start returns a server with the objects that operations need.
func (d *Driver) start(t *testing.T) (*Bucket, *Once, *httptest.Server) {
	b := &Bucket{}
	b.Put("root/a", []byte("hello"), "")
	b.Put("root/d/x", []byte("x"), "")
	b.Put("root/d/y", []byte("y"), "")
	b.Put("root/left"+store.PartialSuffix+"/000000000000000", []byte("left"), "")
	o := &Once{Next: d.Serve(b), Kind: d.Kind}
	s := httptest.NewServer(o)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return b, o, s
}

// state returns the objects and the unfinished uploads of a bucket, but locks.
func state(b *Bucket) string {
	var out strings.Builder
	keys, _, _ := b.Page("", false, "", 1<<30)
	for _, k := range keys {
		o, _ := b.Get(k)
		fmt.Fprintf(&out, "%s %d\n", k, len(o.Data))
	}
	return out.String()
}

// RunOnce runs each operation of a store once for each kind of request in it and each fault. An operation whose
// request has failed for a passing reason gives the same as without the fault. Otherwise its error has the right
// class.
func RunOnce(t *testing.T, d Driver) {
	usual := bucket.PartBytes
	bucket.PartBytes = partBytes
	t.Cleanup(func() { bucket.PartBytes = usual })
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		t.Run(name, func(t *testing.T) {
			do := operations[name]
			b, o, server := d.start(t)
			o.Fail("", "")
			want, err := do(t.Context(), d.Open(t, server.URL))
			if err != nil {
				t.Fatalf("without a fault: %v", err)
			}
			left := state(b)
			for _, kind := range o.Kinds() {
				for _, fault := range faults {
					d.once(t, do, kind, fault, want, left)
				}
			}
		})
	}
}

// patience is more than any operation takes with one retry.
const patience = 2 * time.Minute

func (d *Driver) once(t *testing.T, do func(context.Context, store.WriteStore) (string, error), kind, fault, want, left string) {
	t.Helper()
	b, o, server := d.start(t)
	s := d.Open(t, server.URL)
	o.Fail(kind, fault)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := do(ctx, s)
	what := fmt.Sprintf("%s of %s", fault, kind)
	switch {
	case ctx.Err() != nil:
		t.Errorf("%s: it hangs", what)
	case !o.Failed():
		t.Errorf("%s: there was no such request", what)
	case fault == status404 && err == nil: // the server is believed
	case err == nil && (got != want || state(b) != left):
		t.Errorf("%s: it gives %q, want %q; the bucket has\n%swant\n%s", what, got, want, state(b), left)
	case err != nil && !allowed(fault, err):
		t.Errorf("%s: error is %v", what, err)
	}
	server.CloseClientConnections()
	server.Close()
}

// allowed reports whether an operation may fail with an error because of a fault.
func allowed(fault string, err error) bool {
	var named *store.Error
	if !errors.As(err, &named) || named.Path == "" {
		return false
	}
	switch fault {
	case status403:
		return errors.Is(err, store.ErrPermission)
	case status404:
		return errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrChanged) || errors.Is(err, store.ErrLocked)
	}
	return false // it passes
}
