package cifarsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is the files of CIFAR.
var Format = &format.Format{
	Name:    "cifar",
	Reads:   "CIFAR-10 and CIFAR-100, binary or Python's pickles",
	Example: "cifar-10-batches-py?split=train",
	Guide:   "reference/arrays-and-bytes.md#mnist-cifar-stl-10-svhn",
	Params:  []format.Param{format.SplitParam},
	Match: func(ctx context.Context, p *format.Probe) bool {
		names, file := p.Siblings(ctx)
		return Is(names, file)
	},
	Open: fixedrecords.Opener(Open),
}
