package yolosource

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
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

	mappings int // parsed so far
}

// maxClasses limits class numbers.
const maxClasses = 1 << 16

// maxMappings limits merged mappings, which may contain themselves.
const maxMappings = 100

// splits are the members that name splits.
var splits = map[string]string{"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}

// ParseData parses a data.yaml. Members that Stoker does not need may have any content.
func ParseData(text string) (*Data, error) {
	var doc yaml.Node
	// The library refuses version 1.2 by name, and reads it.
	text = strings.Replace(printable(text), "%YAML 1.2", "%YAML 1.1", 1)
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	d := &Data{Splits: map[string][]string{}}
	if len(doc.Content) == 0 {
		return d, nil
	}
	if err := d.pairs(doc.Content[0], d.set); err != nil {
		return nil, err
	}
	return d, nil
}

// printable drops invalid UTF-8 and characters that are not text, as Ultralytics does before it parses the file.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || r != '\t' && r != '\n' && r != '\r' && r != '\u0085' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.TrimPrefix(text, "\uFEFF"))
}

func wrong(n *yaml.Node, format string, a ...any) error {
	return fmt.Errorf("line %d: %s", n.Line, fmt.Sprintf(format, a...))
}

// aliased returns the node that an alias stands for.
func aliased(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// pairs calls f for the members of a mapping. Merged members come first, so that members of the mapping itself
// replace them. Of two merged mappings the first wins.
func (d *Data) pairs(n *yaml.Node, f func(key string, value *yaml.Node) error) error {
	m := aliased(n)
	if m.Kind != yaml.MappingNode {
		return wrong(n, "expected NAME: VALUE, got %.60q", m.Value)
	}
	if d.mappings++; d.mappings > maxMappings {
		return wrong(n, "more than %d mappings are merged", maxMappings)
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Tag != "!!merge" {
			continue
		}
		for _, from := range slices.Backward(list(m.Content[i+1])) {
			if err := d.pairs(from, f); err != nil {
				return err
			}
		}
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Tag == "!!merge" {
			continue
		}
		if err := f(strings.TrimSpace(aliased(m.Content[i]).Value), aliased(m.Content[i+1])); err != nil {
			return err
		}
	}
	return nil
}

// list returns the elements of a list, or the only element.
func list(n *yaml.Node) []*yaml.Node {
	if n = aliased(n); n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// word returns a value that is a word, "" for null.
func word(n *yaml.Node) (string, error) {
	n = aliased(n)
	switch {
	case n.Kind != yaml.ScalarNode:
		return "", wrong(n, "expected a word or a number")
	case n.Tag == "!!null":
		return "", nil
	}
	return strings.TrimSpace(n.Value), nil
}

// words returns the values of a list of words, or of a single word.
func words(n *yaml.Node) ([]string, error) {
	all := list(n)
	out := make([]string, len(all))
	for i, c := range all {
		var err error
		if out[i], err = word(c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// set sets a member.
func (d *Data) set(key string, n *yaml.Node) (err error) {
	split := splits[key]
	switch {
	case key == "path":
		d.Root, err = word(n)
	case split != "":
		return d.setSplit(split, n)
	case key == "kpt_shape":
		return d.setPoints(n)
	case key == "names" && n.Kind == yaml.MappingNode:
		d.Names = nil
		return d.pairs(n, d.name)
	case key == "names":
		d.Names = nil
		if n.Kind != yaml.SequenceNode {
			return wrong(n, "names: expected a list item, or NUMBER: NAME, for each class")
		}
		for i, c := range n.Content {
			if err := d.name(strconv.Itoa(i), c); err != nil {
				return err
			}
		}
	}
	return err
}

func (d *Data) setSplit(split string, n *yaml.Node) error {
	values, err := words(n)
	if err != nil {
		return err
	}
	delete(d.Splits, split)
	for _, v := range values {
		if v != "" {
			d.Splits[split] = append(d.Splits[split], v)
		}
	}
	return nil
}

func (d *Data) setPoints(n *yaml.Node) error {
	values, err := words(n)
	if err != nil {
		return err
	}
	if len(values) != 2 {
		return wrong(n, "kpt_shape has %d numbers, expected 2", len(values))
	}
	var err1, err2 error
	d.Points, err1 = strconv.Atoi(values[0])
	d.Dims, err2 = strconv.Atoi(values[1])
	if err1 != nil || err2 != nil || d.Points < 1 || d.Points > 1024 || d.Dims != 2 && d.Dims != 3 {
		return wrong(n, "invalid kpt_shape %v: expected the number of key points, and 2 or 3", values)
	}
	return nil
}

// name sets the name of a class.
func (d *Data) name(number string, n *yaml.Node) error {
	at, err := strconv.Atoi(number)
	if err != nil || at < 0 || at >= maxClasses {
		return wrong(n, "names: expected a class number below %d, got %.40q", maxClasses, number)
	}
	for len(d.Names) <= at {
		d.Names = append(d.Names, strconv.Itoa(len(d.Names)))
	}
	d.Names[at], err = word(n)
	return err
}
