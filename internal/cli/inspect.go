package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/chart"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

func newInspectCommand(app *App) *cobra.Command {
	var row int64
	var export, field string
	var asJSON bool
	var look viewFlags
	var alike similarFlags
	cmd := &cobra.Command{
		Use:     "inspect SRC",
		GroupID: groupData,
		Short:   "Show what a pack or other data contains, and the code that loads it",
		Long: `Show what a pack or other data contains.

For a pack: fields, sizes, codecs, classes, and what was skipped. Only the manifest is
read. For other data: its format, records and fields, and the code that loads it.

` + formatsHelp() + `

--row N shows record N instead. --export FILE also writes one value of that record: the
field that --field names, or the first image. Files are written as they are. An image that
is stored as dct is written as a JPEG with the same pixels, raw pixels and masks as PNG,
arrays and lists as .npy. FILE "-" is the standard output.

--similar lists images that look alike: copies in another size, quality or format. It
decodes all images.

--where, --split and similar flags show a part of the data, and its number of records.`,
		Example: `  stoker inspect train/
  stoker inspect list.csv
  stoker inspect train/ --where 'label < 10 and width >= 224'
  stoker inspect train/ --split train:0.9,val:0.1 --part val --stratify label
  stoker inspect train/ --row 17 --export photo.jpg
  stoker inspect photos/ --similar
  stoker inspect train/ --row 17 --export mask.png --field mask`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if export != "" && !cmd.Flags().Changed("row") {
				return usageError("stoker inspect PACK --row 17 --export photo.jpg", "--export needs --row")
			}
			if field != "" && export == "" {
				return usageError("stoker inspect PACK --row 17 --export mask.png --field mask", "--field says which value --export writes")
			}
			if err := look.read(); err != nil {
				return err
			}
			args[0] = look.url(args[0])
			if alike.what != "" {
				if cmd.Flags().Changed("row") {
					return usageError("", "--similar looks at all images and --row at one record: give one of them")
				}
				return app.inspectSimilar(args[0], &alike, asJSON)
			}
			is, err := app.isSource(args[0])
			if err != nil {
				return ofText(args[0], err)
			}
			if is {
				if cmd.Flags().Changed("row") {
					shown := stores.Public(args[0])
					return &Error{Msg: fmt.Sprintf("%s is not a pack: --row shows records of packs", shown), Hint: "pack it first: stoker pack " + units.Shell(shown) + " OUT"}
				}
				return ofText(args[0], app.inspectSource(args[0], asJSON))
			}
			r, err := pack.Open(app.Context, args[0], nil)
			if err != nil {
				return err
			}
			defer r.Close()
			switch {
			case cmd.Flags().Changed("row"):
				return app.inspectRow(r, row, export, field, asJSON)
			case asJSON:
				return app.inspectJSON(r)
			}
			return app.inspectText(r)
		},
	}
	cmd.Flags().Int64Var(&row, "row", 0, "show record `N`, counted from 0")
	cmd.Flags().StringVar(&export, "export", "", "write a value of the record to `FILE`")
	cmd.Flags().StringVar(&field, "field", "", "the `NAME` of the field that --export writes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	look.register(cmd.Flags())
	alike.register(cmd.Flags())
	return cmd
}

func (app *App) inspectJSON(r *pack.Reader) error {
	m := r.Manifest()
	chunks := 0
	for _, s := range m.Shards {
		chunks += len(s.Chunks)
	}
	e := json.NewEncoder(app.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	out := map[string]any{
		"pack": r.Dir(), "version": m.Version, "writer": m.Writer, "fingerprint": m.Fingerprint,
		"records": m.Records, "bytes": m.Bytes, "shards": len(m.Shards), "chunks": chunks,
		"fields": m.Fields, "source": m.Source, "options": m.Options, "skipped": m.Skipped,
		"random_access": true, "loader": loaderJSON(r.Dir(), packInfo(m)),
	}
	if m.Beside != nil {
		out["beside"] = m.Beside
	}
	if len(m.Appended) > 0 {
		out["appended"] = m.Appended
	}
	if m.Removed() > 0 {
		out["removed"] = m.Removed()
	}
	return e.Encode(out)
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

// page is a text with sections.
type page struct{ strings.Builder }

func (p *page) f(format string, a ...any) { fmt.Fprintf(p, format, a...) }

func (p *page) section(title, note string) {
	p.f("\n%s", headStyle.Render(title))
	if note != "" {
		p.f("  %s", dimStyle.Render(note))
	}
	p.f("\n")
}

func (app *App) inspectText(r *pack.Reader) error {
	m := r.Manifest()
	chunks := 0
	for _, s := range m.Shards {
		chunks += len(s.Chunks)
	}
	p := new(page)
	p.f("%s\n", headStyle.Render(r.Dir()))
	p.f("  %s in %s and %s, %s", units.Records(m.Records), units.Plural(len(m.Shards), "shard"), units.Plural(chunks, "chunk"), units.Bytes(m.Bytes))
	if m.Records > 0 {
		p.f(", %s per record", units.Bytes(m.Bytes/m.Records))
	}
	p.f(", read at random\n  made from the %s %s by %s with %s\n", m.Source.Kind, clean(m.Source.Path), clean(m.Writer), settingsText(m.Options))
	historyText(p, m)
	variantsText(p, &m.Options)
	p.f("  fingerprint %s, format version %d\n", m.Fingerprint, m.Version)

	p.section("Fields", "")
	t := newTable("name", "kind", "type", "")
	for i := range m.Fields {
		f := &m.Fields[i]
		t.Row(clean(f.Name), string(f.Kind), fieldType(f), fieldText(f))
	}
	p.f("%s\n", t)
	pictures := 0
	for i := range m.Fields {
		if m.Fields[i].Stats.Images != nil {
			pictures++
		}
	}
	for i := range m.Fields {
		f := &m.Fields[i]
		if f.Stats.Images != nil {
			picturesText(p, f, pictures > 1)
		}
		if f.Classes != nil {
			classesText(p, f)
		}
	}
	for i := range m.Fields {
		columnsText(p, m.Fields[i].Name, m.Fields[i].Columns)
	}
	skippedText(p, m)
	notTaken(p, m.Beside)
	loaderPage(p, r.Dir(), packInfo(m), "")
	_, err := lipgloss.Fprint(app.Stdout, p.String())
	return err
}

// span is "3 to 5", or "3" if all are the same.
func span(least, most int64) string {
	if least == most {
		return units.Int(least)
	}
	return units.Int(least) + " to " + units.Int(most)
}

// picturesText describes the images or masks of a field.
func picturesText(p *page, f *pack.Field, several bool) {
	im, n := f.Stats.Images, f.Stats.Count
	title := "Images"
	if f.Kind == driver.KindMask {
		title = "Masks"
	}
	if several {
		title += " " + clean(f.Name)
	}
	mean := float64(im.Pixels) / float64(max(n, 1))
	pixels := fmt.Sprintf("%.2f megapixels", mean/1e6)
	if mean < 100e3 {
		pixels = units.Int(int64(mean+0.5)) + " pixels"
	}
	if im.MinWidth != im.MaxWidth || im.MinHeight != im.MaxHeight {
		pixels += " on average"
	}
	p.section(title, fmt.Sprintf("%s wide, %s high, %s", span(int64(im.MinWidth), int64(im.MaxWidth)), span(int64(im.MinHeight), int64(im.MaxHeight)), pixels))
	t := newTable("codec", "records", "share", "bytes", "per image")
	for _, name := range slices.Sorted(maps.Keys(im.Codecs)) {
		c := im.Codecs[name]
		t.Row(name, units.Int(c.Count), units.Tenths(float64(c.Count)/float64(n)), units.Bytes(c.Bytes), units.Bytes(c.Bytes/max(c.Count, 1)))
	}
	p.f("%s\n", t)
	if im.Turned > 0 {
		p.f("  %s have an EXIF orientation that turns them\n", units.Int(im.Turned))
	}
	for _, reason := range slices.Sorted(maps.Keys(im.NotDCT)) {
		p.f("  %s JPEGs were kept instead of dct: %s\n", units.Int(im.NotDCT[reason]), clean(reason))
	}
	if f.Kind == driver.KindImage {
		p.section("Shorter side", "pixels")
		p.WriteString(histogram(im.Sides, true, units.Int))
		p.section("Stored size", "")
		p.WriteString(histogram(f.Stats.Sizes, false, units.Bytes))
	}
}

// classesText lists the classes of a field.
func classesText(p *page, f *pack.Field) {
	what := "records"
	if f.Kind == driver.KindMask {
		what = "pixels"
	}
	counts := f.Stats.Classes
	least, most := counts[0], counts[0]
	for i := range f.Classes {
		n := counts[int64(i)]
		least, most = min(least, n), max(most, n)
	}
	each := units.Int(least)
	if most > least {
		each += " to " + units.Int(most)
	}
	p.section("Classes", fmt.Sprintf("of %s: %s, %s %s each", clean(f.Name), units.Int(len(f.Classes)), each, what))
	t := newTable("label", "class", what)
	for i, name := range f.Classes {
		if len(f.Classes) > shownClasses+1 && i >= shownClasses-1 && i < len(f.Classes)-1 {
			if i == shownClasses-1 {
				t.Row("...", fmt.Sprintf("%s more", units.Int(int64(len(f.Classes)-shownClasses))), "")
			}
			continue
		}
		t.Row(units.Int(int64(i)), clean(name), units.Int(counts[int64(i)]))
	}
	p.f("%s\n", t)
}

// skippedText lists inputs that were left out.
func skippedText(p *page, m *pack.Manifest) {
	n := len(m.Skipped)
	if n == 0 {
		return
	}
	p.section("Left out", units.Plural(n, "file"))
	for i, s := range m.Skipped {
		if i == shownSkipped {
			p.f("  ... and %s more, in %s\n", units.Int(int64(n-i)), pack.ManifestName)
			break
		}
		p.f("  %s: %s\n", clean(s.Path), clean(s.Reason))
	}
}

// fieldType describes the type of a field's values: "uint16 [3 x 4]", with n if the length differs.
func fieldType(f *pack.Field) string {
	var sides []string
	switch f.Kind {
	case driver.KindRagged, driver.KindTokens, driver.KindBoxes, driver.KindKeyPoints:
		sides = append(sides, "n")
	case driver.KindArray, driver.KindMask, driver.KindVolume:
	default:
		return ""
	}
	for _, n := range f.Shape {
		sides = append(sides, fmt.Sprint(n))
	}
	if len(sides) == 0 {
		return string(f.DType)
	}
	return fmt.Sprintf("%s [%s]", f.DType, strings.Join(sides, " x "))
}

// newTable returns a table whose only line is below its header.
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
var numeric = map[string]bool{"records": true, "pixels": true, "share": true, "bytes": true, "per image": true, "label": true,
	"ns per record": true, "workers": true,
	"in flight": true, "reads/s": true, "bytes/s": true, "p50": true, "p90": true, "p99": true, "p99.9": true,
	"images/s, one core": true, "all cores": true, "ms of CPU": true, "needed": true, "there": true, "margin": true, "examples/s": true}

// fieldText describes the values of a field in a few words.
func fieldText(f *pack.Field) string {
	s := &f.Stats
	var parts []string
	add := func(format string, a ...any) { parts = append(parts, fmt.Sprintf(format, a...)) }
	if f.Classes != nil {
		classes := units.Int(len(f.Classes)) + " classes"
		if len(f.Classes) == 1 {
			classes = "1 class"
		}
		add("%s", classes)
	}
	switch f.Kind {
	case driver.KindLabel, driver.KindInt, driver.KindArray, driver.KindVolume, driver.KindFloat, driver.KindTokens, driver.KindRagged, driver.KindBoxes, driver.KindKeyPoints:
		if n := s.Ints; n != nil && n.Count > 0 && f.Classes == nil {
			add("%d to %d", n.Min, n.Max)
		}
		if n := s.Floats; n != nil && n.Count > 0 {
			add("%.4g to %.4g, mean %.4g", n.Min, n.Max, n.Mean)
		}
	}
	if f.Format != "" {
		add("%s", f.Format)
	}
	if f.Boxes != "" {
		add("of %s", f.Boxes)
	}
	if r := s.Rows; r != nil {
		text := span(r.Min, r.Max) + " long"
		if r.Min != r.Max {
			text += fmt.Sprintf(", mean %.1f", float64(r.Total)/float64(max(s.Count, 1)))
		}
		add("%s", text)
	} else if s.Sizes != nil {
		add("%s, up to %s", units.Bytes(s.Bytes), units.Bytes(s.MaxBytes))
	}
	return strings.Join(parts, ", ")
}

func settingsText(s pack.Settings) string {
	if s.Images == "" {
		return fmt.Sprintf("chunks of %s", units.Bytes(s.ChunkBytes))
	}
	out := "--images " + s.Images
	if px := s.Pixels(); px != "" {
		out += " " + px
	}
	if s.Metadata {
		out += " --metadata"
	}
	if s.Check != pack.CheckStructure {
		out += " --check " + s.Check
	}
	return clean(out)
}

// histogram draws counts, by the smallest number counted in each, as bars.
func histogram(counts map[int64]int64, sides bool, format func(int64) string) string {
	type bucket struct {
		from, to string
		n        int64
	}
	var all []bucket
	most, from, to := int64(1), 0, 0
	keys := slices.Sorted(maps.Keys(counts))
	if len(keys) == 0 {
		return ""
	}
	for lo := keys[0]; lo <= keys[len(keys)-1] && lo < math.MaxInt64; lo = pack.NextBound(sides, lo) {
		b := bucket{format(lo), format(pack.NextBound(sides, lo)), counts[lo]}
		all = append(all, b)
		most, from, to = max(most, b.n), max(from, len(b.from)), max(to, len(b.to))
	}
	var out strings.Builder
	for _, b := range all {
		fmt.Fprintf(&out, "  %*s to %-*s  %s %s\n", from, b.from, to, b.to, barStyle.Render(chart.ShareBar(float64(b.n)/float64(most), 32)), units.Int(b.n))
	}
	return out.String()
}

// clean keeps control characters of names away from the terminal.
func clean(s string) string { return strings.Map(printable, s) }
