package cli

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

func newInspectCommand(app *App) *cobra.Command {
	var row int64
	var export string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "inspect PACK",
		GroupID: groupData,
		Short:   "Look into a pack",
		Long: `Show what is in a pack: fields, sizes, codecs, classes and what was left out. It
reads the indexes, not the images.

With --row N, show record N instead; --export FILE also writes its image as a
file: the JPEG or other file as it is, a JPEG with the same pixels for dct, a PNG
for raw pixels; in packs without images the first field of bytes, or the first
array as a .npy file. FILE "-" is the standard output.`,
		Example: `  stoker inspect train/
  stoker inspect train/ --row 17 --export photo.jpg`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if export != "" && !cmd.Flags().Changed("row") {
				return usageError("stoker inspect PACK --row 17 --export photo.jpg", "--export needs --row")
			}
			r, err := pack.Open(app.Context, args[0], nil)
			if err != nil {
				return err
			}
			defer r.Close()
			if cmd.Flags().Changed("row") {
				return app.inspectRow(r, row, export, asJSON)
			}
			d, err := r.Describe(app.Context)
			if err != nil {
				return err
			}
			if asJSON {
				return app.inspectJSON(r, d)
			}
			return app.inspectText(r, d)
		},
	}
	cmd.Flags().Int64Var(&row, "row", 0, "show record `N`, counted from 0")
	cmd.Flags().StringVar(&export, "export", "", "write the image of the record to `FILE`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (app *App) inspectJSON(r *pack.Reader, d *pack.Description) error {
	m := r.Manifest()
	chunks := 0
	for _, s := range m.Shards {
		chunks += len(s.Chunks)
	}
	e := json.NewEncoder(app.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(map[string]any{
		"pack": r.Dir(), "version": m.Version, "writer": m.Writer, "fingerprint": m.Fingerprint,
		"records": m.Records, "bytes": m.Bytes, "shards": len(m.Shards), "chunks": chunks,
		"fields": m.Fields, "source": m.Source, "options": m.Options, "skipped": m.Skipped, "content": d,
	})
}

// styles of the inspect command.
var (
	headStyle = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Color("#C2410C"))
	dimStyle  = lipgloss.NewStyle().Faint(true)
	barStyle  = lipgloss.NewStyle().Foreground(lipgloss.Color("#F59E0B"))
)

// shownClasses and shownSkipped bound the lists on the screen.
const (
	shownClasses = 12
	shownSkipped = 10
)

func (app *App) inspectText(r *pack.Reader, d *pack.Description) error {
	m := r.Manifest()
	images := m.Images()
	chunks := 0
	for _, s := range m.Shards {
		chunks += len(s.Chunks)
	}
	var out strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&out, format, a...) }
	section := func(title, note string) {
		p("\n%s", headStyle.Render(title))
		if note != "" {
			p("  %s", dimStyle.Render(note))
		}
		p("\n")
	}

	p("%s\n", headStyle.Render(r.Dir()))
	p("  %s records in %s and %s, %s", FormatCount(m.Records), plural(len(m.Shards), "shard"), plural(chunks, "chunk"), FormatBytes(m.Bytes))
	if m.Records > 0 {
		p(", %s per record", FormatBytes(m.Bytes/m.Records))
	}
	p("\n  made from the %s %s by %s with %s\n", m.Source.Kind, clean(m.Source.Path), clean(m.Writer), settingsText(m.Options))
	p("  fingerprint %s, format version %d\n", m.Fingerprint, m.Version)

	section("Fields", "")
	t := newTable("name", "kind", "type", "")
	for _, f := range m.Fields {
		t.Row(f.Name, f.Kind, f.Type, fieldText(&f))
	}
	p("%s\n", t)
	if images == nil {
		skippedText(p, section, m)
		_, err := lipgloss.Fprint(app.Stdout, out.String())
		return err
	}

	section("Images", fmt.Sprintf("%s to %s wide, %s to %s high, %.2f megapixels on average",
		FormatCount(int64(images.MinWidth)), FormatCount(int64(images.MaxWidth)), FormatCount(int64(images.MinHeight)),
		FormatCount(int64(images.MaxHeight)), float64(d.Pixels)/1e6/float64(max(m.Records, 1))))
	t = newTable("codec", "records", "share", "bytes", "per image")
	for _, c := range d.Codecs {
		t.Row(c.Codec, FormatCount(c.Records), fmt.Sprintf("%.1f%%", 100*float64(c.Records)/float64(m.Records)),
			FormatBytes(c.Bytes), FormatBytes(c.Bytes/c.Records))
	}
	p("%s\n", t)
	if d.Turned > 0 {
		p("  %s have an EXIF orientation that turns them\n", FormatCount(d.Turned))
	}
	for _, reason := range sortedKeys(images.NotDCT) {
		p("  %s JPEGs were kept instead of dct: %s\n", FormatCount(images.NotDCT[reason]), clean(reason))
	}

	section("Shorter side", "pixels")
	out.WriteString(histogram(d.Sizes, FormatCount))
	section("Stored size", "")
	out.WriteString(histogram(d.Stored, FormatBytes))

	if classes := m.Classes(); classes != nil {
		least, most := d.ClassRecords[0], d.ClassRecords[0]
		for _, n := range d.ClassRecords {
			least, most = min(least, n), max(most, n)
		}
		each := FormatCount(least)
		if most > least {
			each += " to " + FormatCount(most)
		}
		section("Classes", fmt.Sprintf("%s, %s records each", FormatCount(int64(len(classes))), each))
		t = newTable("label", "class", "records")
		for i, name := range classes {
			if len(classes) > shownClasses+1 && i >= shownClasses-1 && i < len(classes)-1 {
				if i == shownClasses-1 {
					t.Row("...", fmt.Sprintf("%s more", FormatCount(int64(len(classes)-shownClasses))), "")
				}
				continue
			}
			t.Row(FormatCount(int64(i)), clean(name), FormatCount(d.ClassRecords[i]))
		}
		p("%s\n", t)
	}
	skippedText(p, section, m)
	_, err := lipgloss.Fprint(app.Stdout, out.String())
	return err
}

// skippedText lists inputs that were left out.
func skippedText(p func(format string, a ...any), section func(title, note string), m *pack.Manifest) {
	n := len(m.Skipped)
	if n == 0 {
		return
	}
	section("Left out", plural(n, "file"))
	for i, s := range m.Skipped {
		if i == shownSkipped {
			p("  ... and %s more, in %s\n", FormatCount(int64(n-i)), pack.ManifestName)
			break
		}
		p("  %s: %s\n", clean(s.Path), clean(s.Reason))
	}
}

// fieldType is the type of a field of a pack without images: "uint16 [1024]".
func fieldType(f *pack.Field) string {
	switch {
	case f.DType != "" && len(f.Shape) > 0:
		return f.DType + " " + strings.ReplaceAll(fmt.Sprint(f.Shape), " ", " x ")
	case f.DType != "":
		return f.DType
	}
	return f.Kind
}

// newTable is a table without lines but for one below its header.
func newTable(headers ...string) *table.Table {
	return table.New().Headers(headers...).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).BorderColumn(false).
		BorderStyle(dimStyle).
		StyleFunc(func(row, col int) lipgloss.Style {
			s := lipgloss.NewStyle().PaddingRight(2)
			if col == 0 {
				s = s.PaddingLeft(2)
			}
			if numeric[headers[col]] {
				s = s.Align(lipgloss.Right)
			}
			if row == table.HeaderRow {
				s = s.Faint(true)
			}
			return s
		})
}

// numeric are the columns that are aligned to the right.
var numeric = map[string]bool{"records": true, "share": true, "bytes": true, "per image": true, "label": true,
	"ns per record": true, "workers": true,
	"in flight": true, "reads/s": true, "bytes/s": true, "p50": true, "p90": true, "p99": true, "p99.9": true,
	"images/s, one core": true, "all cores": true, "ms of CPU": true, "needed": true, "there": true, "margin": true, "examples/s": true}

func fieldText(f *pack.Field) string {
	switch {
	case f.Classes != nil:
		if len(f.Classes) == 1 {
			return "1 class"
		}
		return FormatCount(int64(len(f.Classes))) + " classes"
	case f.DType != "":
		return fieldType(f)
	case f.Bytes > 0:
		return FormatBytes(f.Bytes) + ", up to " + FormatBytes(f.MaxBytes)
	case f.MaxBytes > 0:
		return "up to " + FormatBytes(f.MaxBytes)
	}
	return ""
}

func settingsText(s pack.Settings) string {
	if s.Images == "" {
		return fmt.Sprintf("chunks of %s", FormatBytes(s.ChunkBytes))
	}
	out := "--images " + s.Images
	if s.Resize != "" {
		out += " --resize " + s.Resize
	}
	if s.Metadata {
		out += " --metadata"
	}
	if s.Check != pack.CheckStructure {
		out += " --check " + s.Check
	}
	return clean(out)
}

// histogram draws counts as bars.
func histogram(buckets []pack.Bucket, format func(int64) string) string {
	most := int64(1)
	from, to := 0, 0
	for _, b := range buckets {
		most = max(most, b.Records)
		from, to = max(from, len(format(b.From))), max(to, len(format(b.To)))
	}
	var out strings.Builder
	for _, b := range buckets {
		fmt.Fprintf(&out, "  %*s to %-*s  %s %s\n", from, format(b.From), to, format(b.To), barStyle.Render(bar(b.Records, most)), FormatCount(b.Records))
	}
	return out.String()
}

// bar is n of most as a bar of up to 32 cells, in eighths of a cell.
func bar(n, most int64) string {
	const cells = 32
	eighths := int(float64(n) / float64(most) * cells * 8)
	if n > 0 && eighths == 0 {
		eighths = 1
	}
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return s
}

func sortedKeys(m map[string]int64) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// clean keeps control characters of names away from the terminal.
func clean(s string) string { return strings.Map(printable, s) }

func (app *App) inspectRow(r *pack.Reader, row int64, export string, asJSON bool) error {
	rec, err := r.Record(row)
	if err != nil {
		return err
	}
	if r.Manifest().Images() == nil {
		return app.inspectRecord(r, rec, export, asJSON)
	}
	size := len(rec.Image)
	if export != "" {
		data, _, err := rec.File()
		if err != nil {
			return err
		}
		if export == "-" {
			_, err = app.Stdout.Write(data)
			return err
		}
		if err := writeBytes(export, data); err != nil {
			return &Error{Msg: "cannot export record " + FormatCount(row), Err: err}
		}
		size = len(data)
	}
	shard, chunk, in := r.Whereabouts(row)
	if asJSON {
		v := map[string]any{
			"record": rec.ID, "path": rec.Path, "width": rec.Width, "height": rec.Height, "orientation": rec.Orientation,
			"codec": pack.CodecName(rec.Codec), "bytes": len(rec.Image), "shard": shard, "chunk": chunk, "row": in,
		}
		if rec.Label >= 0 {
			v["label"], v["class"] = rec.Label, rec.Class
		}
		if export != "" {
			v["exported"], v["exported_bytes"] = export, size
		}
		return json.NewEncoder(app.Stdout).Encode(v)
	}
	var out strings.Builder
	line := func(name, format string, a ...any) {
		fmt.Fprintf(&out, "  %s %s\n", dimStyle.Width(12).Render(name), fmt.Sprintf(format, a...))
	}
	fmt.Fprintf(&out, "%s\n", headStyle.Render(fmt.Sprintf("%s, record %s", r.Dir(), FormatCount(row))))
	line("path", "%s", clean(rec.Path))
	if rec.Label >= 0 {
		line("label", "%d (%s)", rec.Label, clean(rec.Class))
	}
	line("image", "%s, %d x %d pixels, %s bytes", pack.CodecName(rec.Codec), rec.Width, rec.Height, FormatCount(int64(len(rec.Image))))
	if rec.Orientation > 1 {
		line("orientation", "%d (EXIF)", rec.Orientation)
	}
	if n := len(rec.EXIF); n > 0 {
		line("exif", "%s bytes", FormatCount(int64(n)))
	}
	if n := len(rec.ICC); n > 0 {
		line("icc", "%s bytes", FormatCount(int64(n)))
	}
	line("place", "%s, chunk %d, row %d", shard, chunk, in)
	if export != "" {
		note := ""
		switch rec.Codec {
		case driver.CodecDCT:
			note = ", a JPEG with the same pixels"
		case driver.CodecRaw:
			note = ", a PNG of the pixels"
		}
		line("exported to", "%s (%s bytes%s)", export, FormatCount(int64(size)), note)
	}
	_, err = lipgloss.Fprint(app.Stdout, out.String())
	return err
}
