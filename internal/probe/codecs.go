package probe

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/stokerdata/stoker/plan"
)

// Codecs is the decoding part of Run, with custom pipeline operations. It measures the cost of an image of the pack
// or folder at path in each of the codecs, on a sample in memory, for about d. Only the related fields of the machine
// are set. It fails if path has no images, because generated images would not represent them.
func Codecs(ctx context.Context, path string, codecs []string, operations []json.RawMessage, d time.Duration) (*plan.Machine, error) {
	dir, err := folder(path)
	if err != nil {
		return nil, err
	}
	p := &probe{
		opt:  Options{Transform: Crop, Size: 224, codecs: codecs, operations: operations},
		path: dir, m: &plan.Machine{Measured: time.Now().UTC().Format(time.RFC3339)},
	}
	p.system(ctx, 0)
	p.look(ctx, d/8)
	if p.data.pack == nil && len(p.data.images) == 0 {
		return nil, errors.New("there are no images")
	}
	if err := p.runPart(ctx, part{run: p.decode}, d); err != nil {
		return nil, err
	}
	if len(p.m.Codecs) == 0 || p.m.Codecs[0].Origin != "measured" {
		why := "too few images could be read"
		if n := len(p.m.Notes); n > 0 {
			why = p.m.Notes[n-1]
		}
		return nil, errors.New(why)
	}
	return p.m, nil
}
