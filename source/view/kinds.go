package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/scan"
	"github.com/stokerdata/stoker/source/driver"
)

// This file converts values from one kind to another, if the bytes or the number only have to be
// interpreted differently.

// maxClasses and maxClassBytes limit the classes made from texts.
const (
	maxClasses    = 1 << 20
	maxClassBytes = 64 << 20
)

// change sets another kind for a field, and returns the conversion of a value, nil if there is
// nothing to convert.
func change(f *driver.Field, to driver.Kind) (func(v *driver.Value) error, error) {
	from := f.Kind
	asBytes := func(k driver.Kind) bool {
		return slices.Contains([]driver.Kind{driver.KindBytes, driver.KindText, driver.KindJSON, driver.KindAudio, driver.KindImage}, k)
	}
	number := len(f.Shape) == 0 && from == driver.KindArray
	switch {
	case narrowTypes[to] > 0:
		return narrow(f, to)
	case from == to:
		return nil, nil
	case from == driver.KindInt && to == driver.KindLabel:
		f.Kind = to
		return nil, nil
	case from == driver.KindLabel && to == driver.KindInt:
		f.Kind, f.Classes, f.DType = to, nil, ""
		return nil, nil
	case (from == driver.KindInt || from == driver.KindLabel) && to == driver.KindFloat:
		f.Kind, f.Classes, f.DType = to, nil, ""
		return func(v *driver.Value) error { v.Float = float64(v.Int); return nil }, nil
	case number && (to == driver.KindInt || to == driver.KindLabel || to == driver.KindFloat):
		t := f.DType.Type()
		if t.Size() == 0 || to != driver.KindFloat && t.Floating() {
			return nil, fmt.Errorf("an array of %s is not a whole number", f.DType)
		}
		f.Kind, f.DType, f.Shape, f.MaxBytes = to, "", nil, 0
		return func(v *driver.Value) error {
			if len(v.Bytes) != t.Size() {
				return fmt.Errorf("the value has %d bytes, expected %d", len(v.Bytes), t.Size())
			}
			if to == driver.KindFloat {
				v.Float = t.Float(v.Bytes)
			} else {
				v.Int = t.Int(v.Bytes)
			}
			v.Bytes = nil
			return nil
		}, nil
	case from == driver.KindArray && (to == driver.KindImage || to == driver.KindMask):
		return pixels(f, to)
	case from == driver.KindRagged && to == driver.KindTokens && len(f.Shape) == 0 && (f.DType == driver.Uint16 || f.DType == driver.Uint32):
		f.Kind = to
		return nil, nil
	case from == driver.KindTokens && to == driver.KindRagged:
		f.Kind = to
		return nil, nil
	case asBytes(from) && to == driver.KindMask:
		f.Kind, f.DType = to, driver.Uint8
		return file, nil
	case asBytes(from) && to == driver.KindImage:
		f.Kind = to
		return file, nil
	case from == driver.KindImage && asBytes(to):
		f.Kind, f.Width, f.Height, f.Channels, f.MaxWidth, f.MaxHeight = to, 0, 0, 0, 0, 0
		return func(v *driver.Value) error {
			if v.Codec >= driver.CodecRaw {
				return errors.New("the image is not stored as a file")
			}
			*v = driver.Value{Bytes: v.Bytes}
			return nil
		}, nil
	case asBytes(from) && asBytes(to):
		f.Kind = to
		if to == driver.KindText || to == driver.KindJSON {
			return func(v *driver.Value) error {
				if !utf8.Valid(v.Bytes) {
					return errors.New("it is not UTF-8")
				}
				return nil
			}, nil
		}
		return nil, nil
	}
	return nil, fmt.Errorf("values of kind %s cannot be read as %s", from, to)
}

// file makes an image from the bytes of a file.
func file(v *driver.Value) error {
	*v = driver.Value{Bytes: v.Bytes, Codec: imagefile.Detect(v.Bytes)}
	return nil
}

// pixels makes images from arrays of pixels.
func pixels(f *driver.Field, to driver.Kind) (func(v *driver.Value) error, error) {
	s := f.Shape
	c := 1
	if len(s) == 3 {
		c = s[2]
	}
	switch {
	case len(s) != 2 && len(s) != 3 || to == driver.KindMask && c != 1 || c > 4:
		return nil, fmt.Errorf("an array of shape %v cannot be read as %s: the shape must be [H, W] or [H, W, C]", s, to)
	case f.DType != driver.Uint8 && (to != driver.KindMask || f.DType != driver.Uint16):
		return nil, fmt.Errorf("an array of %s cannot be read as %s", f.DType, to)
	}
	n, err := driver.ArrayBytes(f.DType, s)
	if err != nil {
		return nil, err
	}
	h, w := int32(s[0]), int32(s[1])
	f.Kind, f.Shape, f.MaxBytes = to, nil, n
	f.Width, f.Height, f.Channels, f.MaxWidth, f.MaxHeight = w, h, int32(c), w, h
	if to == driver.KindImage {
		f.DType = ""
	}
	return func(v *driver.Value) error {
		if int64(len(v.Bytes)) != n {
			return fmt.Errorf("the value has %d bytes, expected %d", len(v.Bytes), n)
		}
		*v = driver.Value{Bytes: v.Bytes, Codec: driver.CodecRaw, Width: w, Height: h, Channels: int32(c), Orientation: 1}
		return nil
	}, nil
}

// convert sets the kinds of all fields, and returns the source with these kinds.
func (v *view) convert(ctx context.Context, opt *Options) (driver.Source, error) {
	v.all = slices.Clone(v.in.Fields)
	v.kinds = make([]func(*driver.Value) error, len(v.all))
	if len(v.spec.Kinds) == 0 {
		return v.Base, nil
	}
	for _, name := range slices.Sorted(maps.Keys(v.spec.Kinds)) {
		i, err := v.field("kinds", name)
		if err != nil {
			return nil, err
		}
		f, to := &v.all[i], driver.Kind(v.spec.Kinds[name])
		if to == driver.KindLabel && (f.Kind == driver.KindText || f.Kind == driver.KindJSON) {
			v.kinds[i], err = v.classes(ctx, i, opt)
		} else {
			v.kinds[i], err = change(f, to)
		}
		if err != nil {
			return nil, fmt.Errorf("kinds: the field %q of %s: %w", name, v.in.URL, err)
		}
	}
	t := &view{in: v.in, info: *v.in, all: v.all, converts: v.kinds}
	t.Base = v.Base
	t.info.Fields = v.all
	for i := range v.all {
		t.from, t.place, t.made = append(t.from, i), append(t.place, i), append(t.made, nil)
	}
	t.able()
	return t.asSource(), nil
}

// classes makes labels from texts. The classes are the distinct texts, sorted.
func (v *view) classes(ctx context.Context, field int, opt *Options) (func(v *driver.Value) error, error) {
	f := &v.all[field]
	find := &finder{v: v, src: v.Base, opt: opt}
	c := newColumns(v.Base)
	place(&c.req.Values, field)
	key := find.key(c, "classes", f.Name)
	var names []string
	b, ok := load(opt, key)
	if !ok || json.Unmarshal(b, &names) != nil {
		var mu sync.Mutex
		seen, total := map[string]bool{}, 0
		err := find.scan(ctx, "classes", c, func(rows *scan.Rows) error {
			mu.Lock()
			defer mu.Unlock()
			for k := range rows.N {
				name := rows.Records[k].Values[field].Bytes
				if seen[string(name)] {
					continue
				}
				seen[string(name)] = true
				if total += len(name); len(seen) > maxClasses || total > maxClassBytes {
					return fmt.Errorf("there are more than %d different texts, the limit for classes", len(seen)-1)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		names = slices.Sorted(maps.Keys(seen))
		if b, err := json.Marshal(names); err == nil {
			save(opt, key, b)
		}
	}
	f.Kind, f.Classes, f.MaxBytes, f.Stats = driver.KindLabel, names, 0, nil
	numbers := make(map[string]int64, len(names))
	for i, name := range names {
		numbers[name] = int64(i)
	}
	return func(v *driver.Value) error {
		n, ok := numbers[string(v.Bytes)]
		if !ok {
			return fmt.Errorf("the text %q is not one of the classes: it was added after they were collected", bytes.ToValidUTF8(v.Bytes[:min(len(v.Bytes), 40)], nil))
		}
		*v = driver.Value{Int: n}
		return nil
	}, nil
}
