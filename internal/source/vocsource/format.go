package vocsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is folders in the layout of Pascal VOC.
var Format = &format.Format{
	Name:      "voc",
	Reads:     "Pascal VOC: an XML file per image, and masks as PNG",
	Checksums: "those of the image files, such as PNG",
	Example:   "VOCdevkit/VOC2012?split=train&masks=classes",
	Guide:     "reference/detection.md",
	Params:    []format.Param{format.SplitParam, boxes.MasksParam},
	Match:     format.MatchFolders(Is),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		s, err := Open(ctx, r.URL, r.Store, &Options{Split: r.Text("split"), Masks: boxes.Masks(r.Text("masks"))})
		if err != nil {
			return nil, r.Fail(err)
		}
		return s, nil
	},
}
