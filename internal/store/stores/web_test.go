package stores

import (
	"strings"
	"testing"
)

func TestPublic(t *testing.T) {
	for in, want := range map[string]string{
		"/a/b?x": "/a/b?x", "file:///x": "file:///x", "http://h/p": "http://h/p", "https://u:p@h:1/p@q?sig=1#where=n<3": "https://h:1/p@q#where=n<3",
		"tar:https://h/x.tar?sig=1#?a=b": "tar:https://h/x.tar#?a=b", "https://u:p@h": "https://h", "x:y": "x:y", "s3://b/x?region=y": "s3://b/x?region=y",
	} {
		if got := Public(in); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestFileURLs(t *testing.T) {
	for in, want := range map[string]string{"a/b": "a/b", "file:///a%20b": "/a b", "FILE://localhost/x": "/x", "file:x": "file:x", "c:d": "c:d"} {
		st, err := Open(t.Context(), in)
		if err != nil || st.String() != want {
			t.Errorf("%s: %v, %v", in, st, err)
		}
	}
	for _, bad := range []string{"file://", "file://host/x", "file:///x?y=1"} {
		if _, err := Open(t.Context(), bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// The query belongs to the web server. Options of Stoker come after "#?".
func TestWebOptions(t *testing.T) {
	for in, want := range map[string][2]string{
		"https://h/x.npy?sig=1#?window=5": {"https://h/x.npy?window=5", "?sig=1"},
		"https://h/x.npy#?window=5":       {"https://h/x.npy?window=5", ""},
		"https://h/x.npy?sig=1":           {"https://h/x.npy", "?sig=1"},
		"https://h/x":                     {"https://h/x", ""},
	} {
		if base, options := Cut(in); base != want[0] || options != want[1] {
			t.Errorf("%s: %s and %s", in, base, options)
		}
	}
	for in, want := range map[string]string{
		"x.csv": "x.csv?a=b", "x.csv?split=train": "x.csv?split=train&a=b", "csv:https://h/x?s=1": "csv:https://h/x?s=1#?a=b", "http://h/x#?c=d": "http://h/x#?c=d&a=b",
	} {
		if got := Ask(in, "a=b"); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
	for _, bad := range []string{"http://", "http:///x?secret", "https://h\x01/?secret"} {
		if _, err := Open(t.Context(), bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	st, err := Open(t.Context(), "HTTPS://user:secret@h/a%20b?sig=secret")
	if err != nil || st.String() != "https://h/a b" {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := OpenWrite(t.Context(), "https://h/a?sig=secret"); err == nil || err.Error() != "https://h/a cannot be written to" {
		t.Error(err)
	}
}
