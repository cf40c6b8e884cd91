package stlsource

import (
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is the files of STL-10.
var Format = &format.Format{
	Name:    "stl10",
	Reads:   "STL-10's binary files",
	Example: "stl10_binary?split=train",
	Guide:   "reference/arrays-and-bytes.md#mnist-cifar-stl-10-svhn",
	Params:  []format.Param{format.SplitParam},
	Match:   fixedrecords.Match(IsName, nil),
	Open:    fixedrecords.Opener(Open),
}
