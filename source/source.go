// Package source opens datasets by URL: packs, folders of images, and whatever
// else is registered in Open.
package source

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/foldersource"
	"github.com/stokerdata/stoker/source/packsource"
)

// Options change how a source is opened. Nil means the defaults.
type Options struct {
	// Threads bounds what a source does at once while it is opened, 0 for its
	// own choice.
	Threads int
	// VerifyChunks compares checksums while reading, where a source has them.
	VerifyChunks bool
}

// format is one kind of dataset in a local folder.
type format struct {
	name string
	// match reports whether the folder is one.
	match func(dir string) bool
	open  func(ctx context.Context, rawURL, dir string, opt *Options) (driver.Source, error)
}

// formats lists everything that Open knows, the more special ones first.
func formats() []format {
	return []format{
		{"pack", pack.IsPack, func(ctx context.Context, rawURL, dir string, opt *Options) (driver.Source, error) {
			return packsource.Open(ctx, rawURL, dir, &packsource.Options{VerifyChunks: opt.VerifyChunks})
		}},
		{"folder", isFolder, func(ctx context.Context, rawURL, dir string, opt *Options) (driver.Source, error) {
			return foldersource.Open(ctx, rawURL, dir, &foldersource.Options{Threads: opt.Threads})
		}},
	}
}

// supported is for messages.
const supported = "a path or a file: URL of a pack or of a folder of images"

// Open opens the dataset at rawURL: a path, or a URL of the scheme file.
func Open(ctx context.Context, rawURL string, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	dir, err := localPath(rawURL)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(dir)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("cannot open %s: %w", rawURL, err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("cannot open %s: it is a file; give %s", rawURL, supported)
	}
	for _, f := range formats() {
		if f.match(dir) {
			return f.open(ctx, rawURL, dir, &o)
		}
	}
	return nil, fmt.Errorf("cannot open %s: give %s", rawURL, supported)
}

func isFolder(string) bool { return true }

// localPath returns the path that rawURL means.
func localPath(rawURL string) (string, error) {
	if rawURL == "" {
		return "", fmt.Errorf("no dataset given: give %s", supported)
	}
	scheme, rest, ok := strings.Cut(rawURL, ":")
	if !ok || !isScheme(scheme) {
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
