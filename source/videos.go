package source

import (
	"context"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/videosource"
	"github.com/stokerdata/stoker/store"
)

// videos is the format of files of video, and of folders that have some and no images.
func videos() format {
	is := func(name string, extensions []string) bool {
		return slices.Contains(extensions, strings.ToLower(path.Ext(name)))
	}
	match := func(ctx context.Context, st store.Store, isDir bool) bool {
		if !isDir {
			return is(st.Path(""), video.Extensions)
		}
		some := false
		return allFiles(ctx, st, func(name string) bool {
			some = some || is(name, video.Extensions)
			return !is(name, driver.ImageExtensions)
		}) && some
	}
	return format{name: "video", match: match, open: openVideos, params: videosource.Params}
}

func openVideos(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	o := &videosource.Options{Threads: opt.Threads}
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
