package transform

import (
	"encoding/json"
	"fmt"

	"github.com/stokerdata/stoker/internal/csound"
	"github.com/stokerdata/stoker/internal/item"
)

// Volume operations have the names and formulas of MONAI, with the axes z, y and x as its spatial axes 0, 1 and 2. A
// list of operations compiles into a VolumeProgram. Operations that move voxels (crops, pads, flips, turns) only change
// a volumeView, which maps each voxel to its source. Values are scaled and shifted when they are written (volumeScale),
// so that most lists take one pass over the final voxels. Operations that need the values first (NormalizeIntensity)
// make them in between.
//
// To add an operation: write a Spec for it, list it in volumeSpecs and implement
// volumeMove or volumeChange.

// VolumeInput describes the volumes of a field: Least and Most are their smallest and
// largest sides.
type VolumeInput struct {
	DType       item.DType
	Channels    int
	Least, Most [3]int
	// Mask reports whether values are numbers of classes: they are moved and not changed.
	Mask bool
	// Cut reports whether the first operation, a crop, was done when a volume was read.
	Cut bool
}

// volumeMove moves voxels.
type volumeMove interface {
	// sides changes the smallest and largest sides to those after the operation.
	sides(least, most *[3]int)
	move(r *Rand, v *volumeView)
}

// volumeChange changes values.
type volumeChange interface {
	change(r *Rand, w *volumeWork) error
}

// volumeCrop is a volumeMove that cuts a part out: one that can be read without the
// rest.
type volumeCrop interface {
	volumeMove
	// part draws the part of a volume.
	part(r *Rand, sides [3]int) (at, size [3]int)
}

// VolumeProgram is a compiled list of operations. It does not change, and all workers share it.
type VolumeProgram struct {
	In VolumeInput
	// DType is the type of the values that come out, Least and Most are the sides.
	DType       item.DType
	Least, Most [3]int

	key    uint64
	ops    []Op
	floats bool // there are operations on values
}

// CompileVolume compiles the operations of an output.
func CompileVolume(out Output, in VolumeInput) (*VolumeProgram, error) {
	p, err := compileVolume(out, in)
	if err != nil {
		return nil, fmt.Errorf("output %q: %w", out.Name, err)
	}
	return p, nil
}

func compileVolume(out Output, in VolumeInput) (*VolumeProgram, error) {
	switch {
	case len(out.Ops) > maxOps:
		return nil, fmt.Errorf("%d operations, the limit is %d", len(out.Ops), maxOps)
	case out.Mode != "" || out.Depth != 0:
		return nil, fmt.Errorf("mode and depth are for images")
	}
	p := &VolumeProgram{In: in, DType: in.DType, Least: in.Least, Most: in.Most, key: outputKey(out.Name)}
	if out.Follow != "" {
		p.key = outputKey(out.Follow)
	}
	for i, raw := range out.Ops {
		op, err := parseVolumeOp(raw, &in)
		if err != nil {
			return nil, fmt.Errorf("operation %d: %w", i+1, err)
		}
		switch op := op.(type) {
		case *volumeDType:
			if i != len(out.Ops)-1 {
				return nil, fmt.Errorf("operation %d: ToDtype of volumes comes last", i+1)
			}
			if !in.Mask {
				p.DType, p.floats = op.dtype, true
			}
			continue
		case volumeMove:
			op.sides(&p.Least, &p.Most)
		case volumeChange:
			if in.Mask {
				break
			}
			if !p.floats {
				p.DType, p.floats = item.F32, true
			}
		}
		p.ops = append(p.ops, op)
	}
	if n := p.bytes(p.Most); n > maxOutputBytes {
		return nil, fmt.Errorf("one row has %d bytes, the limit is %d; cut the volumes with RandSpatialCrop or ResizeWithPadOrCrop", n, int64(maxOutputBytes))
	}
	return p, nil
}

func (p *VolumeProgram) bytes(sides [3]int) int64 {
	n := int64(p.In.Channels) * int64(p.DType.Size())
	for _, s := range sides {
		n *= int64(s)
	}
	return n
}

// VolumeCut is the crop that a list begins with.
type VolumeCut struct {
	op  volumeCrop
	key uint64
}

// FirstCut returns the crop that the operations of an output begin with, nil when they
// begin with something else.
func FirstCut(out Output) *VolumeCut {
	if len(out.Ops) == 0 {
		return nil
	}
	op, err := parseVolumeOp(out.Ops[0], &VolumeInput{Channels: 1})
	if err != nil {
		return nil // which is said when it is compiled
	}
	c, ok := op.(volumeCrop)
	if !ok {
		return nil
	}
	name := out.Name
	if out.Follow != "" {
		name = out.Follow
	}
	return &VolumeCut{op: c, key: outputKey(name)}
}

// Sides returns the smallest and largest sides of the part that is cut out.
func (c *VolumeCut) Sides(least, most [3]int) (lo, hi [3]int) {
	c.op.sides(&least, &most)
	return least, most
}

// Part is the part that a record of an epoch has.
func (c *VolumeCut) Part(seed uint64, epoch, record int64, sides [3]int) (at, size [3]int) {
	r := opRand(recordKey(seed, epoch, record, c.key), 0)
	return c.op.part(&r, sides)
}

// Plain reports whether rows are the unmodified volumes.
func (p *VolumeProgram) Plain() bool {
	n := len(p.ops)
	if p.In.Cut {
		n--
	}
	return n == 0 && p.DType == p.In.DType
}

// volumeWork is a volume between two operations.
type volumeWork struct {
	view   volumeView
	scale  volumeScale
	memory SoundMemory
	// moved reports whether voxels keep their type: nothing changes their values.
	moved bool
}

// Run writes the row of a record of an epoch to dst, from a volume of sides voxels.
func (p *VolumeProgram) Run(dst, src []byte, sides [3]int, seed uint64, epoch, record int64, m SoundMemory) error {
	base := recordKey(seed, epoch, record, p.key)
	w := volumeWork{view: newVolumeView(src, p.In.DType, p.In.Channels, sides), scale: noScale(), memory: m, moved: !p.floats}
	for i, op := range p.ops {
		if i == 0 && p.In.Cut {
			continue
		}
		r := opRand(base, i)
		var err error
		switch op := op.(type) {
		case volumeMove:
			if pad, ok := op.(*padVolume); ok {
				err = pad.prepare(&w)
			}
			if err == nil {
				op.move(&r, &w.view)
			}
		case volumeChange:
			if !p.In.Mask {
				err = op.change(&r, &w)
			}
		}
		if err != nil {
			return err
		}
	}
	if got := p.bytes(w.view.size); got != int64(len(dst)) {
		return fmt.Errorf("it has %v voxels after the operations, other volumes have %v", w.view.size, p.Most)
	}
	return p.put(dst, &w)
}

// put writes a row.
func (p *VolumeProgram) put(dst []byte, w *volumeWork) error {
	if !p.floats {
		w.view.copyTo(dst)
		return nil
	}
	if p.DType == item.F32 && csound.Aligned(dst) {
		w.view.floatsTo(csound.Floats(dst), &w.scale)
		return nil
	}
	f, err := w.memory.Floats(int64(w.view.voxels()))
	if err != nil {
		return err
	}
	w.view.floatsTo(f, &w.scale)
	if p.DType == item.F32 {
		copy(dst, csound.Bytes(f))
	} else {
		putHalf(dst, f, p.DType)
	}
	return nil
}

// settle makes the voxels, in their own type if that does not change.
func (w *volumeWork) settle() error {
	if !w.moved {
		_, err := w.flush()
		return err
	}
	size := int64(w.view.voxels()) * int64(w.view.dtype.Size())
	f, err := w.memory.Floats((size + 3) / 4)
	if err != nil {
		return err
	}
	b := csound.Bytes(f)[:size]
	w.view.copyTo(b)
	w.view = newVolumeView(b, w.view.dtype, w.view.channels, w.view.size)
	return nil
}

// flush computes the values, so that they can be read and changed in place.
func (w *volumeWork) flush() ([]float32, error) {
	f, err := w.memory.Floats(int64(w.view.voxels()))
	if err != nil {
		return nil, err
	}
	w.view.floatsTo(f, &w.scale)
	w.view, w.scale = newVolumeView(csound.Bytes(f), item.F32, w.view.channels, w.view.size), noScale()
	return f, nil
}

// volumeDType is ToDtype of volumes.
type volumeDType struct{ dtype item.DType }

func buildVolumeDType(a *Args) (Op, error) { return &volumeDType{buildHalf(a, "volumes")}, nil }

// parseVolumeOp reads one operation.
func parseVolumeOp(raw json.RawMessage, in *VolumeInput) (Op, error) {
	name, vals, err := splitOp(raw)
	if err != nil {
		return nil, err
	}
	channels := item.PixelType{DType: item.F32, Channels: int32(min(in.Channels, 1<<20))}
	op, err := buildOp(func(s *Spec) builder { return s.volume }, name, vals, opContext{pixels: channels, mask: in.Mask})
	switch {
	case op != nil || err != nil:
		return op, err
	case is(onImages, name):
		return nil, fmt.Errorf("%s is for images, this is a volume%s", name, insteadOfVolume(name))
	}
	return nil, fmt.Errorf("there is no operation %q on volumes%s", name, DidYouMean(name, names(onVolumes)))
}

// insteadOfVolume names the operation on volumes that is meant by one on images.
func insteadOfVolume(name string) string {
	switch name {
	case "RandomCrop", "RandomResizedCrop":
		return "; use volume.RandSpatialCrop"
	case "CenterCrop":
		return "; use volume.CenterSpatialCrop"
	case "RandomHorizontalFlip", "RandomVerticalFlip":
		return "; use volume.RandFlip"
	case "Normalize":
		return "; use volume.NormalizeIntensity"
	case "Pad":
		return "; use volume.SpatialPad"
	}
	return ""
}
