package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/chart"
	"github.com/stokerdata/stoker/store/localstore"
)

// maxChartJSON bounds what `stoker chart` reads.
const maxChartJSON = 4 << 20

// newChartCommand draws what the scripts of the benchmarks have measured, so that
// there is one renderer.
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

// readStdin reads all of standard input, up to most bytes.
func (app *App) readStdin(most int64, what string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(app.Stdin, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading standard input: %w", err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s is larger than %d MiB", what, most>>20)
	}
	return data, nil
}

func writeSVG(path string, picture interface{ SVG(io.Writer) error }) error {
	return localstore.WriteFile(path, picture.SVG)
}
