package pack

import (
	"encoding/json"
	"fmt"

	"github.com/stokerdata/stoker/pack/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
)

// This file is about packs without images (format version 2): records of
// numbers, text, arrays of one shape and bytes of any length, each field a
// column under its own name.

// Limits of fields of packs without images.
const (
	maxFields    = 64
	maxFieldName = 255
	maxTextBytes = 64 << 20
	// maxRecordBytes keeps a chunk of one record below maxChunkBytes.
	maxRecordBytes = 1 << 31
)

// far says whether the values of a field lie behind the head of a chunk.
func (f *Field) far() bool {
	return f.Kind == string(driver.KindArray) || f.Kind == KindBytes
}

// sourceFields makes columns of the fields of a source: the path where records
// have one, then text, then numbers, then what is large. of is the source's
// field of each column, -1 for the path.
func sourceFields(info *driver.Info, paths bool) (fields []Field, of []int, err error) {
	if paths {
		fields, of = append(fields, Field{Name: colPath, Kind: string(driver.KindText), Type: arrowipc.UTF8.String()}), append(of, -1)
	}
	order := []driver.Kind{driver.KindText, driver.KindLabel, driver.KindInt, driver.KindArray, driver.KindBytes}
	for k, kind := range order {
		for i := range info.Fields {
			f := &info.Fields[i]
			// Arrays and bytes stay in the order of the source.
			if f.Kind != kind && !(k == 3 && f.Kind == driver.KindBytes) || k == 4 {
				continue
			}
			out := Field{Name: f.Name, Kind: string(f.Kind), Classes: f.Classes}
			if f.Kind == driver.KindArray {
				out.DType, out.Shape = string(f.DType), append([]int{}, f.Shape...)
			}
			c, err := out.column()
			if err != nil {
				return nil, nil, fmt.Errorf("field %q: %w", f.Name, err)
			}
			out.Type = c.Type.String()
			fields, of = append(fields, out), append(of, i)
		}
	}
	if n := len(of); n < len(info.Fields) || paths && n < len(info.Fields)+1 {
		return nil, nil, fmt.Errorf("%s has a field of a kind that packs without images do not have", info.URL)
	}
	return fields, of, nil
}

// arrowTypes are the column types of the elements of arrays. Arrow packs
// booleans into bits; here they are bytes.
var arrowTypes = map[driver.DType]arrowipc.Type{
	driver.Bool: arrowipc.Uint8, driver.Uint8: arrowipc.Uint8, driver.Int8: arrowipc.Int8, driver.Uint16: arrowipc.Uint16, driver.Int16: arrowipc.Int16,
	driver.Uint32: arrowipc.Uint32, driver.Int32: arrowipc.Int32, driver.Uint64: arrowipc.Uint64, driver.Int64: arrowipc.Int64,
	driver.Float16: arrowipc.Float16, driver.Float32: arrowipc.Float32, driver.Float64: arrowipc.Float64,
}

// column is the field as the shards of a pack without images have it.
func (f *Field) column() (arrowipc.Column, error) {
	c := arrowipc.Column{Name: f.Name}
	switch driver.Kind(f.Kind) {
	case driver.KindText:
		c.Type = arrowipc.UTF8
	case driver.KindLabel, driver.KindInt:
		c.Type = arrowipc.Int64
	case driver.KindBytes:
		c.Type = arrowipc.LargeBinary
	case driver.KindArray:
		size, err := driver.ArrayBytes(driver.DType(f.DType), f.Shape)
		if err != nil {
			return c, err
		}
		elem := arrowTypes[driver.DType(f.DType)]
		if len(f.Shape) == 0 {
			c.Type = elem
			break
		}
		shape, err := json.Marshal(f.Shape)
		if err != nil {
			return c, err
		}
		c.Type, c.Elem, c.Size, c.Shape = arrowipc.FixedList, elem, int32(size/int64(elem.Width())), string(shape)
	default:
		return c, fmt.Errorf("kind %q is not known", f.Kind)
	}
	return c, nil
}

// checkRecordFields checks the fields of a pack without images.
func (m *Manifest) checkRecordFields() error {
	if len(m.Fields) == 0 || len(m.Fields) > maxFields {
		return fmt.Errorf("%d fields: a pack has 1 to %d", len(m.Fields), maxFields)
	}
	seen := map[string]bool{}
	far := false
	for i := range m.Fields {
		f := &m.Fields[i]
		switch {
		case f.Name == "" || len(f.Name) > maxFieldName:
			return fmt.Errorf("field %d has a name of %d bytes", i, len(f.Name))
		case seen[f.Name]:
			return fmt.Errorf("field %q is there twice", f.Name)
		case f.MaxBytes < 0 || f.Bytes < 0 || f.MaxBytes > maxRecordBytes:
			return fmt.Errorf("field %q has impossible statistics", f.Name)
		case far && !f.far():
			return fmt.Errorf("field %q stands behind the first array or bytes", f.Name)
		}
		c, err := f.column()
		if err != nil {
			return fmt.Errorf("field %q: %w", f.Name, err)
		}
		if f.Type != c.Type.String() {
			return fmt.Errorf("field %q has type %q, not %q", f.Name, f.Type, c.Type)
		}
		seen[f.Name] = true
		far = far || f.far()
	}
	return nil
}

// leastRowBytes is what a row needs in a chunk at the very least.
func (m *Manifest) leastRowBytes() int64 {
	if m.Version == Version {
		return minRowBytes
	}
	n := int64(0)
	cols := m.columns()
	for i := range cols {
		n += cols[i].Width() + cols[i].OffsetWidth()
	}
	return n
}

// bulk is the first column whose values are not part of the head of a chunk,
// -1 when all are.
func (m *Manifest) bulk() int {
	for i := range m.Fields {
		if m.Fields[i].Name == colImage && m.Version == Version || m.Version == RecordsVersion && m.Fields[i].far() {
			return i
		}
	}
	return -1
}
