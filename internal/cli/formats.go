package cli

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/dynlib"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/sink"
	"github.com/stokerdata/stoker/source"
)

// readable is a format that Stoker reads.
type readable struct {
	*format.Format
	// Writes is the command that writes it, "" if there is none.
	Writes string `json:"writes"`
}

// formatsJSON is the JSON output of stoker formats. Searched are the folders of libraries, "" those of the system.
type formatsJSON struct {
	Formats  []readable `json:"formats"`
	Decoders []decoder  `json:"decoders"`
	Searched []string   `json:"searched"`
	// Kernels are the forms in use of the kernels that decode and change pixels and sound.
	Kernels []cdec.KernelForm `json:"kernels"`
}

func readables() []readable {
	var all []readable
	for _, f := range source.Formats() {
		r := readable{Format: f}
		name := f.Name
		if name == "tokens" {
			name = "bin" // convert has this name for the same files
		}
		switch {
		case name == "pack":
			r.Writes = "stoker pack SRC DST"
		case sink.Find(name) != nil:
			r.Writes = "stoker convert SRC " + name + ":DST"
		}
		all = append(all, r)
	}
	return all
}

func newFormatsCommand(app *App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "formats [NAME]",
		GroupID: groupData,
		Short:   "List the formats and codecs that Stoker reads, or show the parameters of one",
		Long: `List the formats that can be loaded, packed and inspected. Most are recognised by
names and content. To choose one, write its name before the path: npy:tokens.bin.

Then list the codecs of images, sound and video, and what decodes them in this
installation: a library with its version and path, or the commands that install it.
The last lines name the instructions that the kernels use.

With NAME, show how to use one format: an example, its URL parameters and the
command that writes it.`,
		Example: `  stoker formats
  stoker formats video
  stoker formats --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			all := readables()
			if len(args) > 0 {
				i := slices.IndexFunc(all, func(r readable) bool { return r.Name == args[0] })
				if i < 0 {
					return unknownFormat(args[0], all)
				}
				all = all[i : i+1]
			}
			p := new(page)
			switch {
			case asJSON:
				e := json.NewEncoder(p)
				e.SetIndent("", "  ")
				e.SetEscapeHTML(false)
				if err := e.Encode(formatsJSON{all, decoders(), dynlib.Places(), cdec.KernelForms()}); err != nil {
					return err
				}
			case len(args) > 0:
				p.format(&all[0])
			default:
				for _, r := range all {
					p.item(r.Name, 10, r.Reads)
				}
				p.f("\nstoker formats NAME shows an example and the parameters of a format.\n")
				p.decoders(decoders())
				p.kernels(cdec.KernelForms())
			}
			_, err := app.Stdout.Write([]byte(p.String()))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// formatsHelp says in the help of a command which data it reads.
func formatsHelp() string {
	var names []string
	for _, f := range source.Formats() {
		names = append(names, f.Name)
	}
	lines := wrap(strings.Join(names, ", "), pageWidth-2)
	return "SRC can have any of these formats; stoker formats NAME says more about one:\n  " + strings.Join(lines, "\n  ")
}

func unknownFormat(name string, all []readable) error {
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
	}
	hint := "stoker formats lists all"
	if near := units.Nearest(name, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	return usageError(hint, "there is no format %q", name)
}

// pageWidth is the width of a page of text.
const pageWidth = 80

// item writes a name, and a text in lines next to it, in a column that begins after indent.
func (p *page) item(name string, indent int, text string) {
	if len(name) >= indent {
		p.f("%s\n", name)
		name = ""
	}
	for _, line := range wrap(text, pageWidth-indent) {
		p.f("%-*s%s\n", indent, name, line)
		name = ""
	}
}

// format writes all about a format.
func (p *page) format(r *readable) {
	const indent = 12
	p.item("format", indent, r.Name)
	p.item("reads", indent, r.Reads)
	p.f("%-*s%s\n", indent, "example", r.Example)
	random := "yes"
	if r.Sequential != "" {
		random = "not " + r.Sequential + ", which are read in order"
	}
	p.item("random", indent, random)
	if r.Patterns {
		p.item("files", indent, "one, a folder, or several by a pattern: {0..9} or *")
	}
	if r.Writes != "" {
		p.item("written by", indent, r.Writes)
	}
	if r.Checksums != "" {
		p.item("checksums", indent, r.Checksums)
	}
	if r.Guide != "" {
		p.item("guide", indent, "docs/"+r.Guide)
	}
	if len(r.Params) == 0 {
		return
	}
	p.f("\nParameters, after ? in the path and with & between them:\n")
	for _, a := range r.Params {
		help := a.Help
		if a.Default != "" {
			help = strings.TrimSuffix(help, ".") + " (default: " + a.Default + ")."
		}
		p.item("  "+a.Form(), 24, help)
	}
}
