package cli

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// left lists the files of a source that are not fields, with the reasons.
func left(p *page, src driver.Source) {
	l, ok := driver.As[driver.Leaver](src)
	if !ok || len(l.Left()) == 0 {
		return
	}
	all := l.Left()
	p.section("No fields", "")
	for _, s := range all[:min(len(all), shownSkipped)] {
		p.f("  %s: %s\n", clean(s.Path), clean(s.Reason))
	}
	if n := len(all) - shownSkipped; n > 0 {
		p.f("  and %d more\n", n)
	}
}

// notTaken lists the inputs that are not records, one line for each reason.
func notTaken(p *page, groups []driver.SkippedGroup) {
	if len(groups) == 0 {
		return
	}
	p.section("Not taken", "")
	for _, g := range groups {
		p.f("  %s\n", besideText(g))
	}
}

// badFiles lists the first unreadable files. Their records are bad.
func badFiles(p *page, info *driver.Info) {
	if info.BadFiles == 0 {
		return
	}
	p.section("Bad files", fmt.Sprintf("%s: a loader fails at their records, or replaces them with on_error=\"skip\"", units.Plural(info.BadFiles, "file")))
	for _, text := range info.BadTexts() {
		p.f("  %s\n", clean(text))
	}
	if more := info.BadFiles - len(info.Bad); more > 0 {
		p.f("  and %s more\n", units.Int(more))
	}
}
