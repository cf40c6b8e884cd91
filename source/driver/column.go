package driver

import (
	"fmt"
	"slices"
)

// ColumnAs says how the values of a column became numbers.
type ColumnAs string

// What becomes of columns.
const (
	// AsNumber is the number itself.
	AsNumber ColumnAs = "number"
	// AsCode is the place of the value among Column.Classes, counted from 1; 0 is a value
	// that is missing or none of them.
	AsCode ColumnAs = "code"
	// AsOneHot is as many numbers as there are Classes: 1 at the place of the value and 0
	// elsewhere, or 0 everywhere for a value that is missing or none of them.
	AsOneHot ColumnAs = "onehot"
)

// Column is one of the columns of a table that an array of one axis was made of. It has
// all that is needed to make the same of other rows.
type Column struct {
	// Field is the name of the column.
	Field string   `json:"field"`
	As    ColumnAs `json:"as"`
	// At is the place of its first element in the array, Width how many elements it has,
	// those of Flag with them.
	At    int `json:"at"`
	Width int `json:"width"`
	// Classes are the values that have a code, in their order.
	Classes []string `json:"classes,omitempty"`
	// Fill is what stands for missing numbers, by element; nil leaves them NaN. Mean and
	// Std are what was then taken off and divided by, nil for nothing.
	Fill []float64 `json:"fill,omitempty"`
	Mean []float64 `json:"mean,omitempty"`
	Std  []float64 `json:"std,omitempty"`
	// Flag says that behind them there is an element more for each number, or one for a
	// category: 1 where the value is missing, or none of Classes, and 0 elsewhere.
	Flag bool `json:"flag,omitempty"`
}

// CheckColumns refuses columns that do not make up an array of some elements.
func CheckColumns(columns []Column, elements int) error {
	at := 0
	for i := range columns {
		c := &columns[i]
		n := c.Width
		switch {
		case c.As == AsCode:
			n = 1
		case c.As == AsOneHot:
			n = len(c.Classes)
		case c.As != AsNumber:
			return fmt.Errorf("column %q is a %q", c.Field, c.As)
		case c.Flag:
			n /= 2
		}
		want := n
		if c.Flag && c.As == AsNumber {
			want = 2 * n
		} else if c.Flag {
			want = n + 1
		}
		for _, numbers := range [][]float64{c.Fill, c.Mean, c.Std} {
			if numbers != nil && (len(numbers) != n || c.As != AsNumber) {
				return fmt.Errorf("column %q has %d numbers for %d elements", c.Field, len(numbers), n)
			}
		}
		if c.At != at || c.Width != want || n < 1 || c.Width > elements-at || (c.Mean == nil) != (c.Std == nil) || slices.Contains(c.Std, 0) {
			return fmt.Errorf("column %q is %d elements from %d on, of %d", c.Field, c.Width, c.At, elements)
		}
		at += c.Width
	}
	if at != elements {
		return fmt.Errorf("columns of %d elements make an array of %d", at, elements)
	}
	return nil
}

// SameColumns says whether arrays are made of equal columns in an equal way.
func SameColumns(a, b []Column) bool {
	return slices.EqualFunc(a, b, func(x, y Column) bool {
		return x.Field == y.Field && x.As == y.As && x.At == y.At && x.Width == y.Width && x.Flag == y.Flag && slices.Equal(x.Classes, y.Classes) &&
			slices.Equal(x.Fill, y.Fill) && slices.Equal(x.Mean, y.Mean) && slices.Equal(x.Std, y.Std)
	})
}
