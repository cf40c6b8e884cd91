// Package quickstart looks at a dataset, chooses what a small model can learn from it, measures how
// fast its records can be loaded, and writes a training script.
//
// Read Look (what the data is), steps.go (the transforms of a loader) and script.go (the program).
package quickstart

import (
	"context"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

// A Task is what the script trains.
type Task string

// The tasks.
const (
	Classify    Task = "classify"    // a class for each input
	Segment     Task = "segment"     // a class for each pixel or voxel
	Detect      Task = "detect"      // boxes in images
	Table       Task = "table"       // one column from the others
	Language    Task = "language"    // the next token or byte
	Reconstruct Task = "reconstruct" // the input itself
	Read        Task = "read"        // nothing: the script reads the records
)

// says describes each task.
var says = map[Task]string{
	Classify:    "tell the classes apart",
	Segment:     "find the class of each pixel",
	Detect:      "find the objects",
	Table:       "predict one column from the others",
	Language:    "predict the next token",
	Reconstruct: "compress the data and restore it",
	Read:        "read the records: they have nothing that a small model could learn",
}

// Data is a dataset, with the task that a script has for it.
type Data struct {
	// URL is what the user wrote.
	URL string
	driver.Info
	// Bytes is the size of its files, 0 if not known.
	Bytes int64
	Task  Task
	// X and Y are the fields that the model gets and learns. Labels is the field with the classes of the boxes in Y.
	X, Y, Labels *driver.Field
}

// Says describes the task in a few words.
func (d *Data) Says() string {
	text := says[d.Task]
	if d.Task == Language && d.X.Kind == driver.KindText {
		text = "predict the next byte of a text"
	}
	if d.Y != nil && d.Task == Table {
		text = "predict " + d.Y.Name + " from the other columns"
	}
	return text
}

// Look opens the dataset at url and closes it again.
func Look(ctx context.Context, url string) (*Data, error) {
	src, err := source.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	d := &Data{URL: url, Info: *src.Info()}
	for i := range d.Objects {
		d.Bytes += src.Object(i).Entry.Size
	}
	d.choose()
	return d, nil
}

// remote reports whether the data is not in local files.
func (d *Data) remote() bool { return stores.IsURL(d.URL) }

// first returns the first field of one of the kinds, in the order of the kinds, nil if there is none.
func (d *Data) first(kinds ...driver.Kind) *driver.Field {
	for _, k := range kinds {
		if i := slices.IndexFunc(d.Fields, func(f driver.Field) bool { return f.Kind == k && !f.Mask }); i >= 0 {
			return &d.Fields[i]
		}
	}
	return nil
}

// choose sets the task and its fields.
func (d *Data) choose() {
	d.X = d.first(driver.KindImage, driver.KindFrames, driver.KindVolume, driver.KindAudio, driver.KindTokens)
	label := d.label()
	switch boxes, mask := d.first(driver.KindBoxes), d.first(driver.KindMask); {
	case d.X == nil:
		d.chooseRows(label)
	case d.X.Kind == driver.KindTokens:
		d.Task = Language
	case d.X.Kind == driver.KindImage && boxes != nil:
		d.Task, d.Y = Detect, boxes
		for i := range d.Fields {
			if f := &d.Fields[i]; f.Boxes == boxes.Name && f.Classes != nil {
				d.Labels = f
			}
		}
	case d.X.Kind == driver.KindImage && mask != nil:
		d.Task, d.Y = Segment, mask
	case d.X.Kind == driver.KindVolume && d.maskVolume() != nil:
		d.Task, d.Y = Segment, d.maskVolume()
	case label != nil:
		d.Task, d.Y = Classify, label
	default:
		d.Task = Reconstruct
	}
}

// chooseRows is for data without a large field: tables, texts and arrays.
func (d *Data) chooseRows(label *driver.Field) {
	columns := 0
	for i := range d.Fields {
		if isColumn(&d.Fields[i]) {
			columns++
		}
	}
	array := d.first(driver.KindArray)
	switch {
	case array != nil && len(array.Shape) > 0 && label != nil:
		d.Task, d.X, d.Y = Classify, array, label
	case columns > 1:
		d.Task, d.Y = Table, d.target(label)
	case d.first(driver.KindText) != nil:
		d.Task, d.X = Language, d.first(driver.KindText)
	case array != nil && len(array.Shape) > 0:
		d.Task, d.X = Reconstruct, array
	default:
		d.Task = Read
		if len(d.Fields) > 0 {
			d.X = &d.Fields[0]
		}
	}
}

// isColumn reports whether a field is one number of each record.
func isColumn(f *driver.Field) bool {
	switch f.Kind {
	case driver.KindInt, driver.KindFloat, driver.KindLabel:
		return true
	case driver.KindArray:
		return len(f.Shape) == 0
	}
	return false
}

// targets are names that people give the column to predict.
var targets = []string{"label", "labels", "target", "class", "y", "species", "category", "outcome", "price"}

// label returns the field with the class of each record, nil if there is none.
func (d *Data) label() *driver.Field {
	if f := d.first(driver.KindLabel); f != nil {
		return f
	}
	for i := range d.Fields {
		if f := &d.Fields[i]; f.Kind == driver.KindInt && slices.Contains(targets[:5], strings.ToLower(f.Name)) {
			return f
		}
	}
	return nil
}

// maskVolume returns the volume with class numbers, nil if there is none.
func (d *Data) maskVolume() *driver.Field {
	for i := range d.Fields {
		if f := &d.Fields[i]; f.Kind == driver.KindVolume && f.Mask {
			return f
		}
	}
	return nil
}

// target returns the column of a table that is predicted: a label, a column with a usual name, or the last number.
func (d *Data) target(label *driver.Field) *driver.Field {
	if label != nil {
		return label
	}
	var last *driver.Field
	for i := range d.Fields {
		f := &d.Fields[i]
		known := slices.Contains(targets, strings.ToLower(f.Name))
		if known && (isColumn(f) || f.Kind == driver.KindText) {
			return f
		}
		if isColumn(f) {
			last = f
		}
	}
	return last
}

// classes is the number of classes of the target, 0 if not known.
func (d *Data) classes() int {
	switch {
	case d.Labels != nil:
		return len(d.Labels.Classes)
	case d.Y != nil:
		return len(d.Y.Classes)
	}
	return 0
}

// batch is a batch size for a small model: enough batches in an epoch, and few enough records at a time.
func (d *Data) batch() int64 {
	n := int64(64)
	if d.Task == Table {
		n = 256
	}
	if d.X != nil && (d.X.Kind == driver.KindFrames || d.X.Kind == driver.KindVolume) {
		n = 4
	}
	if d.Task == Detect || d.Task == Segment {
		n = min(n, 16)
	}
	for n > 1 && n*4 > d.Len {
		n /= 2
	}
	return n
}
