package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/store"
)

// planView is a plan with its surroundings on the page.
type planView struct {
	*plan.Plan
	Title string `json:"title"`
	// Example and Figures are set for a published calculation. Changed reports whether flags changed its inputs, so
	// that its figures do not apply.
	Example *plan.Example `json:"example,omitempty"`
	Figures []plan.Figure `json:"figures,omitempty"`
	Changed bool          `json:"changed,omitempty"`
	// Machine holds the measurements.
	Machine *plan.Machine `json:"machine,omitempty"`
}

// print shows a plan in the form that was asked for.
func (c *planCommand) print(v *planView) error {
	if c.saveHTML != "" {
		page, err := planHTML(v)
		if err != nil {
			return err
		}
		if err := writeBytes(c.saveHTML, page); err != nil {
			return &Error{Msg: "cannot write --html " + c.saveHTML, Err: store.Cause(err)}
		}
	}
	switch {
	case c.emit != "":
		_, err := fmt.Fprint(c.app.Stdout, v.Loader.Python)
		return err
	case c.asJSON:
		e := json.NewEncoder(c.app.Stdout)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	width := 80
	if f := terminalOf(c.app.Stdout); f != nil {
		width = min(max(columns(f), 60), 132)
	}
	_, err := lipgloss.Fprint(c.app.Stdout, planText(v, width))
	return err
}

// Colours of verdicts, for light and dark terminals alike.
var verdictStyles = map[string]lipgloss.Style{
	plan.VerdictYes:   lipgloss.NewStyle().Foreground(lipgloss.Color("#16A34A")),
	plan.VerdictTight: lipgloss.NewStyle().Foreground(lipgloss.Color("#D97706")),
	plan.VerdictNo:    lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Color("#DC2626")),
}

// planPrinter writes a plan for a terminal of a width.
type planPrinter struct {
	strings.Builder
	*planView
	width int
}

func planText(v *planView, width int) string {
	p := &planPrinter{planView: v, width: width}
	p.printf("%s\n", headStyle.Render(v.Title))
	if e := v.Example; e != nil {
		p.para("  ", "From "+e.Text+". "+capital(e.Assumed), dimStyle)
	}
	p.needs()
	p.compare()
	p.haves()
	p.classes()
	p.changes()
	p.notes()
	p.printf("\n")
	for _, s := range v.Sentences {
		p.para("", s, lipgloss.NewStyle())
	}
	return p.String()
}

func (p *planPrinter) printf(format string, args ...any) { fmt.Fprintf(&p.Builder, format, args...) }

func (p *planPrinter) section(title, note string) {
	p.printf("\n%s", headStyle.Render(title))
	if note != "" {
		p.printf("  %s", dimStyle.Render(note))
	}
	p.printf("\n")
}

// para writes text broken at the width, each line after indent.
func (p *planPrinter) para(indent, text string, style lipgloss.Style) {
	for _, line := range wrap(strings.TrimSpace(text), p.width-len(indent)) {
		p.printf("%s%s\n", indent, style.Render(line))
	}
}

// wrap breaks text at spaces into lines of at most width columns.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && lipgloss.Width(line)+1+lipgloss.Width(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// item is one line of the first section: a name, a value and a note. The note continues on the next line.
func (p *planPrinter) item(name, value, note string) {
	const names = 14
	p.printf("  %s %s", dimStyle.Render(fmt.Sprintf("%-*s", names, name)), value)
	indent := 2 + names + 1
	room := p.width - indent - lipgloss.Width(value) - 2
	switch lines := wrap(note, max(room, 10)); {
	case note == "":
	case room >= 12 && len(lines) == 1:
		p.printf("  %s", dimStyle.Render(note))
	default:
		for _, line := range wrap(note, p.width-indent) {
			p.printf("\n%s%s", strings.Repeat(" ", indent), dimStyle.Render(line))
		}
	}
	p.printf("\n")
}

// origin names the source of an input.
func (p *planPrinter) origin(key string) string {
	for _, in := range p.Inputs {
		if in.Key != key {
			continue
		}
		switch {
		case in.Origin == plan.OriginGiven:
			return "given"
		case in.Source != "":
			return in.Source
		}
		return in.Origin
	}
	return ""
}

func (p *planPrinter) needs() {
	p.section("What must be delivered", fmt.Sprintf("so that %s of the steps do not wait", units.Percent(p.Goal.Share)))
	n := units.Count(float64(p.Goal.Batch))
	if p.Goal.Accelerators > 1 {
		n = fmt.Sprintf("%s = %s x %s", units.Count(float64(p.Goal.TotalBatch)), units.Count(float64(p.Goal.Accelerators)), n)
	}
	note := p.origin("batch")
	if f := p.Fit; f.Known {
		note += fmt.Sprintf("; %s of %s, largest n that fits: %s", units.Bytes(f.Need), units.Bytes(f.Have), units.Count(float64(f.Largest)))
	}
	p.item("mini-batch n", n, note)
	p.item("step t", units.Seconds(p.Goal.Step), p.origin("step"))
	rate := units.Count(p.Goal.PerSecond) + "/s"
	note = fmt.Sprintf("and no example later than %s", units.Seconds(p.Goal.LatencyBound))
	if p.Goal.ComputeRate > 0 {
		note += fmt.Sprintf("; by FLOPs at most %s/s", units.Count(p.Goal.ComputeRate))
	}
	p.item("examples", rate, note)
	p.reads()
	p.cores()
	p.memory()
	if p.EpochSeconds > 0 {
		note := "at that rate"
		if p.EpochSecondsPredicted > p.EpochSeconds*1.02 {
			note += fmt.Sprintf("; %s predicted", units.Seconds(p.EpochSecondsPredicted))
		}
		p.item("epoch", units.Seconds(p.EpochSeconds), note)
	}
	if p.Bucket != nil {
		text, note := p.Bucket.Text()
		p.item("bucket", text, note)
	}
}

func (p *planPrinter) reads() {
	r := p.Reads
	text := fmt.Sprintf("%s reads/s of %s, %s", spanned(r.IOPSLow, r.IOPS, units.Count), units.Bytes(r.Block), spanned(r.BandwidthLow, r.Bandwidth, units.Bandwidth))
	note := ""
	if r.Cached > 0 {
		note = units.Percent(r.Cached) + " of the examples come from memory"
	}
	if r.Room > 0 {
		note = strings.TrimPrefix(note+"; "+units.Bytes(r.Room)+" in all", "; ")
	}
	p.item("storage", text, note)
	if l := p.Latency; l.Depth > 0 {
		note := fmt.Sprintf("99%% of single examples within %s; a batch would take %s with one read at a time", units.Seconds(l.P99), units.Seconds(l.BatchOne))
		text := fmt.Sprintf("%s in flight, %s ahead", units.Plural(l.Depth, "read"), units.Plural(float64(l.Prefetch), "batch"))
		if l.Depth > l.LoaderDepth {
			note += fmt.Sprintf("; Stoker makes %s at most", units.Count(l.LoaderDepth))
		}
		p.item("latency", text, note)
	}
}

func (p *planPrinter) cores() {
	var parts, notes []string
	for _, c := range p.CPU {
		name := c.Codec
		if c.Current && len(p.CPU) > 1 {
			name += " (now)"
		}
		parts = append(parts, fmt.Sprintf("%s for %s", cores(c.Cores), name))
		note := fmt.Sprintf("%s %s/s", c.Codec, units.Count(c.PerCore))
		if c.Origin != plan.OriginMeasured {
			note += " (" + c.Origin + ")"
		}
		notes = append(notes, note)
	}
	p.item("cores", strings.Join(parts, ", "), "examples per core: "+strings.Join(notes, ", "))
}

// cores writes a number of cores, with a decimal if it matters.
func cores(v float64) string {
	if v < 0.05 {
		return "under 0.1"
	}
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return units.Count(v)
}

func (p *planPrinter) memory() {
	m := p.Memory
	if len(m.Arrays) > 1 || p.Example != nil {
		var parts []string
		for _, a := range m.Arrays {
			parts = append(parts, a.Array+" "+units.Bytes(a.Bytes))
		}
		p.item("batch", units.Bytes(m.Batch), strings.Join(parts, ", "))
	} else {
		p.item("batch", units.Bytes(m.Batch), m.Arrays[0].Array)
	}
	p.item("memory", units.Bytes(m.Total), fmt.Sprintf("%s ahead %s, reading %s, scratch %s (%s per thread); no more with more workers",
		units.Plural(float64(m.Prefetch), "batch"), units.Bytes(m.Slots), units.Bytes(m.ReadAhead+m.Lookahead), units.Bytes(m.Scratch), units.Bytes(m.PerThread)))
	t := m.Torch
	p.item("with PyTorch", units.Bytes(t.Total), fmt.Sprintf("its DataLoader: %s on %s, %s of batches each (prefetch_factor 2), and a copy of the dataset object each",
		units.Plural(t.Workers, "worker"), units.Plural(math.Max(1, math.Ceil(t.Cores)), "core"), units.Bytes(t.PerWorker)))
	if m.Cache > 0 {
		note := fmt.Sprintf("would hold %s of the data", units.Percent(m.CacheShare))
		if m.Have > 0 {
			note = fmt.Sprintf("of %s that are free: %s", units.Bytes(m.Have), note)
		}
		p.item("cache", units.Bytes(m.Cache), note)
	}
}

func spanned(low, high float64, text func(float64) string) string {
	if low == high {
		return text(high)
	}
	return text(low) + " to " + text(high)
}

// compare shows the figures of a text and ours.
func (p *planPrinter) compare() {
	if p.Changed {
		p.section("In the text", "not shown: flags changed its inputs")
		return
	}
	if len(p.Figures) == 0 {
		return
	}
	p.section("In the text, and here", "")
	t := newTable("figure", "the text", "here", "")
	for _, f := range p.Figures {
		mark := "="
		if !f.Agrees {
			mark = "differs"
		}
		t.Row(f.What, f.Text, f.Ours, mark)
	}
	p.table(t)
	for _, f := range p.Figures {
		if f.Reason != "" {
			for i, line := range wrap(f.What+": "+f.Reason, p.width-4) {
				p.printf("%s%s\n", map[bool]string{true: "  ", false: "    "}[i == 0], dimStyle.Render(line))
			}
		}
	}
}

// table writes a table that may be as wide as the terminal.
func (p *planPrinter) table(t *table.Table) {
	const padding = 2 // behind the last column, where nothing stands
	text := t.String()
	if widest(text) > p.width {
		text = t.Width(p.width + padding).Wrap(true).String()
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if strings.HasPrefix(line, "──") || strings.Contains(line, "───") {
			line = dimStyle.Render(strings.Repeat("─", min(widest(text), p.width)))
		}
		p.printf("%s\n", line)
	}
}

// widest is the width of the widest line of a table, without the line below its
// header and without spaces at the ends.
func widest(text string) int {
	most := 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if !strings.Contains(line, "───") {
			most = max(most, lipgloss.Width(line))
		}
	}
	return most
}

func (p *planPrinter) haves() {
	if len(p.Resources) == 0 {
		return
	}
	title := "What the machine has"
	note := ""
	if p.Machine != nil && p.Machine.Measured != "" {
		note = "measured " + strings.NewReplacer("T", " ", "Z", " UTC").Replace(p.Machine.Measured)
	}
	p.section(title, note)
	headers := []string{"resource", "needed", "available", "margin", "enough"}
	if p.width >= 96 {
		headers = append(headers, "what")
	}
	t := newTable(headers...)
	for _, r := range p.Resources {
		verdict := r.Verdict
		if r.Name == p.FirstToFail {
			verdict += " <- first"
		}
		row := []string{r.Name, r.NeedText, r.HaveText, units.Times(r.Margin), verdictStyles[r.Verdict].Render(verdict)}
		if p.width >= 96 {
			row = append(row, r.Detail+" ("+r.Origin+")")
		}
		t.Row(row...)
	}
	p.table(t)
}

func (p *planPrinter) classes() {
	title := ""
	if p.Memory.Have > 0 || len(p.Resources) > 0 {
		title = "with typical figures"
	}
	p.section("Kinds of storage", title)
	t := newTable("storage", "examples/s", "margin", "enough", "why")
	for _, c := range p.Classes {
		t.Row(c.Title, units.Count(c.PerSecond), units.Times(c.Margin), verdictStyles[c.Verdict].Render(c.Verdict), c.Text)
	}
	p.table(t)
}

func (p *planPrinter) changes() {
	if len(p.Advice) == 0 {
		return
	}
	p.section("What to change", "in this order; then alternatives")
	for _, a := range p.Advice {
		lead := "  or  "
		switch {
		case a.Step > 0:
			lead = fmt.Sprintf("  %d.  ", a.Step)
		case a.Kind == "spare" || a.Kind == "compact":
			lead = "      "
		}
		p.printf("%s%s\n", lead, a.Title)
		p.para("      ", a.Effect, barStyle)
		p.para("      ", a.Why, dimStyle)
		if a.Command != "" {
			p.printf("      %s\n", a.Command)
		}
	}
}

func (p *planPrinter) notes() {
	notes := append([]string(nil), p.Plan.Notes...)
	if p.Machine != nil {
		notes = append(notes, p.Machine.Notes...)
	}
	if len(notes) == 0 {
		return
	}
	p.section("Notes", "")
	for _, n := range notes {
		p.para("  ", capital(n), dimStyle)
	}
}

// capital begins a sentence with a capital letter.
func capital(s string) string {
	if s == "" {
		return ""
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

func (c *planCommand) listExamples() error {
	if c.asJSON {
		return json.NewEncoder(c.app.Stdout).Encode(plan.Examples())
	}
	t := newTable("example", "what", "from")
	for _, e := range plan.Examples() {
		t.Row(e.Name, e.Title, e.Text)
	}
	p := &planPrinter{width: 132}
	p.table(t)
	_, err := lipgloss.Fprint(c.app.Stdout, p.String())
	return err
}

func (c *planCommand) listTables() error {
	if c.asJSON {
		return json.NewEncoder(c.app.Stdout).Encode(map[string]any{"devices": plan.Devices(), "models": plan.Models(), "speeds": plan.Speeds(), "storage": plan.Classes()})
	}
	p := &planPrinter{width: 160}
	orNothing := func(v float64, text func(float64) string) string {
		if v == 0 {
			return ""
		}
		return text(v)
	}
	p.section("Devices", "--device; figures of data sheets")
	t := newTable("name", "device", "memory", "32-bit", "16-bit mixed")
	for _, d := range plan.Devices() {
		t.Row(d.Name, d.Title, units.Bytes(d.Memory), units.FLOPs(d.FLOPS)+"/s", units.FLOPs(d.MixedFLOPS)+"/s")
	}
	p.table(t)
	p.section("Models", "--model")
	t = newTable("name", "model", "per example", "parameters", "state per example", "from")
	for _, m := range plan.Models() {
		t.Row(m.Name, m.Title, orNothing(m.FLOPs, units.FLOPs), orNothing(m.Parameters, units.Bytes), orNothing(m.Activation, units.Bytes), m.Source)
	}
	p.table(t)
	p.section("Published speeds", "of a model on a device")
	t = newTable("device", "model", "examples/s", "from")
	for _, s := range plan.Speeds() {
		t.Row(s.Device, s.Model, units.Count(s.PerSecond), s.Source)
	}
	p.table(t)
	p.section("Storage", "--storage; typical figures")
	t = newTable("name", "storage", "reads/s", "bandwidth", "from")
	for _, s := range plan.Classes() {
		t.Row(s.Name, s.Title, units.Count(s.IOPS), units.Bandwidth(s.Bandwidth), s.Source)
	}
	p.table(t)
	_, err := lipgloss.Fprint(c.app.Stdout, p.String())
	return err
}
