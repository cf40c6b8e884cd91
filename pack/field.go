package pack

import (
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
)

// Field is a field of the records, which loaders request by its name.
type Field struct {
	Name string      `json:"name"`
	Kind driver.Kind `json:"kind"`
	// Classes are the names of class numbers, of labels and masks.
	Classes []string `json:"classes,omitempty"`
	// DType and Shape are the type of the elements and the shape of an array;
	// of a ragged one without its first axis. Masks and tokens have a DType.
	DType driver.DType `json:"dtype,omitempty"`
	Shape []int        `json:"shape,omitempty"`
	// Format is the format of boxes. Boxes is the name of the field of boxes to which the rows of this field belong.
	Format driver.BoxFormat `json:"format,omitempty"`
	Boxes  string           `json:"boxes,omitempty"`
	// Stored is true if positions or pixels refer to the stored image, before its orientation is applied.
	Stored bool `json:"stored,omitempty"`
	// Mask is true if the voxels of a volume are class numbers.
	Mask bool `json:"mask,omitempty"`
	// Columns are the columns of a table from which an array of one axis was made.
	Columns []driver.Column `json:"columns,omitempty"`
	// Frames is the size of the frames of clips.
	Frames *FrameSize `json:"frames,omitempty"`
	// Metadata is true if images have columns of EXIF data and colour profiles.
	Metadata bool `json:"metadata,omitempty"`
	// Stats are the statistics of all values.
	Stats driver.FieldStats `json:"stats"`
}

// Limits of fields.
const (
	maxFields    = 64
	maxFieldName = 255
	maxTextBytes = 64 << 20
	// maxValueBytes keeps Arrow's 32-bit offsets in range for any one record.
	maxValueBytes = 1 << 30
	// maxRecordBytes keeps a chunk of one record below maxChunkBytes.
	maxRecordBytes = 1 << 31
)

// role is the meaning of a leaf of a field's columns.
type role uint8

const (
	// roleValue is the value itself.
	roleValue role = iota
	// rolePath is the path that the value was read from.
	rolePath
	// The rest describes images and masks.
	roleCodec
	roleWidth
	roleHeight
	roleChannels
	roleDepth
	roleOrientation
	roleEXIF
	roleICC
	// roleSum is the checksum of a value that is not a number.
	roleSum
)

// leaf is a leaf of the columns of a pack.
type leaf struct {
	arrowipc.Leaf
	field int // -1 for the path of the record
	role  role
}

// sidecars are the additional columns of an image, by the suffix of their names.
var sidecars = []struct {
	suffix string
	role   role
	typ    arrowipc.Type
	mask   bool // masks have it, too
}{
	{"_codec", roleCodec, arrowipc.Uint8, true},
	{"_width", roleWidth, arrowipc.Int32, true},
	{"_height", roleHeight, arrowipc.Int32, true},
	{"_channels", roleChannels, arrowipc.Uint8, false},
	{"_depth", roleDepth, arrowipc.Uint8, false},
	{"_orientation", roleOrientation, arrowipc.Uint8, false},
}

// arrowTypes are the column types of the elements of arrays. Arrow packs
// booleans into bits; here they are bytes.
var arrowTypes = map[driver.DType]arrowipc.Type{
	driver.Bool: arrowipc.Uint8, driver.Uint8: arrowipc.Uint8, driver.Int8: arrowipc.Int8, driver.Uint16: arrowipc.Uint16, driver.Int16: arrowipc.Int16,
	driver.Uint32: arrowipc.Uint32, driver.Int32: arrowipc.Int32, driver.Uint64: arrowipc.Uint64, driver.Int64: arrowipc.Int64,
	driver.Float16: arrowipc.Float16, driver.Float32: arrowipc.Float32, driver.Float64: arrowipc.Float64,
}

// labelTypes are the column types of labels. Loaders convert all of them to int64.
var labelTypes = map[driver.DType]arrowipc.Type{"": arrowipc.Int64, driver.Uint8: arrowipc.Uint8, driver.Uint16: arrowipc.Uint16}

// number reports whether the values of a field are numbers, which the head of a chunk holds.
func (f *Field) number() bool {
	return f.Kind == driver.KindLabel || f.Kind == driver.KindInt || f.Kind == driver.KindFloat
}

// file reports whether the values of a field are files: they are stored together
// with their paths, as Hugging Face datasets has images and sounds.
func (f *Field) file() bool {
	return f.Kind == driver.KindImage || f.Kind == driver.KindMask || f.Kind == driver.KindAudio
}

// picture reports whether a field has a codec and a size for each value.
func (f *Field) picture() bool { return f.Kind == driver.KindImage || f.Kind == driver.KindMask }

// Encoded returns the name of the values of the field if they must be decoded, "" otherwise.
func (f *Field) Encoded() string {
	switch f.Kind {
	case driver.KindImage:
		return "image"
	case driver.KindMask:
		return "mask"
	case driver.KindAudio:
		return "recording"
	case driver.KindFrames:
		return "clip"
	}
	return ""
}

// element returns the element of an array with a DType and a Shape.
func (f *Field) element() (arrowipc.ColumnType, error) {
	if _, err := driver.ArrayBytes(f.DType, f.Shape); err != nil {
		return arrowipc.ColumnType{}, err
	}
	c := arrowipc.ColumnType{Type: arrowTypes[f.DType]}
	for _, side := range slices.Backward(f.Shape) {
		c = arrowipc.ListOf("", arrowipc.FixedList, int32(side), c)
	}
	return c, nil
}

// columns returns the columns of a field, and the roles of their leaves.
func (f *Field) columns() ([]arrowipc.ColumnType, []role, error) {
	one := func(t arrowipc.Type) ([]arrowipc.ColumnType, []role, error) {
		return []arrowipc.ColumnType{{Name: f.Name, Type: t}}, []role{roleValue}, nil
	}
	list := func(elem arrowipc.ColumnType) ([]arrowipc.ColumnType, []role, error) {
		return []arrowipc.ColumnType{arrowipc.ListOf(f.Name, arrowipc.LargeList, 0, elem)}, []role{roleValue}, nil
	}
	if f.file() {
		cols, roles := f.fileColumns()
		if f.Kind == driver.KindMask && f.DType != driver.Uint8 && f.DType != driver.Uint16 {
			return nil, nil, fmt.Errorf("a mask of %q: it has uint8 or uint16", f.DType)
		}
		return cols, roles, nil
	}
	switch f.Kind {
	case driver.KindLabel:
		if t, ok := labelTypes[f.DType]; ok {
			return one(t)
		}
		return nil, nil, fmt.Errorf("labels of %q: they have uint8, uint16 or, without a type, int64", f.DType)
	case driver.KindInt:
		return one(arrowipc.Int64)
	case driver.KindFloat:
		return one(arrowipc.Float64)
	case driver.KindText:
		return one(arrowipc.LargeUTF8)
	case driver.KindJSON:
		cols, roles, err := one(arrowipc.LargeUTF8)
		cols[0].Meta = []arrowipc.KeyValue{{Key: "ARROW:extension:name", Value: "arrow.json"}, {Key: "ARROW:extension:metadata", Value: ""}}
		return cols, roles, err
	case driver.KindBytes:
		return one(arrowipc.LargeBinary)
	case driver.KindMasks:
		if f.DType != driver.Uint8 {
			return nil, nil, fmt.Errorf("masks of %q: they have uint8", f.DType)
		}
		return one(arrowipc.LargeBinary)
	case driver.KindFrames:
		if err := f.checkFrames(); err != nil {
			return nil, nil, err
		}
		return one(arrowipc.LargeBinary)
	case driver.KindArray, driver.KindVolume:
		c, err := f.element()
		if err == nil && f.Kind == driver.KindVolume && len(f.Shape) < 3 {
			err = fmt.Errorf("a volume of shape %v: it has three axes or more", f.Shape)
		}
		c.Name = f.Name
		return []arrowipc.ColumnType{c}, []role{roleValue}, err
	case driver.KindRagged, driver.KindBoxes, driver.KindKeyPoints:
		if err := f.checkBoxes(); err != nil {
			return nil, nil, err
		}
		elem, err := f.element()
		if err != nil {
			return nil, nil, err
		}
		return list(elem)
	case driver.KindMultiLabel:
		return list(arrowipc.ColumnType{Type: arrowipc.Int64})
	case driver.KindTokens:
		if len(f.Shape) > 0 || f.DType != driver.Uint16 && f.DType != driver.Uint32 {
			return nil, nil, fmt.Errorf("tokens of %q: they have uint16 or uint32", f.DType)
		}
		return list(arrowipc.ColumnType{Type: arrowTypes[f.DType]})
	}
	return nil, nil, fmt.Errorf("kind %q is not known: use a newer stoker", f.Kind)
}

// checkColumns checks an array made of columns in a manifest.
func (f *Field) checkColumns() error {
	switch {
	case f.Columns == nil:
		return nil
	case f.Kind != driver.KindArray || len(f.Shape) != 1:
		return fmt.Errorf("%s %v is not made of columns of a table: an array of one axis can be", f.Kind, f.Shape)
	}
	return driver.CheckColumns(f.Columns, f.Shape[0])
}

// fileColumns returns the columns of a field of files: a struct of bytes and path, and the columns that describe
// pictures.
func (f *Field) fileColumns() (cols []arrowipc.ColumnType, roles []role) {
	cols = append(cols, arrowipc.ColumnType{Name: f.Name, Type: arrowipc.Struct, Children: []arrowipc.ColumnType{
		{Name: "bytes", Type: arrowipc.Binary}, {Name: "path", Type: arrowipc.UTF8},
	}})
	roles = append(roles, roleValue, rolePath)
	if !f.picture() {
		return cols, roles
	}
	for _, s := range sidecars {
		if f.Kind == driver.KindImage || s.mask {
			cols, roles = append(cols, arrowipc.ColumnType{Name: f.Name + s.suffix, Type: s.typ}), append(roles, s.role)
		}
	}
	if f.Metadata {
		cols = append(cols, arrowipc.ColumnType{Name: f.Name + "_exif", Type: arrowipc.Binary}, arrowipc.ColumnType{Name: f.Name + "_icc", Type: arrowipc.Binary})
		roles = append(roles, roleEXIF, roleICC)
	}
	return cols, roles
}

// rowBytes returns the size of an element of the field's list, or of the value of an array.
func (f *Field) rowBytes() int64 {
	switch f.Kind {
	case driver.KindMultiLabel:
		return 8
	case driver.KindArray, driver.KindVolume, driver.KindRagged, driver.KindTokens, driver.KindBoxes, driver.KindKeyPoints:
		n, _ := driver.ArrayBytes(f.DType, f.Shape)
		return n
	}
	return 1
}

// schema is the fields as columns.
type schema struct {
	fields []Field
	cols   []arrowipc.ColumnType
	leaves []leaf
	first  []int // the leaf of the value of each field
}

// colPath is the column of the paths of records whose fields have no paths.
const colPath = "path"

// newSchema creates the columns of fields, followed by a column of the records' paths if paths is true. It checks the
// fields of a manifest.
func newSchema(fields []Field, paths bool) (*schema, error) {
	if len(fields) == 0 || len(fields) > maxFields {
		return nil, fmt.Errorf("%d fields: a pack has 1 to %d", len(fields), maxFields)
	}
	s := &schema{fields: fields}
	owner := map[string]string{}
	claim := func(column, field string) error {
		if o, ok := owner[column]; ok && o == field {
			return fmt.Errorf("field %q is there twice", field)
		} else if ok {
			return fmt.Errorf("field %q needs a column %q, which field %q has: give one of them another name", field, column, o)
		}
		owner[column] = field
		return nil
	}
	for i := range fields {
		f := &fields[i]
		if f.Name == "" || len(f.Name) > maxFieldName {
			return nil, fmt.Errorf("field %d has a name of %d bytes, it must have 1 to %d", i, len(f.Name), maxFieldName)
		}
		cols, roles, err := f.columns()
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", f.Name, err)
		}
		if !f.number() {
			cols, roles = append(cols, arrowipc.ColumnType{Name: f.Name + "_xxh3", Type: arrowipc.Uint32}), append(roles, roleSum)
		}
		for _, c := range cols {
			if err := claim(c.Name, f.Name); err != nil {
				return nil, err
			}
		}
		if err := f.checkColumns(); err != nil {
			return nil, fmt.Errorf("field %q: %w", f.Name, err)
		}
		if err := belongs(fields, f); err != nil {
			return nil, err
		}
		s.first = append(s.first, len(s.leaves))
		if err := s.add(cols, roles, i); err != nil {
			return nil, err
		}
	}
	if paths {
		if err := claim(colPath, colPath); err != nil {
			return nil, err
		}
		return s, s.add([]arrowipc.ColumnType{{Name: colPath, Type: arrowipc.UTF8}}, []role{rolePath}, -1)
	}
	return s, nil
}

func (s *schema) add(cols []arrowipc.ColumnType, roles []role, field int) error {
	leaves, err := arrowipc.Leaves(cols)
	if err != nil {
		return err
	}
	s.cols = append(s.cols, cols...)
	for k, l := range leaves {
		s.leaves = append(s.leaves, leaf{l, field, roles[k]})
	}
	return nil
}

// find returns the leaf of a field that has a role, -1 when there is none.
func (s *schema) find(field int, r role) int {
	for i := range s.leaves {
		if l := &s.leaves[i]; l.field == field && l.role == r {
			return i
		}
	}
	return -1
}

// inTail reports whether a leaf is stored after the bulk. Loaders never read such leaves.
func (l *leaf) inTail() bool { return l.role == rolePath || l.role == roleEXIF || l.role == roleICC }

// number reports whether a leaf has one number per record, stored in the head.
func (s *schema) number(i int) bool {
	l := &s.leaves[i]
	switch l.role {
	case roleValue:
		return s.fields[l.field].number()
	case rolePath, roleEXIF, roleICC:
		return false
	}
	return true
}

// leastRowBytes returns the minimum number of bytes of a row in a chunk.
func (s *schema) leastRowBytes() int64 {
	n := int64(0)
	for i := range s.leaves {
		if l := &s.leaves[i]; l.OffsetWidth > 0 {
			n += l.OffsetWidth
		} else {
			n += l.Width
		}
	}
	return n
}
