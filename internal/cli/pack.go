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

	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/sink"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// packFlags are the flags that pack and convert share.
type packFlags struct {
	opt       pack.Options
	resize    string
	crop      string
	shardSize string
	chunkSize string
	memory    string
	allowBad  bool
	asJSON    bool
}

func (f *packFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.resize, "resize", "", "with --images raw or --reencode-quality: `N` for the shorter side, or WxH; several with commas between them")
	fl.StringVar(&f.crop, "crop", "", "likewise, after --resize: keep the middle of `N` x N or WxH pixels")
	fl.BoolVar(&f.opt.Grayscale, "grayscale", false, "likewise: keep the luma of images only")
	fl.StringVar(&f.opt.Interpolation, "interpolation", "", "the `FILTER` of --resize: bilinear (default) or bicubic, both with antialias")
	fl.IntVar(&f.opt.Quality, "reencode-quality", 0, "make JPEGs of quality `Q` of all images, 1 to 100 (off by default)")
	fl.StringVar(&f.shardSize, "shard-size", "256MiB", "`size` of the files of the pack")
	fl.StringVar(&f.chunkSize, "chunk-size", "8MiB", "`size` of the chunks that have a checksum of their own")
	fl.StringVar(&f.opt.Check, "check", pack.CheckStructure, "how to look for damaged files: structure, or decode, which decodes all images, sound and clips")
	fl.IntVar(&f.opt.Threads, "threads", 0, "images processed at the same time (default one per core)")
	fl.StringVar(&f.memory, "memory", "", "`size` of what images may take while they are packed (default a quarter of the free memory)")
	fl.BoolVar(&f.opt.Restart, "restart", false, "start over instead of continuing an interrupted run")
	fl.BoolVar(&f.allowBad, "allow-bad", false, "end with exit code 0 even if files had to be left out")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON")
}

// options checks the flags.
func (f *packFlags) options() (*pack.Options, error) {
	o := f.opt
	var err error
	if o.Resolutions, err = pack.ParseResizes(f.resize); err != nil {
		return nil, usageError("", "%v", err)
	}
	if o.Crop, err = pack.ParseResize(f.crop); err != nil {
		return nil, usageError("", "--crop%s", strings.TrimPrefix(err.Error(), "--resize"))
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

// packPrefix refuses a destination of a format that stoker convert writes.
func packPrefix(src, out string) error {
	if prefix := stores.Prefix(out); sink.Find(prefix) != nil {
		return usageError(fmt.Sprintf("stoker convert %s %s; for a folder with that name write ./%s", units.Shell(src), units.Shell(out), out),
			"stoker pack writes packs, and %s is not one", out)
	}
	return nil
}

// writePack packs src, by its kind.
func writePack(app *App, src, out string, window int64, fields []string, look viewFlags, variants *augmentFlags, text *textFlags, opt *pack.Options) (*pack.Summary, error) {
	if text.any() {
		if window != 0 {
			return nil, usageError("", "--window cuts tokens that are there already; with --tokenizer, documents are packed as they are: choose the length when you load them (sequence_length)")
		}
		return writeTokens(app, src, out, fields, look, text, opt)
	}
	if of, ok := app.hasFields(src); ok && len(fields) > 0 && window == 0 {
		if err := look.fields(fields); err != nil {
			return nil, fmt.Errorf("%s is a %s: %w", src, of, err)
		}
		fields = nil
	}
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
	if (format == source.FormatFolder && !strings.Contains(src, "?split=") || format == "pack" && !opt.Append) && !source.HasView(src, nil) && look.spec.Empty() && !variants.any(opt) {
		return pack.Write(app.Context, path, out, opt)
	}
	if window > 0 && !strings.Contains(src, "?window=") {
		src = stores.Ask(src, fmt.Sprintf("window=%d", window)) // what an interrupted run is gone on with
	}
	s, err := app.openSource(look.url(src), opt.Threads, opt.Memory)
	if err != nil {
		return nil, err
	}
	if v, ok := driver.As[view.Viewer](s); ok && v.Repeated() > 0 {
		fmt.Fprintf(app.Stderr, "%s of %s are as one before and left out (--dedupe)\n", units.Int(v.Repeated()), units.Plural(int(v.Matched()), "record"))
	}
	if v, ok := driver.As[view.Viewer](s); ok && v.Alike() > 0 {
		fmt.Fprintf(app.Stderr, "%s of %s look like one before and are left out (--drop-similar)\n", units.Int(v.Alike()), units.Plural(int(v.Matched()), "record"))
	}
	if variants.similar.what != "" {
		a, err := app.findSimilar(s, &variants.similar, opt.Threads, shownPairs)
		if err != nil {
			_ = s.Close() // the refusal is what counts
			return nil, err
		}
		a.print(app.Stderr)
	}
	if s, err = variants.of(s, opt); err != nil {
		return nil, err
	}
	defer s.Close()
	return pack.WriteSource(app.Context, s, out, opt)
}

// hasFields reports whether data has fields from which --field can choose. These are all formats except tables, whose
// columns --field names, and folders, for which --field gives the location of files.
func (app *App) hasFields(src string) (format string, ok bool) {
	format, _, err := source.Format(app.Context, src, nil)
	return format, err == nil && !source.IsTable(format) && format != source.FormatFolder && format != "pairs"
}

// withFields is the URL of src with the fields of --field: columns of a table, or
// files in a folder.
func withFields(app *App, src string, fields []string) (string, error) {
	if format, _, err := source.Format(app.Context, src, nil); err == nil && source.IsTable(format) {
		var columns []column.Want
		for _, text := range fields {
			c, err := column.Parse(text)
			if err != nil {
				return "", usageError("", "--field: %v", err)
			}
			columns = append(columns, c)
		}
		return stores.Ask(src, column.Query(columns...)), nil
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

// packCommand has the flags of stoker pack.
type packCommand struct {
	packFlags
	app      *App
	look     viewFlags
	text     textFlags
	change   changeFlags
	variants augmentFlags
	window   int64
	fields   []string
	pieces   pieceFlags
}

// pieceFlags are for a pack that several processes write.
type pieceFlags struct {
	commit, begun, wipe, stream bool
	parent                      int
}

func (f *pieceFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.Lookup("part").Usage = "pack part `I/N` of the inputs, I from 0 to N-1; --commit makes one pack of all parts; or the NAME of a part of --split"
	fl.BoolVar(&f.commit, "commit", false, "make the pack OUT whole, of the parts that are in it")
	fl.BoolVar(&f.stream, "stream", false, "")
	fl.BoolVar(&f.begun, "begun", false, "")
	fl.BoolVar(&f.wipe, "clear", false, "")
	fl.IntVar(&f.parent, "parent", 0, "")
	// The Python package uses the first one for its own data. Schedulers' workers, which are killed and have no other
	// way to look into buckets, use the others.
	for _, name := range []string{"stream", "begun", "clear", "parent"} {
		_ = fl.MarkHidden(name)
	}
	cmd.MarkFlagsMutuallyExclusive("part", "commit", "stream")
}

func newPackCommand(app *App) *cobra.Command {
	c := &packCommand{app: app}
	cmd := &cobra.Command{
		Use:     "pack SRC OUT",
		GroupID: groupData,
		Short:   "Turn a folder of images, or other data, into a pack",
		Long:    packHelp(),
		Example: packExamples,
		Args: func(cmd *cobra.Command, args []string) error {
			if c.onPack() || c.pieces.stream {
				return exactArgs("OUT")(cmd, args)
			}
			return exactArgs("SRC", "OUT")(cmd, args)
		},
		RunE: c.run,
	}
	fl := cmd.Flags()
	fl.Int64Var(&c.window, "window", 0, "cut an array of one axis into records of `L` elements")
	fl.StringArrayVar(&c.fields, "field", nil, "`NAME=PATTERN`: where the files of a field lie, e.g. mask=masks/*.png, or which column it is (repeat)")
	fl.StringVar(&c.opt.Images, "images", pack.ImagesAuto, "how images are stored: auto, keep, dct or raw, also by field")
	fl.BoolVar(&c.opt.Metadata, "metadata", false, "keep EXIF data and colour profiles of JPEGs")
	c.look.register(fl)
	c.variants.register(fl)
	c.pieces.register(cmd)
	c.text.register(cmd)
	c.packFlags.register(cmd)
	c.change.register(cmd)
	return cmd
}

// onPack reports whether the command works on a pack that exists, and has no source.
func (c *packCommand) onPack() bool {
	return c.pieces.commit || c.pieces.begun || c.pieces.wipe || c.change.compact || c.change.remove != ""
}

func (c *packCommand) run(cmd *cobra.Command, args []string) error {
	opt, err := c.options()
	if err != nil {
		return err
	}
	stop, err := c.app.endWith(c.pieces.parent)
	if err != nil {
		return err
	}
	defer stop()
	if c.onPack() {
		return c.runOnPack(args[0])
	}
	if err := c.variants.read(opt, c.look.spec.Seed); err != nil {
		return err
	}
	if c.pieces.stream {
		return c.stream(cmd, args[0], opt)
	}
	src, out := args[0], args[1]
	c.change.asBefore(cmd, out, opt)
	if err := c.look.read(); err != nil {
		return err
	}
	if err := c.readPiece(opt); err != nil {
		return err
	}
	if err := packPrefix(src, out); err != nil {
		return err
	}
	parts, err := c.look.parts()
	if err != nil {
		return err
	}
	if parts == nil {
		return c.write(src, out, "packing", c.look, opt)
	}
	return c.writeParts(src, out, parts, opt)
}

// runOnPack changes the pack at out, or looks at it.
func (c *packCommand) runOnPack(out string) error {
	switch {
	case c.pieces.begun:
		return c.app.begunPack(out)
	case c.pieces.wipe:
		return pack.Clear(c.app.Context, out)
	case c.pieces.commit:
		return c.app.commitPack(out, &c.packFlags)
	case c.change.compact:
		return c.app.compactPack(out, c.asJSON)
	}
	return c.app.removeRecords(out, c.change.remove, c.asJSON)
}

// readPiece sets the part of the inputs that this process packs.
func (c *packCommand) readPiece(opt *pack.Options) (err error) {
	part := &c.look.spec.Part
	if !strings.Contains(*part, "/") { // the name of a part of --split
		return nil
	}
	if opt.Piece, err = pack.ParsePiece(*part); err != nil {
		return usageError("", "--part: %v", err)
	}
	*part = ""
	return nil
}

// write packs the selected records.
func (c *packCommand) write(src, out, what string, look viewFlags, opt *pack.Options) error {
	return c.app.runPack(&c.packFlags, opt, out, what, func() (*pack.Summary, error) {
		return writePack(c.app, src, out, c.window, c.fields, look, &c.variants, &c.text, opt)
	})
}

// writeParts makes a pack of each part of a split. Bad files of one part do not stop the others.
func (c *packCommand) writeParts(src, out string, parts []string, opt *pack.Options) (bad error) {
	for _, name := range parts {
		look, o := c.look, *opt
		look.spec.Part = name
		err := c.write(src, strings.TrimSuffix(out, "/")+"/"+name, "packing "+name, look, &o)
		if left := new(Error); errors.As(err, &left) && left.Code == ExitBadInputs {
			bad = err
		} else if err != nil {
			return err
		}
	}
	return bad
}

func packHelp() string {
	return `Turn SRC, a folder of images or other data, into the pack OUT. A pack is a folder
of a few large files that load fast. Programs that read Apache Arrow can open them.

` + formatsHelp() + `

Fields. With --field, a record consists of several files below SRC, such as an image
and its mask. Each --field names the files of one field. * stands for any part of a
name and ** for any number of folders. Files whose stars stand for the same text belong
to one record. Files without a partner are listed. The kind of a field follows from the
extension of its files; a field with "mask" or "segm" in its name has masks.
--field NAME:KIND=... sets the kind. For a table, --field NAME:KIND=COLUMN chooses a
column (also NAME, NAME=COLUMN, NAME:KIND), and --field '*' chooses all others. For other
data with fields, it chooses fields in the same way.

Parts. --where, --select and similar flags pack a part of the data. With --split
train:0.9,val:0.1 and without --part, each part gets its own pack: OUT/train, OUT/val.

Classes. The class of an image is the first folder of its path. A folder without
subfolders has no labels. The extension of a file says whether it is an image, sound or
video. Without a known extension, its first bytes decide. A folder has the kind of most
of its media files. Other files are counted on the screen and in OUT/manifest.json.

--images sets how images are stored:
  auto  dct for JPEGs that allow it, keep for all others (default)
  dct   the same
  keep  the bytes of the file
  raw   decoded pixels, resized with --resize
It can name fields: --images raw,depth=keep. Masks are stored without loss: as runs of
equal class numbers, with keep as files, with raw as plain numbers.

Pixels. --resize, --crop and --grayscale change the stored pixels. They need --images raw,
or --reencode-quality 90, which writes JPEGs again. Masks follow their image by the nearest
pixel. Boxes and key points follow --resize. With --resize 128,192,256 a pack has each
image in three sizes, and a dataset chooses one: stoker.open("train/").resolution(192).

Transforms. --transforms applies a loader's transforms once, while packing. With random
transforms, --augment 4 makes four variants of each record, drawn with --seed. A loader
reads one variant of each record per epoch, and all variants in four epochs.

Text. --tokenizer turns text into tokens. It takes a tokenizer.json of Hugging Face, or a
tiktoken file of ranks (cl100k_base.tiktoken, or --encoding). Each record is a document,
stored as uint16 if the vocabulary allows it. A single file, or each file of a folder of
unknown files, is a document. Other fields are dropped unless --field names them.

Bad files. Images that are empty, cut off or of an unknown format are skipped. They are
listed on the screen and in OUT/manifest.json, and the exit code is 3.

Interrupted. The same command continues an interrupted run.

Several processes. Processes or machines can write one pack together. Each packs a part of
the inputs with --part 0/16, --part 1/16 and so on, in any order. When all have
exited, stoker pack --commit OUT finishes the pack. Its records are those of one run, in
the same order.

Changes. --append adds the records of SRC to a finished pack. The fields must be the same,
and new classes come after the old ones. --remove leaves out the records for which an
expression holds. Both write a new manifest as their last step: programs that have the pack
open keep the records that they had. Removed records stay in the files until
stoker pack --compact OUT.`
}

const packExamples = `  stoker pack photos/ train/
  stoker pack photos/ small/ --images raw --resize 256
  stoker pack photos/ small/ --resize 128,192,256 --reencode-quality 90
  stoker pack photos/ packs/ --split train:0.9,val:0.1 --stratify label
  stoker pack tokens.npy tokens/ --window 1024
  stoker pack corpus.jsonl tokens/ --tokenizer tokenizer.json --append-eos
  stoker pack list.csv train/ --field image:image=path --field label:label=class
  stoker pack photos/ train/ --part $SLURM_PROCID/16 && stoker pack --commit train/
  stoker pack photos/ train/ --dedupe=image
  stoker pack photos/ train/ --transforms 'RandomResizedCrop(224)' --augment 8
  stoker pack more-photos/ train/ --append
  stoker pack --remove 'width < 64 or height < 64' train/
  stoker pack ade20k/ train/ --field 'image=images/*.jpg' --field 'mask=masks/*.png'`

// begunPack prints the state of a pack as JSON.
func (app *App) begunPack(out string) error {
	b, err := pack.LookAt(app.Context, out)
	if err != nil {
		return err
	}
	said := map[string]any{"some": b.Some, "pieces": append([]int{}, b.Pieces...), "parts": b.Parts, "whole": wholeText(b.Whole)}
	return json.NewEncoder(app.Stdout).Encode(said)
}

// wholeText describes a finished pack for the Python package, nil for none.
func wholeText(m *pack.Manifest) map[string]any {
	if m == nil {
		return nil
	}
	return map[string]any{"source": m.Source.Path, "records": m.Records, "bytes": m.Bytes, "skipped": m.Skipped}
}

// commitPack completes a pack whose pieces are written.
func (app *App) commitPack(out string, f *packFlags) error {
	return app.runPack(f, &pack.Options{}, out, "packing", func() (*pack.Summary, error) {
		m, err := pack.Commit(app.Context, out, 0)
		return &pack.Summary{Manifest: m}, err
	})
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
	done := leftover.Add(out, "it is unfinished; the same command goes on with it")
	sum, err := run()
	done()
	progress.Stop()
	if err != nil {
		return packFailed(err)
	}
	m := sum.Manifest
	if f.asJSON {
		err = json.NewEncoder(app.Stdout).Encode(map[string]any{
			"pack": out, "records": m.Records, "bytes": m.Bytes, "shards": len(m.Shards), "fingerprint": m.Fingerprint,
			"fields": m.Fields, "skipped": m.Skipped, "beside": append([]driver.SkippedGroup{}, m.Beside...), "resumed": sum.Resumed, "unchanged": sum.Unchanged,
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

// listed is the number of skipped files that are listed on the screen.
const listed = 20

func (app *App) printPacked(sum *pack.Summary, out string, took time.Duration) error {
	m := sum.Manifest
	listSkipped(app.Stderr, m.Skipped, out)
	listBeside(app.Stderr, m.Beside)
	what, details := packedText(m)
	title := lipgloss.NewStyle().Bold(true)
	if sum.Unchanged {
		_, err := lipgloss.Fprintf(app.Stdout, "%s is finished already: %s %s, %s\n", title.Render(out), units.Int(m.Records), what, units.Bytes(m.Bytes))
		return err
	}
	_, err := lipgloss.Fprintf(app.Stdout, "%s  %s %s (%s) in %s, %s",
		title.Render(out), units.Int(m.Records), what, strings.Join(details, ", "), units.Plural(len(m.Shards), "shard"), units.Bytes(m.Bytes))
	if err == nil && m.Source.Bytes > 0 && m.Source.Kind != "pack" && m.Parts == 0 && len(m.Appended) == 0 {
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

// shownFields is the number of fields that are listed in one line.
const shownFields = 8

// packedText describes the records of a pack: images, or records of fields.
func packedText(m *pack.Manifest) (what string, details []string) {
	codecs := func(f *pack.Field) (out []string) {
		for _, name := range []string{"dct", "jpeg", "png", "bmp", "gif", "webp", "tiff", "pnm", "pfm", "flo", "jxl", "avif", "raw", "runs"} {
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
		if len(m.Fields) > shownFields+1 && i == shownFields {
			details = append(details, fmt.Sprintf("and %d more fields", len(m.Fields)-i))
			break
		}
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

// listBeside lists the files that a source did not use as records, one line for each reason.
func listBeside(w io.Writer, groups []driver.SkippedGroup) {
	if len(groups) > 0 {
		fmt.Fprintf(w, "not taken:\n")
	}
	for _, g := range groups {
		fmt.Fprintf(w, "  %s\n", besideText(g))
	}
}

// besideText is one reason with the number of files and some of them.
func besideText(g driver.SkippedGroup) string {
	text := fmt.Sprintf("%s (%s): %s", g.Reason, units.Int(g.Count), strings.Join(g.Examples, ", "))
	if more := g.Count - int64(len(g.Examples)); more > 0 {
		text += ", ..."
	}
	return clean(text)
}

// printable keeps control characters in file names away from the terminal.
func printable(r rune) rune {
	if r < 0x20 || r >= 0x7F && r < 0xA0 {
		return '?'
	}
	return r
}
