package pointsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// The formats are point clouds.
var (
	FormatPLY   = clouds(PLY, "point clouds: .ply files, ASCII or binary", "scans/")
	FormatKITTI = clouds(KITTI, "point clouds as KITTI and nuScenes have them: .bin files of float32", "kitti:velodyne/?numbers=4",
		format.Param{Name: "numbers", Type: format.Int, Min: 1, Max: maxNumbers, Default: "4", Help: "How many float32 numbers a point has."})
)

func clouds(name, reads, example string, params ...format.Param) *format.Format {
	return &format.Format{
		Name:    name,
		Reads:   reads,
		Example: example,
		Guide:   "reference/arrays-and-bytes.md",
		Params:  params,
		Match: func(ctx context.Context, p *format.Probe) bool {
			if !p.Dir {
				return IsName(name, p.Store.Path(""))
			}
			return p.All(ctx, func(file string) bool { return IsName(name, p.Store.Path(file)) })
		},
		Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
			return Open(ctx, r.URL, name, r.Store, &Options{Numbers: int(r.Int("numbers"))})
		},
	}
}
