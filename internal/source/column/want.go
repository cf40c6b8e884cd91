// Package column decides which columns of a container become fields, and of which kind. If a column
// cannot have the kind that the user states, it returns the reason.
//
// Want is the request of the user. Seen describes the values that a source observed. Field makes a
// field from both. All containers use it, so a column has the same kind in each of them: see "Which
// kind a column gets" in docs/reference/concepts.md.
package column

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
)

// Want is a column that the user asks for.
type Want struct {
	// Name is the name of the field, Rest for all columns that no other Want names.
	Name string
	// Kind is the kind that the user states, "" if the values decide.
	Kind driver.Kind
	// From is the name of the column.
	From string
}

// Rest is the name of a Want that stands for all other columns.
const Rest = "*"

// kinds are the kinds that a user can state for a column. Package clips makes
// frames of a column of paths.
var kinds = []driver.Kind{
	driver.KindImage, driver.KindMask, driver.KindAudio, driver.KindBytes, driver.KindLabel, driver.KindMultiLabel, driver.KindInt,
	driver.KindFloat, driver.KindText, driver.KindJSON, driver.KindArray, driver.KindRagged, driver.KindTokens, driver.KindFrames,
}

// IsFile reports whether values of a kind can be files that a column of text names by path.
func IsFile(k driver.Kind) bool { return IsDecoded(k) || k == driver.KindBytes }

// IsDecoded reports whether values of a kind are files that a decoder reads.
func IsDecoded(k driver.Kind) bool {
	return k == driver.KindImage || k == driver.KindMask || k == driver.KindAudio
}

// Parse reads "NAME", "NAME=COLUMN", "NAME:KIND", "NAME:KIND=COLUMN" or "*".
func Parse(text string) (Want, error) {
	name, from, ok := strings.Cut(text, "=")
	c := Want{Name: name, From: from}
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		c.Name, c.Kind = name[:i], driver.Kind(name[i+1:])
	}
	if !ok {
		c.From = c.Name
	}
	switch {
	case text == Rest:
	case c.Name == "" || c.From == "" || c.Name == Rest:
		return c, fmt.Errorf("%q is not a field: write NAME, NAME:KIND, NAME=COLUMN or NAME:KIND=COLUMN, such as label:label=class, or * for all other columns", text)
	case c.Name == "index":
		return c, fmt.Errorf("%q: batches call the record numbers index: give the field another name", text)
	case c.Kind != "" && !slices.Contains(kinds, c.Kind):
		return c, fmt.Errorf("field %q has the kind %q: the kinds of columns are %v", c.Name, c.Kind, kinds)
	}
	return c, nil
}

// ParseQuery reads the columns in the query of a URL.
func ParseQuery(query string) ([]Want, error) {
	var columns []Want
	for part := range strings.SplitSeq(query, "&") {
		text, err := url.PathUnescape(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not a part of a URL: %w", part, err)
		}
		c, err := Parse(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(columns, func(o Want) bool { return o.Name == c.Name }) {
			return nil, fmt.Errorf("field %q is there twice", c.Name)
		}
		columns = append(columns, c)
	}
	return columns, nil
}

// Query returns the query of a URL that ParseQuery reads.
func Query(columns ...Want) string {
	var query []string
	for _, c := range columns {
		name := c.Name
		if c.Kind != "" {
			name += ":" + string(c.Kind)
		}
		if c.From != c.Name {
			name += "=" + c.From
		}
		query = append(query, escape.Replace(name))
	}
	return strings.Join(query, "&")
}

// escape escapes characters that have a meaning in a query.
var escape = strings.NewReplacer("%", "%25", "&", "%26", "\n", "%0A", "\r", "%0D")

// maxName is the largest length of a field's name in bytes.
const maxName = 255

// Named gives columns names that fields can have: not empty, all different, and
// not "index", which batches use for the record numbers.
func Named(names []string) []string {
	out := make([]string, len(names))
	taken := map[string]bool{"index": true}
	for i, name := range names {
		name = driver.ValidName(name)
		switch {
		case name == "":
			name = fmt.Sprintf("column_%d", i)
		case name == "index":
			name = "index_column"
		case len(name) > maxName:
			name = strings.ToValidUTF8(name[:maxName-20], "")
		}
		for base, n := name, 2; taken[name]; n++ {
			name = fmt.Sprintf("%s_%d", base, n)
		}
		taken[name] = true
		out[i] = name
	}
	return out
}

// Choose returns the columns that become fields, and the index of each column in all, the names of
// a container's columns.
func Choose(all []string, columns []Want) ([]Want, []int, error) {
	if len(columns) == 0 {
		columns = []Want{{Name: Rest}}
	}
	used := map[string]bool{}
	taken := map[string]bool{}
	for _, c := range columns {
		used[c.From], taken[c.Name] = true, true
	}
	var out []Want
	var from []int
	for _, c := range columns {
		if c.Name == Rest {
			for i, name := range all {
				if used[name] {
					continue
				}
				if taken[name] {
					return nil, nil, fmt.Errorf("field %q has the name of another column: give it another name", name)
				}
				out, from = append(out, Want{Name: name, From: name}), append(from, i)
			}
			continue
		}
		i := slices.Index(all, c.From)
		if i < 0 {
			return nil, nil, fmt.Errorf("there is no column %q: the columns are %s", c.From, Listed(all))
		}
		out, from = append(out, c), append(from, i)
	}
	if len(out) == 0 {
		return nil, nil, fmt.Errorf("it has no columns")
	}
	return out, from, nil
}

// Listed names the first columns for a message.
func Listed(all []string) string {
	const most = 20
	var out []string
	for _, name := range all[:min(len(all), most)] {
		out = append(out, fmt.Sprintf("%q", name))
	}
	if len(all) > most {
		out = append(out, fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(out, ", ")
}
