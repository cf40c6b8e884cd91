package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A URL describes a view after a #: train/#where=label<10&part=val. Characters with a special
// meaning are escaped as in URLs: %26 for &.

// CutURL cuts the views off a URL. It returns false if there are none.
func CutURL(rawURL string) (base string, specs []Spec, err error) {
	for i := range len(rawURL) {
		if rawURL[i] != '#' || !begins(rawURL[i+1:]) {
			continue
		}
		if base == "" && specs == nil {
			base = rawURL[:i]
		}
		rest := rawURL[i+1:]
		for k := range len(rest) {
			if rest[k] == '#' && begins(rest[k+1:]) {
				rest = rest[:k]
				break
			}
		}
		spec, err := parseFragment(rest)
		if err != nil {
			return "", nil, fmt.Errorf("cannot open %s: %w", rawURL, err)
		}
		specs = append(specs, *spec)
	}
	if specs == nil {
		return rawURL, nil, nil
	}
	return base, specs, nil
}

// begins reports whether a text starts like a fragment.
func begins(s string) bool {
	key, _, ok := strings.Cut(s, "=")
	return ok && slices.Contains(Keys(), key)
}

func unescape(s string) string {
	if t, err := url.PathUnescape(s); err == nil {
		return t
	}
	return s // as in split=train:90%,val:10%
}

func parseFragment(text string) (*Spec, error) {
	s := &Spec{}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, "&") {
		key, value, ok := strings.Cut(part, "=")
		if !ok || !slices.Contains(Keys(), key) {
			return nil, fmt.Errorf("%q is not known after the #: use %s; write %%26 for an & in a value", part, strings.Join(Keys(), ", "))
		}
		if seen[key] {
			return nil, fmt.Errorf("%s= is set twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "where":
			s.Where = unescape(value)
		case "split":
			s.Split = unescape(value)
		case "part":
			s.Part = unescape(value)
		case "stratify":
			s.Stratify = unescape(value)
		case "group":
			s.Group = unescape(value)
		case "split_seed":
			s.Seed, err = strconv.ParseUint(value, 10, 64)
		case "resolution":
			s.Resolution = unescape(value)
		case "similar":
			s.Similar = unescape(value)
		case "rows":
			s.Rows = unescape(value)
		case "dedupe":
			s.Dedupe = names(value)
		case "tensors":
			err = json.Unmarshal([]byte(unescape(value)), &s.Tensors)
		case "tensors_of":
			s.TensorsOf = unescape(value)
		case "select":
			s.Select = names(value)
		case "drop":
			s.Drop = names(value)
		case "rename":
			s.Rename, err = pairs(value)
		case "kinds":
			s.Kinds, err = pairs(value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", key, value, err)
		}
	}
	return s, nil
}

func names(value string) []string {
	out := []string{}
	for part := range strings.SplitSeq(value, ",") {
		out = append(out, unescape(part))
	}
	return out
}

func pairs(value string) (map[string]string, error) {
	out := map[string]string{}
	for part := range strings.SplitSeq(value, ",") {
		a, b, ok := strings.Cut(part, ":")
		if !ok || a == "" || b == "" {
			return nil, fmt.Errorf("%q: expected two names separated by a colon", part)
		}
		if _, twice := out[unescape(a)]; twice {
			return nil, fmt.Errorf("%q is set twice", unescape(a))
		}
		out[unescape(a)] = unescape(b)
	}
	return out, nil
}

var (
	escapeValue = strings.NewReplacer("%", "%25", "&", "%26", "#", "%23")
	escapeName  = strings.NewReplacer("%", "%25", "&", "%26", "#", "%23", ",", "%2C", ":", "%3A")
)

// Fragment returns the text that describes a view at the end of a URL, for CutURL.
func Fragment(s *Spec) string {
	if s.Empty() {
		return ""
	}
	var parts []string
	text := func(key, value string) {
		if value != "" {
			parts = append(parts, key+"="+escapeValue.Replace(value))
		}
	}
	list := func(key string, all []string) {
		var out []string
		for _, name := range all {
			out = append(out, escapeName.Replace(name))
		}
		if len(out) > 0 {
			parts = append(parts, key+"="+strings.Join(out, ","))
		}
	}
	mapping := func(key string, m map[string]string) {
		var out []string
		for _, name := range slices.Sorted(maps.Keys(m)) {
			out = append(out, escapeName.Replace(name)+":"+escapeName.Replace(m[name]))
		}
		if len(out) > 0 {
			parts = append(parts, key+"="+strings.Join(out, ","))
		}
	}
	mapping("kinds", s.Kinds)
	text("where", s.Where)
	list("dedupe", s.Dedupe)
	text("similar", s.Similar)
	text("split", s.Split)
	text("part", s.Part)
	if s.Seed != 0 {
		parts = append(parts, fmt.Sprintf("split_seed=%d", s.Seed))
	}
	text("stratify", s.Stratify)
	text("group", s.Group)
	list("select", s.Select)
	list("drop", s.Drop)
	mapping("rename", s.Rename)
	if len(s.Tensors) > 0 {
		if b, err := json.Marshal(s.Tensors); err == nil {
			text("tensors", string(b))
		}
	}
	text("tensors_of", s.TensorsOf)
	text("resolution", s.Resolution)
	text("rows", s.Rows)
	return "#" + strings.Join(parts, "&")
}
