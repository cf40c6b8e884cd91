package pairsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is records of several files. It must come before the formats of these files in the
// list of formats. Package volumesource adds pairs of volumes.
var Format = &format.Format{
	Name:      "pairs",
	Reads:     "files that belong together by a rule, such as images and their masks",
	Checksums: "those of the files, such as PNG",
	Example:   "pairs:data/?image=images/*.jpg&mask=masks/*.png",
	Guide:     "reference/segmentation.md",
	Cached:    true,
	Params:    []format.Param{format.FileParam},
	Match:     func(ctx context.Context, p *format.Probe) bool { return p.Dir && Layout(ctx, p.Store) != nil },
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		fields, err := Fields(r)
		if err == nil && fields == nil {
			err = NoFields(ctx, r.Store)
		}
		if err != nil {
			return nil, r.Fail(err)
		}
		return Open(ctx, r.URL, r.Store, fields)
	},
}

// Fields parses the fields of a request.
func Fields(r *format.Request) (fields []Field, err error) {
	for _, text := range r.Files {
		f, err := ParseField(text)
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}
