package ranged

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/store/traffic"
	"github.com/stokerdata/stoker/store"
)

func TestMain(m *testing.M) {
	code := m.Run()
	CloseIdle()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

func content(n int) []byte {
	b := make([]byte, n)
	x := uint32(7)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// server serves data with a version. change may modify responses.
func server(t *testing.T, data []byte, etag string, change func(w http.ResponseWriter, r *http.Request) bool) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		if change != nil && change(w, r) {
			return
		}
		http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(data))
	}))
	t.Cleanup(s.Close)
	return s
}

func client(t *testing.T, s *httptest.Server, opt Options) *Client {
	t.Helper()
	opt.Endpoint = s.URL
	if opt.Backoff == 0 {
		opt.Backoff, opt.MaxBackoff = time.Millisecond, 2*time.Millisecond
	}
	c, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	c.limit = &limiter{}
	t.Cleanup(CloseIdle)
	return c
}

func TestGet(t *testing.T) {
	data := content(20<<20 + 17)
	s := server(t, data, `"v1"`, nil)
	c := client(t, s, Options{})
	info, err := c.Head(t.Context(), Request{URL: s.URL + "/x"})
	if err != nil || info.Size != int64(len(data)) || info.ETag != `"v1"` || !info.Ranges {
		t.Fatalf("%+v, %v", info, err)
	}
	for _, at := range [][2]int{{0, 1}, {5, 100}, {len(data) - 1, 1}, {0, len(data)}, {3, len(data) - 3}} {
		dst := make([]byte, at[1])
		info, err := c.Get(t.Context(), Request{URL: s.URL + "/x", Offset: int64(at[0]), Total: int64(len(data)), Version: `"v1"`}, dst)
		if err != nil || !bytes.Equal(dst, data[at[0]:at[0]+at[1]]) {
			t.Errorf("%v: %v", at, err)
		}
		if info.Size != int64(len(data)) || info.ETag != `"v1"` {
			t.Errorf("%+v", info)
		}
	}
	body, _, err := c.Body(t.Context(), Request{URL: s.URL + "/x"}, len(data))
	if err != nil || !bytes.Equal(body, data) {
		t.Errorf("%v", err)
	}
	if _, _, err := c.Body(t.Context(), Request{URL: s.URL + "/x"}, len(data)-1); err == nil {
		t.Error("a limit is not kept")
	}
}

// Server faults give an error with the fault, the object and the bytes, and without secrets.
func TestLies(t *testing.T) {
	data := content(1000)
	part := func(from, to, total int, body []byte) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, total))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(body)
			return true
		}
	}
	status := func(n int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(n); return true }
	}
	hijack := func(text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return true
			}
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
			return true
		}
	}
	for name, c := range map[string]struct {
		do   func(http.ResponseWriter, *http.Request) bool
		want string
		is   error
		once bool // no retry
	}{
		"missing":    {status(404), "it has changed since it was listed: it is gone", store.ErrChanged, true},
		"denied":     {status(403), "the server answers 403", store.ErrPermission, true},
		"changed":    {status(412), "changed", store.ErrChanged, true},
		"fails":      {status(500), "the server answers 500 Internal Server Error (tried 3 times in ", nil, false},
		"bad":        {status(400), "the server answers 400", nil, true},
		"short":      {status(416), "it is shorter now", store.ErrChanged, true},
		"no ranges":  {func(w http.ResponseWriter, r *http.Request) bool { _, _ = w.Write(data); return true }, "it sends the whole object instead of a part (tried 3 times in ", ErrNoRanges, false},
		"other part": {part(11, 110, 1000, data[11:111]), "the server sends the wrong bytes, 11 to 111 (tried 3 times in ", nil, false},
		"fewer":      {part(10, 59, 1000, data[10:60]), "the server sends the wrong bytes, 10 to 60", nil, false},
		"total":      {part(10, 109, 999, data[10:110]), "it had 1000 bytes, now it has 999", store.ErrChanged, true},
		"no range":   {func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(206); return true }, "sends a part without its range", nil, false},
		"etag": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", `"v2"`)
			return part(10, 109, 1000, data[10:110])(w, r)
		}, "its version is different", store.ErrChanged, true},
		"no etag": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Del("ETag")
			return part(10, 109, 1000, data[10:110])(w, r)
		}, "does not send the version (ETag)", nil, true},
		"encoded": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Encoding", "gzip")
			return part(10, 109, 1000, data[10:110])(w, r)
		}, "Content-Encoding", nil, true},
		"cut off":  {hijack("HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Range: bytes 10-109/1000\r\nContent-Length: 100\r\n\r\nabc"), "the server sends the wrong bytes, 10 to 110 (tried 3 times in ", nil, false},
		"longer":   {hijack("HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Range: bytes 10-109/1000\r\n\r\n" + strings.Repeat("x", 200)), "has more than 100 bytes", nil, false},
		"length":   {hijack("HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Range: bytes 10-109/1000\r\nContent-Length: 200\r\n\r\n" + strings.Repeat("x", 200)), "sends the wrong length, 200 bytes", nil, false},
		"nothing":  {hijack(""), "closed before the end", nil, false},
		"garbage":  {hijack("220 smtp ready\r\n\r\n"), "not valid HTTP", nil, false},
		"negative": {hijack("HTTP/1.1 206 Partial Content\r\nContent-Length: -5\r\n\r\n"), "not valid HTTP", nil, false},
		"digest": {func(w http.ResponseWriter, r *http.Request) bool {
			sum := sha256.Sum256(data[:100])
			w.Header().Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
			return part(10, 109, 1000, data[10:110])(w, r)
		}, "checksum", nil, false},
		"loop": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
			return true
		}, "more than 5 times", nil, true},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
			return true
		}, "redirects to an invalid URL", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			s := server(t, data, `"v1"`, func(w http.ResponseWriter, r *http.Request) bool {
				asked.Add(1)
				return c.do(w, r)
			})
			cl := client(t, s, Options{Attempts: 3})
			dst := make([]byte, 100)
			_, err := cl.Get(t.Context(), Request{
				URL: strings.Replace(s.URL, "http://", "http://user:hunter2@", 1) + "/dir/x?sig=hunter3", Header: http.Header{"X-Token": {"hunter4"}},
				Offset: 10, Total: 1000, Version: `"v1"`,
			}, dst)
			if err == nil {
				t.Fatal("it is taken")
			}
			text := err.Error()
			if !strings.Contains(text, c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v", err)
			}
			if !strings.HasPrefix(text, s.URL+"/dir/x, bytes 10 to 110: ") || strings.Contains(text, "hunter") || strings.Contains(text, "sig=") {
				t.Errorf("%v", err)
			}
			if n := asked.Load(); c.once != !strings.Contains(text, "tried 3 times") || !c.once && n < 3 {
				t.Errorf("asked %d times: %v", n, err)
			}
		})
	}
}

// Bytes of a broken response are kept if they are known to be of this version.
func TestGoesOn(t *testing.T) {
	data := content(300_000)
	var ranges []string
	var n atomic.Int64
	s := server(t, data, `"v1"`, func(w http.ResponseWriter, r *http.Request) bool {
		ranges = append(ranges, r.Header.Get("Range"))
		if n.Add(1) > 2 {
			return false
		}
		var from, to int
		_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(data)))
		w.Header().Set("Content-Length", fmt.Sprint(to-from+1))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(data[from : from+100_000])
		panic(http.ErrAbortHandler)
	})
	c := client(t, s, Options{})
	dst := make([]byte, 299_000)
	if _, err := c.Get(t.Context(), Request{URL: s.URL, Offset: 1000, Version: `"v1"`}, dst); err != nil || !bytes.Equal(dst, data[1000:]) {
		t.Fatal(err)
	}
	if len(ranges) != 3 || ranges[0] != "bytes=1000-299999" || ranges[2] == ranges[0] {
		t.Errorf("%q", ranges)
	}
}

func TestStall(t *testing.T) {
	data := content(1000)
	var n atomic.Int64
	s := server(t, data, `"v1"`, func(w http.ResponseWriter, r *http.Request) bool {
		switch n.Add(1) {
		case 1: // no response
			<-r.Context().Done()
			return true
		case 2: // a response that stalls
			w.Header().Set("Content-Range", "bytes 0-999/1000")
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(data[:10])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}
		return false
	})
	c := client(t, s, Options{Dial: 5 * time.Millisecond, Handshake: 5 * time.Millisecond, FirstByte: 50 * time.Millisecond, Stall: 50 * time.Millisecond})
	dst := make([]byte, 1000)
	if _, err := c.Get(t.Context(), Request{URL: s.URL, Version: `"v1"`}, dst); err != nil || !bytes.Equal(dst, data) {
		t.Fatal(err)
	}
}

// An endless body is cut off.
func TestEndless(t *testing.T) {
	s := server(t, nil, "", func(w http.ResponseWriter, r *http.Request) bool {
		for r.Method != http.MethodHead {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				break
			}
		}
		return true
	})
	c := client(t, s, Options{Attempts: 2})
	if _, _, err := c.Body(t.Context(), Request{URL: s.URL}, 1<<20); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Error(err)
	}
	if info, err := c.Head(t.Context(), Request{URL: s.URL}); err != nil || info.Ranges {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestRedirects(t *testing.T) {
	data := content(1000)
	var seen http.Header
	other := server(t, data, `"v1"`, func(_ http.ResponseWriter, r *http.Request) bool { seen = r.Header.Clone(); return false })
	s := server(t, data, `"v1"`, func(w http.ResponseWriter, r *http.Request) bool {
		if user, pw, ok := r.BasicAuth(); !ok || user != "me" || pw != "secret" || r.Header.Get("X-Token") != "t" {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		http.Redirect(w, r, other.URL+"/y", http.StatusTemporaryRedirect)
		return true
	})
	c := client(t, s, Options{})
	r := Request{URL: strings.Replace(s.URL, "http://", "http://me:secret@", 1) + "/x", Header: http.Header{"X-Token": {"t"}}, Version: `"v1"`}
	dst := make([]byte, 500)
	info, err := c.Get(t.Context(), r, dst)
	if err != nil || !bytes.Equal(dst, data[:500]) || info.URL != other.URL+"/y" {
		t.Fatal(info.URL, err)
	}
	if seen.Get("Authorization") != "" || seen.Get("X-Token") != "" || seen.Get("Range") != "bytes=0-499" || seen.Get("If-Match") != `"v1"` {
		t.Errorf("%v", seen)
	}
	seen = nil
	signed := client(t, s, Options{Sign: func(*http.Request) error { return nil }})
	if _, err := signed.Get(t.Context(), r, dst); err == nil || seen != nil || !strings.Contains(err.Error(), "signed") {
		t.Errorf("%v", err)
	}
}

func TestSign(t *testing.T) {
	var n, signed atomic.Int64
	s := server(t, content(10), "", func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Sig") != fmt.Sprint(signed.Load()) {
			t.Errorf("signed as %q", r.Header.Get("X-Sig"))
		}
		if n.Add(1) < 3 {
			w.WriteHeader(500)
			return true
		}
		return false
	})
	c := client(t, s, Options{Sign: func(r *http.Request) error {
		r.Header.Set("X-Sig", fmt.Sprint(signed.Add(1)))
		return nil
	}})
	if _, err := c.Get(t.Context(), Request{URL: s.URL}, make([]byte, 10)); err != nil || signed.Load() != 3 {
		t.Error(signed.Load(), err)
	}
	why := errors.New("the credentials have expired")
	c = client(t, s, Options{Sign: func(*http.Request) error { return why }})
	if _, err := c.Get(t.Context(), Request{URL: s.URL}, make([]byte, 10)); !errors.Is(err, why) || !strings.HasSuffix(err.Error(), why.Error()) {
		t.Error(err)
	}
}

func TestCancelled(t *testing.T) {
	s := server(t, nil, "", func(w http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true })
	c := client(t, s, Options{})
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	if _, err := c.Get(ctx, Request{URL: s.URL}, make([]byte, 10)); !errors.Is(err, why) {
		t.Error(err)
	}
	if _, err := c.Get(ctx, Request{URL: s.URL}, make([]byte, 40<<20)); !errors.Is(err, why) {
		t.Error(err)
	}
}

// Weak entity tags are compared, and never sent in If-Match, which servers refuse for them.
func TestWeakTags(t *testing.T) {
	data := content(1000)
	for _, now := range []string{`W/"v1"`, `W/"v2"`} {
		s := server(t, data, now, func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("If-Match") == "" {
				return false
			}
			w.WriteHeader(http.StatusPreconditionFailed)
			return true
		})
		c := client(t, s, Options{})
		for _, listed := range []string{`"v1"`, `W/"v1"`} {
			dst := make([]byte, 100)
			_, err := c.Get(t.Context(), Request{URL: s.URL, Offset: 10, Total: 1000, Version: listed}, dst)
			if now == `W/"v1"` && (err != nil || !bytes.Equal(dst, data[10:110])) || now == `W/"v2"` && !errors.Is(err, store.ErrChanged) {
				t.Errorf("%s, now %s: %v", listed, now, err)
			}
		}
	}
}

// A response to HEAD has no body. If the reason is there, the object is requested with GET.
func TestHeadAsksForTheReason(t *testing.T) {
	for _, status := range []int{400, 401, 403, 409, 451} {
		s := server(t, nil, `"v1"`, func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "TheReason")
			return true
		})
		c := client(t, s, Options{Classify: func(_ int, _ http.Header, body []byte) Verdict {
			return Verdict{Code: string(body)}
		}})
		if _, err := c.Head(t.Context(), Request{URL: s.URL}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("answers %d TheReason", status)) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// Without a tag the time in the response is compared. A server that refuses its own time does not matter.
func TestModified(t *testing.T) {
	data := content(1000)
	s := server(t, data, "", func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("If-Unmodified-Since") == "" {
			return false
		}
		w.WriteHeader(http.StatusPreconditionFailed)
		return true
	})
	c := client(t, s, Options{})
	for at, is := range map[time.Time]error{time.Unix(1e9, 5e8): nil, time.Unix(1e9+1, 0): store.ErrChanged} {
		r := Request{URL: s.URL, Total: 1000}
		r.Expect(VersionOf("", at, 1000))
		if _, err := c.Get(t.Context(), r, make([]byte, 10)); !errors.Is(err, is) {
			t.Errorf("%v: %v", at, err)
		}
	}
}

// A version is the same whatever it was made of: a tag, or a time and a size.
func TestVersions(t *testing.T) {
	at := time.Unix(1700000000, 5e8)
	for _, c := range []struct {
		tag      string
		modified time.Time
		want     Request
	}{
		{`"v1"`, at, Request{Version: `"v1"`}},
		{`W/"v1"`, at, Request{Modified: "Tue, 14 Nov 2023 22:13:20 GMT"}},
		{"", at, Request{Modified: "Tue, 14 Nov 2023 22:13:20 GMT"}},
		{`W/"v1"`, time.Time{}, Request{Version: `W/"v1"`}},
		{"", time.Time{}, Request{}},
	} {
		var got Request
		if got.Expect(VersionOf(c.tag, c.modified, 9)); got.Version != c.want.Version || got.Modified != c.want.Modified {
			t.Errorf("%q: %+v", c.tag, got)
		}
	}
}

// A failure has the class, the server's code and the attempts.
func TestAttempts(t *testing.T) {
	const none = -1 // no response
	for name, c := range map[string]struct {
		answers []int // the last one repeats
		verdict Verdict
		is      error
		text    string
		tries   int
	}{
		"throttled": {[]int{429}, Verdict{Code: "SlowDown"}, store.ErrThrottled, "the server answers 429 SlowDown (tried ", 0},
		"down":      {[]int{500}, Verdict{}, store.ErrUnavailable, "the server answers 500 Internal Server Error (tried 4 times in ", 4},
		"silent":    {[]int{none}, Verdict{}, store.ErrUnavailable, "closed before the end (tried 4 times in ", 4},
		"mixed":     {[]int{none, 502, 500}, Verdict{}, store.ErrUnavailable, ": no answer 1x, 500 2x, 502 1x)", 4},
		"expired":   {[]int{403}, Verdict{Class: Unauthorized, Code: "ExpiredToken"}, store.ErrCredentials, "not accepted: the server answers 403 ExpiredToken", 1},
		"renewed":   {[]int{403}, Verdict{Class: Unauthorized, Again: true}, store.ErrCredentials, "Forbidden (tried 4 times in ", 4},
		"archived":  {[]int{403}, Verdict{Class: Archived, Code: "InvalidObjectState"}, store.ErrArchived, "it is archived: the server answers 403", 1},
		"no user":   {[]int{401}, Verdict{}, store.ErrCredentials, "401 Unauthorized", 1},
		"denied":    {[]int{403}, Verdict{}, store.ErrPermission, "permission denied: the server answers 403 Forbidden", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			s := server(t, nil, `"v1"`, func(w http.ResponseWriter, r *http.Request) bool {
				answer := c.answers[min(int(asked.Add(1)), len(c.answers))-1]
				if answer == none {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(answer)
				return true
			})
			cl := client(t, s, Options{Attempts: 4, Patience: 50 * time.Millisecond, Classify: func(int, http.Header, []byte) Verdict { return c.verdict }})
			_, err := cl.Get(t.Context(), Request{URL: s.URL + "/x"}, make([]byte, 10))
			made, ok := store.AttemptsOf(fmt.Errorf("outer: %w", err))
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) || !ok {
				t.Fatalf("%v, attempts %v", err, ok)
			}
			if in := slices.IndexFunc(traffic.Troubles(), func(t traffic.Trouble) bool { return t.Endpoint == s.URL }); in < 0 {
				t.Error("the server is not in trouble")
			}
			if made.Tries != int(asked.Load()) || c.tries > 0 && made.Tries != c.tries || made.Code != c.verdict.Code || made.Elapsed <= 0 {
				t.Errorf("%+v after %d requests", made, asked.Load())
			}
			if last := c.answers[len(c.answers)-1]; made.Status != max(last, 0) || made.Statuses[made.Status] == 0 {
				t.Errorf("%+v", made)
			}
		})
	}
	if _, ok := store.AttemptsOf(store.ErrNotExist); ok {
		t.Error("attempts without a server")
	}
}

func TestNoServer(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	c := client(t, s, Options{Attempts: 2})
	if _, err := c.Get(t.Context(), Request{URL: s.URL + "/x?secret=1"}, make([]byte, 10)); err == nil || !strings.HasPrefix(err.Error(), s.URL+"/x, bytes 0 to 10: cannot connect: connection refused (tried 2 times in ") {
		t.Error(err)
	}
	for _, bad := range []string{"", "ftp://x", "http://", "http://u:p@x", "http://x/path", "http://x?y=1", "http://\x00"} {
		if _, err := New(Options{Endpoint: bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content(100)))
	}))
	s.Config.ErrorLog = nil
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	r := Request{URL: s.URL + "/x"}
	if _, err := client(t, s, Options{Attempts: 2}).Get(t.Context(), r, make([]byte, 10)); err == nil || !strings.Contains(err.Error(), "set STOKER_CA_BUNDLE") {
		t.Error(err)
	}
	bundle := t.TempDir() + "/ca.pem"
	pem := "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(s.Certificate().Raw) + "\n-----END CERTIFICATE-----\n"
	if err := os.WriteFile(bundle, []byte(pem), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, s, Options{CABundle: bundle}).Get(t.Context(), r, make([]byte, 10)); err != nil {
		t.Error(err)
	}
	if _, err := New(Options{Endpoint: s.URL, CABundle: bundle + "x"}); err == nil {
		t.Error("a bundle that is missing")
	}
}

// Connections use all addresses of a host in turn, and skip one that is down.
func TestAddresses(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	d := &dialer{lookup: func(context.Context, string) ([]string, error) {
		return []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, nil
	}}
	d.net.Timeout = 5 * time.Second
	for range 6 {
		conn, err := d.dial(t.Context(), "tcp", "example.org:"+port)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	if n := d.next.Load(); n != 6 {
		t.Errorf("%d", n)
	}
}

func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-0/1", "bytes 5-9/*", "bytes */0", "bytes 9-5/10", "bytes 0-18446744073709551615/2", "bytes +1-2/3", "bytes 1-2/3/4", "", "bytes -/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, last, total, err := contentRange(s)
		if err == nil && (first < 0 || last < first || total != -1 && total <= last) {
			t.Errorf("%q is %d to %d of %d", s, first, last, total)
		}
	})
}

func TestPublic(t *testing.T) {
	for in, want := range map[string]string{
		"https://u:p@h:1/a%20b?x=1#y": "https://h:1/a%20b", "http://h": "http://h", "://": "a URL that cannot be read",
	} {
		if got := Public(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
