package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/chart"
	"github.com/stokerdata/stoker/internal/store/localstore"
)

// maxChartJSON bounds the input of `stoker chart`.
const maxChartJSON = 4 << 20

// newChartCommand draws the measurements of the benchmark scripts, so that there is one renderer.
func newChartCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:    "chart FILE < CHART.json",
		Hidden: true,
		Short:  "Draw bars, a matrix or a scatter plot as SVG",
		Args:   exactArgs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := app.readStdin(maxChartJSON, "the chart")
			if err != nil {
				return err
			}
			picture, err := chart.Parse(data)
			if err != nil {
				return &Error{Msg: "standard input holds no chart", Err: err}
			}
			return writeSVG(args[0], picture)
		},
	}
}

func writeSVG(path string, picture interface{ SVG(io.Writer) error }) error {
	return localstore.WriteFile(path, picture.SVG)
}
