package tablesource

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
)

// Column says which column of a table becomes which field.
type Column struct {
	// Name is that of the field, "*" for all columns that no other Column names.
	Name string
	// Kind is that of the values, "" for what the values look like.
	Kind driver.Kind
	// From is the name of the column.
	From string
}

// Rest is the name of a Column that stands for all others.
const Rest = "*"

// kinds are those that a column can be made to have; clips of frames are made of it by
// package clips.
var kinds = []driver.Kind{
	driver.KindImage, driver.KindMask, driver.KindAudio, driver.KindBytes, driver.KindLabel, driver.KindMultiLabel, driver.KindInt,
	driver.KindFloat, driver.KindText, driver.KindJSON, driver.KindArray, driver.KindRagged, driver.KindTokens, driver.KindFrames,
}

// isFile says whether values of a kind are files, whose paths a column has.
func isFile(k driver.Kind) bool {
	return k == driver.KindImage || k == driver.KindMask || k == driver.KindAudio || k == driver.KindBytes
}

// ParseColumn reads "NAME", "NAME=COLUMN", "NAME:KIND", "NAME:KIND=COLUMN" or "*".
func ParseColumn(text string) (Column, error) {
	name, from, ok := strings.Cut(text, "=")
	c := Column{Name: name, From: from}
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		c.Name, c.Kind = name[:i], driver.Kind(name[i+1:])
	}
	if !ok {
		c.From = c.Name
	}
	switch {
	case text == Rest:
	case c.Name == "" || c.From == "" || c.Name == Rest:
		return c, fmt.Errorf("%q is no field: write NAME, NAME:KIND, NAME=COLUMN or NAME:KIND=COLUMN, such as label:label=class, or * for all other columns", text)
	case c.Name == "index":
		return c, fmt.Errorf("%q: batches call the record numbers index: give the field another name", text)
	case c.Kind != "" && !slices.Contains(kinds, c.Kind):
		return c, fmt.Errorf("the field %q is of the kind %q; columns are one of %v", c.Name, c.Kind, kinds)
	}
	return c, nil
}

// ParseQuery reads the columns of a URL: what stands behind its question mark.
func ParseQuery(query string) ([]Column, error) {
	var columns []Column
	for part := range strings.SplitSeq(query, "&") {
		text, err := url.PathUnescape(part)
		if err != nil {
			return nil, fmt.Errorf("%q is no part of a URL: %w", part, err)
		}
		c, err := ParseColumn(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(columns, func(o Column) bool { return o.Name == c.Name }) {
			return nil, fmt.Errorf("field %q is there twice", c.Name)
		}
		columns = append(columns, c)
	}
	return columns, nil
}

// Query is the query of a URL that ParseQuery reads.
func Query(columns []Column) string {
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

// escape writes what has a meaning in a query in another way.
var escape = strings.NewReplacer("%", "%25", "&", "%26", "\n", "%0A", "\r", "%0D")

// maxName is the length of a field's name.
const maxName = 255

// Named gives columns names that fields can have: not empty, each another one, and
// not that of the record numbers.
func Named(names []string) []string {
	out := make([]string, len(names))
	taken := map[string]bool{"index": true}
	for i, name := range names {
		name = strings.ToValidUTF8(name, "\uFFFD")
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

// Choose returns the columns that become fields, each with the Column that says
// how, and that by place in the table.
func Choose(all []string, columns []Column) ([]Column, []int, error) {
	if len(columns) == 0 {
		columns = []Column{{Name: Rest}}
	}
	used := map[string]bool{}
	taken := map[string]bool{}
	for _, c := range columns {
		used[c.From], taken[c.Name] = true, true
	}
	var out []Column
	var from []int
	for _, c := range columns {
		if c.Name == Rest {
			for i, name := range all {
				if used[name] {
					continue
				}
				if taken[name] {
					return nil, nil, fmt.Errorf("field %q has the name of another column: give it another one", name)
				}
				out, from = append(out, Column{Name: name, From: name}), append(from, i)
			}
			continue
		}
		i := slices.Index(all, c.From)
		if i < 0 {
			return nil, nil, fmt.Errorf("there is no column %q: the columns are %s", c.From, listed(all))
		}
		out, from = append(out, c), append(from, i)
	}
	if len(out) == 0 {
		return nil, nil, fmt.Errorf("it has no columns")
	}
	return out, from, nil
}

// listed names the first columns for a message.
func listed(all []string) string {
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
