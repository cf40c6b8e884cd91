// Package kind defines the kinds of fields: how a stored value becomes a row of a batch, of fixed shape or ragged, its
// operations and its cost. Each kind is one file of this package, listed in All. The pipeline knows none of them by
// name.
//
// When a loader opens, Open determines the arrays of its batches: each is a Want. The wants of one kind go to the
// kind's Plan, which returns a Maker. It has the type, shape and cost of each array, and workers that fill its rows. A
// worker gets groups of records, never single ones, so that the loop over records belongs to the kind.
//
// To add a kind: a constant in source/driver, a file here, a line in All. Kinds
// whose rows are the stored bytes need no more than planFixed or planRagged;
// images (image.go, pixels.go) show decoding and operations.
package kind

import (
	"fmt"
	"time"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Kind describes the fields of one kind.
type Kind struct {
	Name driver.Kind
	// Number reports that a value is one number. Arrays of numbers come last in a batch.
	Number bool
	// Labels reports that a value is a class number, which operations on batches mix.
	Labels bool
	// Decoded reports that values are processed to become rows, as images are. If outputs are named, only the named
	// ones are built from such fields.
	Decoded bool
	// Plan plans all arrays that are made from fields of this kind. Each of them is
	// a column of one of the makers.
	Plan func(p *Planner, wants []Want) ([]Maker, error)
}

// All lists the kinds.
func All() []Kind {
	return []Kind{Image, Mask, Array, Bytes, Text, JSON, Ragged, Tokens, Audio, Frames, Label, MultiLabel, Boxes, KeyPoints, Masks, Volume, Int, Float}
}

// Optional reports whether fields of a kind may have no value: those of any length, and images.
func Optional(k driver.Kind) bool {
	switch k {
	case driver.KindImage, driver.KindBytes, driver.KindText, driver.KindRagged, driver.KindTokens, driver.KindMultiLabel, driver.KindJSON:
		return true
	}
	return false
}

// Want is one array of the batch that is made from a field.
type Want struct {
	// Array is the index in the arrays of the batch.
	Array int
	// Field is the index of the field in Info.Fields, and F the field.
	Field int
	F     *driver.Field
	// Out is the requested output. Without operations, it is the field as stored.
	Out transform.Output
}

// Column is the array, of a type and a shape.
func (w *Want) Column(dtype item.DType, shape []int) Column {
	kind := w.F.Kind
	if w.Out.Mask {
		kind = driver.KindMask
	}
	return Column{Column: collate.Column{Name: w.Out.Name, Kind: string(kind), DType: dtype, Shape: shape}, Array: w.Array}
}

// Planner is the input of each kind's Plan.
type Planner struct {
	Source    driver.Source
	Info      *driver.Info
	BatchSize int
	// Seed is the seed of the operations' random numbers.
	Seed uint64
	// ApplyOrientation rotates images according to their EXIF orientation.
	ApplyOrientation bool
	// First returns the size of the first record's image in a field, for images without a size from an operation. It
	// may be nil.
	First func(field int) (transform.First, error)
	// Cut are the volume fields, by their index, whose first operation is a crop that the source applies.
	Cut map[int]bool
	// Wants are all arrays of the batch, of every kind.
	Wants []Want
}

// Maker builds the arrays of one kind. It does not change after its creation and serves all workers concurrently.
type Maker interface {
	// Columns returns the arrays that it builds.
	Columns() []Column
	// Cost returns the cost of building the arrays.
	Cost() Cost
	// NewWorker returns a worker that builds rows in one goroutine, with the tools of that goroutine.
	NewWorker(t *Tools) (Worker, error)
}

// Column describes an array.
type Column struct {
	collate.Column
	// Array is the index of the array in the batch, that of its Want.
	Array int
	// Stored reports that a row is the stored value, byte for byte, so that sources may read it straight into the
	// batch.
	Stored bool
}

// Cost determines the memory plan and the number of records per group. See budget.Request for its fields.
type Cost struct {
	Images []budget.Image
	// ValueBytes is about how many bytes the values of a record have that are not
	// decoded.
	ValueBytes int64
	// UnplacedBytes is the size of the largest such value that may have to be read into memory outside the batch.
	UnplacedBytes int64
	// Together is the number of records that should at least be processed together, 0 for no preference.
	Together int
}

// Worker builds rows, in one goroutine.
type Worker interface {
	// Make fills the rows of a group. The error of a record goes to Errs; records that already have an error are
	// skipped.
	Make(g *RowGroup)
	// Close frees the worker's memory.
	Close()
}

// RowGroup is a number of records that become rows First, First+1, ... of a batch.
type RowGroup struct {
	Batch   *collate.Batch
	First   int
	Epoch   int64
	draw    int64
	without int // a field of which the records have no value, -1 for none
	Records []driver.Record
	// Errs are the errors by record.
	Errs []error
	// DecodeTime and TransformTime are increased by workers. The rest of a group's time is collating.
	DecodeTime, TransformTime time.Duration
}

// Draw returns the part of the random seed for record k that is added to seed and epoch. It is the record's number, or
// its place in the epoch if a record may come several times.
func (g *RowGroup) Draw(k int) int64 {
	if g.draw < 0 {
		return g.Records[k].ID
	}
	return g.draw + int64(k)
}

// each calls row for the records without an error. An error of row becomes the record's error, with the name of the
// field.
func (g *RowGroup) each(field string, row func(k int) error) {
	for k := range g.Records {
		if g.Errs[k] == nil {
			if err := row(k); err != nil {
				g.Errs[k] = fmt.Errorf("field %q: %w", field, err)
			}
		}
	}
}

// noOperations refuses operations on fields of kinds that accept none.
func noOperations(w *Want) error {
	switch {
	case len(w.Out.Ops) > 0:
		return fmt.Errorf("output %q: field %q is %s, which takes no operations; operations work on images, masks and arrays", w.Out.Name, w.F.Name, w.F.Kind)
	case w.Out.Mask || w.Out.Follow != "":
		return fmt.Errorf("output %q: field %q is %s; mask and follow are for images and masks", w.Out.Name, w.F.Name, w.F.Kind)
	}
	return nil
}
