package cli

import (
	"encoding/json"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/sink"
	"github.com/stokerdata/stoker/source"
)

// format is what people are told of a format.
type format struct {
	source.About
	// Writes is the command that writes it, "" when there is none.
	Writes string `json:"writes"`
}

func formats() []format {
	var all []format
	for _, a := range source.Describe() {
		f := format{About: a}
		name := a.Name
		if name == "tokens" {
			name = "bin" // what convert calls the same files
		}
		switch {
		case name == "pack":
			f.Writes = "stoker pack"
		case sink.Find(name) != nil:
			f.Writes = "stoker convert SRC " + name + ":DST"
		}
		all = append(all, f)
	}
	return all
}

func newFormatsCommand(app *App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "formats",
		GroupID: groupData,
		Short:   "List what data is read as it is, and what is written",
		Long: `List the formats that can be loaded, packed and inspected as they are. Most are
known by their content; the name of a format in front of a path says it where they
are not: npy:tokens.bin.`,
		Example: `  stoker formats
  stoker formats --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all := formats()
			if asJSON {
				e := json.NewEncoder(app.Stdout)
				e.SetIndent("", "  ")
				e.SetEscapeHTML(false)
				return e.Encode(all)
			}
			p := new(page)
			t := newTable("format", "reads", "at random", "written by")
			for _, a := range all {
				t.Row(a.Name, a.Reads, a.Random, a.Writes)
			}
			p.f("%s\n", strings.TrimRight(t.String(), "\n"))
			_, err := lipgloss.Fprint(app.Stdout, p.String())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
