package tfrecordsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is TFRecord files.
var Format = &format.Format{
	Name:       "tfrecord",
	Reads:      "TFRecord files of tf.train.Example or any bytes, also .gz and .zst",
	Example:    "train.tfrecord?image:image=image/encoded&label:label=image/class/label",
	Sequential: ".gz and .zst",
	Guide:      "records.md",
	Params:     []format.Param{format.ColumnParam},
	Match:      format.MatchFiles(IsName, IsFile, nil),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		return Open(ctx, r.URL, r.Store, &Options{Columns: r.Columns, Threads: r.Threads})
	},
}
