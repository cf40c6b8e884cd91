package transform

import (
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/item"
)

// ClipCrop takes some frames of a clip of video: Frames of them, Stride apart. It comes first in the list of an output.
// Later operations work on each of these frames.
type ClipCrop struct {
	Frames, Stride int

	random bool
	key    uint64
}

// maxClipFrames bounds both.
const maxClipFrames = 1 << 16

var (
	clipParams = []Param{
		{Name: "frames", Type: Int, Required: true, Range: between(1, maxClipFrames), Unit: "frames", Help: "number of frames to take"},
		{Name: "stride", Type: Int, Default: 1, Range: between(1, maxClipFrames), Unit: "frames", Help: "distance between them"},
	}
	randomClipSpec = Spec{
		Name: "video.RandomClip", Doc: "Take frames from a random position of a clip, which differs per epoch.", More: "If a clip is too short, its last frame is repeated.",
		Params: clipParams, Kinds: []string{"frames"}, Returns: "[frames, height, width, 3]; uint8.", Example: "video.RandomClip(16, stride=2)", clip: buildClipCrop(true),
	}
	centerClipSpec = Spec{
		Name: "video.CenterClip", Doc: "Take frames from the middle of a clip.", More: "If a clip is too short, its last frame is repeated.",
		Params: clipParams, Kinds: []string{"frames"}, Returns: "[frames, height, width, 3]; uint8.", Example: "video.CenterClip(16)", clip: buildClipCrop(false),
	}
)

func buildClipCrop(random bool) func(a *Args) (Op, error) {
	return func(a *Args) (Op, error) {
		return &ClipCrop{Frames: a.Int("frames"), Stride: a.Int("stride"), random: random}, nil
	}
}

// CutClip removes the first operation of an output and returns it if it takes frames of a clip. Otherwise it returns
// nil.
func CutClip(out *Output) (*ClipCrop, error) {
	if len(out.Ops) == 0 {
		return nil, nil
	}
	name, vals, err := splitOp(out.Ops[0])
	if err != nil || !is(onClips, name) {
		return nil, nil // what is wrong with it is found as of any
	}
	op, err := buildOp(func(s *Spec) builder { return s.clip }, name, vals, opContext{pixels: item.RGB})
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
