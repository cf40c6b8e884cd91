package yolosource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Data is the content of a data.yaml.
type Data struct {
	// Root is the folder of the splits as written in the file, "" for the folder of the file.
	Root string
	// Splits are the folders of each split, or text files that list its images.
	Splits map[string][]string
	// Names are the class names, by number.
	Names []string
	// Points is the number of key points per object, 0 for none. Dims is the number of values per key point: 2, or
	// 3 with the visibility.
	Points, Dims int
}

// maxClasses limits class numbers.
const maxClasses = 1 << 16

// splits are the possible names of splits.
var splits = []string{"train", "val", "test", "valid"}

// ParseData parses a data.yaml. It supports the subset of YAML that such files use: words, lists and numbered
// lists, in brackets or one item per line.
func ParseData(text string) (*Data, error) {
	d := &Data{Splits: map[string][]string{}}
	key, open := "", "" // the current member, and an unclosed bracket
	var items []item
	finish := func() error {
		err := d.set(key, items)
		items = nil
		return err
	}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\uFEFF")) {
		n++
		fail := func(err error) (*Data, error) { return nil, fmt.Errorf("line %d: %w", n, err) }
		body := strings.TrimRight(uncommented(line), " \t\r\n")
		trimmed := strings.TrimSpace(body)
		switch {
		case trimmed == "" || trimmed == "---" || trimmed == "...":
			continue
		case open != "":
			open += " " + trimmed
		case body[0] == ' ' || body[0] == '\t' || strings.HasPrefix(body, "- ") || body == "-":
			one, err := oneItem(trimmed)
			if err != nil {
				return fail(err)
			}
			if items = append(items, one); len(items) > maxClasses {
				return fail(fmt.Errorf("more than %d items", maxClasses))
			}
			continue
		default:
			if err := finish(); err != nil {
				return fail(err)
			}
			k, rest, ok := strings.Cut(body, ":")
			if !ok {
				return fail(fmt.Errorf("expected NAME: VALUE, got %.60q", trimmed))
			}
			key = strings.TrimSpace(unquoted(k))
			rest = strings.TrimSpace(rest)
			if rest == "" {
				continue
			}
			if rest[0] != '[' && rest[0] != '{' {
				items = []item{{value: unquoted(rest)}}
				continue
			}
			open = rest
		}
		if len(open) > 64<<20 {
			return fail(fmt.Errorf("a list of more than 64 MiB"))
		}
		if last := open[len(open)-1]; last == ']' || last == '}' {
			var err error
			if items, err = inBrackets(open); err != nil {
				return fail(err)
			}
			open = ""
		}
	}
	if open != "" {
		return nil, fmt.Errorf("line %d: the file ends in the middle of a list: it is cut off", n)
	}
	if err := finish(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n, err)
	}
	return d, nil
}

// item is an element of a list, or of a numbered list.
type item struct{ key, value string }

// set sets a member.
func (d *Data) set(key string, items []item) error {
	values := make([]string, len(items))
	for i := range items {
		values[i] = items[i].value
	}
	switch {
	case key == "path":
		if len(values) == 1 {
			d.Root = values[0]
		}
	case slices.Contains(splits, key):
		if key == "valid" {
			key = "val"
		}
		for _, v := range values {
			if v != "" && v != "null" && v != "~" {
				d.Splits[key] = append(d.Splits[key], v)
			}
		}
	case key == "kpt_shape":
		if len(values) != 2 {
			return fmt.Errorf("kpt_shape has %d numbers, expected 2", len(values))
		}
		var err1, err2 error
		d.Points, err1 = strconv.Atoi(values[0])
		d.Dims, err2 = strconv.Atoi(values[1])
		if err1 != nil || err2 != nil || d.Points < 1 || d.Points > 1024 || d.Dims != 2 && d.Dims != 3 {
			return fmt.Errorf("invalid kpt_shape %v: expected the number of key points, and 2 or 3", values)
		}
	case key == "names":
		for i, it := range items {
			at := i
			if it.key != "" {
				var err error
				if at, err = strconv.Atoi(it.key); err != nil || at < 0 || at >= maxClasses {
					return fmt.Errorf("names: expected a class number, got %.40q", it.key)
				}
			}
			for len(d.Names) <= at {
				d.Names = append(d.Names, strconv.Itoa(len(d.Names)))
			}
			d.Names[at] = strings.ToValidUTF8(it.value, "\uFFFD")
		}
	}
	return nil
}

// oneItem parses "- VALUE" or "KEY: VALUE".
func oneItem(text string) (item, error) {
	if text == "-" {
		return item{}, nil
	}
	if rest, ok := strings.CutPrefix(text, "- "); ok {
		return item{value: unquoted(strings.TrimSpace(rest))}, nil
	}
	return pair(text)
}

// pair parses KEY: VALUE.
func pair(text string) (item, error) {
	i := outside(text, ':')
	if i < 0 {
		return item{}, fmt.Errorf("expected a list item or NAME: VALUE, got %.60q", text)
	}
	return item{unquoted(strings.TrimSpace(text[:i])), unquoted(strings.TrimSpace(text[i+1:]))}, nil
}

// inBrackets parses [a, b] or {0: a, 1: b}.
func inBrackets(text string) ([]item, error) {
	named := text[0] == '{'
	if len(text) < 2 || named != (text[len(text)-1] == '}') {
		return nil, fmt.Errorf("%.60q has no closing bracket", text)
	}
	rest := strings.TrimSpace(text[1 : len(text)-1])
	var out []item
	for rest != "" {
		i := outside(rest, ',')
		part := rest
		if rest = ""; i >= 0 {
			part, rest = part[:i], strings.TrimSpace(part[i+1:])
		}
		it := item{value: unquoted(strings.TrimSpace(part))}
		if named {
			var err error
			if it, err = pair(part); err != nil {
				return nil, err
			}
		}
		if out = append(out, it); len(out) > maxClasses {
			return nil, fmt.Errorf("more than %d items", maxClasses)
		}
	}
	return out, nil
}

// outside returns the position of a character that is not in quotes, or -1.
func outside(text string, want byte) int {
	quote := byte(0)
	for i := range len(text) {
		switch c := text[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case (c == '"' || c == '\'') && (i == 0 || strings.IndexByte(" ,[{:-\t", text[i-1]) >= 0):
			quote = c
		case c == want:
			return i
		}
	}
	return -1
}

// uncommented returns a line without its comment.
func uncommented(line string) string {
	for from := 0; ; {
		i := outside(line[from:], '#')
		if i < 0 {
			return line
		}
		if i += from; i == 0 || line[i-1] == ' ' || line[i-1] == '\t' {
			return line[:i]
		}
		from = i + 1
	}
}

// unquoted returns a word without its quotes.
func unquoted(s string) string {
	if n := len(s); n >= 2 && (s[0] == '\'' || s[0] == '"') && s[n-1] == s[0] {
		if s[0] == '"' {
			if u, err := strconv.Unquote(s); err == nil {
				return u
			}
		}
		return strings.ReplaceAll(s[1:n-1], "''", "'")
	}
	return s
}
