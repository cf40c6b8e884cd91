package columns

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
)

// Uneven is the reason to leave out a column whose inner lists differ.
const Uneven = "is not read: the lists within its lists have different lengths or no value"

// Choice is the choice of the columns of a table that become fields. Columns that cannot be read are left out, but a
// column that the user names is then an error.
type Choice struct {
	where fmt.Stringer
	all   []*Column
	named map[*Column]bool
	left  []driver.Skipped
}

// Choose returns the columns that become fields, and what the user asks of each.
func Choose(where fmt.Stringer, all []*Column, asked []column.Want) (*Choice, []column.Want, []*Column, error) {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Name
	}
	wants, from, err := column.Choose(column.Named(names), asked)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", where, err)
	}
	explicit := map[string]bool{}
	for _, w := range asked {
		explicit[w.From] = w.Name != column.Rest
	}
	ch := &Choice{where: where, all: all, named: map[*Column]bool{}}
	var keep []column.Want
	var of []*Column
	for i, w := range wants {
		c := all[from[i]]
		ch.named[c] = explicit[w.From]
		switch {
		case c.Why == "":
			keep, of = append(keep, w), append(of, c)
		case ch.named[c]:
			return nil, nil, nil, refuse(where, c, all)
		default:
			ch.leave(c)
		}
	}
	return ch, keep, of, ch.Some(len(of))
}

func (ch *Choice) leave(c *Column) {
	ch.left = append(ch.left, driver.Skipped{Path: c.Name, Reason: fmt.Sprintf("%.200s %s", c.Typ(), c.Why)})
}

// Leave leaves out a chosen column that turned out to be unreadable.
func (ch *Choice) Leave(c *Column, why string) error {
	c.Why = why
	if ch.named[c] {
		return refuse(ch.where, c, ch.all)
	}
	ch.leave(c)
	return nil
}

// Some returns an error if no column is left.
func (ch *Choice) Some(n int) error {
	if n > 0 {
		return nil
	}
	for _, c := range ch.all {
		if c.Why != "" {
			return refuse(ch.where, c, ch.all)
		}
	}
	return fmt.Errorf("%s has no columns", ch.where)
}

// Left lists the columns that were left out.
func (ch *Choice) Left() []driver.Skipped { return ch.left }
