package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/bench"
)

// maxStudyJSON bounds the input of `stoker bench draw`.
const maxStudyJSON = 4 << 20

// newBenchDrawCommand draws a study that was measured before: the Python client's,
// or one that was kept with --json.
func newBenchDrawCommand(app *App) *cobra.Command {
	var svg string
	cmd := &cobra.Command{
		Use:   "draw < STUDY.json",
		Short: "Draw the curve of a study that --json has saved",
		Example: `  stoker bench train/ --workers 1,2,4 --json > study.json
  stoker bench draw --svg knee.svg < study.json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			data, err := app.readStdin(maxStudyJSON, "the study")
			if err != nil {
				return err
			}
			var s bench.Study
			if err := json.Unmarshal(data, &s); err != nil {
				return &Error{Msg: "standard input holds no study", Err: err, Hint: "stoker bench SOURCE --workers 1,2 --json writes one"}
			}
			if err := s.Restore(); err != nil {
				return &Error{Msg: "standard input holds no study", Err: err}
			}
			if svg != "" && svg != "-" {
				return writeSVG(svg, s.Chart())
			}
			return app.print(s.Chart().Terminal(64, 14))
		},
	}
	cmd.Flags().StringVar(&svg, "svg", "", "draw into `FILE` instead of the terminal")
	return cmd
}
