package cli

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/internal/units"
)

// section is a part of the output of stoker describe.
type section struct {
	name string
	// doc is one sentence.
	doc   string
	value func() any
	text  func(p *page)
}

func newDescribeCommand(app *App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "describe [WHAT]",
		GroupID: groupKnow,
		Short:   "Describe a transform, or list transforms, options, errors and the like",
		Long: `Describe what the engine has by name. WHAT is a list below, or the name of a transform.
The Python classes and the reference pages are generated from the same descriptions.

` + sectionHelp(),
		Example: `  stoker describe RandomResizedCrop
  stoker describe audio.Resample
  stoker describe transforms
  stoker describe --json`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: sectionNames(),
		RunE: func(_ *cobra.Command, args []string) error {
			p := new(page)
			if err := describe(p, args, asJSON); err != nil {
				return err
			}
			_, err := app.Stdout.Write([]byte(p.String()))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func sectionNames() []string {
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

func sectionHelp() string {
	p := new(page)
	for _, s := range sections {
		p.item("  "+s.name, 16, s.doc)
	}
	return strings.TrimRight(p.String(), "\n")
}

func describe(p *page, args []string, asJSON bool) error {
	if len(args) == 0 {
		if !asJSON {
			p.f("%s\n\nstoker describe NAME describes one of them, or a transform.\n", sectionHelp())
			return nil
		}
		all := map[string]any{}
		for _, s := range sections {
			all[s.name] = s.value()
		}
		return p.json(all)
	}
	if i := slices.IndexFunc(sections, func(s section) bool { return s.name == args[0] }); i >= 0 {
		if s := sections[i]; !asJSON && s.text != nil {
			s.text(p)
			return nil
		}
		return p.json(sections[i].value())
	}
	names := sectionNames()
	for _, s := range transform.All() {
		if s.Name != args[0] {
			names = append(names, s.Name)
			continue
		}
		if asJSON {
			return p.json(s)
		}
		p.transform(s)
		return nil
	}
	for _, one := range elsewhere {
		if slices.Contains(one.Names, args[0]) {
			return usageError(one.Doc, "Stoker has no %s", args[0])
		}
	}
	hint := "stoker describe lists all"
	if near := units.Nearest(args[0], names); near != "" {
		hint = "did you mean " + near + "?"
	}
	return usageError(hint, "nothing is called %q", args[0])
}

// json writes a value.
func (p *page) json(v any) error {
	e := json.NewEncoder(p)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func describeTransforms(p *page) {
	for _, s := range transform.All() {
		p.item(s.Name, 28, s.Doc)
	}
}

// transform writes all about a transform.
func (p *page) transform(s *transform.Spec) {
	const indent = 14
	p.item("transform", indent, s.Name)
	p.item("", indent, strings.TrimSpace(s.Doc+" "+s.More))
	p.item("works on", indent, strings.Join(s.Kinds, ", "))
	p.item("returns", indent, s.Returns)
	p.f("%-*s%s\n", indent, "example", s.Example)
	for i := range s.Params {
		a := &s.Params[i]
		if a.Hidden {
			continue
		}
		if i == 0 {
			p.f("\nParameters:\n")
		}
		p.item("  "+a.Name, 24, a.Text())
	}
}
