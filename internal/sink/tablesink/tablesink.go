// Package tablesink writes text tables with one line per record: JSON Lines, CSV or TSV. Images,
// sounds and bytes are files next to the table, and the table has their paths.
package tablesink

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/sink/files"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// JSONL returns the format with one JSON object per line.
func JSONL() *sinkdriver.Format {
	return format("jsonl", "a JSON object on each line", ".jsonl", ".ndjson")
}

// CSV returns the format of comma-separated values.
func CSV() *sinkdriver.Format { return format("csv", "comma-separated values", ".csv") }

// TSV returns the format of tab-separated values.
func TSV() *sinkdriver.Format { return format("tsv", "values between tabs", ".tsv") }

func format(name, about string, ext ...string) *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: name, About: about + "; images and sounds are files next to it", Ext: ext, File: true, Folder: true, Sharded: true, ShardBytes: 1 << 30,
		Open: func(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) { return open(out, name, ext[0]) },
	}
}

type sink struct {
	files.Rows
	dir    string
	json   bool
	comma  byte
	fields []field
	failed atomic.Pointer[error] // of a file next to the table
}

type field struct {
	sinkdriver.Field
	key   []byte // "name":
	t     dtype.Type
	shape []int // with 0 for a first axis that differs per record
	file  bool
}

func open(out *sinkdriver.Out, name, ext string) (sinkdriver.Sink, error) {
	s := &sink{Rows: files.NewRows(out, ext), dir: out.Dir, json: name == "jsonl", comma: ','}
	if name == "tsv" {
		s.comma = '\t'
	}
	for i := range out.Fields {
		f := field{Field: out.Fields[i]}
		f.key = append(appendString(nil, []byte(f.Name)), ':')
		f.file = f.Picture() || f.Kind == driver.KindAudio || f.Kind == driver.KindBytes
		if f.file {
			if out.File != "" {
				return nil, sinkdriver.Cannot("a table", &f.Field, "its values are files: write a folder, %s:%s/", name, strings.TrimSuffix(out.File, filepath.Ext(out.File)))
			}
			if strings.ContainsAny(f.Name, "/\\\x00") || strings.HasPrefix(f.Name, ".") || strings.HasSuffix(f.Name, ext) {
				return nil, sinkdriver.Cannot("a table", &f.Field, "its name is the name of a folder: give another one with --field NEWNAME=%s", f.Name)
			}
			if err := os.Mkdir(filepath.Join(out.Dir, f.Name), 0o777); err != nil {
				return nil, err
			}
		}
		if f.Masks {
			return nil, sinkdriver.Cannot("a table", &f.Field, "the pixels of masks do not fit into cells of text; write .parquet, .h5 or .npz")
		}
		if t, shape, ragged, ok := f.Elements(); ok {
			f.t = t.Type()
			if ragged {
				f.shape = append(f.shape, 0)
			}
			f.shape = append(f.shape, shape...)
		}
		if i > 0 && !s.json {
			s.Begin = append(s.Begin, s.comma)
		}
		s.Begin = s.cell(s.Begin, []byte(f.Name))
		s.fields = append(s.fields, f)
	}
	s.Begin = append(s.Begin, '\n')
	if s.json {
		s.Begin = nil
	}
	return s, nil
}

// Encode implements sinkdriver.Encoder. It also writes the files of the record.
func (s *sink) Encode(b []byte, rec *sinkdriver.Record) ([]byte, error) {
	if s.json {
		b = append(b, '{')
	}
	var text []byte
	for i := range s.fields {
		f, v := &s.fields[i], &rec.Values[i]
		switch {
		case i > 0 && s.json:
			b = append(b, ',')
		case i > 0:
			b = append(b, s.comma)
		}
		if s.json {
			b = append(b, f.key...)
		}
		from := len(b)
		switch {
		case f.file:
			name, err := s.file(f, rec, v)
			if err != nil {
				return nil, err
			}
			b = s.text(b, []byte(name))
		case f.Kind == driver.KindText:
			b = s.text(b, v.Bytes)
		case f.Kind == driver.KindJSON && s.json:
			var err error
			if b, err = appendCompact(b, v.Bytes); err != nil {
				return nil, fmt.Errorf("field %q is not valid JSON: %w", f.Name, err)
			}
		case f.Kind == driver.KindJSON:
			b = s.text(b, v.Bytes)
		case f.Kind == driver.KindLabel:
			b = s.class(b, f, v.Int)
		case f.Kind == driver.KindInt:
			b = strconv.AppendInt(b, v.Int, 10)
		case f.Kind == driver.KindFloat:
			b = s.float(b, v.Float, 64)
		case s.json:
			b, _ = s.array(b, f, v.Bytes, f.shape)
		default: // CSV and TSV cells: the JSON text
			text, _ = s.array(text[:0], f, v.Bytes, f.shape)
			b = s.cell(b, text)
		}
		if len(s.fields) == 1 && len(b) == from {
			b = append(b, `""`...) // an empty line would be no record
		}
	}
	if s.json {
		b = append(b, '}')
	}
	return append(b, '\n'), nil
}

// file writes a value to a file next to the table and returns its path.
func (s *sink) file(f *field, rec *sinkdriver.Record, v *sinkdriver.Value) (string, error) {
	ext := v.Ext
	if f.Kind == driver.KindBytes {
		ext = ".bin"
	}
	name := fmt.Sprintf("%s/%09d%s", f.Name, rec.ID, ext)
	err := os.WriteFile(filepath.Join(s.dir, name), v.Bytes, 0o666)
	if err != nil {
		s.failed.Store(&err)
	}
	return name, err
}

// Write implements sinkdriver.Sink. If a file next to the table cannot be written, the run fails: an error of Encode
// would only skip the record.
func (s *sink) Write(ctx context.Context, recs []sinkdriver.Record) error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return s.Rows.Write(ctx, recs)
}

// text appends text, with quotes if they are needed.
func (s *sink) text(b, text []byte) []byte {
	if s.json {
		return appendString(b, text)
	}
	return s.cell(b, text)
}

// class appends the name of a class, or its number if it has no name.
func (s *sink) class(b []byte, f *field, n int64) []byte {
	if n >= 0 && n < int64(len(f.Classes)) {
		return s.text(b, []byte(f.Classes[n]))
	}
	return strconv.AppendInt(b, n, 10)
}

// float appends a number. Numbers that are not finite become null in JSON.
func (s *sink) float(b []byte, x float64, bits int) []byte {
	if s.json && (math.IsNaN(x) || math.IsInf(x, 0)) {
		return append(b, "null"...)
	}
	if math.IsInf(x, 0) {
		return append(b, map[bool]string{true: "inf", false: "-inf"}[x > 0]...)
	}
	return strconv.AppendFloat(b, x, 'g', -1, bits)
}

// array appends elements as nested lists, and returns the bytes after them. A side of 0 stands for
// all remaining rows.
func (s *sink) array(b []byte, f *field, p []byte, shape []int) ([]byte, []byte) {
	if len(shape) == 0 {
		return s.element(b, f, p), p[f.t.Size():]
	}
	b = append(b, '[')
	for i := 0; i < shape[0] || shape[0] == 0 && len(p) > 0; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		b, p = s.array(b, f, p, shape[1:])
	}
	return append(b, ']'), p
}

func (s *sink) element(b []byte, f *field, p []byte) []byte {
	switch {
	case f.Kind == driver.KindMultiLabel:
		n := f.t.Int(p)
		if n >= 0 && n < int64(len(f.Classes)) {
			return appendString(b, []byte(f.Classes[n]))
		}
		return strconv.AppendInt(b, n, 10)
	case f.t == dtype.Bool:
		return strconv.AppendBool(b, p[0] != 0)
	case f.t == dtype.U64:
		return strconv.AppendUint(b, f.t.Bits(p), 10)
	case f.t == dtype.F64:
		return s.finite(b, f.t.Float(p), 64)
	case f.t.Floating():
		return s.finite(b, f.t.Float(p), 32)
	}
	return strconv.AppendInt(b, f.t.Int(p), 10)
}

// finite appends an array element. Arrays are JSON in every format.
func (s *sink) finite(b []byte, x float64, bits int) []byte {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, x, 'g', -1, bits)
}

// cell appends a cell of CSV or TSV, with quotes if they are needed.
func (s *sink) cell(b, text []byte) []byte {
	if !bytes.ContainsAny(text, "\"\r\n") && bytes.IndexByte(text, s.comma) < 0 &&
		(len(text) == 0 || text[0] != ' ' && text[len(text)-1] != ' ') {
		return append(b, text...)
	}
	b = append(b, '"')
	for _, c := range text {
		if c == '"' {
			b = append(b, '"')
		}
		b = append(b, c)
	}
	return append(b, '"')
}

// appendString appends text as a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(b, text []byte) []byte {
	b = append(b, '"')
	for len(text) > 0 {
		c := text[0]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c < 0x20 || c == 0x7F:
			b = fmt.Appendf(b, "\\u%04x", c)
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRune(text)
			if r == '\u2028' || r == '\u2029' { // some readers treat these as the end of a line
				b = fmt.Appendf(b, "\\u%04x", r)
			} else {
				b = utf8.AppendRune(b, r)
			}
			text = text[n:]
			continue
		}
		text = text[1:]
	}
	return append(b, '"')
}

// appendCompact appends JSON without line breaks.
func appendCompact(b, text []byte) ([]byte, error) {
	buf := bytes.NewBuffer(b)
	if err := json.Compact(buf, text); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
