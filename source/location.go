package source

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/foldersource"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/place"
	"github.com/stokerdata/stoker/internal/source/splits"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/view"
	"github.com/stokerdata/stoker/store"
)

// location is the data that a URL names.
type location struct {
	format *format.Format
	path   string
	store  store.Store
	opt    Options
	// dir is set if store is a folder. probed is store with the cached answers of the search for
	// the format.
	dir    bool
	probed store.Store
	// query is the part of the URL after the path, values are the parameters in it.
	query  string
	values format.Values
	// names are the files that match a pattern in the URL.
	names []string
	// options are the options of the store, at the end of its URL.
	options string
}

// locate finds the format, the store and the parameters of a URL.
func locate(ctx context.Context, rawURL string, opt *Options) (*location, error) {
	loc := &location{}
	if opt != nil {
		loc.opt = *opt
	}
	named, rest := "", rawURL
	if scheme, after, ok := strings.Cut(rawURL, ":"); ok {
		if f := find(strings.ToLower(scheme)); f != nil {
			if _, err := os.Lstat(rawURL); err != nil { // not a file name with a colon in it
				named, rest, loc.format = scheme, strings.TrimPrefix(after, "//"), f
			}
		}
	}
	rawURL = stores.Public(rawURL) // for messages
	rest, loc.options = stores.Cut(rest)
	if err := notOurs(rawURL, loc.options); err != nil {
		return nil, err
	}
	rest = loc.cut(rest)
	if before, after, ok := strings.Cut(rest, "#"); ok && stores.IsURL(rest) && strings.HasPrefix(strings.ToLower(rest), "http") {
		return nil, fmt.Errorf("cannot open %s: %q after the # is not a view: parameters of the format are written %s#?%s", rawURL, after, stores.Public(before), after)
	}
	var err error
	if named != "" && !strings.HasPrefix(strings.ToLower(rest), "file:") {
		if rest == "" {
			return nil, fmt.Errorf("cannot open %s: it has no path", rawURL)
		}
		loc.path = rest
	} else if loc.path, err = localPath(rest); err != nil {
		return nil, err
	}
	shown := stores.Public(loc.path) // without the query, whose values may be secret
	if loc.store, err = stores.Open(ctx, loc.path+loc.options); err != nil {
		return nil, err
	}
	if w, ok := store.As[store.Warmer](loc.store); ok && loc.opt.Connections > 0 {
		w.Warm(loc.opt.Connections)
	}
	loc.probed = probeAt(ctx, loc.store)
	e, err := loc.probed.Stat(ctx, "")
	far := stores.IsURL(loc.path)
	if far && (errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrPermission)) && loc.unlisted(ctx) {
		e, err = store.Entry{Dir: true}, nil
	}
	if errors.Is(err, store.ErrNotExist) && isPattern(loc.path) {
		if err = loc.expand(ctx); err == nil {
			loc.probed, e = probeAt(ctx, place.At(loc.store, loc.store.Path(loc.names[0]))), store.Entry{}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", rawURL, store.Cause(err))
	}
	if loc.format == nil {
		loc.format = detect(ctx, loc.probed, e.Dir)
		if err := loc.splits(ctx); err != nil {
			return nil, fmt.Errorf("cannot open %s: %w", rawURL, err)
		}
	}
	loc.dir = e.Dir || loc.names != nil
	if err := loc.read(); err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", shown, err)
	}
	return loc, nil
}

// detect returns the first format that matches, or nil.
func detect(ctx context.Context, st store.Store, dir bool) *format.Format {
	probe := &format.Probe{Store: st, Dir: dir}
	for _, f := range formats {
		if f.Match != nil && f.Match(ctx, probe) {
			return f
		}
	}
	return nil
}

// splits returns an error for a folder of splits whose own format is not a folder of images, such as
// train/images and train/masks. As a folder of images, images and masks would be its classes.
func (loc *location) splits(ctx context.Context) error {
	if loc.format != foldersource.Format {
		return nil
	}
	tops, err := filelist.Folders(ctx, loc.probed, "")
	parts := splits.Among(tops)
	if err != nil || len(parts) == 0 {
		return nil // opening the folder names the error
	}
	f := detect(ctx, place.At(loc.store, loc.store.Path(parts[0])), true)
	if f == nil || f == loc.format {
		return nil
	}
	return fmt.Errorf("it has the splits %s in the format %s: open one of them, such as %s", units.List(parts, "and"), f.Name,
		units.Shell(loc.store.Path(parts[0])+loc.options))
}

// read reads the parameters of the URL, and adds those of the options.
func (loc *location) read() (err error) {
	if loc.format == nil {
		return fmt.Errorf("its format is not known; %s", supported)
	}
	if loc.values, err = loc.format.Parse(loc.query); err != nil {
		return err
	}
	if loc.names != nil && !loc.format.Patterns {
		return fmt.Errorf("%s does not take several files by {..} or *: give the folder that holds them; formats that do: %s",
			loc.format.Name, namesOf(func(f *format.Format) bool { return f.Patterns }))
	}
	window := ""
	if loc.opt.Window != 0 {
		window = strconv.FormatInt(loc.opt.Window, 10)
	}
	for _, p := range []struct{ name, text, hint string }{
		{"window", window, ""},
		{"split", loc.opt.Split, "; split=train:0.9,val:0.1 splits any data"},
	} {
		if p.text == "" {
			continue
		}
		ok, err := loc.format.Set(&loc.values, p.name, p.text)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%s has no parameter %s: formats that have one are %s%s", loc.format.Name, p.name,
				namesOf(func(f *format.Format) bool { return f.Param(p.name) != nil }), p.hint)
		}
	}
	return nil
}

// unlisted tries the formats that need no listing. It is for folders that a web server does not
// list.
func (loc *location) unlisted(ctx context.Context) bool {
	for _, f := range formats {
		if f.Unlisted && (loc.format == nil || loc.format == f) && f.Match(ctx, &format.Probe{Store: loc.store, Dir: true}) {
			loc.format = f
			return true
		}
	}
	return false
}

// notOurs returns an error if the query for a web server looks like parameters for a format.
func notOurs(rawURL, options string) error {
	key, _, _ := strings.Cut(strings.TrimPrefix(options, "?"), "=")
	if at := strings.TrimPrefix(rawURL, "http"); at != rawURL && (key == "window" || key == "split" || strings.Contains(key, ":")) {
		return fmt.Errorf("cannot open %s: the part after ? is sent to the server; write #%s", rawURL, options)
	}
	return nil
}

// cut removes the query from a path and sets loc.query.
func (loc *location) cut(rest string) string {
	before, query, ok := strings.Cut(rest, "?")
	if !ok {
		return rest
	}
	if stores.IsURL(rest) {
		loc.query = query
		return before
	}
	if _, err := os.Lstat(rest); err == nil {
		return rest
	}
	if _, err := os.Lstat(before); err != nil && !(isPattern(before) && strings.Contains(query, "=")) {
		return rest // neither file exists
	}
	loc.query = query
	return before
}

// cutView cuts the views from a URL, and adds the view of the options. If the split of the first
// view is only a name, it is a split of the data itself and moves to out.Split.
func cutView(ctx context.Context, rawURL string, opt *Options) (base string, views []view.Spec, out *Options, err error) {
	out = &Options{}
	if opt != nil {
		*out = *opt
	}
	base = rawURL
	if _, err := os.Lstat(rawURL); err != nil { // not a file name with a # in it
		if base, views, err = view.CutURL(rawURL); err != nil {
			if _, _, shown := view.CutURL(stores.Public(rawURL)); shown != nil {
				err = shown
			}
			return "", nil, nil, err
		}
	}
	if !out.View.Empty() {
		views = append(views, *out.View)
	}
	out.View = nil
	if len(views) > 0 && views[0].Split != "" && views[0].Part == "" && !strings.Contains(views[0].Split, ":") {
		out.Split, views[0].Split = views[0].Split, ""
	}
	return base, views, out, nil
}

// localPath returns the local path for rawURL. It returns URLs of remote data unchanged.
func localPath(rawURL string) (string, error) {
	if rawURL == "" {
		return "", fmt.Errorf("no dataset given: give a path or a URL; %s", supported)
	}
	scheme, rest, ok := strings.Cut(rawURL, ":")
	if !ok || !isScheme(scheme) || stores.IsURL(rawURL) {
		return rawURL, nil
	}
	if !strings.EqualFold(scheme, "file") {
		if _, err := os.Lstat(rawURL); err == nil {
			return rawURL, nil // a file name with a colon in it
		}
		return "", fmt.Errorf("cannot open %s: URLs of the scheme %s: are not supported; %s", rawURL, scheme, supported)
	}
	u, err := url.Parse(rawURL)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot open %s: it is not a URL: %w", rawURL, errors.Unwrap(err))
	case u.Host != "" && u.Host != "localhost":
		return "", fmt.Errorf("cannot open %s: it names the machine %s; write file:///path with three slashes", rawURL, u.Host)
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("cannot open %s: file: URLs take no parameters", rawURL)
	case u.Opaque != "":
		p, err := url.PathUnescape(u.Opaque)
		if err != nil {
			return "", fmt.Errorf("cannot open %s: it is not a URL: %w", rawURL, err)
		}
		return p, nil
	case u.Path == "" || rest == "":
		return "", fmt.Errorf("cannot open %s: it has no path", rawURL)
	}
	return u.Path, nil
}

// isScheme follows RFC 3986, except that a single letter is not a scheme.
func isScheme(s string) bool {
	if len(s) < 2 {
		return false
	}
	for i, c := range strings.ToLower(s) {
		if !(c >= 'a' && c <= 'z' || i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return false
		}
	}
	return true
}
