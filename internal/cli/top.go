package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/doctor/gpu"
	"github.com/stokerdata/stoker/internal/status"
	"github.com/stokerdata/stoker/internal/units"
)

func newTopCommand(app *App) *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:     "top",
		Short:   "Show the engines of this node: speed, waits, the stage that limits, caches and memory",
		GroupID: groupKnow,
		Long: `Show the engines of this node: speed, waits, the stage that limits, caches and memory.

Every stoker.Loader and stoker serve of this user is listed, the loader whose training
process waits longest first. Values are those of the last 5 s.

On a terminal the table is redrawn. Keys: arrows select a loader, enter shows its details,
s sorts by the next column, r reverses the order, q ends. Elsewhere the table is printed
once, or again after each --interval.

"limit" is the stage that limits: read, decode, transform or collate. "accelerator" means
that the training step is the slower side. "handoff" means that batches were ready while
the loop waited: functions of map= or Python take the time.

Jobs with other loaders are not listed: see stoker doctor --pid.`,
		Example: "  stoker top\n  stoker top --interval 10",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("interval") && every < minTopEvery {
				return usageError("stoker top --interval 2", "--interval is %s, the minimum is %s", every, minTopEvery)
			}
			return app.top(every)
		},
	}
	spanVar(cmd.Flags(), &every, "interval", 0, "time between two tables (default: 1s on a terminal, otherwise one table)")
	return cmd
}

// minTopEvery limits the load of watching.
const minTopEvery = 100 * time.Millisecond

// top shows the table until it is ended.
func (app *App) top(every time.Duration) error {
	devices, _ := gpu.Open()
	if devices != nil {
		defer devices.Close()
	}
	terminal := terminalOf(app.Stdout)
	if terminal != nil {
		return app.topLive(terminal, devices, cmp.Or(every, status.Every))
	}
	for {
		n := readNode(app.Context, devices)
		if n.err != nil && app.Context.Err() == nil {
			return &Error{Msg: "cannot list the engines", Err: n.err}
		}
		m := topModel{node: n, plain: true, width: 200}
		if _, err := fmt.Fprint(app.Stdout, m.text()); err != nil {
			return err
		}
		if every == 0 {
			return nil
		}
		select {
		case <-app.Context.Done():
			return app.Context.Err()
		case <-time.After(every):
		}
		fmt.Fprintln(app.Stdout)
	}
}

func (app *App) topLive(terminal *os.File, devices *gpu.Devices, every time.Duration) error {
	options := []tea.ProgramOption{tea.WithContext(app.Context), tea.WithOutput(terminal), tea.WithoutSignalHandler(), tea.WithFPS(20)}
	if isatty.IsTerminal(os.Stdin.Fd()) {
		options = append(options, tea.WithInput(os.Stdin))
	} else {
		options = append(options, tea.WithInput(nil))
	}
	read := func() node { return readNode(app.Context, devices) }
	m := &topModel{read: read, node: read(), every: every, width: columns(terminal), height: 24}
	_, err := tea.NewProgram(m, options...).Run()
	switch {
	case app.Context.Err() != nil:
		return app.Context.Err()
	case errors.Is(err, tea.ErrInterrupted):
		return context.Canceled
	case err != nil:
		return &Error{Msg: "the terminal cannot be used", Err: err, Hint: "stoker top | cat prints one table"}
	}
	return nil
}

// node is the state of all engines and accelerators.
type node struct {
	loaders      []status.Status
	silent       int
	accelerators []gpu.Reading
	err          error
}

func readNode(ctx context.Context, devices *gpu.Devices) (n node) {
	n.loaders, n.silent, n.err = status.List(ctx)
	if devices != nil {
		n.accelerators = devices.Read()
	}
	return n
}

// topColumn is a column: of an identity, of a metric, or of a quantile of the waits.
type topColumn struct {
	head  string
	width status.Width
	text  func(*status.Status) string
	value func(*status.Status) float64 // to sort by; nil sorts by text
}

// topColumns are the columns in their order. The first one is cut to fit the terminal.
var topColumns = makeTopColumns()

func makeTopColumns() []topColumn {
	all := []topColumn{
		{head: "run", text: func(s *status.Status) string { return clean(s.Run) }},
		{head: "rank", text: rankText, value: func(s *status.Status) float64 { return float64(s.Rank) }},
	}
	for i := range status.Metrics {
		m := &status.Metrics[i]
		if m.Width == status.Detail {
			continue
		}
		c := topColumn{head: m.Head(), width: m.Width, text: m.Text, value: m.Value}
		if m.Kind == status.State {
			c.value = nil
		}
		all = append(all, c)
		if m.Kind != status.Summary {
			continue
		}
		for q, share := range status.Quantiles {
			value := func(s *status.Status) float64 {
				if !s.Watched {
					return math.NaN()
				}
				return s.WaitQuantiles[q]
			}
			all = append(all, topColumn{head: fmt.Sprintf("p%.0f", 100*share), width: status.Wide, value: value, text: func(s *status.Status) string {
				if v := value(s); !math.IsNaN(v) {
					return units.Seconds(v)
				}
				return "-"
			}})
		}
	}
	return append(all, topColumn{
		head: "engine", width: status.Wide, text: func(s *status.Status) string { return strconv.Itoa(s.Engine) },
		value: func(s *status.Status) float64 { return float64(s.Engine) },
	})
}

func rankText(s *status.Status) string {
	if s.WorldSize <= 1 {
		return strconv.Itoa(s.Rank)
	}
	return fmt.Sprintf("%d/%d", s.Rank, s.WorldSize)
}

// topModel is the state of the view.
type topModel struct {
	read   func() node
	node   node
	every  time.Duration
	width  int
	height int
	plain  bool

	sort     int // an index of topColumns; 0 is the default order
	reverse  bool
	selected string // the key of a loader
	open     bool
}

type topMsg struct{ node node }

// Init starts to read.
func (m *topModel) Init() tea.Cmd { return m.next() }

// next reads the state after the interval. Reading waits for engines, so the view does not.
func (m *topModel) next() tea.Cmd {
	return tea.Tick(m.every, func(time.Time) tea.Msg { return topMsg{m.read()} })
}

// Update takes a state, a key or a new size of the terminal.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topMsg:
		m.node = msg.node
		return m, m.next()
	case tea.KeyPressMsg:
		switch msg.String() {
		case "ctrl+c":
			return m, tea.Interrupt
		case "q", "Q":
			return m, tea.Quit
		case "esc":
			if !m.open {
				return m, tea.Quit
			}
			m.open = false
		case "enter":
			m.open = !m.open && len(m.node.loaders) > 0
		case "up", "k":
			m.move(-1)
		case "down", "j":
			m.move(1)
		case "s":
			shown := m.columns()
			at := slices.Index(shown, m.sort)
			m.sort = shown[(at+1)%len(shown)]
		case "r":
			m.reverse = !m.reverse
		}
	}
	return m, nil
}

// move selects another loader.
func (m *topModel) move(by int) {
	rows := m.rows()
	if len(rows) == 0 {
		return
	}
	m.selected = topKey(rows[min(max(m.row(rows)+by, 0), len(rows)-1)])
}

// row is the number of the selected row.
func (m *topModel) row(rows []*status.Status) int {
	return max(slices.IndexFunc(rows, func(s *status.Status) bool { return topKey(s) == m.selected }), 0)
}

func topKey(s *status.Status) string { return fmt.Sprintf("%d/%d/%.3f", s.Engine, s.Loader, s.Opened) }

// rows are the loaders in the order of the view: the slowest first, unless a column was chosen.
func (m *topModel) rows() []*status.Status {
	rows := make([]*status.Status, len(m.node.loaders))
	for i := range rows {
		rows[i] = &m.node.loaders[i]
	}
	slices.SortStableFunc(rows, func(a, b *status.Status) int {
		order := m.compare(a, b)
		if m.reverse {
			return -order
		}
		return order
	})
	return rows
}

func (m *topModel) compare(a, b *status.Status) int {
	if m.sort == 0 {
		idle := func(s *status.Status) int { return map[bool]int{true: 1}[s.Limit == status.Idle] }
		return cmp.Or(cmp.Compare(idle(a), idle(b)), higher(a.WaitShare(), b.WaitShare()))
	}
	c := topColumns[m.sort]
	if c.value == nil {
		return cmp.Compare(c.text(a), c.text(b))
	}
	return higher(c.value(a), c.value(b))
}

// higher orders large numbers before small ones, and unknown ones last.
func higher(a, b float64) int {
	if math.IsNaN(a) || math.IsNaN(b) {
		return cmp.Compare(map[bool]int{true: 1}[math.IsNaN(a)], map[bool]int{true: 1}[math.IsNaN(b)])
	}
	return cmp.Compare(b, a)
}

// wideTop is the width of a terminal from which all columns are shown.
const wideTop = 132

// columns returns the indices of the columns that fit.
func (m *topModel) columns() []int {
	var shown []int
	for i := range topColumns {
		if topColumns[i].width == status.Narrow || m.width >= wideTop {
			shown = append(shown, i)
		}
	}
	return shown
}

// View draws the state on the whole terminal.
func (m *topModel) View() tea.View {
	v := tea.NewView(m.text())
	v.AltScreen = true
	return v
}

func (m *topModel) text() string {
	var lines []string
	put := func(line string) { lines = append(lines, line) }
	rows := m.rows()
	put(headStyle.Render("stoker top") + "  " + nodeText(&m.node))
	for i := 0; i < len(m.node.accelerators); i += acceleratorsPerLine {
		var parts []string
		for _, r := range m.node.accelerators[i:min(i+acceleratorsPerLine, len(m.node.accelerators))] {
			parts = append(parts, fmt.Sprintf("accelerator %d %s, %s of %s", r.Index, units.Whole(r.Utilisation), units.Bytes(int64(r.MemoryUsed)), units.Bytes(int64(r.MemoryTotal))))
		}
		put(strings.Join(parts, "   "))
	}
	switch {
	case len(rows) == 0:
		put("no engine of this user is running on this node")
		put(dimStyle.Render("stoker.Loader starts one; stoker doctor --pid watches jobs with other loaders"))
	case m.open:
		lines = append(lines, detailLines(rows[m.row(rows)])...)
	default:
		lines = append(lines, m.table(rows)...)
	}
	if !m.plain {
		if most := max(m.height-1, 1); len(lines) > most {
			lines = lines[:most]
		}
		hint := "↑↓ select   enter details   s sort   r reverse   q end"
		if m.open {
			hint = "↑↓ other loader   esc back   q end"
		}
		put(dimStyle.Render(hint))
	}
	var out strings.Builder
	for _, line := range lines {
		if m.plain {
			out.WriteString(strings.TrimRight(lipgloss.NewStyle().Render(stripped(line)), " ") + "\n")
			continue
		}
		out.WriteString(lipgloss.NewStyle().MaxWidth(max(m.width, 20)).Render(line) + "\n")
	}
	return out.String()
}

const acceleratorsPerLine = 2

// nodeText counts runs and engines.
func nodeText(n *node) string {
	runs, engines := map[string]bool{}, map[int]bool{}
	address := ""
	for i := range n.loaders {
		s := &n.loaders[i]
		runs[s.Run], engines[s.Engine] = true, true
		address = cmp.Or(address, s.Metrics)
	}
	parts := []string{units.Plural(float64(len(runs)), "run"), units.Plural(float64(len(engines)), "engine"), units.Plural(float64(len(n.loaders)), "loader")}
	if n.silent > 0 {
		parts = append(parts, fmt.Sprintf("%d without an answer", n.silent))
	}
	if address != "" {
		parts = append(parts, "metrics on "+clean(address))
	}
	return strings.Join(parts, ", ")
}

// longRun is the width of the first column without a terminal.
const longRun = 40

// table returns the lines of the table: what fits, with the selected row.
func (m *topModel) table(rows []*status.Status) []string {
	shown := m.columns()
	cells := make([][]string, len(rows))
	widths := make([]int, len(shown))
	heads := make([]string, len(shown))
	for k, c := range shown {
		heads[k] = topColumns[c].head
		if c == m.sort && c != 0 {
			heads[k] += map[bool]string{false: "↓", true: "↑"}[m.reverse]
		}
		widths[k] = lipgloss.Width(heads[k])
	}
	for i, s := range rows {
		for k, c := range shown {
			text := topColumns[c].text(s)
			cells[i] = append(cells[i], text)
			widths[k] = max(widths[k], lipgloss.Width(text))
		}
	}
	rest := m.width
	for _, w := range widths[1:] {
		rest -= w + 2
	}
	widths[0] = min(widths[0], max(rest, 8), longRun)
	line := func(cells []string) string {
		var out strings.Builder
		for k, cell := range cells {
			if k == 0 {
				out.WriteString(fmt.Sprintf("%-*s", widths[k], cut(cell, widths[k])))
				continue
			}
			out.WriteString("  " + strings.Repeat(" ", widths[k]-lipgloss.Width(cell)) + cell)
		}
		return out.String()
	}
	lines := []string{dimStyle.Render(line(heads))}
	selected := m.row(rows)
	// The selected row stays visible.
	first, fit := 0, len(rows)
	if !m.plain {
		fit = max(m.height-4-(len(m.node.accelerators)+1)/acceleratorsPerLine, 1)
		first = min(max(selected-fit+1, 0), max(len(rows)-fit, 0))
	}
	for i := first; i < min(first+fit, len(rows)); i++ {
		text := line(cells[i])
		switch {
		case m.plain:
		case i == selected:
			text = lipgloss.NewStyle().Reverse(true).Render(text)
		case rows[i].WaitShare() >= starving:
			text = badStyle.Render(text)
		}
		lines = append(lines, text)
	}
	return lines
}

// starving is the share of waiting from which a loader is marked.
const starving = 0.2

// cut shortens the name of a run to a width. Its number, the last word, stays.
func cut(text string, width int) string {
	r := []rune(text)
	if len(r) <= width {
		return text
	}
	tail := []rune(text[strings.LastIndexByte(text, ' ')+1:])
	if len(tail) > width-2 {
		return string(r[:max(width-1, 0)]) + "…"
	}
	return string(r[:width-1-len(tail)]) + "…" + string(tail)
}

// stripped removes styles.
func stripped(line string) string {
	var out strings.Builder
	for i := 0; i < len(line); i++ {
		if line[i] == 0x1b {
			for i < len(line) && line[i] != 'm' {
				i++
			}
			continue
		}
		out.WriteByte(line[i])
	}
	return out.String()
}

// detailLines are all values of a loader.
func detailLines(s *status.Status) []string {
	lines := []string{
		fmt.Sprintf("%s, rank %d of %d", bold(clean(s.Run)), s.Rank, s.WorldSize),
		fmt.Sprintf("%s (%s), batches of %s", clean(s.Source), clean(s.Format), units.Int(int64(s.BatchSize))),
		fmt.Sprintf("engine %d (version %s), training process %d", s.Engine, clean(s.Version), s.Trainer),
		fmt.Sprintf("next: stoker doctor --pid %d", s.Trainer),
		"",
	}
	if s.Waiting != "" {
		lines = append(lines, "waits: "+clean(s.Waiting), "")
	}
	add := func(name, text string) { lines = append(lines, fmt.Sprintf("%-18s %s", name, text)) }
	for i := range status.Metrics {
		m := &status.Metrics[i]
		switch {
		case m.Kind == status.Summary:
			text := m.Text(s)
			if s.Watched {
				text += fmt.Sprintf(" of the time; p50 %s, p95 %s, p99 %s", units.Seconds(s.WaitQuantiles[0]), units.Seconds(s.WaitQuantiles[1]), units.Seconds(s.WaitQuantiles[2]))
			}
			add(m.Head(), text)
		case m.Label != "" && m.Kind == status.Counter:
			values := m.Details(s)
			for _, label := range slices.Sorted(maps.Keys(values)) {
				text := status.Number(values[label]) + "/s"
				if m.Name == "stage_seconds" {
					text = fmt.Sprintf("%s of %s", units.Whole(values[label]/float64(max(s.Workers[label], 1))), units.Plural(float64(max(s.Workers[label], 1)), "worker"))
				}
				add(m.Head()+" "+label, text)
			}
		case m.Width == status.Detail && m.Kind == status.Counter && m.Value(s) == 0:
			// Nothing was retried, failed or skipped.
		default:
			add(m.Head(), m.Text(s))
		}
	}
	return lines
}
