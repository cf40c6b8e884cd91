// Package probe measures what a machine delivers to a data loader: the storage under a path, decoding and
// transforming of the user's own files, memory, the hand-off of a batch, and the limits of control groups. The result
// is a [plan.Machine], from which package plan predicts.
//
// Run is limited: each part has a deadline and a share of the time. The only file written is a scratch file of at
// most 1 GiB or a tenth of the free space, which is deleted afterwards. Files of the user bypass the page cache if
// the file system supports it, so that data cached by other programs stays cached.
//
// Start reading with Run (the parts, in order), store.go (reads of all sizes) and decode.go (the cost of an image).
package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/store"
)

// Options are options of Run. The zero value means the defaults.
type Options struct {
	// For is the approximate duration of the measurement; 0 means DefaultFor.
	For time.Duration
	// Transform is Crop, Whole or None; "" means Crop. Size is the width and
	// height of its output in pixels; 0 means 224.
	Transform string
	Size      int
	// operations are the operations of a pipeline, which replace Transform. codecs are the codecs to measure, nil for
	// all; see Codecs.
	operations []json.RawMessage
	codecs     []string
	// Progress, if set, is called when a part begins, with its number, the number of all parts and its name.
	Progress func(done, parts int, name string)
}

// The transforms that Options know.
const (
	// Crop is RandomResizedCrop and RandomHorizontalFlip, as training uses them.
	Crop = "crop"
	// Whole is the whole image, resized.
	Whole = "whole"
	// None keeps raw images of one size unchanged.
	None = "none"
)

const (
	// DefaultFor is enough for a second or two per part.
	DefaultFor = 18 * time.Second
	// MinFor is the shortest Options.For.
	MinFor = time.Second
	// MaxFor is the longest Options.For.
	MaxFor = 10 * time.Minute
)

// A part of the probe has a share of the time. It must end when its context does. Values that it could not measure
// stay zero, and it explains them in a note.
type part struct {
	name  string
	share float64
	run   func(ctx context.Context, d time.Duration)
}

// probe is one run.
type probe struct {
	opt  Options
	path string // a folder, or a URL
	m    *plan.Machine
	data dataset
}

// note adds a line about a failed measurement.
func (p *probe) note(format string, args ...any) {
	p.m.Notes = append(p.m.Notes, fmt.Sprintf(format, args...))
}

// Run measures this machine and the storage and data at path. The path is a pack, a folder of images, any other
// folder (only its storage is measured), or the URL of a server. The notes of the result list failed measurements and
// the reasons. An error means that path cannot be used or that ctx ended.
func Run(ctx context.Context, path string, opt Options) (*plan.Machine, error) {
	if opt.For == 0 {
		opt.For = DefaultFor
	}
	if opt.Transform == "" {
		opt.Transform = Crop
	}
	if opt.Size == 0 {
		opt.Size = 224
	}
	dir := path
	if !stores.IsURL(path) {
		var err error
		if dir, err = folder(path); err != nil {
			return nil, err
		}
	}
	p := &probe{opt: opt, path: dir, m: &plan.Machine{Measured: time.Now().UTC().Format(time.RFC3339)}}
	parts := []part{
		{"machine", 0.01, p.system},
		{"data", 0.04, p.look},
		{"memory", 0.06, p.memory},
		{"storage", 0.3, p.storage},
		{"small files", 0.06, p.files},
		{"decoding", 0.51, p.decode},
		{"hand-off", 0.02, p.handoff},
	}
	if p.isRemote() {
		if err := reachable(ctx, path); err != nil {
			return nil, err
		}
		parts[3], parts[4] = part{"server", 0.5, p.endpoint}, parts[6]
		parts[5].share = 0.36
		parts = parts[:6]
	}
	others := othersCPU()
	for i, part := range parts {
		if opt.Progress != nil {
			opt.Progress(i, len(parts), part.name)
		}
		d := time.Duration(part.share * float64(opt.For))
		if err := p.runPart(ctx, part, d); err != nil {
			return nil, err
		}
	}
	p.m.Busy = others()
	if why := p.m.Doubt(); why != "" {
		p.note("%s", why)
	}
	return p.m, nil
}

// othersCPU returns a function that reports the share of this process's cores used by other programs since this call.
func othersCPU() func() float64 {
	cpus := proc.AllowedCPUs()
	start, own := time.Now(), proc.OwnCPU()
	before, known := proc.Live.IdleTime(cpus)
	return func() float64 {
		after, still := proc.Live.IdleTime(cpus)
		all := time.Since(start) * time.Duration(len(cpus))
		if !known || !still || all <= 0 {
			return 0
		}
		busy := all - (after - before) - (proc.OwnCPU() - own)
		return min(max(busy.Seconds()/all.Seconds(), 0), 1)
	}
}

// grace is the time that a part may take in addition to twice its share, for writing or opening files before the
// measurement.
var grace = 5 * time.Second

// runPart runs a part with its deadline.
func (p *probe) runPart(ctx context.Context, part part, d time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, 2*d+grace)
	defer cancel()
	part.run(limited, d)
	if limited.Err() != nil && ctx.Err() == nil && !slices.Contains(p.m.Unfinished, part.name) {
		p.m.Unfinished = append(p.m.Unfinished, part.name)
	}
	return ctx.Err()
}

// reachable fails when nothing can be read at a URL.
func reachable(ctx context.Context, url string) error {
	st, err := stores.Open(ctx, url)
	if err != nil {
		return err
	}
	defer st.Close()
	if _, err = st.Stat(ctx, ""); err != nil {
		return fmt.Errorf("cannot probe %s: %w", shown(url), store.Cause(err))
	}
	return nil
}

// folder returns the absolute folder of path, with links followed: path itself, or the folder that contains a file.
func folder(path string) (string, error) {
	dir, err := filepath.Abs(path)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	var st fs.FileInfo
	if err == nil {
		st, err = os.Stat(dir)
	}
	if err != nil {
		return "", fmt.Errorf("cannot probe %s: %w", path, store.Cause(err))
	}
	if !st.IsDir() {
		dir = filepath.Dir(dir)
	}
	if _, err := os.ReadDir(dir); err != nil {
		return "", fmt.Errorf("cannot probe %s: %w", path, store.Cause(err))
	}
	return dir, nil
}

// processors is the number of cores that the Go runtime may use at the start.
var processors = runtime.GOMAXPROCS(0)

// cores returns the number of goroutines for measurements of all cores together: the default number of decode workers
// of the engine.
func cores() int { return max(processors, 1) }
