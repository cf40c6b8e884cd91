package source

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/source/place"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/store"
)

// One path can name several files of a dataset, with the syntax of shells and the webdataset
// library: shards/train-{0000..0127}.tar, or shards/*.tar.

// maxShards limits the names that a pattern expands to.
const maxShards = 1 << 20

// isPattern reports whether a path is a pattern.
func isPattern(p string) bool { return strings.ContainsAny(p, "{*?[") }

// expand finds the files that match the path. Braces keep their written order. Matches of a star
// are sorted by name.
func (loc *location) expand(ctx context.Context) error {
	at := loc.path
	if stores.IsURL(at) {
		at = loc.store.Path("") // the URL without a user, as in the names of objects
	}
	scheme, rest := place.Split(at)
	all, err := expandBraces(rest)
	if err != nil {
		return err
	}
	base := commonFolder(all)
	if scheme != "" && base == "." {
		return errors.New("the name of a bucket cannot be a pattern")
	}
	st := place.At(loc.store, scheme+base)
	for _, p := range all {
		name := strings.TrimPrefix(strings.TrimPrefix(path.Clean(p), base), "/")
		if base == "." {
			name = path.Clean(p)
		}
		if !strings.ContainsAny(name, "*?[") {
			loc.names = append(loc.names, name)
			continue
		}
		found, err := glob(ctx, st, name)
		if err != nil {
			return err
		}
		loc.names = append(loc.names, found...)
	}
	if len(loc.names) == 0 {
		return errors.New("no file has such a name")
	}
	loc.path, loc.store = scheme+base, st
	return nil
}

// commonFolder returns the deepest folder without a pattern that contains all paths.
func commonFolder(all []string) string {
	base := path.Dir(path.Clean(all[0]))
	for _, p := range all {
		for p = path.Clean(p); !strings.HasPrefix(p, base+"/") && base != "." && base != "/"; {
			base = path.Dir(base)
		}
	}
	for isPattern(base) {
		base = path.Dir(base)
	}
	return base
}

// glob lists the objects of a store that match a pattern. A star matches any part of a name, but
// not a slash.
func glob(ctx context.Context, st store.Store, pattern string) ([]string, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("%q is not a pattern of names", pattern)
	}
	dir := path.Dir(pattern)
	for isPattern(dir) {
		dir = path.Dir(dir)
	}
	if dir == "." {
		dir = ""
	}
	var names []string
	err := st.List(ctx, dir, &store.ListOptions{Names: true, Keep: func(name string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	}}, func(e store.Entry) error {
		names = append(names, e.Name)
		return nil
	})
	slices.Sort(names)
	return names, err
}

// expandBraces expands braces in a text: {a,b}, {0000..0127}, {0..9..3}, also nested. A backslash
// makes the next character literal.
func expandBraces(text string) ([]string, error) {
	e := &braces{text: text}
	out, err := e.words()
	if err == nil && e.at < len(text) {
		err = errors.New("a closing brace without an opening one")
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return out, nil
}

type braces struct {
	text  string
	at    int
	depth int
}

// deepest is the largest nesting of braces.
const deepest = 16

// words reads to a closing brace, to a comma in braces, or to the end of the text.
func (e *braces) words() ([]string, error) {
	out := []string{""}
	var plain []byte
	put := func(alts []string) error {
		if len(out)*len(alts) > maxShards {
			return fmt.Errorf("it stands for more than %d names", maxShards)
		}
		next := make([]string, 0, len(out)*len(alts))
		for _, head := range out {
			for _, tail := range alts {
				next = append(next, head+string(plain)+tail)
			}
		}
		out, plain = next, plain[:0]
		return nil
	}
	for ; e.at < len(e.text); e.at++ {
		c := e.text[e.at]
		if c == '}' || c == ',' && e.depth > 0 {
			break
		}
		if c == '{' {
			alts, err := e.group()
			if err == nil {
				err = put(alts)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		if c == '\\' && e.at+1 < len(e.text) {
			e.at++
			c = e.text[e.at]
		}
		plain = append(plain, c)
	}
	if err := put([]string{""}); err != nil {
		return nil, err
	}
	return out, nil
}

// group reads the content of braces, up to the closing brace.
func (e *braces) group() ([]string, error) {
	if n := strings.IndexByte(e.text[e.at:], '}'); n >= 0 {
		if out, ok, err := span(e.text[e.at+1 : e.at+n]); ok || err != nil {
			e.at += n
			return out, err
		}
	}
	if e.depth++; e.depth > deepest {
		return nil, errors.New("too many braces in one another")
	}
	defer func() { e.depth-- }()
	var all []string
	for list := false; ; list = true {
		e.at++
		part, err := e.words()
		switch {
		case err != nil:
			return nil, err
		case e.at == len(e.text):
			return nil, errors.New("a brace that is not closed")
		case len(all)+len(part) > maxShards:
			return nil, fmt.Errorf("it stands for more than %d names", maxShards)
		}
		all = append(all, part...)
		if e.text[e.at] == '}' {
			if !list { // {x} is not a list, so the braces are literal
				for i := range all {
					all[i] = "{" + all[i] + "}"
				}
			}
			return all, nil
		}
	}
}

// span reads 0000..0127 or a..f, with an optional step.
func span(text string) ([]string, bool, error) {
	parts := strings.Split(text, "..")
	if len(parts) != 2 && len(parts) != 3 {
		return nil, false, nil
	}
	step := int64(1)
	if len(parts) == 3 {
		n, err := strconv.ParseInt(parts[2], 10, 32)
		if err != nil {
			return nil, false, nil
		}
		step = max(n, -n, 1)
	}
	a, b := parts[0], parts[1]
	if len(a) == 1 && len(b) == 1 && isLetter(a[0]) && isLetter(b[0]) {
		var out []string
		for c := int64(a[0]); ; {
			if isLetter(byte(c)) {
				out = append(out, string(rune(c)))
			}
			if a[0] <= b[0] {
				c += step
			} else {
				c -= step
			}
			if c > int64(max(a[0], b[0])) || c < int64(min(a[0], b[0])) {
				return out, true, nil
			}
		}
	}
	from, err := strconv.ParseInt(a, 10, 62)
	if err != nil {
		return nil, false, nil
	}
	to, err := strconv.ParseInt(b, 10, 62)
	if err != nil {
		return nil, false, nil
	}
	if count := (max(from, to) - min(from, to)) / step; count >= maxShards {
		return nil, false, fmt.Errorf("{%s} stands for more than %d names", text, maxShards)
	}
	width := 0
	if padded(a) || padded(b) {
		width = max(len(a), len(b))
	}
	var out []string
	for n := from; n >= min(from, to) && n <= max(from, to); {
		out = append(out, fmt.Sprintf("%0*d", width, n))
		if from <= to {
			n += step
		} else {
			n -= step
		}
	}
	return out, true, nil
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// padded reports whether a number has leading zeros.
func padded(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return len(s) > 1 && s[0] == '0'
}
