package transform

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/item"
)

// Output describes one image array of a batch.
type Output struct {
	// Name is the name of the array, Field the stored image it is made from;
	// an empty Field means Name.
	Name  string `json:"name"`
	Field string `json:"field"`
	// Ops is the list of operations.
	Ops []json.RawMessage `json:"ops"`
	// Layout is "NHWC" (the default) or "NCHW".
	Layout string `json:"layout"`
	// Mask marks the image as a mask of class numbers: one channel, moved by the geometric operations with nearest
	// interpolation. The other operations do not change its values.
	Mask bool `json:"mask"`
	// Mode is the mode that an image is decoded to: "RGB" (the default), "RGBA", "L" (gray) or "LA". A mask has none.
	// Depth is the number of bits of a value, 8 (the default) or 16.
	Mode  string `json:"mode"`
	Depth int    `json:"depth"`
	// Follow is the name of another output whose random numbers this one uses: a mask moves with its image if both have
	// the same operations.
	Follow string `json:"follow"`
}

// UnmarshalJSON refuses unknown keys.
func (o *Output) UnmarshalJSON(data []byte) error {
	if err := CheckKeysOf[Output](data, "output"); err != nil {
		return err
	}
	type plain Output
	return json.Unmarshal(data, (*plain)(o))
}

// Program is a compiled list of operations. It does not change, and all workers share it.
type Program struct {
	Name string
	// W and H are the size of the output, C its channels.
	W, H, C int
	// In is the type of the decoded pixels that the program starts from.
	In item.PixelType
	// Store defines how rows are written.
	Store item.Store
	// Mask reports whether pixels are class numbers.
	Mask bool

	key    uint64
	plain  bool // rows are finished pixels as they are
	flat   bool // rows have no axis of channels
	ops    []Op
	stored []storedEntry
	like   First // has no W where the size is known or fixed
}

type storedEntry struct {
	op  StoredOp
	pos int
}

// maxOutputBytes bounds one row of an output.
const maxOutputBytes = 1 << 30

// Compile compiles the operations of an output on pixels described by in. The size of the output must be fixed even if
// that of the input is not.
func Compile(out Output, in Input) (*Program, error) { return CompileLike(out, in, nil) }

func compile(out Output, in Input) (*Program, error) {
	if len(out.Ops) > maxOps {
		return nil, fmt.Errorf("%d operations, the limit is %d", len(out.Ops), maxOps)
	}
	t, mask, err := in.pixels(&out)
	if err != nil {
		return nil, err
	}
	w, h := in.W, in.H
	p := &Program{Name: out.Name, In: t, Mask: mask, flat: in.flat(), key: outputKey(out.Name)}
	if out.Follow != "" {
		p.key = outputKey(out.Follow)
	}
	st := newStoreState(t)
	converted := false
	for i, raw := range out.Ops {
		op, err := parseOp(raw, opContext{mask: mask, pixels: t, asIs: in.AsIs})
		if err != nil {
			return nil, fmt.Errorf("operation %d: %w", i+1, err)
		}
		if so, ok := op.(storeOp); ok {
			if len(p.stored) > 0 {
				return nil, fmt.Errorf("operation %d: ToDtype and Normalize cannot follow an operation on normalised pixels", i+1)
			}
			if err := so.fold(&st); err != nil {
				return nil, fmt.Errorf("operation %d: %w", i+1, err)
			}
			converted = !st.plain()
			continue
		}
		if b, ok := op.(BoxOp); ok { // moves no pixels
			p.keepPlace(i)
			p.ops = append(p.ops, b)
			continue
		}
		if converted {
			if err := p.addConverted(op, i, w, h, st.pixels); err != nil {
				return nil, fmt.Errorf("operation %d: %w", i+1, err)
			}
		}
		switch op := op.(type) {
		case GeometryOp:
			w, h = op.OutSize(w, h)
		case PixelOp:
			if s, ok := op.(Sizer); ok {
				w, h = s.OutSize(w, h)
			}
			if r, ok := op.(Retyper); ok && !mask {
				t = r.OutPixels(t)
				st = newStoreState(t)
			}
		case StoredOp:
			if !converted {
				p.stored = append(p.stored, storedEntry{op, i})
			}
		default:
			return nil, fmt.Errorf("operation %d: %T does nothing", i+1, op)
		}
		p.keepPlace(i)
		p.ops = append(p.ops, op)
		if converted && len(p.stored) > 0 {
			p.ops[i] = nil
		}
	}
	if w == 0 || h == 0 {
		return nil, errVaries
	}
	p.W, p.H, p.C = w, h, int(t.Channels)
	p.Store = st.store()
	switch out.Layout {
	case "", "NHWC":
	case "NCHW":
		p.Store.Layout = item.NCHW
	default:
		return nil, fmt.Errorf("layout is %q, must be \"NHWC\" or \"NCHW\"", clip(out.Layout))
	}
	p.plain = st.plain() && p.Store.Layout == item.NHWC
	if p.RowBytes() > maxOutputBytes {
		return nil, fmt.Errorf("one row of %dx%d has %d bytes, the limit is %d", w, h, p.RowBytes(), maxOutputBytes)
	}
	return p, nil
}

const fixSize = "end with an operation that fixes the size, such as RandomResizedCrop(224), or Resize(256) and CenterCrop(224)"

var errVaries = errors.New("its size differs from record to record, so it cannot fill a batch; " + fixSize)

// First is the record whose size all images have, if no operation sets one.
type First struct {
	// Name is for messages.
	Name string
	W, H int
}

// CompileLike is Compile for images whose size is not known. If the operations do not fix the size of the output, all
// images must have the size of the record that first returns.
func CompileLike(out Output, in Input, first func() (First, error)) (*Program, error) {
	p, err := compile(out, in)
	if errors.Is(err, errVaries) && first != nil {
		var like First
		if like, err = first(); err == nil {
			in.W, in.H = like.W, like.H
			if p, err = compile(out, in); err == nil {
				p.like = like
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("output %q: %w", out.Name, err)
	}
	return p, nil
}

// SizeError is the error of an image that is not as large as that of the first record.
type SizeError struct {
	First First
	W, H  int
}

// Error names the first record and both sizes.
func (e *SizeError) Error() string {
	return fmt.Sprintf("its image has %dx%d pixels, and that of the first record, %s, has %dx%d: images of several sizes cannot fill a batch; %s",
		e.W, e.H, e.First.Name, e.First.W, e.First.H, fixSize)
}

// keepPlace makes the next operation start at place i. Every operation keeps its place, so that its random numbers do
// not depend on folded operations.
func (p *Program) keepPlace(i int) {
	for len(p.ops) < i {
		p.ops = append(p.ops, nil)
	}
}

// addConverted adds an operation after ToDtype or Normalize. Operations that only move whole pixels may run before the
// conversion instead.
func (p *Program) addConverted(op Op, i, w, h int, t item.PixelType) error {
	name := opName(op)
	if so, ok := op.(StoredOp); ok {
		if !p.Mask {
			p.stored = append(p.stored, storedEntry{so, i})
		}
		return nil
	}
	if len(p.stored) > 0 {
		return fmt.Errorf("%s cannot follow an operation on normalised pixels; move it before ToDtype and Normalize", name)
	}
	switch op := op.(type) {
	case *randomFlip:
		return nil
	case *centerCrop:
		if w >= op.w && h >= op.h {
			return nil
		}
	case *randomCrop:
		if op.left|op.top|op.right|op.bottom == 0 && !op.padIfNeeded {
			return nil
		}
	}
	return fmt.Errorf("%s works on %s pixels; move it before ToDtype and Normalize", name, t.DType)
}

// opName is the name of an operation for messages.
func opName(op Op) string {
	switch op.(type) {
	case *resize:
		return "Resize"
	case *centerCrop:
		return "CenterCrop"
	case *randomCrop:
		return "RandomCrop"
	case *randomResizedCrop:
		return "RandomResizedCrop"
	case *letterBox:
		return "LetterBox"
	case *pad:
		return "Pad"
	}
	if s, ok := op.(fmt.Stringer); ok {
		return s.String()
	}
	return "this operation"
}

// RowBytes is the size of one row of the output.
func (p *Program) RowBytes() int64 {
	return int64(p.W) * int64(p.H) * int64(p.C) * int64(p.Store.DType.Size())
}

// Shape is the shape of one row.
func (p *Program) Shape() []int {
	if p.flat && p.C == 1 {
		return []int{p.H, p.W}
	}
	if p.Store.Layout == item.NCHW {
		return []int{p.C, p.H, p.W}
	}
	return []int{p.H, p.W, p.C}
}

// Plain reports whether rows are the finished pixels without conversion, interleaved.
func (p *Program) Plain() bool { return p.plain }

// NeedsScratch reports whether pixels may be kept in scratch memory between steps: some operation is not a mere crop,
// resize or flip.
func (p *Program) NeedsScratch() bool {
	resized := false
	for _, op := range p.ops {
		switch op := op.(type) {
		case nil, BoxOp, *randomFlip:
		case *randomCrop:
			if op.left|op.top|op.right|op.bottom != 0 || op.padIfNeeded {
				return true
			}
		case *centerCrop:
		case *resize, *randomResizedCrop:
			if resized {
				return true
			}
			resized = true
		default:
			return true
		}
	}
	return false
}

// Identity reports whether no operation changes anything: rows are the stored pixels.
func (p *Program) Identity() bool {
	if !p.Plain() || len(p.stored) > 0 {
		return false
	}
	for _, op := range p.ops {
		if _, boxes := op.(BoxOp); op != nil && !boxes {
			return false
		}
	}
	return true
}
