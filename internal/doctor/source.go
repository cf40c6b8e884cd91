package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/proc"
)

// Data is the data that the job reads, as `stoker inspect` sees it.
type Data struct {
	Path     string
	Format   string // as it names it
	Packable bool   // stoker pack takes it
	Images   bool   // it has images, which can be stored smaller
}

// findData looks for the job's data among the arguments of its command and the files that it waited for, and inspects
// it. The zero value means that the data is unknown.
func (c *collector) findData() Data {
	if c.opt.Inspect == nil || c.fs.Proc != proc.Live.Proc {
		return Data{}
	}
	if c.dataLooked {
		return c.found
	}
	c.dataLooked = true
	for i, path := range c.candidates() {
		if i >= 4 {
			break
		}
		if d, err := c.opt.Inspect(path); err == nil {
			d.Path = path
			c.found = d
			break
		}
	}
	return c.found
}

// remoteData returns the URL of remote data in the job's command, without its query, which may be a signature; "" if there
// is none.
func (c *collector) remoteData() string {
	for _, arg := range c.command {
		if name, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(name, "-") {
			arg = value
		}
		scheme, rest, ok := strings.Cut(arg, "://")
		if !ok || !slices.Contains([]string{"s3", "gs", "az", "http", "https"}, scheme) || strings.ContainsAny(rest, "@ ") {
			continue
		}
		if i := strings.IndexAny(rest, "?#"); i >= 0 {
			rest = rest[:i]
		}
		if rest != "" {
			return scheme + "://" + rest
		}
	}
	return ""
}

// candidates are paths that may be the job's data, the likeliest first.
func (c *collector) candidates() []string {
	var out []string
	folder, err := os.Readlink(proc.Live.Path(c.opt.PID, "cwd"))
	if err != nil {
		folder, _ = os.Getwd()
	}
	for i, arg := range c.command {
		if i == 0 || strings.HasSuffix(arg, ".py") {
			continue
		}
		if name, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(name, "-") {
			arg = value
		}
		if strings.HasPrefix(arg, "-") || !strings.ContainsAny(arg, "/.") {
			continue
		}
		if !filepath.IsAbs(arg) {
			arg = filepath.Join(folder, arg)
		}
		if st, err := os.Stat(arg); err == nil && (st.IsDir() || st.Size() > 1<<16) && !installed(arg) {
			out = append(out, arg)
		}
	}
	if _, file := c.slowPath(); file != "" {
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && !installed(file) {
			out = append(out, file, filepath.Dir(file), filepath.Dir(filepath.Dir(file)))
		}
	}
	return out
}

// pack is the command that packs the job's data, if it can be packed.
func (f *findings) pack(out string, flags ...string) (Action, bool) {
	if d := f.c.findData(); d.Packable {
		return stoker(append(append([]string{"pack"}, flags...), d.Path, out)...), true
	}
	return Action{}, false
}

// run is the command that runs the job with its DataLoaders in the engine.
func (f *findings) run(flags ...string) Action {
	return stoker(slices.Concat([]string{"run"}, flags, []string{"--"}, f.command())...)
}

// command returns the command of the job, or a placeholder for a long one.
func (f *findings) command() []string {
	if n := len(f.r.Command); n == 0 || n > 8 {
		return []string{"python", "train.py"}
	}
	return f.r.Command
}
