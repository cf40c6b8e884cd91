package sharsource

import (
	"context"
	"slices"

	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is the folders of Lhotse Shar.
var Format = &format.Format{
	Name:      "shar",
	Reads:     "Lhotse Shar folders: cuts, and a tar file per field",
	Checksums: "of headers, gzip and FLAC; the content of members has none",
	Example:   "train_shar/?recording&text",
	Guide:     "reference/audio.md#lhotse-shar",
	Params:    []format.Param{format.ColumnParam},
	Match:     match,
	Open:      format.Opener(Open),
}

// match looks for the cuts of a shard that has a tar file, too. A folder with many files is not listed for it: its first
// file shows the number of a shard. Without a tar file, the folder may have Lhotse's plain manifests.
func match(ctx context.Context, p *format.Probe) bool {
	if !p.Dir {
		return false
	}
	names, _ := p.Siblings(ctx)
	for _, name := range names {
		f, ok := parseName(name)
		if ok && f.ext == "tar" && slices.ContainsFunc(f.cuts(), func(c string) bool { return slices.Contains(names, c) }) {
			return true
		}
	}
	f, ok := parseName(p.First(ctx))
	if len(names) > 0 || !ok {
		return false
	}
	others := f.cuts()
	if f.field == cuts {
		others = []string{"recording." + f.shard + ".tar", "features." + f.shard + ".tar"}
	}
	return slices.ContainsFunc(others, func(name string) bool { e, err := p.Store.Stat(ctx, name); return err == nil && !e.Dir })
}
