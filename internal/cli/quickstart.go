package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/gen"
	"github.com/stokerdata/stoker/internal/quickstart"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/store"
)

// generatedData is the folder that quickstart fills if it gets no data, and generatedImages its number of images.
const (
	generatedData   = "quickstart-data"
	generatedImages = 500
)

type quickstartCommand struct {
	app       *App
	out       string
	force     bool
	framework string
	length    time.Duration
	noMeasure bool
}

func newQuickstartCommand(app *App) *cobra.Command {
	c := &quickstartCommand{app: app}
	cmd := &cobra.Command{
		Use:     "quickstart [PATH]",
		GroupID: groupData,
		Short:   "Look at your data or training script, and write a script that trains",
		Long: `Look at PATH, and start to train from it.

If PATH is a dataset (a folder, a file or a URL), quickstart:

  - says what it is
  - loads a part of it for a few seconds, as it is and from a temporary pack
  - writes train.py, a script that trains a small model on it

If PATH is a Python script, quickstart says how the script loads its data and how to
run it with Stoker. It does not run or change the script.

Without PATH it generates 500 images in the folder ` + generatedData + `.

The script uses PyTorch if this Python has it, and NumPy otherwise.`,
		Example: `  stoker quickstart
  stoker quickstart photos/
  stoker quickstart coco/annotations/instances_train2017.json --out train_coco.py
  stoker quickstart train.py`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			switch quickstart.Framework(c.framework) {
			case "", quickstart.Torch, quickstart.NumPy:
			default:
				return usageError("stoker quickstart --framework torch, or numpy", "--framework %q is not known", c.framework)
			}
			if c.length < time.Second || c.length > time.Minute {
				return usageError("--seconds 4", "--seconds is %s, it must be from 1 to 60", units.Seconds(c.length.Seconds()))
			}
			path := ""
			if len(args) > 0 {
				path = args[0]
			}
			if quickstart.IsProgram(path) {
				return c.program(path)
			}
			return c.data(path)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.out, "out", "train.py", "write the script to `FILE`")
	flags.BoolVar(&c.force, "force", false, "replace FILE if it exists")
	flags.StringVar(&c.framework, "framework", "", "write for `NAME`: torch or numpy (default: torch if it is installed)")
	spanVar(flags, &c.length, "seconds", 4*time.Second, "how long to measure")
	flags.BoolVar(&c.noMeasure, "no-measure", false, "do not measure")
	return cmd
}

// data reads a dataset and writes a script for it.
func (c *quickstartCommand) data(path string) error {
	// A script that cannot be written is reported before anything is measured.
	if _, err := os.Lstat(c.out); err == nil && !c.force {
		return &Error{Msg: c.out + " exists already", Hint: "write another file with --out FILE, or replace this one with --force"}
	}
	if path == "" {
		var err error
		if path, err = c.generate(); err != nil {
			return err
		}
	}
	d, err := quickstart.Look(c.app.Context, path)
	if err != nil {
		return err
	}
	if d.Len == 0 {
		return &Error{Msg: stores.Public(path) + " has no records"}
	}
	shown := stores.Public(path)
	p := new(page)
	p.f("%s\n", headStyle.Render(clean(shown)))
	p.f("  %s, %s", clean(d.Format), units.Records(d.Len))
	if d.Objects > 0 {
		p.f(" in %s of %s", units.Plural(int(d.Objects), "file"), units.Bytes(d.Bytes))
	}
	p.f("\n")
	for i := range d.Fields {
		f := &d.Fields[i]
		text := sourceFieldText(f)
		if f.Classes != nil {
			text += ": " + classNames(f.Classes)
		}
		if text != "" {
			text = ", " + text
		}
		for _, line := range wrap(fmt.Sprintf("%s: %s%s", clean(f.Name), f.Kind, text), pageWidth-2) {
			p.f("  %s\n", line)
		}
	}
	p.f("  task of the script: %s\n", clean(d.Says()))
	if err := c.app.show(p); err != nil {
		return err
	}
	if !c.noMeasure {
		if err := c.measure(d); err != nil {
			return err
		}
	}
	return c.write(d)
}

// show prints a page.
func (app *App) show(p *page) error {
	_, err := lipgloss.Fprint(app.Stdout, p.String())
	return err
}

// generate makes the data that quickstart has without a path, and returns its folder.
func (c *quickstartCommand) generate() (string, error) {
	if _, err := os.Stat(generatedData); err == nil {
		return generatedData, nil
	}
	g := &genImages{app: c.app, out: generatedData, size: "470x400", opts: gen.Options{Count: generatedImages, Classes: 10}}
	return generatedData, g.run()
}

// measure measures and prints the speed of the records.
func (c *quickstartCommand) measure(d *quickstart.Data) error {
	bar, shown := c.app.NewProgress("measuring", "", c.length.Milliseconds()), int64(0)
	g, err := d.Measure(c.app.Context, c.length, func(share float64) {
		now := int64(share * float64(c.length.Milliseconds()))
		bar.Add(now-shown, 0)
		shown = now
	})
	bar.Stop()
	if c.app.Context.Err() != nil {
		return c.app.Context.Err()
	}
	p := new(page)
	if err != nil {
		p.section("Speed", "not measured: "+clean(err.Error()))
		return c.app.show(p)
	}
	p.section("Speed", fmt.Sprintf("%s, with the transforms of the script, on %s", units.Records(g.Records), units.Plural(g.Cores, "core")))
	p.f("  unpacked: %s records/s\n", units.Int(int64(g.AsIs)))
	if g.Packed > 0 {
		p.f("  packed:   %s records/s, %.1f times as fast: stoker pack %s packed/\n", units.Int(int64(g.Packed)), g.Packed/g.AsIs, units.Shell(stores.Public(d.URL)))
	}
	if g.Workers > 0 {
		p.f("  For the unpacked rate, PyTorch's DataLoader needs about %s (estimated)\n", units.Plural(int(g.Workers), "worker process"))
	}
	return c.app.show(p)
}

// write writes the script.
func (c *quickstartCommand) write(d *quickstart.Data) error {
	f := quickstart.Framework(c.framework)
	if f == "" {
		f = quickstart.NumPy
		if c.hasTorch() {
			f = quickstart.Torch
		}
	}
	f = d.Suits(f)
	if err := os.WriteFile(c.out, []byte(d.Script(f)), 0o666); err != nil {
		return &Error{Msg: "cannot write " + c.out, Err: store.Cause(err)}
	}
	p := new(page)
	p.section("Next", fmt.Sprintf("%s is written, for %s", c.out, map[quickstart.Framework]string{quickstart.Torch: "PyTorch", quickstart.NumPy: "NumPy"}[f]))
	p.f("  python %s\n", units.Shell(c.out))
	p.f("  stoker inspect %s\n", units.Shell(stores.Public(d.URL)))
	return c.app.show(p)
}

// hasTorch reports whether the Python of this installation, or the one on the PATH, has PyTorch. It is not imported.
func (c *quickstartCommand) hasTorch() bool {
	if self, err := os.Executable(); err == nil {
		packages := filepath.Join(filepath.Dir(self), "..", "..")
		if _, err := os.Stat(filepath.Join(packages, "stoker", "__init__.py")); err == nil {
			_, err = os.Stat(filepath.Join(packages, "torch", "__init__.py"))
			return err == nil
		}
	}
	for _, name := range []string{"python", "python3"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		look := exec.CommandContext(c.app.Context, path, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)")
		var ended *exec.ExitError
		if err := look.Run(); err == nil || errors.As(err, &ended) {
			return err == nil
		}
	}
	return false
}

// program prints how a training script loads data, and how to run it.
func (c *quickstartCommand) program(path string) error {
	s, err := quickstart.LookProgram(c.app.Context, path)
	if err != nil {
		return err
	}
	script := units.Shell(path)
	p := new(page)
	p.f("%s\n", headStyle.Render(clean(path)))
	p.f("  a Python script\n")
	for _, u := range s.Loaders {
		p.f("  line %d: %s\n", u.Line, u.What)
	}
	if len(s.Loaders) == 0 {
		p.f("  no loader that quickstart knows\n")
	}
	if s.Data != "" {
		p.f("  data: %s\n", clean(s.Data))
	}
	if err := c.app.show(p); err != nil {
		return err
	}
	if s.Data != "" && !c.noMeasure {
		d, err := quickstart.Look(c.app.Context, s.Data)
		if err != nil {
			return err
		}
		if err := c.measure(d); err != nil {
			return err
		}
	}
	p = new(page)
	p.section("Next", "")
	if s.Torch {
		p.f("  stoker run -- python %s\n    runs the script unchanged, with its PyTorch DataLoaders in Stoker's engine\n", script)
		p.f("  stoker run --explain -- python %s\n    also says before the first batch which parts Stoker takes over\n", script)
	} else {
		p.f("  stoker profile -- python %s\n    says which share of the time the script waits for data\n", script)
	}
	if s.Data != "" {
		p.f("  stoker quickstart %s --out train_stoker.py\n    writes a script that loads this data with Stoker\n", units.Shell(s.Data))
	}
	return c.app.show(p)
}
