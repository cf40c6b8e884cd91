package energonsource

import (
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is the data sets of Megatron-Energon.
var Format = &format.Format{
	Name:      "energon",
	Reads:     "Megatron-Energon's data sets: webdataset tars with a folder .nv-meta",
	Checksums: "of headers; the content of members has none",
	Example:   "coco/?split=train",
	Guide:     "reference/archives.md#megatron-energon",
	Params:    []format.Param{format.SplitParam},
	Match:     format.MatchFolders(Is),
	Open:      format.Opener(Open),
}
