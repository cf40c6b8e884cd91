package cli

import (
	"fmt"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// shownColumns is the number of columns of an array that are listed.
const shownColumns = 40

// columnsText shows the columns of an array.
func columnsText(p *page, name string, columns []driver.Column) {
	if columns == nil {
		return
	}
	p.section("Columns of "+clean(name), "")
	t := newTable("elements", "column", "as", "missing", "normalised by")
	for i := range columns {
		if i == shownColumns {
			break
		}
		c := &columns[i]
		at := fmt.Sprint(c.At)
		if c.Width > 1 {
			at = fmt.Sprintf("%d to %d", c.At, c.At+c.Width-1)
		}
		t.Row(at, clean(c.Field), columnAs(c), columnMissing(c), columnNormalised(c))
	}
	p.f("%s\n", t)
	if n := len(columns) - shownColumns; n > 0 {
		p.f("  ... and %s more (--json lists all)\n", units.Int(int64(n)))
	}
}

func columnAs(c *driver.Column) string {
	if c.As == driver.AsNumber {
		return string(c.As)
	}
	return fmt.Sprintf("%s of %s", c.As, units.Plural(len(c.Classes), "value"))
}

func columnMissing(c *driver.Column) string {
	how := "none"
	switch {
	case c.As == driver.AsCode:
		how = "0"
	case c.As == driver.AsOneHot:
		how = "all 0"
	case len(c.Fill) > 0:
		how = numbersText(c.Fill)
	}
	if c.Flag {
		how += ", flagged"
	}
	return how
}

func columnNormalised(c *driver.Column) string {
	if c.Mean == nil {
		return ""
	}
	return fmt.Sprintf("mean %s, std %s", numbersText(c.Mean), numbersText(c.Std))
}

// numbersText are the first of some numbers.
func numbersText(all []float64) string {
	var parts []string
	for i, x := range all {
		if i == 3 {
			parts = append(parts, "...")
			break
		}
		parts = append(parts, fmt.Sprintf("%.4g", x))
	}
	return strings.Join(parts, " ")
}
