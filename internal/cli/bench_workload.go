package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/bench"
	"github.com/stokerdata/stoker/internal/gen/storage"
	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/units"
)

// workloadBytes are the default sizes of a workload's data: enough for several accelerators, and small enough for the
// memory of a small machine.
var workloadBytes = map[string]float64{"unet3d": 4.2e9, "resnet50": 1.8e9, "cosmoflow": 1.2e9}

// giantBatch is the size in bytes from which one batch ahead is enough: a larger ring would take the memory of other
// accelerators.
const giantBatch = 256 << 20

// runWorkload measures the number of simulated accelerators that this machine feeds with a storage benchmark's data.
func (f *benchFlags) runWorkload(cmd *cobra.Command) error {
	w, ok := storage.Find(f.workload)
	if !ok {
		return usageError("stoker bench --workload unet3d", "--workload %q: it is unet3d, resnet50 or cosmoflow", f.workload)
	}
	if f.workers != "" || f.decode != "" || f.transforms != "" || f.check || f.cores != "" && strings.Contains(f.cores, ",") || strings.Contains(f.cache, ",") {
		return usageError("stoker bench --workload "+w.Name+" --cores 2 --cache cold", "--workload takes one value of --cores and --cache, and neither --workers, --decode, --transforms nor --what-if")
	}
	flags := cmd.Flags()
	if !flags.Changed("batch") {
		f.batch = w.Batch
	}
	if !flags.Changed("t") {
		f.t = time.Duration(w.A100 * float64(time.Second))
		if f.device == "h100" {
			f.t = time.Duration(w.H100 * float64(time.Second))
		}
	}
	if !flags.Changed("au") {
		f.target = w.Target
	}
	if !flags.Changed("accelerators") {
		f.accelerators = "auto"
	}
	if f.seconds == 0 && f.steps == 0 {
		// Some tens of steps, for a few seconds at least.
		f.seconds = min(max(12*f.t, 5*time.Second), 60*time.Second)
	}
	axes, err := f.axes()
	if err != nil {
		return err
	}
	dir, remove, err := f.workloadData(w)
	if err != nil {
		return err
	}
	defer remove()
	s, err := bench.Look(f.app.Context, filepath.Join(dir, "train"))
	if err != nil {
		return err
	}
	f.transforms = ""
	if f.prefetch == 0 && float64(f.batch)*float64(w.RecordBytes) >= giantBatch {
		f.prefetch = 1
	}
	o, _, err := f.options(s)
	if err != nil {
		return err
	}
	o.Cached = 1
	if o.Files, err = bench.SourceFiles(filepath.Join(dir, "train")); err != nil {
		return err
	}
	for _, a := range axes {
		switch a.Name {
		case bench.AxisCores:
			_, _ = fmt.Sscan(a.Values[0], &o.Cores)
		case bench.AxisCache:
			var share float64
			_, _ = fmt.Sscan(a.Values[0], &share)
			o.Cached, o.OneEpoch = share/100, share < 100
		}
	}
	what := fmt.Sprintf("MLPerf-Storage-shaped %s, the real bytes in the trainer's memory", w.Name)
	if f.accelerators != "auto" {
		r, err := f.runWithBar(o)
		if err != nil {
			return benchFailed(err)
		}
		report := &benchReport{Result: r, Transforms: what, Target: f.target}
		if f.asJSON {
			return f.app.printJSON(report)
		}
		return f.app.print(report.text())
	}
	found, err := bench.Feed(f.app.Context, o, f.target, f.note)
	if err != nil {
		return benchFailed(err)
	}
	if f.asJSON {
		return f.app.printJSON(found)
	}
	return f.app.print(feedText(found, what, f.target))
}

// workloadData finds or makes the files.
func (f *benchFlags) workloadData(w *storage.Workload) (dir string, remove func(), err error) {
	opt := storage.Options{Workload: w}
	bytes := workloadBytes[w.Name]
	if f.scale > 0 {
		bytes = f.scale * 1e9
	}
	perFile := float64(w.RecordBytes) * float64(w.RecordsPerFile)
	opt.Files = max(int(bytes/perFile), 1)
	if err := opt.Check(); err != nil {
		return "", nil, &Error{Code: ExitUsage, Err: err}
	}
	if f.dir != "" {
		d, err := storage.Read(f.dir)
		switch {
		case err == nil && d.Name != w.Name:
			return "", nil, &Error{Msg: fmt.Sprintf("%s holds the data of %s", f.dir, d.Name), Hint: "choose another --dir"}
		case err == nil:
			return f.dir, func() {}, nil
		case !errors.Is(err, os.ErrNotExist):
			return "", nil, err
		}
		f.note("generating %s of %s in %s", units.Bytes(opt.Bytes()), w.Name, f.dir)
		return f.dir, func() {}, f.app.genStorage(f.dir, opt)
	}
	tmp, removeTemp, err := leftover.MkdirTemp("", "stoker-bench-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = removeTemp() }
	// A temporary folder in memory competes with the measured system.
	var fs unix.Statfs_t
	if unix.Statfs(tmp, &fs) == nil && fs.Type == unix.TMPFS_MAGIC {
		if free, err := proc.Live.FreeMemory(); err == nil && float64(opt.Bytes()) > 0.4*float64(free) {
			remove()
			return "", nil, &Error{Msg: fmt.Sprintf("the temporary folder is in memory, and %s of data leave too little of it", units.Bytes(opt.Bytes())), Hint: "give a folder on a disk: --dir FOLDER"}
		}
	}
	f.note("generating %s of %s; --dir FOLDER keeps them", units.Bytes(opt.Bytes()), w.Name)
	dir = filepath.Join(tmp, "data")
	out := f.app.Stdout
	f.app.Stdout = f.app.Stderr // what gen says is no result here
	err = f.app.genStorage(dir, opt)
	f.app.Stdout = out
	if err != nil {
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}
