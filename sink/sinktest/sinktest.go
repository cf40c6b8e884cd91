// Package sinktest has a dataset with all kinds of fields, for the tables of formats in package sink and package source.
package sinktest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

// Kinds are all kinds of fields.
var Kinds = []driver.Kind{
	driver.KindImage, driver.KindLabel, driver.KindInt, driver.KindText, driver.KindArray, driver.KindBytes, driver.KindMask, driver.KindMultiLabel,
	driver.KindFloat, driver.KindJSON, driver.KindRagged, driver.KindAudio, driver.KindTokens, driver.KindBoxes,
}

// Dataset is a dataset in memory.
type Dataset struct {
	driver.InMemory
	// Bad has the errors of records that cannot be read.
	Bad map[int64]error
	// Reading is called before a record is read, if it is set.
	Reading func(id int64)

	info driver.Info
	rows [][]driver.Value
}

// Info implements driver.Source.
func (s *Dataset) Info() *driver.Info { return &s.info }

// Parse implements driver.Source.
func (s *Dataset) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		if s.Reading != nil {
			s.Reading(id)
		}
		if err := s.Bad[id]; err != nil {
			g.Records[k].Err = err
			continue
		}
		copy(g.Records[k].Values, s.rows[id])
	}
	return nil
}

// Name implements driver.Source.
func (s *Dataset) Name(id int64) string { return fmt.Sprintf("record %d", id) }

// Path implements driver.Pather.
func (s *Dataset) Path(id int64, field int) string {
	if s.info.Fields[field].Kind != driver.KindImage {
		return ""
	}
	return fmt.Sprintf("%s/photo %d.jpeg", Classes[id%int64(len(Classes))], id)
}

// Close implements driver.Source.
func (s *Dataset) Close() error { return nil }

// Classes are the classes of the label field.
var Classes = []string{"ant", "bee, \"large\"", "cät"}

// Rows is the number of records of Source.
const Rows = 40

// Source returns a dataset with one field per kind, named after the kind. For KindArray it has one
// field per element type, named after the type.
func Source(t testing.TB, kinds ...driver.Kind) *Dataset {
	t.Helper()
	s := &Dataset{info: driver.Info{URL: "test", Format: "test", Len: Rows, Fingerprint: "test"}, rows: make([][]driver.Value, Rows)}
	rng := rand.New(rand.NewPCG(1, 2))
	add := func(f driver.Field, value func(i int) driver.Value) {
		s.info.Fields = append(s.info.Fields, f)
		for i := range s.rows {
			s.rows[i] = append(s.rows[i], value(i))
		}
	}
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	texts := []string{"", "plain", "with, \"quotes\"", "two\nlines", "a\ttab", "ü and 漢字", " spaces "}
	for _, k := range kinds {
		f := driver.Field{Name: string(k), Kind: k}
		switch k {
		case driver.KindImage:
			add(f, func(i int) driver.Value { return driver.Value{Bytes: photo(t, 20+i%5, 16, i), Codec: driver.CodecJPEG} })
		case driver.KindLabel:
			f.Classes = Classes
			add(f, func(i int) driver.Value { return driver.Value{Int: int64(i % len(Classes))} })
		case driver.KindInt:
			add(f, func(i int) driver.Value { return driver.Value{Int: int64(i)*1e12 - 5} })
		case driver.KindFloat:
			add(f, func(i int) driver.Value { return driver.Value{Float: float64(i)/8 - 1} })
		case driver.KindText:
			add(f, func(i int) driver.Value { return driver.Value{Bytes: []byte(texts[i%len(texts)])} })
		case driver.KindJSON:
			add(f, func(i int) driver.Value {
				return driver.Value{Bytes: fmt.Appendf(nil, `{"n": %d, "s": "ü, \"x\""}`, i)}
			})
		case driver.KindBytes:
			add(f, func(i int) driver.Value { return driver.Value{Bytes: random(i % 9)} })
		case driver.KindAudio:
			add(f, func(i int) driver.Value { return driver.Value{Bytes: append([]byte("RIFF"), random(30+i)...)} })
		case driver.KindMask:
			f.DType = driver.Uint8
			add(f, func(int) driver.Value {
				return driver.Value{Bytes: random(12 * 10), Codec: driver.CodecRaw, Width: 12, Height: 10, Channels: 1}
			})
		case driver.KindMultiLabel:
			f.Classes = Classes
			add(f, func(i int) driver.Value {
				var b []byte
				for k := range i % 4 {
					b = binary.LittleEndian.AppendUint64(b, uint64(k%len(Classes)))
				}
				return driver.Value{Bytes: b}
			})
		case driver.KindRagged:
			f.DType, f.Shape = driver.Float32, []int{2}
			add(f, func(i int) driver.Value { return driver.Value{Bytes: elements(driver.Float32, 2*(i%5), i)} })
		case driver.KindBoxes:
			f.DType, f.Shape, f.Format = driver.Float32, []int{4}, "XYXY"
			add(f, func(i int) driver.Value { return driver.Value{Bytes: elements(driver.Float32, 4*(i%3), i)} })
		case driver.KindTokens:
			f.DType = driver.Uint16
			add(f, func(i int) driver.Value { return driver.Value{Bytes: elements(driver.Uint16, i%7, i)} })
		case driver.KindArray:
			for _, d := range driver.DTypes {
				add(driver.Field{Name: string(d), Kind: k, DType: d, Shape: []int{2, 3}}, func(i int) driver.Value {
					return driver.Value{Bytes: elements(d, 6, i)}
				})
			}
		}
	}
	for i := range s.info.Fields {
		for _, row := range s.rows {
			s.info.Fields[i].MaxBytes = max(s.info.Fields[i].MaxBytes, int64(len(row[i].Bytes)))
		}
	}
	return s
}

// elements returns n numbers that every format can hold.
func elements(t driver.DType, n, seed int) []byte {
	var b []byte
	for k := range n {
		x := (seed*7 + k*3) % 100
		switch t {
		case driver.Float16: // 1 to 2, in steps
			b = binary.LittleEndian.AppendUint16(b, uint16(0x3C00+x))
		case driver.Float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)/7))
		case driver.Float64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(x)/8))
		case driver.Bool:
			b = append(b, byte(x%2))
		default:
			if t[0] == 'i' {
				x = 50 - x
			}
			b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(x))[:t.Size()]...)
		}
	}
	return b
}

// photo returns a small JPEG.
func photo(t testing.TB, w, h, seed int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		m.Set(i%w, i/w, color.RGBA{uint8(i + seed), uint8(i * seed), uint8(3 * seed), 255})
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Text returns a value as text. It is the same for a number of any type, and for a name as text or as a class.
func Text(f *driver.Field, v *driver.Value) string {
	switch f.Kind {
	case driver.KindLabel:
		if v.Int >= 0 && v.Int < int64(len(f.Classes)) {
			return f.Classes[v.Int]
		}
		return fmt.Sprint(v.Int)
	case driver.KindInt:
		return fmt.Sprint(v.Int)
	case driver.KindFloat:
		return fmt.Sprint(v.Float)
	case driver.KindText:
		return string(v.Bytes)
	case driver.KindJSON:
		var x any
		if json.Unmarshal(v.Bytes, &x) != nil {
			return "invalid JSON"
		}
		b, _ := json.Marshal(x)
		return string(b)
	case driver.KindFrames:
		var c video.Clip
		if err := c.Parse(v.Bytes); err != nil {
			return err.Error()
		}
		out := ""
		for _, at := range c.Frames {
			out += Sum(c.Packets[at].Data) + " "
		}
		return out
	case driver.KindMask: // a pack has runs instead of pixels
		return Sum([]byte(File(f, v)))
	case driver.KindImage, driver.KindMasks, driver.KindAudio, driver.KindBytes:
		return Sum(v.Bytes)
	}
	t := f.DType
	if f.Kind == driver.KindMultiLabel {
		t = driver.Int64
	}
	unit := t.Size()
	if len(v.Bytes) > 64*unit {
		return fmt.Sprintf("%d of %s: %s", len(v.Bytes)/unit, t, Sum(v.Bytes))
	}
	all := []string{}
	for at := 0; at < len(v.Bytes); at += unit {
		all = append(all, fmt.Sprint(float32(t.Type().Float(v.Bytes[at:]))))
	}
	if len(all) == 1 && len(f.Shape) == 0 && f.Kind == driver.KindArray {
		return all[0]
	}
	return "[" + strings.Join(all, " ") + "]"
}

// Sum is short for the content of a file.
func Sum(b []byte) string { return fmt.Sprintf("%d bytes %08x", len(b), crc32.ChecksumIEEE(b)) }

// File returns an image or a mask as the bytes of a file.
func File(f *driver.Field, v *driver.Value) string {
	pv := pack.Value{Field: &pack.Field{Name: f.Name, Kind: f.Kind, DType: f.DType}, Value: *v, Depth: 8}
	b, _, err := pv.File()
	if err != nil {
		return err.Error()
	}
	return string(b)
}
