// Package stores opens the store of a path or a URL: local files, a bucket or a web server.
package stores

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/store/azstore"
	"github.com/stokerdata/stoker/internal/store/gcsstore"
	"github.com/stokerdata/stoker/internal/store/httpstore"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/store/s3store"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/store"
)

// scheme is a URL scheme with a store.
type scheme struct {
	name string
	// params are the options that a URL may have after "?".
	params []string
	open   func(ctx context.Context, bucket, path string, set [][2]string) (store.Store, error)
	// web opens URLs whose path, user and query belong to a server: their query has no options of Stoker. Such
	// options come after #?.
	web func(rawURL string) (store.Store, error)
}

func schemes() []scheme {
	web := func(rawURL string) (store.Store, error) { return httpstore.New(rawURL, nil) }
	return []scheme{
		{name: "http", web: web},
		{name: "https", web: web},
		{name: "s3", params: s3store.Params, open: func(ctx context.Context, bucket, path string, set [][2]string) (store.Store, error) {
			opt := &s3store.Options{}
			for _, p := range set {
				if err := opt.Set(p[0], p[1]); err != nil {
					return nil, err
				}
			}
			return s3store.Open(ctx, bucket, path, opt)
		}},
		{name: "gs", params: gcsstore.Params, open: func(ctx context.Context, bucket, path string, set [][2]string) (store.Store, error) {
			opt := &gcsstore.Options{}
			for _, p := range set {
				if err := opt.Set(p[0], p[1]); err != nil {
					return nil, err
				}
			}
			return gcsstore.Open(ctx, bucket, path, opt)
		}},
		{name: "az", params: azstore.Params, open: func(ctx context.Context, bucket, path string, set [][2]string) (store.Store, error) {
			opt := &azstore.Options{}
			for _, p := range set {
				if err := opt.Set(p[0], p[1]); err != nil {
					return nil, err
				}
			}
			return azstore.Open(ctx, bucket, path, opt)
		}},
	}
}

// IsOption reports whether the URLs of some store have an option of this name.
func IsOption(name string) bool {
	return slices.ContainsFunc(schemes(), func(s scheme) bool { return slices.Contains(s.params, name) })
}

// find returns the scheme of a URL.
func find(rawURL string) (s scheme, rest string, ok bool) {
	name, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return s, "", false
	}
	for _, s := range schemes() {
		if strings.EqualFold(s.name, name) {
			return s, rest, true
		}
	}
	return s, "", false
}

// IsURL reports whether a text is the URL of a store that is not for local files.
func IsURL(rawURL string) bool {
	_, _, ok := find(rawURL)
	return ok
}

// webOptions comes before the options of Stoker in the URL of a web server.
const webOptions = "#?"

// Ask adds an option about the data, such as columns of a table, to a path or a URL, with or without the name of a
// format before it.
func Ask(place, what string) string {
	mark := "?"
	if IsWeb(place) {
		mark = webOptions
	}
	if strings.Contains(place, mark) {
		mark = "&"
	}
	return place + mark + what
}

// IsWeb reports whether a URL is one of a web server, which owns the query.
func IsWeb(place string) bool {
	if at := strings.Index(place, "://"); at >= 0 {
		s, _, ok := find(place[strings.LastIndexByte(place[:at], ':')+1:])
		return ok && s.web != nil
	}
	return false
}

// Cut separates the options for the store from the other options in the query of a URL: base is the URL without
// them, options has a "?" at its start.
func Cut(rawURL string) (base, options string) {
	s, _, ok := find(rawURL)
	if ok && s.web != nil {
		at, own, said := strings.Cut(rawURL, webOptions)
		base, query, some := strings.Cut(at, "?")
		if said {
			base += "?" + own
		}
		if some {
			options = "?" + query
		}
		return base, options
	}
	before, query, some := strings.Cut(rawURL, "?")
	if !ok || !some {
		return rawURL, ""
	}
	var own, others []string
	for part := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(part, "="); slices.Contains(s.params, name) {
			own = append(own, part)
		} else {
			others = append(others, part)
		}
	}
	if len(own) > 0 {
		options = "?" + strings.Join(own, "&")
	}
	if len(others) > 0 {
		before += "?" + strings.Join(others, "&")
	}
	return before, options
}

// Open opens the store of a path or a URL. For local files it does no I/O.
func Open(ctx context.Context, place string) (store.Store, error) {
	s, rest, ok := find(place)
	if !ok {
		path, err := local(place)
		if err != nil {
			return nil, err
		}
		return localstore.New(path), nil
	}
	if s.web != nil {
		return s.web(place)
	}
	rest, query, _ := strings.Cut(rest, "?")
	var set [][2]string
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		name, text, _ := strings.Cut(part, "=")
		if !slices.Contains(s.params, name) {
			return nil, fmt.Errorf("cannot open %s: unknown option %q: use %s", public(place), name, strings.Join(s.params, ", "))
		}
		value, err := url.QueryUnescape(text)
		if err != nil || value == "" {
			return nil, fmt.Errorf("cannot open %s: the option %s has no valid value", public(place), name)
		}
		set = append(set, [2]string{name, value})
	}
	bucket, path, _ := strings.Cut(rest, "/")
	if strings.Contains(bucket, "@") {
		return nil, fmt.Errorf("cannot open a URL of the scheme %s: it must not contain credentials", s.name)
	}
	if err := store.CheckName(strings.TrimSuffix(path, "/")); err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", public(place), err)
	}
	return s.open(ctx, bucket, path, set)
}

// local returns a path as it is, and the path of a URL of the scheme file.
func local(place string) (string, error) {
	if len(place) < 7 || !strings.EqualFold(place[:7], "file://") {
		return place, nil
	}
	u, err := url.Parse(place)
	switch {
	case err != nil || u.Path == "":
		return "", fmt.Errorf("cannot open %s: it is not a URL of a file", place)
	case u.Host != "" && !strings.EqualFold(u.Host, "localhost"):
		return "", fmt.Errorf("cannot open %s: it names the machine %s. Write file:///path with three slashes", place, u.Host)
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("cannot open %s: file: URLs have no parameters", place)
	}
	return u.Path, nil
}

// Prefix returns the text before the colon of a path such as "tfr:out" that looks like the name of a format or the
// scheme of a URL, and "" for others. In ./tfr:out the colon is part of a name.
func Prefix(place string) string {
	name, _, ok := strings.Cut(place, ":")
	if !ok || len(name) < 2 || IsURL(place) || strings.HasPrefix(strings.ToLower(place), "file://") {
		return ""
	}
	for i, c := range name {
		if letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'; !letter && (i == 0 || !strings.ContainsRune("0123456789+-._", c)) {
			return ""
		}
	}
	return name
}

// UnknownPrefix returns the error for a destination whose prefix is not known. Known are those that it may mean.
func UnknownPrefix(place, prefix string, known []string) error {
	for _, s := range schemes() {
		known = append(known, s.name)
	}
	near, formats := "", len(known) > len(schemes())
	for _, k := range known {
		if len(k) > len(prefix) && strings.EqualFold(k[:len(prefix)], prefix) {
			near = k
			break
		}
	}
	if near == "" {
		near = units.Nearest(prefix, known)
	}
	hint := ""
	if near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	is := "the scheme of a URL"
	if formats {
		is = "the name of a format or " + is
	}
	return fmt.Errorf("cannot write %s: %q is not %s%s For a folder with that name write ./%s",
		public(place), prefix, is, cmp.Or(hint, "."), public(place))
}

// OpenWrite opens a store to write to.
func OpenWrite(ctx context.Context, place string) (store.WriteStore, error) {
	if prefix := Prefix(place); prefix != "" {
		return nil, UnknownPrefix(place, prefix, nil)
	}
	st, err := Open(ctx, place)
	if err != nil {
		return nil, err
	}
	w, ok := store.As[store.WriteStore](st)
	if !ok {
		_ = st.Close() // nothing was written
		return nil, fmt.Errorf("%s cannot be written to", public(place))
	}
	return w, nil
}

// public is a URL without its query, which may be secret.
func public(place string) string {
	before, _, _ := strings.Cut(Public(place), "?")
	return before
}

// Public is a path or a URL without user and query, which may be secret. It may have the name of a format before it
// and a fragment after it.
func Public(place string) string {
	if !IsWeb(place) {
		return place
	}
	at := strings.Index(place, "://") + len("://")
	rest, fragment, some := strings.Cut(place[at:], "#")
	if some {
		fragment = "#" + fragment
	}
	rest, _, _ = strings.Cut(rest, "?")
	host, path, some := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	if some {
		host += "/" + path
	}
	return place[:at] + host + fragment
}
