package sink

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// load reads the records of a group and converts them to the values that the format needs.
func (c *conversion) load(ctx context.Context, w *worker, j *group) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	recs := j.raw
	if len(recs) == 0 {
		w.reader.Alloc = j.mem.take
		if recs, err = w.reader.Read(ctx, j.ids); err != nil {
			return err
		}
	}
	type span struct{ from, to int }
	var spans []span
	for i := range recs {
		rec := &recs[i]
		if errors.Is(rec.Err, context.Canceled) && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at := len(j.values)
		err := rec.Err
		if err == nil {
			err = c.record(ctx, w, j, rec)
		}
		out := sinkdriver.Record{ID: rec.ID}
		from := len(j.enc)
		if err == nil && c.encoder != nil {
			out.Values = j.values[at:]
			var enc []byte
			if enc, err = c.encode(j.enc, &out); err == nil {
				j.enc = enc
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			j.values, j.enc = j.values[:at], j.enc[:from]
			j.bad = append(j.bad, Skipped{Path: c.src.Name(rec.ID), Reason: strings.TrimPrefix(err.Error(), c.src.Name(rec.ID)+": ")})
			continue
		}
		spans = append(spans, span{from, len(j.enc)})
		j.recs = append(j.recs, out)
	}
	// Appending can move values and bytes, so records get their slices only now.
	for i := range j.recs {
		n := len(c.fields)
		j.recs[i].Values = j.values[i*n : (i+1)*n : (i+1)*n]
		j.recs[i].Encoded = j.enc[spans[i].from:spans[i].to:spans[i].to]
		for k := range j.recs[i].Values {
			j.bytes += int64(len(j.recs[i].Values[k].Bytes))
		}
	}
	return nil
}

func (c *conversion) encode(b []byte, rec *sinkdriver.Record) (out []byte, err error) {
	out = b
	defer guard(&err)
	return c.encoder.Encode(b, rec)
}

// record appends the values of a record to the values of its group.
func (c *conversion) record(ctx context.Context, w *worker, j *group, rec *driver.Record) (err error) {
	defer guard(&err)
	var extra *pack.Record
	if w.extras != nil {
		_, id, _ := c.origin(rec.ID, 0)
		if extra, err = w.extras.Read(ctx, id); err != nil {
			return err
		}
	}
	var shapes []byte
	for k, i := range c.from {
		f := &c.fields[k]
		v := sinkdriver.Value{Value: rec.Values[i]}
		switch c.parts[k] {
		case pixels:
			values, sizes, err := j.stack(f, &v.Value)
			if err != nil {
				return err
			}
			shapes = sizes
			j.values = append(j.values, sinkdriver.Value{Value: driver.Value{Bytes: values}})
			continue
		case shape:
			j.values = append(j.values, sinkdriver.Value{Value: driver.Value{Bytes: shapes}})
			continue
		}
		pv := pack.Value{Field: &c.files[k], Value: v.Value, Depth: 8}
		switch {
		case extra != nil:
			_, _, at := c.origin(rec.ID, i)
			x := &extra.Values[at]
			v.Path, pv.EXIF, pv.ICC = x.Path, x.EXIF, x.ICC
			if v.Path == "" {
				v.Path = extra.Path
			}
		case c.paths != nil && c.format.Paths:
			v.Path = c.paths.Path(rec.ID, i)
		}
		switch {
		case f.Pixels:
			if want := int64(f.Width) * int64(f.Height) * int64(f.Channels); v.Codec != driver.CodecRaw || int64(len(v.Bytes)) != want {
				return fmt.Errorf("field %q: the image has %d bytes: expected raw pixels of %d x %d with %d channels", f.Name, len(v.Bytes), f.Width, f.Height, f.Channels)
			}
		case f.Picture():
			if v.Codec == driver.CodecUnknown {
				pv.Codec = imagefile.Detect(v.Bytes)
			}
			if pv.Codec == driver.CodecUnknown {
				v.Ext = ".img" // whatever it is, it stays so
			} else if v.Bytes, v.Ext, err = pv.File(); err == nil && c.stored && f.Kind == driver.KindImage {
				v.Bytes, err = imagefile.Unturned(v.Bytes)
			}
			if err != nil {
				return fmt.Errorf("field %q: %w", f.Name, err)
			}
		case f.Kind == driver.KindAudio:
			v.Ext = soundExt(v.Bytes, v.Path)
		}
		if err := check(f, &v.Value); err != nil {
			return err
		}
		j.values = append(j.values, v)
	}
	return nil
}

// check fails if an array does not have the size that its field declares. Formats rely on it.
func check(f *sinkdriver.Field, v *driver.Value) error {
	t, shape, ragged, ok := f.Elements()
	if !ok {
		return nil
	}
	row, err := driver.ArrayBytes(t, shape)
	if err != nil {
		return fmt.Errorf("field %q: %w", f.Name, err)
	}
	n := int64(len(v.Bytes))
	if !ragged && n != row || n%row != 0 {
		return fmt.Errorf("field %q: the array has %d bytes: expected %d", f.Name, n, row)
	}
	return nil
}
