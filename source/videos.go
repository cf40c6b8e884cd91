package source

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/videosource"
	"github.com/stokerdata/stoker/internal/source/wrap/clips"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// withClips opens a table and makes clips of its columns with paths of videos: those that
// opt.columns says, and those that look like it.
func withClips(ctx context.Context, opt *Options, of clips.Options, open func([]column.Want) (driver.Source, error)) (driver.Source, error) {
	rest, wanted, err := clips.Cut(opt.columns)
	if err != nil {
		return nil, err
	}
	src, err := open(rest)
	if err != nil {
		return nil, err
	}
	if t, ok := src.(interface{ VideoPaths() []string }); ok {
		for _, name := range t.VideoPaths() {
			wanted = append(wanted, clips.Clip{Name: name, Column: name})
		}
	}
	if len(wanted) == 0 {
		return src, nil
	}
	of.Threads = opt.Threads
	return clips.Open(ctx, src, wanted, &of)
}

// noClips refuses clips of columns of what is no table.
func (loc *location) noClips(rawURL string) error {
	for _, c := range loc.opt.columns {
		if c.Kind == driver.KindFrames && !loc.format.clips {
			return fmt.Errorf("cannot open %s: field %q: clips are made of columns with the paths of videos, of CSV, TSV, JSON lines, Parquet and Arrow; this is a %s", rawURL, c.Name, loc.format.name)
		}
	}
	return nil
}

func openVideos(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	o := &videosource.Options{Threads: opt.Threads, Split: opt.Split}
	for name, text := range opt.params {
		if err := o.Set(name, text); err != nil {
			return nil, err
		}
	}
	if e, err := st.Stat(ctx, ""); err == nil && !e.Dir {
		var dir string
		dir, o.File = filepath.Split(st.Path(""))
		st = beside(st, dir)
	}
	return videosource.Open(ctx, rawURL, st, o)
}
