package idxsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is IDX files.
var Format = &format.Format{
	Name:      "idx",
	Reads:     "IDX files of MNIST, EMNIST, KMNIST and Fashion-MNIST, also .gz",
	Checksums: "gzip: when it is opened",
	Example:   "mnist/?split=train",
	Guide:     "reference/arrays-and-bytes.md#mnist-cifar-stl-10-svhn",
	Params:    []format.Param{format.SplitParam},
	Match: func(ctx context.Context, p *format.Probe) bool {
		if p.Dir {
			names, _ := p.Siblings(ctx)
			return HasPair(names)
		}
		_, file := p.Folder()
		return IsName(file) || IsFile(ctx, p.Store)
	},
	Open: fixedrecords.Opener(Open),
}
