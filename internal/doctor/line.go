package doctor

import (
	"fmt"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
)

// line is the verdict in one sentence.
func (f *findings) line() (text string) {
	r, s := f.r, f.s
	if tooShort(r, s) {
		return "no verdict: the job did not run long enough to be looked at"
	}
	about := checkOf(r.Verdict).about()
	name := about.short
	if r.Confidence < 0.5 {
		defer func() { text += fmt.Sprintf(" (only %s sure)", units.Whole(r.Confidence)) }()
	}
	switch r.Verdict {
	case Unknown:
		return name + ": " + f.unseen()
	case Healthy:
		return fmt.Sprintf("%s: the trainer waits for data %s of the time, and nothing is worth removing", name, units.Whole(r.Waiting))
	case Accelerator:
		if s.step < 0.02 {
			return name
		}
		return fmt.Sprintf("%s: the step takes %s of the time; the data path could feed one %s as fast", name, units.Whole(s.step), times(r.Gains[Accelerator]))
	}
	where := "the trainer waits for data"
	if s.slow != nil {
		where = fmt.Sprintf("the others wait for %s, which waits for data", f.c.rankName(s.slow.pid))
	}
	if s.lanes == 0 && s.engine == nil && s.wait < 0.5*r.Waiting {
		where = "the trainer loads data itself"
	}
	if r.Verdict == CPU && fed(r, s) && max(s.lag, s.delay) > 0.15 {
		return fmt.Sprintf("%s: threads that could run wait for a core %s of that time; without that and %s it would run %s as fast",
			name, units.Whole(max(s.lag, s.delay)), about.removed, times(r.Gain))
	}
	because := ""
	if (interpreterCheck{}).holdsBack(f) {
		because = "the threads that make it take turns at Python's interpreter lock (GIL); "
	}
	return fmt.Sprintf("%s: %s %s of the time; %swithout %s it would run %s as fast", name, where, units.Whole(r.Waiting), because, about.removed, times(r.Gain))
}

// times writes a factor.
func times(x float64) string {
	if x >= 1/minTime-0.5 {
		return fmt.Sprintf("%.0f times or more", x)
	}
	if x >= 10 {
		return fmt.Sprintf("%.0f times", x)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.2f", x), "0") + " times"
}
