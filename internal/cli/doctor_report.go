package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/spf13/pflag"

	"github.com/stokerdata/stoker/internal/doctor"
	"github.com/stokerdata/stoker/internal/doctor/report"
	"github.com/stokerdata/stoker/internal/store/localstore"
)

// reportFlags are the destinations of a report besides the terminal, and the report to compare with.
type reportFlags struct {
	html    string
	compare string
	load    string
	before  *doctor.Report // what compare names
}

func (f *reportFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.html, "report", "", "write the report as one HTML page into this file: plots, events, stage times, advice")
	flags.StringVar(&f.compare, "compare", "", "compare it with an earlier report that --save wrote")
	flags.StringVar(&f.load, "load", "", "show a report that --save wrote instead of watching a job")
}

// prepare checks before the job runs for errors that would occur after it.
func (f *reportFlags) prepare() error {
	if f.compare != "" {
		before, err := loadReport(f.compare)
		if err != nil {
			return err
		}
		f.before = before
	}
	if f.html == "" {
		return nil
	}
	out, err := os.OpenFile(f.html, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return &Error{Code: ExitUsage, Msg: "the page cannot be written", Err: err}
	}
	return out.Close()
}

// give prints the comparison on w and writes the page.
func (f *reportFlags) give(r *doctor.Report, w io.Writer, asJSON bool) error {
	if f.before != nil && !asJSON {
		if err := printComparison(w, f.before, r, f.compare); err != nil {
			return err
		}
	}
	if f.html == "" {
		return nil
	}
	err := localstore.WriteFile(f.html, func(w io.Writer) error { return report.Write(w, r, f.before) })
	if err != nil {
		return &Error{Msg: "the page cannot be written", Err: err}
	}
	return nil
}

// loadReport reads a report from a file.
func loadReport(path string) (*doctor.Report, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, &Error{Code: ExitUsage, Msg: "cannot read the report", Err: err, Hint: "stoker doctor --save FILE writes one"}
	}
	defer in.Close()
	r, err := doctor.ReadReport(in)
	if err != nil {
		return nil, &Error{Code: ExitUsage, Msg: path, Err: err, Hint: "stoker doctor --save FILE writes one"}
	}
	return r, nil
}

var (
	goodStyle = lipgloss.NewStyle().Foreground(lipgloss.Color("#16A34A"))
	badStyle  = lipgloss.NewStyle().Foreground(lipgloss.Color("#DC2626"))
)

// printComparison prints two runs side by side, and whether the first one's
// prediction came true.
func printComparison(w io.Writer, before, after *doctor.Report, name string) error {
	var out strings.Builder
	fmt.Fprintf(&out, "\n%s\n", headStyle.Render("Before and after"))
	t := newTable("", "before", "after", "ratio").StyleFunc(func(row, col int) lipgloss.Style {
		s := lipgloss.NewStyle().PaddingRight(2).Faint(row == table.HeaderRow)
		if col == 0 {
			return s.PaddingLeft(2)
		}
		return s.Align(lipgloss.Right)
	})
	for _, r := range report.Compare(before, after) {
		ratio := r.RatioText()
		switch r.Better {
		case 1:
			ratio = goodStyle.Render(ratio)
		case -1:
			ratio = badStyle.Render(ratio)
		}
		t.Row(r.Name, r.Before, r.After, ratio)
	}
	fmt.Fprintf(&out, "%s\n", t)
	if faster, by := report.Speedup(before, after); faster > 0 {
		fmt.Fprintf(&out, "  %s as fast as in %s, by %s", report.Row{Ratio: faster}.RatioText(), clean(name), by)
		if before.Gain > 1.005 {
			fmt.Fprintf(&out, "; it predicted %s without its limit", report.Row{Ratio: before.Gain}.RatioText())
		}
		fmt.Fprintln(&out)
	}
	_, err := lipgloss.Fprint(w, out.String())
	return err
}
