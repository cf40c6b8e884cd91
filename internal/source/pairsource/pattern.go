package pairsource

import (
	"fmt"
	"path"
	"strings"
)

// pattern is a path with stars: * matches any part of a name, ** any number of folders. The
// text that the stars match in a path is its key. Paths of different patterns with the same key
// belong to one record.
type pattern struct {
	text  string
	parts []string // between slashes
}

func parsePattern(text string) (pattern, error) {
	p := pattern{text: text, parts: strings.Split(path.Clean(text), "/")}
	switch {
	case text == "" || strings.HasPrefix(text, "/") || p.parts[0] == "..":
		return p, fmt.Errorf("%q is not a pattern of paths below the folder, such as images/*.jpg", text)
	case !strings.Contains(text, "*"):
		return p, fmt.Errorf("the pattern %q has no * that stands for the name of a record", text)
	}
	for _, part := range p.parts {
		if strings.Contains(part, "**") && part != "**" {
			return p, fmt.Errorf("the pattern %q has ** next to other letters: it stands for whole folders", text)
		}
	}
	return p, nil
}

// dir returns the folder that has all paths of the pattern.
func (p *pattern) dir() string {
	n := 0
	for n < len(p.parts)-1 && !strings.Contains(p.parts[n], "*") {
		n++
	}
	return strings.Join(p.parts[:n], "/")
}

// key returns the text that the stars match in a path, false if the path does not match. If the
// pattern ends in a star, the key does not include the extension.
func (p *pattern) key(name string) (string, bool) {
	var stars []string
	if !matchParts(p.parts, strings.Split(name, "/"), &stars) {
		return "", false
	}
	if last := p.parts[len(p.parts)-1]; strings.HasSuffix(last, "*") {
		end := &stars[len(stars)-1]
		*end = strings.TrimSuffix(*end, path.Ext(*end))
	}
	var key []string
	for _, s := range stars {
		if s != "" { // a ** that matches no folder
			key = append(key, s)
		}
	}
	return strings.Join(key, "/"), true
}

func matchParts(parts, names []string, stars *[]string) bool {
	if len(parts) == 0 {
		return len(names) == 0
	}
	before := len(*stars)
	if parts[0] == "**" {
		for n := 0; n < len(names); n++ {
			*stars = append((*stars)[:before], strings.Join(names[:n], "/"))
			if matchParts(parts[1:], names[n:], stars) {
				return true
			}
		}
		*stars = (*stars)[:before]
		return false
	}
	if len(names) == 0 || !matchName(parts[0], names[0], stars) {
		*stars = (*stars)[:before]
		return false
	}
	if matchParts(parts[1:], names[1:], stars) {
		return true
	}
	*stars = (*stars)[:before]
	return false
}

// matchName matches one part of a path. All stars but the last match as little text as
// possible.
func matchName(part, name string, stars *[]string) bool {
	fixed, rest, star := strings.Cut(part, "*")
	if !strings.HasPrefix(name, fixed) {
		return false
	}
	name = name[len(fixed):]
	if !star {
		return name == ""
	}
	if !strings.Contains(rest, "*") { // the last star matches all but the end
		if len(name) < len(rest) || !strings.HasSuffix(name, rest) {
			return false
		}
		*stars = append(*stars, name[:len(name)-len(rest)])
		return true
	}
	before := len(*stars)
	for n := 0; n <= len(name); n++ {
		*stars = append((*stars)[:before], name[:n])
		if matchName(rest, name[n:], stars) {
			return true
		}
	}
	*stars = (*stars)[:before]
	return false
}
