package pipeline

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/scan"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// firstSize returns the function that finds the image size of a field for outputs without a fixed size. It is the size
// of the source's first record with a readable image, so it is the same in all ranks and epochs. If the source knows
// the sizes of all images, a record of another size is an error here and not in the middle of an epoch.
func (p *Pipeline) firstSize(ctx context.Context) func(field int) (transform.First, error) {
	known := map[int]transform.First{}
	return func(field int) (transform.First, error) {
		if first, ok := known[field]; ok {
			return first, nil
		}
		id, s, err := scan.FirstShape(ctx, p.src, field)
		if err != nil {
			return transform.First{}, fmt.Errorf("its size is not known: %w", err)
		}
		first := transform.First{Name: p.find(ctx, id)}
		first.W, first.H = p.sizeOf(s)
		shaper, _ := driver.As[driver.Shaper](p.src)
		var ids [scan.Group]int64
		var shapes [scan.Group]driver.Shape
		for all, at := p.src.Info().Len, int64(0); shaper != nil && at < all; at += scan.Group {
			n := min(scan.Group, all-at)
			for k := range n {
				ids[k] = at + k
			}
			if !shaper.Shapes(field, ids[:n], shapes[:n]) {
				break
			}
			for k, s := range shapes[:n] {
				if w, h := p.sizeOf(s); s.Width > 0 && (w != first.W || h != first.H) {
					return first, fmt.Errorf("%s: %w", p.find(ctx, ids[k]), &transform.SizeError{First: first, W: w, H: h})
				}
			}
		}
		known[field] = first
		return first, nil
	}
}

// sizeOf is the size of an image as operations see it.
func (p *Pipeline) sizeOf(s driver.Shape) (w, h int) {
	if p.cfg.ApplyOrientation && s.Orientation >= 5 {
		return int(s.Height), int(s.Width)
	}
	return int(s.Width), int(s.Height)
}
