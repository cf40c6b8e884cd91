package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/gen"
	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/internal/upload"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/store"
)

func newGenCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "gen",
		Short:   "Generate data to try things with",
		GroupID: groupData,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	cmd.AddCommand(newGenImagesCommand(app), newGenStorageCommand(app))
	return cmd
}

type genImages struct {
	app         *App
	out         string
	url         string // of a store, "" for a folder
	opts        gen.Options
	size        string
	tree, packs bool
	force       bool
}

func newGenImagesCommand(app *App) *cobra.Command {
	c := &genImages{app: app}
	cmd := &cobra.Command{
		Use:   "images OUT",
		Short: "Generate labelled JPEGs that cost a decoder as much as photographs",
		Long: `Generate labelled JPEGs that cost a decoder as much as photographs.

Overlapping shapes with natural textures, blurred grounds and grain, in the mix of
sizes, samplings and qualities that photographs on the web have: 470 x 400 pixels
and 110 kB on average, mostly 4:4:4, some 4:2:0, gray, progressive, with EXIF or a
colour profile. The class can be learnt from the colours of any part of an image.

The same options give the same bytes on every machine.`,
		Example: `  stoker gen images photos/ --count 2000 --classes 10     # photos/class-3/00013.jpg ...
  stoker gen images train/ --count 2000 --pack           # a pack, ready to load
  stoker gen images small/ --count 500 --size 64x64
  stoker gen images s3://bucket/photos`,
		Args: exactArgs("OUT"),
		RunE: func(_ *cobra.Command, args []string) error {
			if stores.IsURL(args[0]) {
				if c.force {
					return usageError("stoker gen images OUT", "--force is for local folders")
				}
				c.out, c.url = stores.Public(args[0]), args[0]
			} else {
				c.out = filepath.Clean(args[0])
			}
			return c.run()
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&c.opts.Count, "count", 2000, "number of images")
	flags.IntVar(&c.opts.Classes, "classes", 10, "number of classes")
	flags.Uint64Var(&c.opts.Seed, "seed", 0, "another number gives other images")
	flags.StringVar(&c.size, "size", "470x400", "mean `WIDTHxHEIGHT` of the images")
	flags.BoolVar(&c.tree, "tree", false, "write one folder for each class (the default)")
	flags.BoolVar(&c.packs, "pack", false, "write a pack")
	flags.BoolVar(&c.force, "force", false, "replace what an earlier run has left in OUT")
	cmd.MarkFlagsMutuallyExclusive("tree", "pack")
	return cmd
}

func (c *genImages) run() error {
	var ok bool
	if c.opts.Width, c.opts.Height, ok = parseSize(c.size); !ok {
		return usageError("write it as --size 470x400", "--size %q is not WIDTHxHEIGHT", c.size)
	}
	g, err := gen.New(c.opts)
	if err != nil {
		return &Error{Code: ExitUsage, Err: err}
	}
	start := time.Now()
	var size int64
	if c.url != "" {
		if size, err = c.intoStore(g); err != nil {
			return err
		}
		return c.say(g, size, time.Since(start))
	}
	if err := c.checkOut(); err != nil {
		return err
	}
	err = writeFolder(c.out, func(work string) (string, error) {
		tree := filepath.Join(work, "images")
		if size, err = c.writeTree(g, tree); err != nil || !c.packs {
			return tree, err
		}
		result := filepath.Join(work, "pack")
		_, err = pack.Write(c.app.Context, tree, result, nil)
		return result, err
	})
	if err != nil {
		return err
	}
	return c.say(g, size, time.Since(start))
}

// say prints a summary.
func (c *genImages) say(g *gen.Generator, size int64, seconds time.Duration) error {
	fmt.Fprintf(c.app.Stdout, "%s: %s images of %d classes, %s, in %s (%s images/s)\n", c.out, units.Int(int64(g.Len())), c.opts.Classes,
		units.Bytes(size), units.Elapsed(seconds), units.Int(int64(float64(g.Len())/seconds.Seconds())))
	return nil
}

// intoStore makes the images in a folder for temporary files and puts them, or a pack of
// them, into a store.
func (c *genImages) intoStore(g *gen.Generator) (size int64, err error) {
	ctx := c.app.Context
	st, err := stores.OpenWrite(ctx, c.url)
	if err != nil {
		return 0, err
	}
	defer st.Close()
	if err := upload.Empty(ctx, st, c.out); err != nil {
		return 0, err
	}
	work, remove, err := leftover.MkdirTemp("", "stoker-gen-*")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	tree := filepath.Join(work, "images")
	if size, err = c.writeTree(g, tree); err != nil {
		return 0, err
	}
	if c.packs {
		_, err = pack.Write(ctx, tree, c.url, nil)
	} else {
		_, _, err = upload.Tree(ctx, tree, st)
	}
	return size, err
}

// writeTree writes the images into the new folder dir and returns their size.
func (c *genImages) writeTree(g *gen.Generator, dir string) (int64, error) {
	// MkdirTemp's folders are private; this one shall have the usual mode.
	if err := os.Mkdir(dir, 0o777); err != nil {
		return 0, &Error{Msg: "cannot write " + c.out, Err: store.Cause(err)}
	}
	progress := c.app.NewProgress("generating", "images", int64(g.Len()))
	defer progress.Stop()
	err := g.WriteTree(c.app.Context, dir, func(n int64) { progress.Add(1, n) })
	if err != nil && c.app.Context.Err() == nil {
		err = &Error{Msg: "cannot write " + c.out, Err: store.Cause(err), Hint: "nothing was left behind"}
	}
	return progress.bytes.Load(), err
}

// checkOut refuses to write over anything that gen has not made.
func (c *genImages) checkOut() error {
	entries, err := os.ReadDir(c.out)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && len(entries) == 0:
		return nil
	case err != nil:
		return &Error{Msg: "cannot write to " + c.out, Err: store.Cause(err), Hint: "OUT must be a new or an empty folder"}
	case !c.force:
		return &Error{Msg: c.out + " is not empty", Hint: "choose another folder, or replace it with --force"}
	case pack.IsPack(c.out):
		return nil
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), "class-") {
			return &Error{
				Msg:  fmt.Sprintf("%s was not made by this command: there is %s in it", c.out, e.Name()),
				Hint: "--force only replaces generated images and packs; choose another folder",
			}
		}
	}
	return nil
}

// parseSize reads "470x400".
func parseSize(s string) (width, height int, ok bool) {
	w, h, ok := strings.Cut(s, "x")
	width, errW := strconv.Atoi(w)
	height, errH := strconv.Atoi(h)
	return width, height, ok && errW == nil && errH == nil
}
