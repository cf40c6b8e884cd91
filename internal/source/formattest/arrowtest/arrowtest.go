// Package arrowtest writes Arrow tables with the library of the Arrow project, for tests.
package arrowtest

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/stokerdata/stoker/source/drivertest"
)

var (
	// File is the type of a column of files, as datasets writes it.
	File = arrow.StructOf(arrow.Field{Name: "bytes", Type: arrow.BinaryTypes.Binary, Nullable: true}, arrow.Field{Name: "path", Type: arrow.BinaryTypes.String, Nullable: true})
	// Fields are columns of many types.
	Fields = []arrow.Field{
		{Name: "image", Type: File},
		{Name: "label", Type: arrow.PrimitiveTypes.Int64},
		{Name: "caption", Type: arrow.BinaryTypes.LargeString},
		{Name: "small", Type: arrow.PrimitiveTypes.Uint8},
		{Name: "score", Type: arrow.PrimitiveTypes.Float32},
		{Name: "ok", Type: arrow.FixedWidthTypes.Boolean},
		{Name: "blob", Type: arrow.BinaryTypes.LargeBinary},
		{Name: "box", Type: arrow.FixedSizeListOf(4, arrow.PrimitiveTypes.Float32)},
		{Name: "ids", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32)},
		{Name: "grid", Type: arrow.LargeListOf(arrow.ListOf(arrow.PrimitiveTypes.Uint16))},
		{Name: "boxes", Type: arrow.ListOf(arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float64))},
		{Name: "in", Type: arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int16}, arrow.Field{Name: "tags", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)})},
	}
	// HuggingFace is the metadata that Hugging Face datasets writes for Fields.
	HuggingFace = `{"info": {"features": {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog", "eel"], "_type": "ClassLabel"},
		"in": {"x": {"dtype": "int16", "_type": "Value"}, "tags": {"feature": {"names": ["p", "q"], "_type": "ClassLabel"}, "_type": "List"}}}}}`
	// PNG is a picture in base64.
	PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)

// Rows returns rows of Fields as JSON.
func Rows(from, to int) string {
	var out []string
	for i := from; i < to; i++ {
		ids := strings.TrimSuffix(strings.Repeat(fmt.Sprint(i, ","), i%4), ",")
		boxes := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("[%d.5, 1],", i), i%3), ",")
		out = append(out, fmt.Sprintf(`{"image": {"bytes": "%s", "path": "%d.png"}, "label": %d, "caption": "%s", "small": %d, "score": %d.25, "ok": %v, "blob": "AAEC",
			"box": [%d, 1, 2, 3], "ids": [%s], "grid": [[%d, 1], [2, 3], [4, 5]], "boxes": [%s], "in": {"x": %d, "tags": [1, 0]}}`,
			PNG, i, i%3, strings.Repeat("é", i%5), i%256, i, i%2 == 0, i, ids, i, boxes, -i))
	}
	return "[" + strings.Join(out, ",") + "]"
}

// Table writes record batches of JSON rows, as a file or a stream.
func Table(t testing.TB, stream bool, fields []arrow.Field, meta string, batches []string, opt ...ipc.Option) []byte {
	t.Helper()
	for i := range fields {
		fields[i].Nullable = true
	}
	var md *arrow.Metadata
	if meta != "" {
		m := arrow.NewMetadata([]string{"huggingface"}, []string{meta})
		md = &m
	}
	schema := arrow.NewSchema(fields, md)
	var out bytes.Buffer
	var w interface {
		Write(arrow.RecordBatch) error
		io.Closer
	}
	var err error
	opt = append(opt, ipc.WithSchema(schema))
	if w = ipc.NewWriter(&out, opt...); !stream {
		if w, err = ipc.NewFileWriter(&out, opt...); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range batches {
		rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
		rec.Release()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Saved returns a folder in the layout of save_to_disk, with a file that does not belong to it.
func Saved(t testing.TB) string {
	dir := t.TempDir()
	drivertest.Put(t, dir, "data-00000-of-00002.arrow", Table(t, true, Fields, HuggingFace, []string{Rows(0, 7), Rows(7, 20)}))
	drivertest.Put(t, dir, "data-00001-of-00002.arrow", Table(t, true, Fields, HuggingFace, []string{Rows(20, 21), "[]", Rows(21, 41)}))
	drivertest.Put(t, dir, "cache-0123.arrow", []byte("of something else"))
	drivertest.Put(t, dir, "dataset_info.json", []byte("{}"))
	drivertest.Put(t, dir, "state.json", []byte(`{"_data_files": [{"filename": "data-00000-of-00002.arrow"}, {"filename": "data-00001-of-00002.arrow"}]}`))
	return dir
}
