// Package features maps fields to the features of Hugging Face datasets and to the Arrow columns
// that hold them. The Arrow and Parquet sinks share it.
package features

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

var types = map[driver.DType]arrowipc.Type{
	driver.Bool: arrowipc.Uint8, driver.Uint8: arrowipc.Uint8, driver.Int8: arrowipc.Int8, driver.Uint16: arrowipc.Uint16, driver.Int16: arrowipc.Int16,
	driver.Uint32: arrowipc.Uint32, driver.Int32: arrowipc.Int32, driver.Uint64: arrowipc.Uint64, driver.Int64: arrowipc.Int64,
	driver.Float16: arrowipc.Float16, driver.Float32: arrowipc.Float32, driver.Float64: arrowipc.Float64,
}

// IsFile reports whether values are files. A file is stored in a struct with its path.
func IsFile(f *sinkdriver.Field) bool { return f.Picture() || f.Kind == driver.KindAudio }

// ArrowColumn returns the Arrow column of a field.
func ArrowColumn(f *sinkdriver.Field) arrowipc.ColumnType {
	c := arrowipc.ColumnType{Name: f.Name}
	if t, shape, ragged, ok := f.Elements(); ok {
		c.Type = types[t]
		for _, side := range slices.Backward(shape) {
			c = arrowipc.ListOf("", arrowipc.FixedList, int32(side), c)
		}
		if ragged {
			c = arrowipc.ListOf("", arrowipc.List, 0, c)
		}
		c.Name = f.Name
		return c
	}
	switch {
	case IsFile(f):
		c.Type = arrowipc.Struct
		c.Children = []arrowipc.ColumnType{{Name: "bytes", Type: arrowipc.Binary}, {Name: "path", Type: arrowipc.UTF8}}
	case f.Kind == driver.KindFloat:
		c.Type = arrowipc.Float64
	case f.Number():
		c.Type = arrowipc.Int64
	case f.Kind == driver.KindBytes:
		c.Type = arrowipc.Binary
	default:
		c.Type = arrowipc.UTF8
	}
	return c
}

// feature is the JSON description of a feature in datasets.
type feature struct {
	Names   []string `json:"names,omitempty"`
	Feature *feature `json:"feature,omitempty"`
	Type    string   `json:"_type"`
}

// Meta returns the metadata of a schema: the properties of fields that the columns do not show.
func Meta(fields []sinkdriver.Field) []arrowipc.KeyValue {
	all := map[string]*feature{}
	for i := range fields {
		f := &fields[i]
		switch {
		case f.Picture():
			all[f.Name] = &feature{Type: "Image"}
		case f.Kind == driver.KindAudio:
			all[f.Name] = &feature{Type: "Audio"}
		case f.Kind == driver.KindLabel && len(f.Classes) > 0:
			all[f.Name] = &feature{Type: "ClassLabel", Names: f.Classes}
		case f.Kind == driver.KindMultiLabel && len(f.Classes) > 0:
			all[f.Name] = &feature{Type: "List", Feature: &feature{Type: "ClassLabel", Names: f.Classes}}
		}
	}
	if len(all) == 0 {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(map[string]any{"info": map[string]any{"features": all}}) != nil {
		return nil
	}
	return []arrowipc.KeyValue{{Key: "huggingface", Value: strings.TrimSpace(b.String())}}
}

// Path returns the path to store with a file: its name in the source, with the extension of its
// current format.
func Path(v *sinkdriver.Value) string {
	if v.Path == "" {
		return ""
	}
	p := strings.ToValidUTF8(v.Path, "\uFFFD")
	if ext := path.Ext(p); strings.EqualFold(ext, v.Ext) || v.Ext == ".jpg" && strings.EqualFold(ext, ".jpeg") {
		return p
	} else if slices.Contains(driver.ImageExtensions, strings.ToLower(ext)) {
		p = strings.TrimSuffix(p, ext)
	}
	return p + v.Ext
}

// Text returns b as valid UTF-8.
func Text(b []byte) []byte { return bytes.ToValidUTF8(b, []byte("\uFFFD")) }
