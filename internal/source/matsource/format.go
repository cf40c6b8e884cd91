package matsource

import (
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is the files of SVHN.
var Format = &format.Format{
	Name:      "mat",
	Reads:     "SVHN's cropped digits: MATLAB 5 files",
	Checksums: "zlib: when it is opened",
	Example:   "svhn?split=train",
	Guide:     "reference/arrays-and-bytes.md#mnist-cifar-stl-10-svhn",
	Params:    []format.Param{format.SplitParam},
	Match:     fixedrecords.Match(IsName, IsFile),
	Open:      fixedrecords.Opener(Open),
}
