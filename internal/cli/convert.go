package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/sink"
	"github.com/stokerdata/stoker/source"
)

// toPack is the name of package pack's format.
const toPack = "pack"

func newConvertCommand(app *App) *cobra.Command {
	var f packFlags
	var to, compress string
	var fields []string
	var look viewFlags
	cmd := &cobra.Command{
		Use:     "convert SRC DST",
		GroupID: groupData,
		Short:   "Write data in another format, or store the images of a pack another way",
		Long: `Write the dataset SRC, in any format that Stoker reads, to DST in another format. DST
or --to sets the format:

` + formatsText() + `  pack                  with --images: the pack SRC, with its images stored another way

Write the format before the path (tar:out/), or use --to, or give DST an extension:
out.parquet is one file, and tar:out/ is a folder of shards. A path without an extension is
a folder of images.

Records keep their order. Images are written as files: an image that a pack stores as dct
becomes the same JPEG again, and raw pixels and masks become PNG. If the format cannot hold
a field, the command fails and names the field. --field chooses and renames fields. --where,
--split and --part choose records. docs/how-to/convert.md has the rules for each kind.

DST appears when it is complete: until then it is DST.partial. Existing files are never
overwritten. Records that cannot be read are skipped and listed, and the exit code is 3.

With --images, or --to pack, the pack SRC is written again as the pack DST. Records, order,
labels, paths and pixels stay the same:

  keep  image files; images stored as dct become JPEGs again
  dct   JPEGs without their entropy code, if they allow it
  raw   decoded pixels, resized with --resize

Raw pixels cannot become files again. The same command continues an interrupted pack. Other
formats start again.`,
		Example: `  stoker convert train/ photos/
  stoker convert train/ tar:shards/ --shard-size 512MiB
  stoker convert 'cifar-10-batches-py?split=train' cifar.npz
  stoker convert list.csv out.tfrecord --field image --field class=label
  stoker convert train/ train-raw/ --images raw --resize 256`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			changed := cmd.Flags().Changed
			if err := look.read(); err != nil {
				return err
			}
			dst, isPack := strings.CutPrefix(args[1], toPack+":")
			switch {
			case changed("images") && to != "" && to != toPack:
				return usageError("", "--images is about packs, --to says %s", to)
			case isPack && to != "" && to != toPack:
				return usageError("", "%s is a pack, --to says %s", stores.Public(args[1]), to)
			case !isPack && to != toPack && !changed("images"):
				for _, name := range []string{"resize", "chunk-size", "check", "restart"} {
					if changed(name) {
						return usageError("stoker convert --help", "--%s is for packs, which --images writes", name)
					}
				}
				return app.convert(&f, look.url(args[0]), args[1], to, compress, fields, changed("shard-size"))
			case !changed("images"):
				return usageError("", "how images are to be stored in the pack is not said: give --images keep, dct or raw")
			case compress != "" || fields != nil:
				return usageError("", "--field and --compress are for other formats than packs")
			case !look.spec.Empty():
				return usageError("stoker pack "+units.Shell(stores.Public(args[0]))+" OUT --where ...", "a pack that is converted stays whole; stoker pack makes one of a part of it")
			}
			opt, err := f.options()
			if err != nil {
				return err
			}
			return app.runPack(&f, opt, dst, "converting", func() (*pack.Summary, error) {
				return pack.Convert(app.Context, args[0], dst, opt)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the `format` to write: "+strings.Join(append(sink.Names(), toPack), ", "))
	cmd.Flags().StringArrayVar(&fields, "field", nil, "write this field: `NAME`, or NEWNAME=NAME (repeat; default all)")
	cmd.Flags().StringVar(&compress, "compress", "", "how to compress, where a format can: none, or one of its own `names`")
	cmd.Flags().StringVar(&f.opt.Images, "images", "", "write a pack with images stored so: keep, dct or raw")
	f.register(cmd)
	look.register(cmd.Flags())
	cmd.Flags().Lookup("shard-size").Usage = "`size` of the files, where there are several (default 256MiB of packs, else the format's own)"
	cmd.Flags().Lookup("shard-size").DefValue = ""
	return cmd
}

// formatsText lists the formats that can be written.
func formatsText() string {
	var b strings.Builder
	for _, f := range sink.Formats() {
		name := f.Name + ":"
		if len(f.Ext) > 0 {
			name += ", " + f.Ext[0]
		}
		fmt.Fprintf(&b, "  %-22s%s\n", name, f.About)
	}
	return b.String()
}

// convert writes src in another form than a pack.
func (app *App) convert(f *packFlags, src, dst, to, compress string, fields []string, shards bool) error {
	if strings.Contains(dst, "%") || strings.Contains(dst, "{") {
		return usageError("", "%s: shards get names of their own; give the folder that they are to lie in", dst)
	}
	target, err := sink.ParseTarget(dst, to)
	if err != nil {
		return usageError("stoker convert --help", "%v", err)
	}
	opt := &sink.Options{Threads: f.opt.Threads, Compress: compress}
	if opt.Threads < 0 {
		return usageError("", "--threads %d: give 1 or more, or 0 for one per core", opt.Threads)
	}
	for _, text := range fields {
		p, err := sink.ParsePick(text)
		if err != nil {
			return usageError("", "--field: %v", err)
		}
		opt.Fields = append(opt.Fields, p)
	}
	if shards {
		if opt.ShardBytes, err = parseBytes("--shard-size", f.shardSize); err != nil {
			return err
		}
	}
	if f.memory != "" {
		if opt.Memory, err = parseBytes("--memory", f.memory); err != nil {
			return err
		}
	}
	start := time.Now()
	// Damage must not get a new, right checksum.
	tell, stop := app.looking()
	s, err := source.Open(app.Context, src, &source.Options{Threads: opt.Threads, VerifyChunks: true, Memory: opt.Memory, Looking: tell})
	stop()
	if err != nil {
		return err
	}
	defer s.Close()
	progress := app.NewProgress("converting", "records", s.Info().Len)
	var last sink.Progress
	opt.Progress = func(p sink.Progress) {
		progress.Add(p.Records-last.Records, p.Bytes-last.Bytes)
		last = p
	}
	sum, err := sink.Write(app.Context, s, target, opt)
	progress.Stop()
	if err != nil {
		if errors.Is(err, sink.ErrInterrupted) {
			msg, hint, _ := strings.Cut(err.Error(), ": ")
			return &Error{Code: ExitInterrupted, Msg: msg, Hint: hint}
		}
		return err
	}
	if f.asJSON {
		err = json.NewEncoder(app.Stdout).Encode(struct {
			*sink.Summary
			Seconds float64 `json:"seconds"`
		}{sum, math.Round(1000*time.Since(start).Seconds()) / 1000})
	} else {
		err = app.printConverted(sum, time.Since(start))
	}
	if err == nil && len(sum.Skipped) > 0 && !f.allowBad {
		return &Error{
			Code: ExitBadInputs,
			Msg:  fmt.Sprintf("%s could not be read", units.Records(sum.Bad)),
			Hint: sum.Path + " is complete without them; --allow-bad makes this exit code 0",
		}
	}
	return err
}

func (app *App) printConverted(sum *sink.Summary, took time.Duration) error {
	if n := len(sum.Skipped); n > 0 {
		fmt.Fprintf(app.Stderr, "left out:\n")
		for _, s := range sum.Skipped[:min(n, listed)] {
			fmt.Fprintf(app.Stderr, "  %s: %s\n", clean(s.Path), clean(s.Reason))
		}
		if sum.Bad > listed {
			fmt.Fprintf(app.Stderr, "  ... and %s more; --json lists them\n", units.Int(sum.Bad-listed))
		}
	}
	listBeside(app.Stderr, sum.Beside)
	path := sum.Path
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		path += "/"
	}
	_, err := lipgloss.Fprintf(app.Stdout, "%s  %s (%s) as %s in %s, %s, in %s\n", lipgloss.NewStyle().Bold(true).Render(path),
		units.Records(sum.Records), clean(strings.Join(sum.Fields, ", ")), sum.Format, units.Plural(int(sum.Files), "file"), units.Bytes(sum.Bytes), units.Elapsed(took))
	return err
}
