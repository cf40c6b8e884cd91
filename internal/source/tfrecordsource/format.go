package tfrecordsource

import (
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is TFRecord files.
var Format = &format.Format{
	Name:       "tfrecord",
	Reads:      "TFRecord files of tf.train.Example or any bytes, also .gz and .zst",
	Checksums:  "CRC-32C of each length and each record; gzip and zstd: at the end of the stream",
	Example:    "train.tfrecord?image:image=image/encoded&label:label=image/class/label",
	Sequential: ".gz and .zst",
	Guide:      "reference/records.md",
	Params:     []format.Param{format.ColumnParam},
	Match:      format.MatchFiles(IsName, IsFile, nil),
	Open:       format.Opener(Open),
}
