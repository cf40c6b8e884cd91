package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/audit"
	"github.com/stokerdata/stoker/internal/units"
)

func newAuditCommand(app *App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "audit LOG...",
		GroupID: groupKnow,
		Short:   "Check from logs that a training saw each record once",
		Long: `Read the logs of all ranks, and of the runs before and after each resume. Per epoch, print
how many records were seen once, twice and never. The exit code is 4 if a record was seen
twice, or never in an epoch that has ended, or if the log of a rank is missing.

Loaders write the logs: stoker.Loader(..., ranks=stoker.Ranks(audit="run.{rank}.log")).
Records that a run received after the state that the next run started from are not counted.`,
		Example: `  stoker audit run.0.log run.1.log`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			rep, err := audit.Read(args)
			if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(app.Stdout).Encode(rep)
			} else {
				err = app.printAudit(rep)
			}
			if err != nil || rep.Exact() {
				return err
			}
			hint := "give the logs of all ranks and runs of the training"
			if len(rep.Missing) == 0 {
				hint = "on_error=\"skip\" replaces bad records by others, and drop_last leaves records out; anything else is a bug, please report it"
			}
			return &Error{Code: ExitDamaged, Msg: "not every record was seen exactly once", Hint: hint}
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (app *App) printAudit(rep *audit.Report) error {
	var text strings.Builder
	for _, e := range rep.Epochs {
		end := ""
		if !e.Complete {
			end = " yet (the epoch has not ended)"
		}
		fmt.Fprintf(&text, "epoch %d: %s seen once, %d twice, %d never%s\n", e.Epoch, units.Records(e.Once), e.Twice, e.Never, end)
		if e.Twice > 0 {
			fmt.Fprintf(&text, "  twice: %s\n", numbers(e.TwiceRecords, e.Twice))
		}
		if e.Never > 0 && e.Complete {
			fmt.Fprintf(&text, "  never: %s\n", numbers(e.NeverRecords, e.Never))
		}
	}
	if len(rep.Epochs) == 0 {
		fmt.Fprintln(&text, "no record was seen")
	}
	if rep.Again > 0 {
		fmt.Fprintf(&text, "%s came again after a resume from an earlier state, and count once\n", units.Records(rep.Again))
	}
	for _, m := range rep.Missing {
		fmt.Fprintf(&text, "no log of %s\n", m)
	}
	var cut []string
	for path, n := range rep.DroppedBytes {
		cut = append(cut, fmt.Sprintf("%s: %s of a write that was cut were dropped\n", path, units.Plural(int(n), "byte")))
	}
	slices.Sort(cut)
	text.WriteString(strings.Join(cut, ""))
	_, err := app.Stdout.Write([]byte(text.String()))
	return err
}

// numbers joins the first records of a list.
func numbers(first []int64, all int64) string {
	var parts []string
	for _, n := range first {
		parts = append(parts, fmt.Sprint(n))
	}
	if all > int64(len(first)) {
		parts = append(parts, "...")
	}
	return strings.Join(parts, ", ")
}
