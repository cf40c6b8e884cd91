package plan

import (
	"math"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/item"
)

// Field is a stored field of a dataset, as far as the engine's memory depends on it. Zero means unknown.
type Field struct {
	Name string `json:"name"`
	// Kind is one of the Field constants; DType and Shape describe an array.
	Kind  string `json:"kind"`
	DType string `json:"dtype,omitempty"`
	Shape []int  `json:"shape,omitempty"`
	// MaxBytes is the size of the largest stored value.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Width and Height are set when all images are pixels of that size, MaxWidth
	// and MaxHeight are the largest sides.
	Width     int64 `json:"width,omitempty"`
	Height    int64 `json:"height,omitempty"`
	MaxWidth  int64 `json:"max_width,omitempty"`
	MaxHeight int64 `json:"max_height,omitempty"`
}

// The kinds of fields that take space in a batch.
const (
	FieldImage  = "image"
	FieldNumber = "number" // labels and other whole numbers
	FieldArray  = "array"
	FieldBytes  = "bytes"
)

// Engine has the settings of an engine for a plan, as reported by Info when the engine is opened.
type Engine struct {
	Threads int           `json:"threads"`
	Slots   int           `json:"slots"`
	Memory  budget.Shares `json:"memory"`
}

// unknownCores is the number of cores for memory planning if the number is unknown.
const unknownCores = 8

// threads returns the number of decode workers of the engine of each accelerator.
func (r *resolved) threads() int {
	cores := r.machine.Cores
	if cores == 0 {
		cores = unknownCores
	}
	return budget.ThreadsFor(cores, r.Accelerators)
}

// engine plans the memory of one engine: as much as it can use with at least prefetch batches ahead. It uses fewer
// batches if they would take half of the free memory.
func (r *resolved) engine(prefetch int) (*budget.Plan, error) {
	q := r.request(r.threads(), 0)
	stride := budget.SlotStride(q.SlotBytes)
	slots := int64(max(budget.Slots(0, stride), prefetch+2))
	if free := r.machine.MemoryFree; free > 0 {
		slots = min(slots, max(free/2/r.Accelerators/stride, 3))
	}
	q.Prefetch = int(slots - 2)
	q.Memory = budget.Enough(&q, int64(r.es))
	return budget.Make(&q)
}

// largestSlot keeps all sums of slots within 64 bits.
const largestSlot = 1 << 50

// request returns the request of the loader of a plan to one engine.
func (r *resolved) request(threads, prefetch int) budget.Request {
	out := budget.Request{
		BatchSize: int(r.Batch), SlotBytes: r.slotBytes(), Threads: threads, Prefetch: prefetch,
	}
	for i := range r.dataset.Fields {
		switch f := &r.dataset.Fields[i]; f.Kind {
		case FieldImage:
			if len(out.Images) == 0 {
				out.Images = append(out.Images, budget.Image{
					MaxBytes: f.MaxBytes, Width: f.Width, Height: f.Height, MaxWidth: f.MaxWidth, MaxHeight: f.MaxHeight,
				})
			}
		case FieldArray:
			n := int64(f.bytes())
			out.ValueBytes += n
			out.UnplacedBytes = max(out.UnplacedBytes, n)
		case FieldBytes:
			out.ValueBytes += f.MaxBytes
			out.UnplacedBytes = max(out.UnplacedBytes, f.MaxBytes)
		}
	}
	if len(r.dataset.Fields) == 0 {
		most := max(r.dataset.RecordBytesMax, int64(r.es))
		if r.Kind == KindImage {
			out.Images = []budget.Image{{MaxBytes: most}}
		} else {
			out.ValueBytes, out.UnplacedBytes = most, most
		}
	}
	return out
}

// slotBytes returns the size of a batch of the loader of a plan. The batch has u8 images, whatever they are converted
// to later, and the other stored fields.
func (r *resolved) slotBytes() int64 {
	cols := r.columns()
	layout, err := collate.New(int(r.Batch), cols)
	if err != nil { // larger than any engine takes
		return int64(math.Min(r.output*float64(r.Batch), largestSlot))
	}
	return layout.Bytes
}

// columns returns the arrays of a batch of the loader of a plan.
func (r *resolved) columns() []collate.Column {
	var cols []collate.Column
	add := func(name string, dtype item.DType, shape ...int) {
		cols = append(cols, collate.Column{Name: name, DType: dtype, Shape: shape})
	}
	image := r.Kind == KindImage
	side := int(min(r.side(), math.MaxInt32))
	if len(r.dataset.Fields) == 0 {
		for _, a := range r.Arrays {
			switch {
			case image && len(a.Shape) == 3:
				image = false
				add(a.Name, item.U8, side, side, 3)
			case a.Bytes() < math.MaxInt32:
				add(a.Name, item.U8, int(a.Bytes()))
			default:
				add(a.Name, item.U8, math.MaxInt32, 2) // too large, reported by collate
			}
		}
	}
	for i := range r.dataset.Fields {
		switch f := &r.dataset.Fields[i]; f.Kind {
		case FieldImage:
			if image {
				add(f.Name, item.U8, side, side, 3)
				image = false
			}
		case FieldNumber:
			add(f.Name, item.I64)
		case FieldArray:
			if dtype, ok := dtype.Parse(f.DType); ok {
				add(f.Name, dtype, f.Shape...)
			}
		case FieldBytes:
			cols = append(cols, collate.Column{Name: f.Name, DType: item.U8, Ragged: true, Capacity: f.MaxBytes * r.Batch})
		}
	}
	add("index", item.I64)
	return cols
}

// bytes of an array of the field.
func (f *Field) bytes() float64 {
	dtype, _ := dtype.Parse(f.DType)
	n := float64(dtype.Size())
	for _, side := range f.Shape {
		n *= float64(side)
	}
	return math.Min(n, maxArray)
}

// side returns the width and height of the images that the loader of a plan makes.
func (r *resolved) side() int64 {
	for _, a := range r.Arrays {
		if len(a.Shape) == 3 {
			return max(a.Shape[0], a.Shape[1])
		}
	}
	return 224
}

// imageField returns the name of the field that the loader of a plan makes images from.
func (r *resolved) imageField() string {
	for i := range r.dataset.Fields {
		if f := &r.dataset.Fields[i]; f.Kind == FieldImage {
			return f.Name
		}
	}
	return "image"
}
