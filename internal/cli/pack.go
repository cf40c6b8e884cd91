package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/pairsource"
	"github.com/stokerdata/stoker/source/tablesource"
)

// packFlags are the flags that pack and convert share.
type packFlags struct {
	opt       pack.Options
	resize    string
	shardSize string
	chunkSize string
	memory    string
	allowBad  bool
	asJSON    bool
}

func (f *packFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.resize, "resize", "", "with --images raw: `N` for the shorter side, or WxH")
	fl.StringVar(&f.shardSize, "shard-size", "256MiB", "`size` of the files of the pack")
	fl.StringVar(&f.chunkSize, "chunk-size", "8MiB", "`size` of the chunks that have a checksum of their own")
	fl.StringVar(&f.opt.Check, "check", pack.CheckStructure, "how to look for damaged files: structure or decode")
	fl.IntVar(&f.opt.Threads, "threads", 0, "images worked on at once (default one per core)")
	fl.StringVar(&f.memory, "memory", "", "`size` of what images may take while they are packed (default a quarter of the free memory)")
	fl.BoolVar(&f.opt.Restart, "restart", false, "begin anew instead of going on with an interrupted run")
	fl.BoolVar(&f.allowBad, "allow-bad", false, "end with exit code 0 even if files had to be left out")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON")
}

// options checks the flags.
func (f *packFlags) options() (*pack.Options, error) {
	o := f.opt
	var err error
	if o.Resize, err = pack.ParseResize(f.resize); err != nil {
		return nil, usageError("", "%v", err)
	}
	if o.ShardBytes, err = parseBytes("--shard-size", f.shardSize); err != nil {
		return nil, err
	}
	if o.ChunkBytes, err = parseBytes("--chunk-size", f.chunkSize); err != nil {
		return nil, err
	}
	if f.memory != "" {
		if o.Memory, err = parseBytes("--memory", f.memory); err != nil {
			return nil, err
		}
	}
	o.OwnProcess = true
	if o.Threads < 0 {
		return nil, usageError("", "--threads %d: give 1 or more, or 0 for one per core", o.Threads)
	}
	o.Writer = "stoker " + version()
	if err := o.Validate(); err != nil {
		return nil, usageError("", "%v", err)
	}
	return &o, nil
}

// parseBytes reads the size that a flag was given.
func parseBytes(flag, s string) (int64, error) {
	v, err := units.ParseBytes(s)
	if err != nil {
		return 0, usageError("", "%s: %v; give a size such as 64MiB, 1GB or 67108864", flag, err)
	}
	return int64(v), nil
}

// writePack packs what src is.
func writePack(app *App, src, out string, window int64, fields []string, opt *pack.Options) (*pack.Summary, error) {
	if len(fields) > 0 {
		if window != 0 || strings.HasPrefix(src, "pairs:") {
			return nil, usageError("", "--field is for a folder, without --window")
		}
		var err error
		if src, err = withFields(app, src, fields); err != nil {
			return nil, err
		}
	}
	if window < 0 {
		return nil, usageError("", "--window %d: give a number of elements", window)
	}
	format, path, err := source.Format(app.Context, src, &source.Options{Window: window})
	if err != nil {
		return nil, err
	}
	if format == source.FormatFolder || format == "pack" {
		return pack.Write(app.Context, path, out, opt)
	}
	if window > 0 && !strings.Contains(src, "?window=") {
		src = fmt.Sprintf("%s?window=%d", src, window) // what an interrupted run is gone on with
	}
	s, err := source.Open(app.Context, src, &source.Options{Threads: opt.Threads})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return pack.WriteSource(app.Context, s, out, opt)
}

// withFields is the URL of src with the fields of --field: columns of a table, or
// files in a folder.
func withFields(app *App, src string, fields []string) (string, error) {
	if format, _, err := source.Format(app.Context, src, nil); err == nil && source.IsTable(format) {
		var columns []tablesource.Column
		for _, text := range fields {
			c, err := tablesource.ParseColumn(text)
			if err != nil {
				return "", usageError("", "--field: %v", err)
			}
			columns = append(columns, c)
		}
		return src + "?" + tablesource.Query(columns), nil
	}
	var pairs []pairsource.Field
	for _, text := range fields {
		f, err := pairsource.ParseField(text)
		if err != nil {
			return "", usageError("", "--field: %v", err)
		}
		pairs = append(pairs, f)
	}
	return pairsource.URL(src, pairs), nil
}

func newPackCommand(app *App) *cobra.Command {
	var f packFlags
	var window int64
	var fields []string
	cmd := &cobra.Command{
		Use:     "pack SRC OUT",
		GroupID: groupData,
		Short:   "Turn a folder of images, or other data, into a pack",
		Long: `Turn the folder of images SRC into the pack OUT: a few large files that load fast,
and that everything which opens Apache Arrow files can open too.

SRC may also be
  tokens.npy        an array: each row is a record; with --window L, each L elements
                    of an array of one axis, such as tokens (or a folder of .npy
                    files with equally many rows, one field each)
  scans/            a folder of .npz files: each is a record, its arrays are fields
  train.tfrecord    TFRecords, one file or a folder of them: each record its bytes;
                    also compressed with gzip or zstd
  cifar-10-batches-py?split=train
                    the files of MNIST, CIFAR, STL-10 and SVHN
  train.csv         a table, or a folder of them (.csv, .tsv, .jsonl): each row is a
                    record; columns of paths of images or sounds are those files
  train.arrow       Arrow files that are not compressed, a folder of them, or what
                    save_to_disk of Hugging Face datasets has written
  'train-{0000..0127}.tar'
                    shards of webdataset (or a folder of them, or one): members with
                    a name in common are a record. A tar or zip file of class
                    folders is read like the folder, another one file by file
  files:scans/      a folder of any files: each is a record, its bytes

With --field, a record is several files below SRC, such as an image and its mask:
each --field says where the files of one field lie. * stands for any part of a
name, ** for any number of folders; files whose stars stand for the same belong
together, and what has no partner is listed. A field is of images, or of masks when
"mask" or "segm" is part of its name, of audio, text or JSON by the extension of
its files, else of bytes; --field NAME:KIND=... says it. Of a table, --field
NAME:KIND=COLUMN chooses a column (also NAME, NAME=COLUMN, NAME:KIND), and
--field '*' all others.

The class of an image is the first folder of its path; a folder without
subfolders is packed without labels. What counts as an image is decided by
content: JPEG, PNG, BMP, GIF (first frame), WebP, TIFF.

How images are stored is chosen by --images:
  auto  dct for JPEGs that allow it, keep for everything else (default)
  dct   the same
  keep  the bytes of the file
  raw   decoded pixels, resized if --resize says so
or for some fields, --images raw,depth=keep. Masks are stored without loss: as
runs of equal class numbers, with keep as they are, with raw as plain numbers.

Files that are empty, cut off or no image are left out, listed on the screen and
in OUT/manifest.json, and make the exit code 3. If packing is interrupted, the
same command goes on where it stopped.`,
		Example: `  stoker pack photos/ train/
  stoker pack photos/ small/ --images raw --resize 256
  stoker pack tokens.npy tokens/ --window 1024
  stoker pack list.csv train/ --field image:image=path --field label:label=class
  stoker pack ade20k/ train/ --field 'image=images/*.jpg' --field 'mask=masks/*.png'`,
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			opt, err := f.options()
			if err != nil {
				return err
			}
			return app.runPack(&f, opt, args[1], "packing", func() (*pack.Summary, error) {
				return writePack(app, args[0], args[1], window, fields, opt)
			})
		},
	}
	cmd.Flags().Int64Var(&window, "window", 0, "cut an array of one axis into records of `L` elements")
	cmd.Flags().StringArrayVar(&fields, "field", nil, "`NAME=PATTERN`: where the files of a field lie, e.g. mask=masks/*.png, or which column it is (repeat)")
	cmd.Flags().StringVar(&f.opt.Images, "images", pack.ImagesAuto, "how images are stored: auto, keep, dct or raw, also by field")
	cmd.Flags().BoolVar(&f.opt.Metadata, "metadata", false, "keep EXIF data and colour profiles of JPEGs")
	f.register(cmd)
	return cmd
}

// runPack runs a packing with progress and prints its summary.
func (app *App) runPack(f *packFlags, opt *pack.Options, out, label string, run func() (*pack.Summary, error)) error {
	progress := app.NewProgress(label, "files", 0)
	var last pack.Progress
	skipped := int64(0) // files of an earlier run
	opt.Progress = func(p pack.Progress) {
		progress.SetTotal(p.Total)
		before := p.Before
		if p.Step == "checking" {
			before = p.Files
		}
		progress.Skip(before - skipped)
		skipped = before
		if p.Step == "checking" {
			return
		}
		if last.Files == 0 {
			last.Files = p.Before
		}
		progress.Add(p.Files-last.Files, p.BytesDone-last.BytesDone)
		last = p
	}
	start := time.Now()
	sum, err := run()
	progress.Stop()
	if err != nil {
		return packFailed(err)
	}
	m := sum.Manifest
	if f.asJSON {
		err = json.NewEncoder(app.Stdout).Encode(map[string]any{
			"pack": out, "records": m.Records, "bytes": m.Bytes, "shards": len(m.Shards), "fingerprint": m.Fingerprint,
			"fields": m.Fields, "skipped": m.Skipped, "resumed": sum.Resumed, "unchanged": sum.Unchanged,
			"seconds": math.Round(1000*time.Since(start).Seconds()) / 1000,
		})
	} else {
		err = app.printPacked(sum, out, time.Since(start))
	}
	if err != nil {
		return err
	}
	if len(m.Skipped) > 0 && !f.allowBad {
		return &Error{
			Code: ExitBadInputs,
			Msg:  fmt.Sprintf("%s of %s files could not be packed", units.Int(len(m.Skipped)), units.Int(m.Source.Files)),
			Hint: "the pack is complete without them; --allow-bad makes this exit code 0",
		}
	}
	return nil
}

// packFailed adds the hint that an error of packing carries in itself.
func packFailed(err error) error {
	if errors.Is(err, pack.ErrInterrupted) {
		msg, hint, _ := strings.Cut(err.Error(), ": ")
		return &Error{Code: ExitInterrupted, Msg: msg, Hint: hint}
	}
	return err
}

// listed is how many skipped files are listed on the screen.
const listed = 20

func (app *App) printPacked(sum *pack.Summary, out string, took time.Duration) error {
	m := sum.Manifest
	listSkipped(app.Stderr, m.Skipped, out)
	what, details := packedText(m)
	title := lipgloss.NewStyle().Bold(true)
	if sum.Unchanged {
		_, err := lipgloss.Fprintf(app.Stdout, "%s is finished already: %s %s, %s\n", title.Render(out), units.Int(m.Records), what, units.Bytes(m.Bytes))
		return err
	}
	_, err := lipgloss.Fprintf(app.Stdout, "%s  %s %s (%s) in %s, %s",
		title.Render(out), units.Int(m.Records), what, strings.Join(details, ", "), units.Plural(len(m.Shards), "shard"), units.Bytes(m.Bytes))
	if err == nil && m.Source.Bytes > 0 && m.Source.Kind != "pack" {
		_, err = fmt.Fprintf(app.Stdout, ", %.2f x the source", float64(m.Bytes)/float64(m.Source.Bytes))
	}
	if err == nil {
		_, err = fmt.Fprintf(app.Stdout, ", in %s\n", units.Elapsed(took))
	}
	if err == nil && sum.Resumed > 0 {
		_, err = fmt.Fprintf(app.Stdout, "%s files were packed by an earlier run\n", units.Int(sum.Resumed))
	}
	return err
}

// packedText says what the records of a pack are: images, or records of fields.
func packedText(m *pack.Manifest) (what string, details []string) {
	codecs := func(f *pack.Field) (out []string) {
		for _, name := range []string{"dct", "jpeg", "png", "bmp", "gif", "webp", "tiff", "raw", "runs"} {
			if n := f.Stats.Images.Codecs[name].Count; n > 0 {
				out = append(out, fmt.Sprintf("%s %s", units.Int(n), name))
			}
		}
		return out
	}
	if len(m.Fields) <= 2 && m.Fields[0].Kind == driver.KindImage && (len(m.Fields) == 1 || m.Fields[1].Kind == driver.KindLabel) {
		return "images", codecs(&m.Fields[0])
	}
	for i := range m.Fields {
		f := &m.Fields[i]
		text := string(f.Kind)
		if f.Stats.Images != nil {
			text = strings.Join(codecs(f), " + ")
		} else if t := fieldType(f); t != "" {
			text = t
		}
		details = append(details, fmt.Sprintf("%s: %s", clean(f.Name), text))
	}
	return "records", details
}

// listSkipped lists inputs that were left out.
func listSkipped(w io.Writer, skipped []pack.Skipped, out string) {
	if len(skipped) == 0 {
		return
	}
	fmt.Fprintf(w, "left out:\n")
	for i, s := range skipped {
		if i == listed {
			fmt.Fprintf(w, "  ... and %s more; %s/%s lists all\n", units.Int(int64(len(skipped)-listed)), strings.TrimRight(out, "/"), pack.ManifestName)
			break
		}
		fmt.Fprintf(w, "  %s: %s\n", strings.Map(printable, s.Path), s.Reason)
	}
}

// printable keeps control characters in file names away from the terminal.
func printable(r rune) rune {
	if r < 0x20 || r >= 0x7F && r < 0xA0 {
		return '?'
	}
	return r
}
