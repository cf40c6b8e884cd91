package packsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is a pack.
var Format = &format.Format{
	Name:      "pack",
	Reads:     "what `stoker pack` writes",
	Checksums: "each value and each index, when the process reads it for the first time; `stoker verify` compares all of the files",
	Example:   "train/",
	Guide:     "how-to/pack.md",
	Params:    []format.Param{format.PatchParam, format.StrideParam},
	Instead: map[string]string{
		"window": "a pack has its records already; `stoker pack tokens.npy OUT --window 1024` writes records of 1,024 tokens, and " +
			"stoker.open(PACK).sequences(1024) cuts documents into sequences of that length",
	},
	Unlisted: true,
	Match:    format.MatchFolders(pack.IsPackStore),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		patch, stride, err := r.Patches()
		if err != nil {
			return nil, r.Fail(err)
		}
		return Open(ctx, r.URL, r.Store, &Options{
			ReadOptions: pack.ReadOptions{VerifyChunks: r.VerifyChunks, Listing: r.Probed}, Patch: patch, Stride: stride,
		})
	},
}
