package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"charm.land/bubbles/v2/progress"
	"charm.land/lipgloss/v2"
	"github.com/mattn/go-isatty"
	"github.com/stokerdata/stoker/internal/units"
	"golang.org/x/sys/unix"
)

// Progress goes to stderr, so that results on stdout can be piped: a bar that
// redraws itself on a terminal, a plain line every few seconds elsewhere.
const (
	redrawEvery = 100 * time.Millisecond
	printEvery  = 5 * time.Second
	barWidth    = 28
)

// Progress shows the progress of a long job. All methods may be called from several goroutines. It owns one goroutine,
// which Stop ends.
type Progress struct {
	w        io.Writer
	terminal *os.File // nil where w is not a terminal
	label    string   // "packing"
	unit     string   // "files"
	start    time.Time
	bar      progress.Model

	total, done, skipped, bytes atomic.Int64

	mu      sync.Mutex // guards w
	stop    chan struct{}
	stopped chan struct{}
	once    sync.Once
}

// NewProgress starts to show a job called label ("packing") of total units
// ("files"); total may be 0 while it is not known. A job without a unit lasts total
// milliseconds.
func (app *App) NewProgress(label, unit string, total int64) *Progress {
	p := &Progress{
		w:       app.Stderr,
		label:   label,
		unit:    unit,
		start:   time.Now(),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	p.total.Store(total)
	every := printEvery
	if f := terminalOf(app.Stderr); f != nil {
		p.terminal = f
		p.bar = progress.New(
			progress.WithColors(lipgloss.Color("#C2410C"), lipgloss.Color("#FBBF24")),
			progress.WithScaled(true),
			progress.WithoutPercentage(),
			progress.WithWidth(barWidth),
		)
		every = redrawEvery
	}
	go p.loop(every)
	return p
}

// terminalOf returns w as a file if it is a terminal that can redraw a line.
func terminalOf(w io.Writer) *os.File {
	f, ok := w.(*os.File)
	if !ok || !isatty.IsTerminal(f.Fd()) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return f
}

// SetTotal sets the number of units, once it is known.
func (p *Progress) SetTotal(total int64) { p.total.Store(total) }

// Add counts n finished units that were bytes long.
func (p *Progress) Add(n, bytes int64) {
	p.done.Add(n)
	p.bytes.Add(bytes)
}

// Skip counts n units that an earlier run has done; they do not count for speed.
func (p *Progress) Skip(n int64) { p.skipped.Add(n) }

// Stop ends the display and removes the bar. It may be called twice.
func (p *Progress) Stop() {
	p.once.Do(func() {
		close(p.stop)
		<-p.stopped
		p.mu.Lock()
		defer p.mu.Unlock()
		p.erase()
	})
}

func (p *Progress) loop(every time.Duration) {
	defer close(p.stopped)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-tick.C:
			p.draw(now)
		}
	}
}

// erase clears the line of the bar.
func (p *Progress) erase() {
	if p.terminal != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func (p *Progress) draw(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done, total := p.done.Load()+p.skipped.Load(), p.total.Load()
	status := p.status(now)
	if p.terminal == nil {
		fmt.Fprintf(p.w, "%s: %s\n", p.label, status)
		return
	}
	p.erase()
	line := p.label + " "
	room := columns(p.terminal) - len(line) - len(status) - 2
	if total > 0 && room >= barWidth {
		line += p.bar.ViewAs(float64(done)/float64(total)) + " "
	}
	// lipgloss reduces the colours to those that the terminal can show.
	lipgloss.Fprint(p.w, line+status)
}

// status is "412/2,000 files  20%  96 files/s  10.4 MB/s  16s left".
func (p *Progress) status(now time.Time) string {
	fresh, skipped, total := p.done.Load(), p.skipped.Load(), p.total.Load()
	done := fresh + skipped
	var parts []string
	if p.unit == "" {
		left := time.Duration(max(total-done, 0)) * time.Millisecond
		return fmt.Sprintf("%d%%  %s left", 100*done/max(total, 1), units.Elapsed(max(left, time.Second).Round(time.Second)))
	}
	if total > 0 {
		parts = append(parts, fmt.Sprintf("%s/%s %s", units.Int(done), units.Int(total), p.unit),
			fmt.Sprintf("%d%%", 100*done/total))
	} else {
		parts = append(parts, fmt.Sprintf("%s %s", units.Int(done), p.unit))
	}
	seconds := now.Sub(p.start).Seconds()
	if fresh > 0 && seconds > 0 {
		rate := float64(fresh) / seconds
		parts = append(parts, fmt.Sprintf("%s %s/s", units.Int(int64(rate+0.5)), p.unit))
		if b := p.bytes.Load(); b > 0 {
			parts = append(parts, units.Bytes(int64(float64(b)/seconds))+"/s")
		}
		if total > done {
			left := time.Duration(float64(total-done) / rate * float64(time.Second))
			parts = append(parts, units.Elapsed(max(left, time.Second).Round(time.Second))+" left")
		}
	}
	return strings.Join(parts, "  ")
}

// columns returns the width of a terminal.
func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}
