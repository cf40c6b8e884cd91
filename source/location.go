package source

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/internal/source/tokensource"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/source/view"
	"github.com/stokerdata/stoker/store"
)

// location is where a URL leads.
type location struct {
	format *format
	path   string
	store  store.Store
	opt    Options
	query  string // what stood behind the path, as far as it is not read yet
	// options are those of the store, behind its URL.
	options string
}

// locate says what rawURL is.
func locate(ctx context.Context, rawURL string, opt *Options) (*location, error) {
	loc := &location{}
	if opt != nil {
		loc.opt = *opt
	}
	named, rest := "", rawURL
	all := formats()
	if scheme, after, ok := strings.Cut(rawURL, ":"); ok {
		for i := range all {
			if all[i].name == strings.ToLower(scheme) {
				if _, err := os.Lstat(rawURL); err != nil { // no file name with a colon in it
					named, rest, loc.format = scheme, strings.TrimPrefix(after, "//"), &all[i]
				}
			}
		}
	}
	rawURL = stores.Public(rawURL) // for messages
	var err error
	rest, loc.options = stores.Cut(rest)
	if err := notOurs(rawURL, loc.options); err != nil {
		return nil, err
	}
	if loc.format != nil && loc.format.name == "pairs" {
		rest, err = loc.fields(rawURL, rest)
	} else {
		if rest, err = loc.window(rest); err == nil {
			rest = loc.cut(rest)
		}
	}
	if err != nil {
		return nil, err
	}
	if named != "" && !strings.HasPrefix(strings.ToLower(rest), "file:") {
		if rest == "" {
			return nil, fmt.Errorf("cannot open %s: it has no path", rawURL)
		}
		loc.path = rest
	} else if loc.path, err = localPath(rest); err != nil {
		return nil, err
	}
	if loc.store, err = stores.Open(ctx, loc.path+loc.options); err != nil {
		return nil, err
	}
	if w, ok := store.As[store.Warmer](loc.store); ok && loc.opt.Connections > 0 {
		w.Warm(loc.opt.Connections)
	}
	looked := glanceAt(ctx, loc.store) // what says which format it is
	e, err := looked.Stat(ctx, "")
	far := stores.IsURL(loc.path)
	if far && (errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrPermission)) && loc.known(ctx, all) {
		e, err = store.Entry{Dir: true}, nil
	}
	if errors.Is(err, store.ErrNotExist) && isPattern(loc.path) {
		if err = loc.expand(ctx); err == nil {
			looked, e = glanceAt(ctx, beside(loc.store, loc.store.Path(loc.opt.shards[0]))), store.Entry{}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", rawURL, store.Cause(err))
	}
	for i := 0; loc.format == nil && i < len(all); i++ {
		if f := &all[i]; f.match != nil && f.match(ctx, looked, e.Dir) {
			loc.format = f
		}
	}
	loc.opt.looked = looked
	if err := loc.ask(rawURL); err != nil {
		return nil, err
	}
	if loc.format != nil && loc.format.splits && !e.Dir && loc.opt.shards == nil {
		dir, file := filepath.Split(loc.store.Path(""))
		loc.store, loc.opt.file = beside(loc.store, dir), file
	}
	switch {
	case loc.opt.shards != nil && (loc.format == nil || !loc.format.patterns && !(loc.opt.Documents && loc.format.name == "npy")):
		return nil, fmt.Errorf("cannot open %s: several files by {..} or * are for tar, zip, HDF5, Parquet, Arrow files and tokens; give the folder that they lie in", rawURL)
	case loc.format == nil:
		return nil, fmt.Errorf("cannot open %s: it is a file; give %s", rawURL, supported)
	case loc.opt.Window != 0 && !loc.format.window:
		return nil, fmt.Errorf("cannot open %s: a window is for .npy files and files of tokens, this is a %s", rawURL, loc.format.name)
	case loc.opt.Split != "" && !loc.format.splits && !loc.format.parts && !slices.Contains(loc.format.params, "split"):
		return nil, fmt.Errorf("cannot open %s: a split of its own have MNIST, CIFAR, STL-10, SVHN, COCO, VOC, YOLO, MDS, LMDB, HDF5, Zarr and folders of Parquet files, this is a %s; any data is cut by split=train:0.9,val:0.1", rawURL, loc.format.name)
	case loc.opt.Split != "" && loc.opt.file != "":
		return nil, fmt.Errorf("cannot open %s: a split is of a folder, this is a file", rawURL)
	case loc.opt.Window < 0:
		return nil, fmt.Errorf("cannot open %s: a window has 1 element or more, not %d", rawURL, loc.opt.Window)
	}
	return loc, nil
}

// known looks at a folder that a web server says nothing of, as one does that lists
// none, for what needs no list.
func (loc *location) known(ctx context.Context, all []format) bool {
	for i := range all {
		f := &all[i]
		if loc.format != nil && f.name != loc.format.name || f.name != "pack" && f.name != "mds" && f.name != "litdata" && f.name != "zarr" {
			continue
		}
		if f.match(ctx, loc.store, true) {
			loc.format = f
			return true
		}
	}
	return false
}

// notOurs fails when what a URL sends to its server looks as if it were for us.
func notOurs(rawURL, options string) error {
	key, _, _ := strings.Cut(strings.TrimPrefix(options, "?"), "=")
	if at := strings.TrimPrefix(rawURL, "http"); at != rawURL && (key == "window" || key == "split" || strings.Contains(key, ":")) {
		return fmt.Errorf("cannot open %s: what stands behind ? is sent to the server; write #%s", rawURL, options)
	}
	return nil
}

// fields takes the fields off the URL of pairs.
func (loc *location) fields(rawURL, rest string) (string, error) {
	before, query, ok := strings.Cut(rest, "?")
	if !ok {
		return rest, nil // which says what to write
	}
	if err := loc.pairs(query); err != nil {
		return "", fmt.Errorf("cannot open %s: %w", rawURL, err)
	}
	return before, nil
}

// pairs reads fields and their files, and of volumes how they are cut.
func (loc *location) pairs(query string) (err error) {
	var fields, params []string
	for part := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(part, "="); slices.Contains(volumeParams, name) {
			params = append(params, part)
		} else {
			fields = append(fields, part)
		}
	}
	if len(fields) > 0 {
		if loc.opt.pairs, err = pairsource.ParseQuery(strings.Join(fields, "&")); err != nil {
			return err
		}
	}
	switch {
	case len(params) == 0:
		return nil
	case loc.format.name == "pairs" && !ofVolumes(loc.opt.pairs):
		return fmt.Errorf("%s: only volumes are cut into patches; write volumes: in front of the folder for TIFF files that are some", params[0])
	}
	loc.opt.params, err = parseParams(strings.Join(params, "&"), volumeParams)
	return err
}

// window takes ?window=N off a URL.
func (loc *location) window(rest string) (string, error) {
	before, query, ok := strings.Cut(rest, "?window=")
	if !ok {
		return rest, nil
	}
	if _, err := os.Lstat(rest); err == nil {
		return rest, nil
	}
	if strings.Contains(query, "&") {
		return rest, nil // with other options, of tokens
	}
	n, err := strconv.ParseInt(query, 10, 64)
	if err != nil || n < 1 {
		return "", fmt.Errorf("cannot open %s: window=%s is no number of elements", rest, query)
	}
	loc.opt.Window = n
	return before, nil
}

// cut takes what stands behind a question mark off a path.
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
		return rest // there is neither
	}
	loc.query = query
	return before
}

// ask reads what stood behind the question mark: the columns of a table, or the
// split of a folder.
func (loc *location) ask(rawURL string) error {
	if loc.query == "" || loc.format == nil {
		return nil
	}
	var err error
	split, isSplit := strings.CutPrefix(loc.query, "split=")
	switch {
	case loc.format.parts:
		if loc.opt.Split, loc.query = splitOff(loc.query, loc.opt.Split); loc.query != "" {
			loc.opt.columns, err = column.ParseQuery(loc.query)
		}
	case loc.format.columns:
		loc.opt.columns, err = column.ParseQuery(loc.query)
	case loc.format.tokens:
		loc.opt.tokens = tokensource.New()
		err = loc.opt.tokens.ParseQuery(loc.query)
	case loc.format.pairs:
		err = loc.pairs(loc.query)
	case loc.format.params != nil:
		loc.opt.params, err = parseParams(loc.query, loc.format.params)
	case loc.format.splits && isSplit && split != "":
		loc.opt.Split = split
	case loc.format.splits:
		err = fmt.Errorf("%q is not known; to say which part is wanted write ?split=train", loc.query)
	default:
		err = fmt.Errorf("%q is not known: columns can be chosen of tables, this is a %s", loc.query, loc.format.name)
	}
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", rawURL, err)
	}
	return nil
}

// splitOff takes split=NAME out of a query.
func splitOff(query, split string) (string, string) {
	var rest []string
	for part := range strings.SplitSeq(query, "&") {
		if name, ok := strings.CutPrefix(part, "split="); ok && name != "" {
			split = name
		} else {
			rest = append(rest, part)
		}
	}
	return split, strings.Join(rest, "&")
}

// cutView takes the views off a URL and adds that of the options. Where the data has
// parts of its own, a split that is a name is one of them, which opt then says.
func cutView(ctx context.Context, rawURL string, opt *Options) (base string, views []view.Spec, out *Options, err error) {
	out = &Options{}
	if opt != nil {
		*out = *opt
	}
	base = rawURL
	if _, err := os.Lstat(rawURL); err != nil { // no file name with a # in it
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

// parseParams reads NAME=VALUE&NAME=VALUE, of the names that there are.
func parseParams(query string, known []string) (map[string]string, error) {
	out := map[string]string{}
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%q is not known; there are %s", name, strings.Join(known, ", "))
		}
		value, err := url.PathUnescape(value)
		if err != nil || value == "" {
			return nil, fmt.Errorf("%q has no value that can be read", part)
		}
		out[name] = value
	}
	return out, nil
}

// localPath returns the path that rawURL means.
func localPath(rawURL string) (string, error) {
	if rawURL == "" {
		return "", fmt.Errorf("no dataset given: give %s", supported)
	}
	scheme, rest, ok := strings.Cut(rawURL, ":")
	if !ok || !isScheme(scheme) || stores.IsURL(rawURL) {
		return rawURL, nil
	}
	if !strings.EqualFold(scheme, "file") {
		if _, err := os.Lstat(rawURL); err == nil {
			return rawURL, nil // a file name with a colon in it
		}
		return "", fmt.Errorf("cannot open %s: URLs of the scheme %s: are not supported; give %s", rawURL, scheme, supported)
	}
	u, err := url.Parse(rawURL)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot open %s: it is no URL: %w", rawURL, errors.Unwrap(err))
	case u.Host != "" && u.Host != "localhost":
		return "", fmt.Errorf("cannot open %s: it names the machine %s; write file:///path with three slashes", rawURL, u.Host)
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("cannot open %s: file: URLs take no parameters", rawURL)
	case u.Opaque != "":
		p, err := url.PathUnescape(u.Opaque)
		if err != nil {
			return "", fmt.Errorf("cannot open %s: it is no URL: %w", rawURL, err)
		}
		return p, nil
	case u.Path == "" || rest == "":
		return "", fmt.Errorf("cannot open %s: it has no path", rawURL)
	}
	return u.Path, nil
}

// isScheme follows RFC 3986. A single letter is no scheme here.
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
