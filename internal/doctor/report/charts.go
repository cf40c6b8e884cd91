package report

import (
	"html/template"
	"math"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/stokerdata/stoker/internal/chart"
	"github.com/stokerdata/stoker/internal/doctor"
)

// A view of one quantity over time. With a comparison it is drawn twice, on the same scale. The script reads its
// JSON, because it needs the figures at the position of the cursor.
type chartView struct {
	Title   string      `json:"title"`
	About   string      `json:"-"`
	Percent bool        `json:"percent"` // shares: drawn from 0 to 100%
	Unit    string      `json:"unit,omitempty"`
	Panels  []panelView `json:"panels"`
}

// A panelView is one run's part of a chart.
type panelView struct {
	Name  string        `json:"-"` // "before", "after", or "" for a single run
	T     doctor.Values `json:"t"` // seconds
	Lines []lineView    `json:"lines"`
	plot  chart.Timeline
	unit  string
}

type lineView struct {
	Label  string        `json:"label"`
	Color  string        `json:"-"` // name of a CSS variable
	Values doctor.Values `json:"values"`
}

// Plot draws the panel. All text in it is escaped.
func (p *panelView) Plot() (template.HTML, error) {
	var b strings.Builder
	err := p.plot.SVG(&b)
	return template.HTML(b.String()), err
}

// Across and Down are the ticks of the axes.
func (p *panelView) Across() []chart.Tick { return p.plot.TimeTicks() }

// Down returns the ticks of the values.
func (p *panelView) Down() []chart.Tick { return p.plot.ValueTicks(p.unit) }

// wanted is a line that a chart shows if the report has it.
type wanted struct {
	key, label, color string
	always            bool // even if it is 0 all the time
	fill              bool
}

// plots are the charts in the order of the page. events matches the names of the
// events that belong to each.
var plots = []struct {
	title, about, unit string
	percent, stacked   bool
	events             *regexp.Regexp
	lines              []wanted
}{
	{
		title: "Waiting and CPU", percent: true, events: regexp.MustCompile(`^(TRAINER_WAIT|CPU_(STEAL|QUOTA))$`),
		about: "Waiting: share of the trainer's time in which it had no data. CPU: of the cores that the job may use.",
		lines: []wanted{
			{key: "wait", label: "trainer waits", color: "wait", always: true, fill: true},
			{key: "cpu", label: "CPU, this job", color: "cpu", always: true},
			{key: "cpu_machine", label: "CPU, whole machine", color: "machine"},
			{key: "throttled", label: "stopped by CPU quota", color: "quota"},
		},
	},
	{
		title: "What the loader does", percent: true, stacked: true,
		about: "Shares of the time of the loader's workers.",
		lines: []wanted{
			{key: "worker_cpu", label: "computing", color: "cpu"},
			{key: "worker_storage", label: "reading files", color: "disk"},
			{key: "worker_network", label: "reading from the network", color: "net"},
			{key: "worker_memory", label: "short of memory", color: "mem"},
			{key: "worker_handoff", label: "handing over", color: "handoff"},
		},
	},
	{
		title: "Accelerators", percent: true, events: regexp.MustCompile(`^GPU`),
		about: "Busy, as the driver reports it. Runs of seconds at 0% are events.",
		lines: []wanted{
			{key: "gpu0", label: "accelerator 0", color: "gpu", always: true, fill: true},
			{key: "gpu1", label: "accelerator 1", color: "cpu", always: true},
			{key: "gpu2", label: "accelerator 2", color: "net", always: true},
			{key: "gpu3", label: "accelerator 3", color: "disk", always: true},
			{key: "gpu4", label: "accelerator 4", color: "mem", always: true},
			{key: "gpu5", label: "accelerator 5", color: "handoff", always: true},
			{key: "gpu6", label: "accelerator 6", color: "quota", always: true},
			{key: "gpu7", label: "accelerator 7", color: "machine", always: true},
			{key: "gpu_memory", label: "memory of the accelerators", color: "machine"},
		},
	},
	{
		title: "Steps", unit: "steps/s", about: "As the training loop marks them.",
		lines: []wanted{{key: "steps_per_s", label: "steps", color: "gpu", fill: true}},
	},
	{
		title: "Reading", unit: "MB/s", about: "By this job, and by the disks of the machine.",
		lines: []wanted{
			{key: "read_calls_MBps", label: "asked for by the job", color: "cpu"},
			{key: "read_MBps", label: "from disk for the job", color: "disk", fill: true},
			{key: "disk_read_MBps", label: "all reads of the disks", color: "machine"},
		},
	},
	{
		title: "Disk", percent: true, events: regexp.MustCompile(`^(DISK_|IO_PRESSURE|CPU_IOWAIT)`),
		about: "Busy: share of the time in which a request was under way.",
		lines: []wanted{
			{key: "disk_busy", label: "disk busy", color: "disk", fill: true},
			{key: "iowait", label: "CPU waits for it", color: "wait"},
			{key: "psi_io", label: "tasks stalled on I/O", color: "handoff"},
		},
	},
	{
		title: "Network", unit: "MB/s", about: "Received by this machine.",
		lines: []wanted{
			{key: "net_MBps", label: "from other machines", color: "net", fill: true},
			{key: "loopback_MBps", label: "from this machine", color: "machine"},
		},
	},
	{
		title: "Memory", percent: true, events: regexp.MustCompile(`^(MEM|SWAP|SHM|MAJOR_FAULTS)`),
		about: "Of what the job may use; swap and /dev/shm of their own sizes.",
		lines: []wanted{
			{key: "memory", label: "memory", color: "mem", fill: true},
			{key: "swap", label: "swap", color: "wait"},
			{key: "shm", label: "/dev/shm", color: "handoff"},
			{key: "psi_memory", label: "tasks stalled on memory", color: "quota"},
		},
	},
}

// run is a report with the name that it has on the page.
type run struct {
	name   string
	report *doctor.Report
}

// charts builds the plots that have something to show.
func charts(runs []run) []chartView {
	var out []chartView
	for _, p := range plots {
		c := chartView{Title: p.title, About: p.about, Percent: p.percent, Unit: p.unit}
		shown := map[string]bool{}
		for _, w := range p.lines {
			for _, r := range runs {
				if v, ok := valuesOf(r.report, w.key); ok && (w.always || matters(v, p.percent)) {
					shown[w.key] = true
				}
			}
		}
		if len(shown) == 0 {
			continue
		}
		top := 0.0
		for _, r := range runs {
			t, _ := valuesOf(r.report, "t")
			panel := panelView{Name: r.name, T: t, Lines: []lineView{}, plot: chart.Timeline{T: t, Stacked: p.stacked}}
			if p.percent {
				panel.unit = "%"
			}
			for _, w := range p.lines {
				v, ok := valuesOf(r.report, w.key)
				if !shown[w.key] || !ok {
					continue
				}
				scaled := make(doctor.Values, len(v))
				for i, x := range v {
					if p.percent {
						x *= 100
					}
					scaled[i] = x
					if !math.IsNaN(x) && !math.IsInf(x, 0) {
						top = max(top, x)
					}
				}
				panel.Lines = append(panel.Lines, lineView{Label: w.label, Color: w.color, Values: scaled})
				panel.plot.Lines = append(panel.plot.Lines, chart.TimeLine{Color: w.color, Fill: w.fill, Values: scaled})
			}
			if p.events != nil {
				panel.plot.Bands = bands(r.report, p.events)
			}
			if len(t) > 0 {
				c.Panels = append(c.Panels, panel)
			}
		}
		if len(c.Panels) == 0 {
			continue
		}
		if top *= 1.08; p.percent {
			top = 100
		}
		for i := range c.Panels {
			c.Panels[i].plot.Top = top
		}
		out = append(out, c)
	}
	return out
}

// bands returns the events in the background of the lines, the worst on top.
func bands(r *doctor.Report, names *regexp.Regexp) []chart.Band {
	var events []doctor.Event
	for _, e := range r.Events[:min(len(r.Events), maxEvents)] {
		if names.MatchString(e.Name) {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b doctor.Event) int { return rank(a.Level) - rank(b.Level) })
	var out []chart.Band
	for _, e := range events {
		color := [...]string{"careful", "warning", "critical"}[rank(e.Level)]
		out = append(out, chart.Band{Start: e.Start, End: e.End, Color: color})
	}
	return out
}

// maxPoints limits the points of a plot; doctor writes a point per second.
const maxPoints = 100_000

// valuesOf returns a series as long as "t", which a hand-written file may not have.
func valuesOf(r *doctor.Report, key string) (doctor.Values, bool) {
	t, v := r.Series["t"], r.Series[key]
	if len(t) == 0 || len(v) != len(t) || len(t) > maxPoints {
		return nil, false
	}
	if key == "t" && !sort.Float64sAreSorted(t) {
		return nil, false
	}
	return v, true
}

// matters reports whether a line is more than zero.
func matters(v doctor.Values, share bool) bool {
	least := 0.05 // MB/s, steps/s
	if share {
		least = 0.005
	}
	for _, x := range v {
		if x > least {
			return true
		}
	}
	return false
}

// rank orders levels. Unknown levels have the lowest rank.
func rank(l doctor.Level) int {
	switch l {
	case doctor.Warning:
		return 1
	case doctor.Critical:
		return 2
	}
	return 0
}
