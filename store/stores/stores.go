// Package stores opens the store that a path or a URL means: local files, or a bucket.
package stores

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/gcsstore"
	"github.com/stokerdata/stoker/store/localstore"
	"github.com/stokerdata/stoker/store/s3store"
)

// scheme is one kind of store that URLs lead to.
type scheme struct {
	name string
	// params are the options that a URL may have behind its question mark.
	params []string
	open   func(ctx context.Context, bucket, path string, set [][2]string) (store.Store, error)
}

func schemes() []scheme {
	return []scheme{
		{"s3", s3store.Params, func(ctx context.Context, bucket, path string, set [][2]string) (store.Store, error) {
			opt := &s3store.Options{}
			for _, p := range set {
				if err := opt.Set(p[0], p[1]); err != nil {
					return nil, err
				}
			}
			return s3store.Open(ctx, bucket, path, opt)
		}},
		{"gs", gcsstore.Params, func(ctx context.Context, bucket, path string, set [][2]string) (store.Store, error) {
			opt := &gcsstore.Options{}
			for _, p := range set {
				if err := opt.Set(p[0], p[1]); err != nil {
					return nil, err
				}
			}
			return gcsstore.Open(ctx, bucket, path, opt)
		}},
	}
}

// find says which scheme a URL has.
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

// IsURL says whether a text is the URL of a store that is not of local files.
func IsURL(rawURL string) bool {
	_, _, ok := find(rawURL)
	return ok
}

// Cut takes from what stands behind the question mark of a URL what is about the store,
// with its question mark: base is the URL without it.
func Cut(rawURL string) (base, options string) {
	s, _, ok := find(rawURL)
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

// Open opens the store of a path or a URL. Of local files it does no I/O.
func Open(ctx context.Context, place string) (store.Store, error) {
	s, rest, ok := find(place)
	if !ok {
		return localstore.New(place), nil
	}
	rest, query, _ := strings.Cut(rest, "?")
	var set [][2]string
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		name, text, _ := strings.Cut(part, "=")
		if !slices.Contains(s.params, name) {
			return nil, fmt.Errorf("cannot open %s: %q is not known; there are %s", public(place), name, strings.Join(s.params, ", "))
		}
		value, err := url.QueryUnescape(text)
		if err != nil || value == "" {
			return nil, fmt.Errorf("cannot open %s: %s has no value that can be read", public(place), name)
		}
		set = append(set, [2]string{name, value})
	}
	bucket, path, _ := strings.Cut(rest, "/")
	if strings.Contains(bucket, "@") {
		return nil, fmt.Errorf("cannot open a URL of the scheme %s: credentials do not belong into it", s.name)
	}
	if err := store.CheckName(strings.TrimSuffix(path, "/")); err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", public(place), err)
	}
	return s.open(ctx, bucket, path, set)
}

// OpenWrite opens a store to write to.
func OpenWrite(ctx context.Context, place string) (store.WriteStore, error) {
	st, err := Open(ctx, place)
	if err != nil {
		return nil, err
	}
	w, ok := store.As[store.WriteStore](st)
	if !ok {
		_ = st.Close() // it was only looked at
		return nil, fmt.Errorf("%s cannot be written to", public(place))
	}
	return w, nil
}

// public is a URL without what stands behind its question mark, which may be secret.
func public(place string) string {
	before, _, _ := strings.Cut(place, "?")
	return before
}
