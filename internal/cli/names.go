package cli

import (
	"encoding/json"
	"slices"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source"
)

// names are what the engine knows by name. Python knows them too; its tests
// compare.
type names struct {
	// Operations on records and on batches have their parameters.
	Operations      map[string][]string `json:"operations"`
	BatchOperations map[string][]string `json:"batch_operations"`
	// ToDType are those of the DTypes that operations make.
	DTypes  map[string]dtypeNames `json:"dtypes"`
	ToDType []string              `json:"to_dtype"`
	Kinds   []string              `json:"kinds"`
	// Options are the keys of a configuration, Outputs those of an output.
	Options []string `json:"options"`
	Outputs []string `json:"outputs"`
	// Formats may stand in front of a path: npy:PATH.
	Formats []string `json:"formats"`
}

// dtypeNames are a type's size in bytes and NumPy's description of it, empty for
// what NumPy does not have.
type dtypeNames struct {
	Size  int    `json:"size"`
	NumPy string `json:"numpy"`
}

func allNames() names {
	n := names{
		Operations: transform.Operations(), BatchOperations: transform.BatchOperations(), DTypes: map[string]dtypeNames{}, ToDType: transform.DTypes(),
		Options: pipeline.ConfigKeys(), Outputs: transform.OutputKeys(),
	}
	for _, f := range source.Formats() {
		n.Formats = append(n.Formats, f.Name)
	}
	for _, t := range dtype.All() {
		n.DTypes[t.String()] = dtypeNames{t.Size(), t.NumPy()}
	}
	for _, k := range kind.All() {
		n.Kinds = append(n.Kinds, string(k.Name))
	}
	for _, list := range [][]string{n.Kinds, n.Options, n.Outputs, n.Formats} {
		slices.Sort(list)
	}
	return n
}

func newNamesCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:    "_names",
		Short:  "Print what the engine knows by name, as JSON, for the Python package's tests",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return json.NewEncoder(app.Stdout).Encode(allNames()) },
	}
}
