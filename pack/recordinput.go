package pack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/stokerdata/stoker/internal/direct"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// WriteSource packs the records of a source without images into the new folder
// dst, in their order. It can be interrupted and gone on with like Write. Of
// the options, those about images must be left alone.
func WriteSource(ctx context.Context, src driver.Source, dst string, opt *Options) (*Summary, error) {
	o, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.Images != ImagesAuto || o.Resize != (Resize{}) || o.Metadata || o.Check != CheckStructure {
		return nil, fmt.Errorf("%s holds no images: --images, --resize, --metadata and --check are about images", src.Info().URL)
	}
	o.Images, o.Check = "", ""
	in, err := newSourceInput(src)
	if err != nil {
		return nil, err
	}
	defer in.obj.Close()
	return run(ctx, in, dst, o)
}

// sourceInput is a source without images.
type sourceInput struct {
	s      driver.Source
	obj    *direct.Objects
	info   *driver.Info
	fields []Field
	of     []int
	paths  driver.Pather
	sizer  driver.Sizer
	src    Source
	fixed  int64 // bytes of the fields of one size
}

func newSourceInput(s driver.Source) (*sourceInput, error) {
	in := &sourceInput{s: s, obj: direct.NewObjects(s, nil), info: s.Info()}
	in.paths, _ = s.(driver.Pather)
	in.sizer, _ = s.(driver.Sizer)
	var err error
	if in.fields, in.of, err = sourceFields(in.info, in.paths != nil); err != nil {
		return nil, err
	}
	check := Manifest{Version: RecordsVersion, Fields: in.fields}
	if err := check.checkFields(); err != nil {
		return nil, fmt.Errorf("%s cannot be packed: %w", in.info.URL, err)
	}
	cols := check.columns()
	for i := range cols {
		in.fixed += cols[i].Width()
	}
	in.src = Source{Kind: in.info.Format, Path: in.info.URL, Files: in.info.Len, Fingerprint: in.info.Fingerprint}
	for i := range in.info.Len {
		in.src.Bytes += in.bytes(i)
	}
	return in, nil
}

func (in *sourceInput) source() Source     { return in.src }
func (in *sourceInput) command() string    { return "pack" }
func (in *sourceInput) classes() []string  { return nil }
func (in *sourceInput) len() int64         { return in.info.Len }
func (in *sourceInput) skipped() []Skipped { return nil }

func (in *sourceInput) bytes(i int64) int64 {
	n := in.fixed
	for k := range in.info.Fields {
		f := &in.info.Fields[k]
		switch {
		case f.Kind == driver.KindBytes && in.sizer != nil:
			id, size := [1]int64{i}, [1]int64{}
			in.sizer.Sizes(k, id[:], size[:])
			n += size[0]
		case f.Kind == driver.KindBytes || f.Kind == driver.KindText:
			n += f.MaxBytes
		}
	}
	return n
}

func (in *sourceInput) load(ctx context.Context, i int64, w *worker, j *job) error {
	if w.reader == nil {
		w.reader = direct.NewReader(in.s, in.obj)
	}
	// One piece of memory for all values of the record, kept by the job.
	j.buf = grow(j.buf, int(min(in.bytes(i), maxRecordBytes))+64*len(in.info.Fields))
	free := j.buf
	w.reader.Alloc = func(n int) ([]byte, error) {
		if n < 0 || n > maxRecordBytes {
			return nil, fmt.Errorf("a value of %d bytes is larger than the limit of %d", n, int64(maxRecordBytes))
		}
		if n+64 > len(free) {
			return make([]byte, n+64)[:n], nil
		}
		p := free[:n:n]
		free = free[n:]
		return p, nil
	}
	id := [1]int64{i}
	recs, err := w.reader.Read(ctx, id[:])
	if err != nil {
		return err
	}
	rec := &recs[0]
	if rec.Err != nil {
		if errors.Is(rec.Err, store.ErrChanged) {
			return fmt.Errorf("%w; the source must stand still while it is packed: run again with --restart when it does", rec.Err)
		}
		return &BadInput{in.s.Name(i), rec.Err.Error()}
	}
	j.rec.values = make([][]byte, len(in.fields))
	total := int64(0)
	for c, k := range in.of {
		var v []byte
		switch kind := driver.Kind(in.fields[c].Kind); {
		case k < 0:
			v = []byte(strings.ToValidUTF8(in.paths.Path(i), "\uFFFD"))
		case kind == driver.KindText:
			v = []byte(strings.ToValidUTF8(string(rec.Values[k].Bytes), "\uFFFD"))
			if len(v) > maxTextBytes {
				return &BadInput{in.s.Name(i), fmt.Sprintf("%d bytes of text in %q are more than the limit of %d", len(v), in.fields[c].Name, maxTextBytes)}
			}
		case kind == driver.KindLabel || kind == driver.KindInt:
			v = binary.LittleEndian.AppendUint64(nil, uint64(rec.Values[k].Int))
		default:
			v = rec.Values[k].Bytes
		}
		j.rec.values[c] = v
		total += int64(len(v))
	}
	if total > maxRecordBytes {
		return &BadInput{in.s.Name(i), fmt.Sprintf("%d bytes are more than the limit of %d for a record", total, int64(maxRecordBytes))}
	}
	return nil
}
