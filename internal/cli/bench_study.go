package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/bench"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
)

// axes reads the flags that may be lists.
func (f *benchFlags) axes() ([]bench.Axis, error) {
	var axes []bench.Axis
	for _, flag := range []struct {
		name, value string
		read        func(string) (string, error)
	}{
		{bench.AxisWorkers, f.workers, countValue("--workers", 0)},
		{bench.AxisCores, f.cores, countValue("--cores", 1)},
		{bench.AxisCache, f.cache, cacheValue},
		{bench.AxisDecode, f.decode, decodeValue},
	} {
		if flag.value == "" {
			continue
		}
		a := bench.Axis{Name: flag.name}
		for part := range strings.SplitSeq(flag.value, ",") {
			v, err := flag.read(strings.TrimSpace(part))
			if err != nil {
				return nil, err
			}
			if slices.Contains(a.Values, v) {
				return nil, usageError("each value once", "--%s names %s twice", flag.name, part)
			}
			a.Values = append(a.Values, v)
		}
		axes = append(axes, a)
	}
	for i := range axes {
		if a := &axes[i]; a.Name == bench.AxisCores {
			have := len(proc.AllowedCPUs())
			tooMany := func(v string) bool { n, _ := strconv.Atoi(v); return n > have }
			if slices.ContainsFunc(a.Values, tooMany) {
				f.note("this process may use %s: larger values of --cores are left out", units.Plural(have, "core"))
				if a.Values = slices.DeleteFunc(a.Values, tooMany); len(a.Values) == 0 {
					return nil, usageError(fmt.Sprintf("--cores %d", have), "--cores asks for more than the %d cores that this process may use", have)
				}
			}
		}
	}
	return axes, nil
}

func countValue(flag string, least int) func(string) (string, error) {
	return func(s string) (string, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > 1024 {
			return "", usageError(flag+" 1,2,4", "%s: %q is not a number from %d to 1024", flag, s, least)
		}
		return strconv.Itoa(n), nil
	}
}

func cacheValue(s string) (string, error) {
	switch s {
	case "cold":
		return "0", nil
	case "warm":
		return "100", nil
	}
	x, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(x >= 0 && x <= 100) {
		return "", usageError("--cache cold,50,warm", "--cache: %q is neither cold, warm nor a percentage", s)
	}
	return strconv.FormatFloat(x, 'g', 6, 64), nil
}

func decodeValue(s string) (string, error) {
	if s != "on" && s != "off" {
		return "", usageError("--decode on,off", "--decode: %q is neither on nor off", s)
	}
	return s, nil
}

// single reports whether axes fix one combination only.
func single(axes []bench.Axis) bool {
	return !slices.ContainsFunc(axes, func(a bench.Axis) bool { return len(a.Values) > 1 })
}

// cellRunner makes runs of a source for combinations of values.
type cellRunner struct {
	f       *benchFlags
	subject *bench.Subject
	decoded *bench.Subject
	remove  func()
	files   map[string][]string
}

func (f *benchFlags) newCellRunner(url string, axes []bench.Axis) (*cellRunner, error) {
	s, err := bench.Look(f.app.Context, url)
	if err != nil {
		return nil, err
	}
	c := &cellRunner{f: f, subject: s, remove: func() {}, files: map[string][]string{}}
	for _, a := range axes {
		if a.Name != bench.AxisDecode || !slices.Contains(a.Values, "off") {
			continue
		}
		switch {
		case s.Image == "":
			return nil, usageError("leave --decode out", "%s has no images: there is nothing to decode", stores.Public(url))
		case f.decoded != "":
			if c.decoded, err = bench.Look(f.app.Context, f.decoded); err != nil {
				return nil, err
			}
		case s.Codec == "raw":
			return nil, usageError("leave --decode out", "%s is decoded already", stores.Public(url))
		default:
			f.note("decoding %s once, to 256x256 pixels, into a temporary pack", stores.Public(url))
			if c.decoded, c.remove, err = s.Copy(f.app.Context, "raw", ""); err != nil {
				return nil, &Error{Err: err, Hint: "make one yourself: stoker pack SRC OUT --images raw --resize 256x256, and give it with --decoded OUT"}
			}
		}
	}
	return c, nil
}

// options are those of one combination.
func (c *cellRunner) options(values map[string]string) (bench.Options, string, error) {
	s := c.subject
	if values[bench.AxisDecode] == "off" {
		s = c.decoded
	}
	o, words, err := c.f.options(s)
	if err != nil {
		return o, "", err
	}
	if v, ok := values[bench.AxisWorkers]; ok {
		if o.Config.Threads, _ = strconv.Atoi(v); o.Config.Threads == 0 {
			return o, "", usageError("--workers 1,2,4", "the engine works with one worker at least; 0 workers are for --workers of a command")
		}
	}
	if v, ok := values[bench.AxisCores]; ok {
		o.Cores, _ = strconv.Atoi(v)
	}
	if v, ok := values[bench.AxisCache]; ok {
		share, _ := strconv.ParseFloat(v, 64)
		o.Cached, o.OneEpoch = share/100, share < 100
		if c.files[s.Source] == nil {
			if c.files[s.Source], err = bench.SourceFiles(s.Source); err != nil {
				return o, "", err
			}
		}
		o.Files = c.files[s.Source]
	}
	return o, words, nil
}

// runStudy runs all combinations of a source, or the only one.
func (f *benchFlags) runStudy(url string, axes []bench.Axis) error {
	if err := f.checkSVG(); err != nil {
		return err
	}
	c, err := f.newCellRunner(url, axes)
	if err != nil {
		return err
	}
	defer c.remove()
	if single(axes) {
		if f.svg != "" {
			return usageError("give one of --workers, --cores, --cache and --decode two values", "--svg draws a study, and there is only one run")
		}
		values := map[string]string{}
		for _, a := range axes {
			values[a.Name] = a.Values[0]
		}
		o, words, err := c.options(values)
		if err != nil {
			return err
		}
		s := c.subject
		if values[bench.AxisDecode] == "off" {
			s = c.decoded
		}
		return f.report(s, o, words)
	}
	if f.accelerators == "auto" {
		return usageError("--accelerators 1", "a study is of a fixed number of accelerators")
	}
	if f.seconds == 0 && f.steps == 0 {
		f.seconds = 3 * time.Second
	}
	words := ""
	study, err := bench.RunStudy(f.app.Context, stores.Public(url), "seconds per epoch", axes, f.repeats, func(values map[string]string) (bench.Outcome, error) {
		o, w, err := c.options(values)
		if err != nil {
			return bench.Outcome{}, err
		}
		words = w
		r, err := bench.Run(f.app.Context, o)
		if err != nil {
			return bench.Outcome{}, benchFailed(err)
		}
		return bench.Outcome{PerSecond: r.PerSecond, Seconds: float64(c.subject.Len) / r.PerSecond, AU: r.AU, Limit: r.Limit, Why: r.Why, CPU: r.CPUPerThousand, PSS: r.PSS}, nil
	}, f.note)
	if err != nil {
		return err
	}
	how := fmt.Sprintf("%s; batches of %d", words, f.batch)
	if f.t > 0 {
		how += fmt.Sprintf("; %s per step", units.Seconds(f.t.Seconds()))
	}
	return f.show(study, how)
}

// show prints a study and draws it.
func (f *benchFlags) show(study *bench.Study, how string) error {
	if f.svg != "" {
		if err := writeSVG(f.svg, study.Chart()); err != nil {
			return err
		}
	}
	if f.asJSON {
		return f.app.printJSON(study)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s; %s\n\n", clean(study.Subject), how)
	out.WriteString(studyTable(study))
	width := 64
	if t := terminalOf(f.app.Stdout); t != nil {
		width = min(max(columns(t)-16, 40), 100)
	}
	out.WriteString("\n" + study.Chart().Terminal(width, 14) + "\n")
	for _, s := range study.Series {
		fmt.Fprintf(&out, "  %s\n", s.Verdict)
	}
	fmt.Fprintf(&out, "  (knee: the last point that is at least %.0f%% faster than the last one before it that was)\n", 100*(bench.KneeGain-1))
	for _, note := range study.Notes {
		fmt.Fprintf(&out, "  %s\n", note)
	}
	if f.svg != "" {
		fmt.Fprintf(&out, "  drawn in %s\n", f.svg)
	}
	return f.app.print(out.String())
}

func studyTable(study *bench.Study) string {
	headers := []string{study.X}
	named, rated, au := false, false, false
	for _, s := range study.Series {
		named = named || s.Name != ""
	}
	for _, c := range study.Cells {
		rated, au = rated || c.PerSecond > 0, au || c.AU > 0
	}
	if named {
		headers = append(headers, "")
	}
	headers = append(headers, study.Unit, "spread")
	if rated {
		headers = append(headers, "examples/s")
	}
	if au {
		headers = append(headers, "AU")
	}
	headers = append(headers, "limit")
	t := newTable(headers...)
	for _, s := range study.Series {
		for k, i := range s.Cells {
			c := study.Cells[i]
			row := []string{c.Values[study.X]}
			if named {
				row = append(row, s.Name)
			}
			row = append(row, fmt.Sprintf("%.3g", c.Epoch), fmt.Sprintf("%.3g to %.3g", c.Low, c.High))
			if rated {
				row = append(row, units.Int(int64(c.PerSecond)))
			}
			if au {
				row = append(row, units.Tenths(c.AU))
			}
			limit := c.Limit
			if k == s.Knee && k < len(s.Cells)-1 && study.X != bench.AxisDecode {
				limit += "  <- knee"
			}
			t.Row(append(row, limit)...)
		}
	}
	return t.String() + "\n"
}
