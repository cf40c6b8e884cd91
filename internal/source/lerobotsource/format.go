package lerobotsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is the data sets of LeRobot.
var Format = &format.Format{
	Name:      "lerobot",
	Reads:     "LeRobot's data sets, versions 2 and 3: Parquet and a video per camera",
	Checksums: "CRC-32 of Parquet pages, if the file has them; not of videos",
	Example:   "pusht/?deltas=action=0:16;observation.state=-0.1,0",
	Guide:     "reference/video.md#robots-lerobots-data-sets",
	Params: []format.Param{
		{Name: "deltas", Type: format.Text, Help: "The steps (0:16) or seconds (-0.1,0) around a record at which features are read: FEATURE=DELTAS, several separated by semicolons."},
	},
	Match: format.MatchFolders(Is),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		return Open(ctx, r.URL, r.Store, &Options{Deltas: r.Text("deltas"), Threads: r.Threads})
	},
}
