package driver

import (
	"fmt"
	"slices"
)

// ColumnAs is the way in which the values of a column become numbers.
type ColumnAs string

// The ways to convert a column.
const (
	// AsNumber keeps the number.
	AsNumber ColumnAs = "number"
	// AsCode is the index of the value in Column.Classes plus one. It is 0 for a missing or unknown
	// value.
	AsCode ColumnAs = "code"
	// AsOneHot is one number per class: 1 for the class of the value and 0 for all others. All are
	// 0 for a missing or unknown value.
	AsOneHot ColumnAs = "onehot"
)

// Column describes one of the table columns that an array with one axis was made of. The
// description is sufficient to convert other rows in the same way.
type Column struct {
	// Field is the name of the column.
	Field string   `json:"field"`
	As    ColumnAs `json:"as"`
	// At is the index of its first element in the array. Width is the number of its elements,
	// including those of Flag.
	At    int `json:"at"`
	Width int `json:"width"`
	// Classes are the values that have a code, in order.
	Classes []string `json:"classes,omitempty"`
	// Fill replaces missing numbers, by element; nil leaves them NaN. Afterwards Mean was
	// subtracted and the result was divided by Std; nil for no change.
	Fill []float64 `json:"fill,omitempty"`
	Mean []float64 `json:"mean,omitempty"`
	Std  []float64 `json:"std,omitempty"`
	// Flag reports that extra elements follow: one per number, or one for a category. An extra
	// element is 1 if the value is missing or unknown, else 0.
	Flag bool `json:"flag,omitempty"`
}

// CheckColumns returns an error unless the columns together fill an array with the given number of
// elements.
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
			return fmt.Errorf("column %q has an unknown conversion %q", c.Field, c.As)
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
				return fmt.Errorf("column %q has %d numbers, expected %d", c.Field, len(numbers), n)
			}
		}
		if c.At != at || c.Width != want || n < 1 || c.Width > elements-at || (c.Mean == nil) != (c.Std == nil) || slices.Contains(c.Std, 0) {
			return fmt.Errorf("column %q has %d elements from %d on, but the array has %d", c.Field, c.Width, c.At, elements)
		}
		at += c.Width
	}
	if at != elements {
		return fmt.Errorf("columns have %d elements, but the array has %d", at, elements)
	}
	return nil
}

// SameColumns reports whether two arrays are made of the same columns in the same way.
func SameColumns(a, b []Column) bool {
	return slices.EqualFunc(a, b, func(x, y Column) bool {
		return x.Field == y.Field && x.As == y.As && x.At == y.At && x.Width == y.Width && x.Flag == y.Flag && slices.Equal(x.Classes, y.Classes) &&
			slices.Equal(x.Fill, y.Fill) && slices.Equal(x.Mean, y.Mean) && slices.Equal(x.Std, y.Std)
	})
}
