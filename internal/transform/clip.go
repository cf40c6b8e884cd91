package transform

import (
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/item"
)

// ClipCrop takes some frames of a clip of video: Frames of them, Stride apart. It comes
// first in the list of an output; what follows works on each of these frames.
type ClipCrop struct {
	Frames, Stride int

	random bool
	key    uint64
}

// maxClipFrames bounds both.
const maxClipFrames = 1 << 16

func buildClipCrop(random bool) func(a *Args) (Op, error) {
	return func(a *Args) (Op, error) {
		c := &ClipCrop{Frames: a.Int("frames", 0), Stride: a.Int("stride", 1), random: random}
		if c.Frames < 1 || c.Frames > maxClipFrames {
			a.fail("frames", "must be from 1 to %d, not %d", maxClipFrames, c.Frames)
		}
		if c.Stride < 1 || c.Stride > maxClipFrames {
			a.fail("stride", "must be from 1 to %d, not %d", maxClipFrames, c.Stride)
		}
		return c, nil
	}
}

// clipSpecs lists the operations on clips.
func clipSpecs() []Spec {
	keys := []string{"frames", "stride"}
	return []Spec{{"RandomClip", keys, nil, buildClipCrop(true)}, {"CenterClip", keys, nil, buildClipCrop(false)}}
}

// isClipOp says whether an operation is one on clips and not on images.
func isClipOp(name string) bool { return has(clipSpecs(), name) }

// CutClip takes the first operation of an output off it, where that takes frames of a
// clip; nil where it does not.
func CutClip(out *Output) (*ClipCrop, error) {
	if len(out.Ops) == 0 {
		return nil, nil
	}
	name, vals, err := splitOp(out.Ops[0])
	if err != nil || !isClipOp(name) {
		return nil, nil // what is wrong with it is found as of any
	}
	op, _, err := buildOp(clipSpecs(), name, vals, opContext{pixels: item.RGB})
	if err != nil {
		return nil, fmt.Errorf("output %q: operation 1: %w", out.Name, err)
	}
	c := op.(*ClipCrop)
	c.key = outputKey(out.Name)
	if out.Follow != "" {
		c.key = outputKey(out.Follow)
	}
	out.Ops = slices.Clone(out.Ops[1:])
	return c, nil
}

// Start is the first frame that is taken of n, of a record in an epoch. Of too few, the
// last one is taken again.
func (c *ClipCrop) Start(n int, seed uint64, epoch, record int64) int {
	left := n - 1 - (c.Frames-1)*c.Stride
	switch {
	case left <= 0:
		return 0
	case !c.random:
		return left / 2
	}
	r := opRand(recordKey(seed, epoch, record, c.key), maxOps)
	return r.IntN(left + 1)
}
