package pack

import (
	"fmt"

	"github.com/stokerdata/stoker/pack/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
)

// The columns, in the order of the shards. The small ones come first and the
// images after them, so that one read of the beginning of a chunk is its index.
// What the loader never touches comes last.
const (
	colPath        = "path"
	colLabel       = "label"
	colWidth       = "width"
	colHeight      = "height"
	colOrientation = "orientation"
	colCodec       = "codec"
	colImage       = "image"
	colExif        = "exif"
	colICC         = "icc"
)

// minRowBytes is what a row needs at the very least: an offset of the image
// and one of the path, width, height, orientation and codec.
const minRowBytes = 4 + 4 + 4 + 4 + 1 + 1

type columnSpec struct {
	kind string
	typ  arrowipc.Type
	// needed columns are in every pack.
	needed bool
}

var columnSpecs = map[string]columnSpec{
	colPath:        {string(driver.KindText), arrowipc.UTF8, true},
	colLabel:       {string(driver.KindLabel), arrowipc.Int64, false},
	colWidth:       {string(driver.KindInt), arrowipc.Int32, true},
	colHeight:      {string(driver.KindInt), arrowipc.Int32, true},
	colOrientation: {string(driver.KindInt), arrowipc.Uint8, true},
	colCodec:       {KindCodec, arrowipc.Uint8, true},
	colImage:       {string(driver.KindImage), arrowipc.Binary, true},
	colExif:        {KindBytes, arrowipc.Binary, false},
	colICC:         {KindBytes, arrowipc.Binary, false},
}

// columnNames lists the columns of a pack with or without labels and metadata.
func columnNames(labels, metadata bool) []string {
	names := []string{colPath}
	if labels {
		names = append(names, colLabel)
	}
	names = append(names, colWidth, colHeight, colOrientation, colCodec, colImage)
	if metadata {
		names = append(names, colExif, colICC)
	}
	return names
}

func newFields(labels, metadata bool, classes []string) []Field {
	var fields []Field
	for _, name := range columnNames(labels, metadata) {
		f := Field{Name: name, Kind: columnSpecs[name].kind, Type: columnSpecs[name].typ.String()}
		if name == colLabel {
			f.Classes = classes
		}
		fields = append(fields, f)
	}
	return fields
}

func (m *Manifest) checkFields() error {
	if m.Version == RecordsVersion {
		return m.checkRecordFields()
	}
	seen := map[string]bool{}
	for _, f := range m.Fields {
		spec, ok := columnSpecs[f.Name]
		switch {
		case !ok:
			return fmt.Errorf("unknown field %q", f.Name)
		case seen[f.Name]:
			return fmt.Errorf("field %q is there twice", f.Name)
		case f.Kind != spec.kind || f.Type != spec.typ.String():
			return fmt.Errorf("field %q has kind %q and type %q, not %q and %q", f.Name, f.Kind, f.Type, spec.kind, spec.typ)
		}
		seen[f.Name] = true
	}
	for name, spec := range columnSpecs {
		if spec.needed && !seen[name] {
			return fmt.Errorf("field %q is missing", name)
		}
	}
	im := m.image().Images
	if im == nil {
		return fmt.Errorf("field %q has no statistics", colImage)
	}
	if im.MinWidth < 0 || im.MinHeight < 0 || im.MaxWidth < im.MinWidth || im.MaxHeight < im.MinHeight || im.MaxBytes < 0 {
		return fmt.Errorf("field %q has impossible statistics", colImage)
	}
	for name, n := range im.CodecNumbers {
		if codecNames[driver.Codec(n)] != name {
			return fmt.Errorf("image codec %q with number %d is not known: use a newer stoker", name, n)
		}
	}
	return nil
}
