package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/steptime"
	"github.com/stokerdata/stoker/internal/units"
)

// maxProfile bounds the size of one profile.
const maxProfile = 8 << 20

func newProfileCompareCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "compare BEFORE AFTER",
		Short: "Show two profiles that were saved side by side",
		Long: `Show two profiles that "stoker profile --save" or stoker.profile(...).save in Python
has kept, side by side. "-" reads one from standard input.`,
		Example: `  stoker profile compare before.json after.json`,
		Args:    exactArgs("BEFORE", "AFTER"),
		RunE: func(_ *cobra.Command, args []string) error {
			stdin := json.NewDecoder(io.LimitReader(app.Stdin, 2*maxProfile))
			var profiles [2]*steptime.Profile
			for i, name := range args {
				var err error
				if name == "-" {
					profiles[i], err = nextProfile(stdin)
				} else {
					profiles[i], err = readProfile(name)
				}
				if err != nil {
					return err
				}
			}
			return app.print(compareText(profiles[0], profiles[1]))
		},
	}
}

// nextProfile reads the next of the profiles on standard input.
func nextProfile(stdin *json.Decoder) (*steptime.Profile, error) {
	var data json.RawMessage
	if err := stdin.Decode(&data); err != nil {
		return nil, &Error{Msg: "standard input holds no profile", Err: err}
	}
	p, err := steptime.ParseProfile(data)
	if err != nil {
		return nil, &Error{Msg: "standard input", Err: err}
	}
	return p, nil
}

func readProfile(name string) (*steptime.Profile, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxProfile {
		return nil, fmt.Errorf("%s is larger than %d MiB: it is not a profile", name, maxProfile>>20)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	p, err := steptime.ParseProfile(data)
	if err != nil {
		return nil, &Error{Msg: name, Err: err, Hint: "stoker profile --save writes one"}
	}
	return p, nil
}

// compareText shows two profiles side by side.
func compareText(before, after *steptime.Profile) string {
	t := newTable("per step", "before", "after", "change")
	for _, row := range steptime.Compare(before, after) {
		text, change := units.Seconds, ""
		switch row.Unit {
		case steptime.PerSecond:
			text = func(v float64) string { return units.Int(int64(v)) }
		case steptime.Share:
			text = units.Tenths
		}
		if row.Before > 0 {
			change = fmt.Sprintf("%+.0f%%", 100*(row.After/row.Before-1))
		}
		t.Row(row.Name, text(row.Before), text(row.After), change)
	}
	return t.String() + "\n"
}
