package sequence

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

// documents is the index of the documents of a source.
type documents struct {
	field int   // index of the tokens field
	unit  int64 // bytes of a token
	// ends are sums of lengths: document i is tokens ends[i] to ends[i+1] of all.
	ends []int64
}

func (d *documents) count() int64           { return int64(len(d.ends)) - 1 }
func (d *documents) tokens() int64          { return d.ends[len(d.ends)-1] }
func (d *documents) length(doc int64) int64 { return d.ends[doc+1] - d.ends[doc] }

// measuring is the number of documents measured together.
const measuring = 1 << 14

// measure finds the field of tokens and the lengths of all documents.
func measure(ctx context.Context, base driver.Source) (*documents, error) {
	info := base.Info()
	if info.Sequential {
		return nil, fmt.Errorf("%s is compressed and can only be read in order, but sequences need random access: make a pack (stoker pack) and load that", info.URL)
	}
	field, err := tokensOf(info)
	if err != nil {
		return nil, err
	}
	f := &info.Fields[field]
	d := &documents{field: field, unit: int64(f.DType.Size()), ends: make([]int64, 1, info.Len+1)}
	if f.Kind == driver.KindArray {
		for i := range info.Len {
			d.ends = append(d.ends, (i+1)*int64(f.Shape[0]))
		}
		return d, nil
	}
	m := &measurer{base: base, d: d, obj: recordread.NewObjects(base, nil)}
	defer m.obj.Close()
	sizer, _ := driver.As[driver.Sizer](base)
	ids, sizes := make([]int64, 0, measuring), make([]int64, measuring)
	total := int64(0)
	for at := int64(0); at < info.Len; at += measuring {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		ids = ids[:0]
		for id := at; id < min(at+measuring, info.Len); id++ {
			ids = append(ids, id)
		}
		if sizer == nil || !sizer.Sizes(field, ids, sizes[:len(ids)]) {
			if err := m.located(ctx, sizer, ids, sizes[:len(ids)]); err != nil {
				return nil, err
			}
		}
		for i, n := range sizes[:len(ids)] {
			if n < 0 || n%d.unit != 0 {
				return nil, fmt.Errorf("%s has %d bytes, which is not a multiple of the token size %d", base.Name(ids[i]), n, d.unit)
			}
			total += n / d.unit
			d.ends = append(d.ends, total)
		}
	}
	return d, nil
}

// measurer finds sizes with Locate.
type measurer struct {
	base driver.Source
	d    *documents
	obj  *recordread.Objects
	g    driver.Group
}

// located finds sizes from the extents of documents.
func (m *measurer) located(ctx context.Context, sizer driver.Sizer, ids, sizes []int64) error {
	info := m.base.Info()
	g := &m.g
	if g.Want == nil {
		g.Want = make([]bool, len(info.Fields))
		g.Want[m.d.field] = true
	}
	g.Begin(ids, len(info.Fields))
	err := recordread.Locate(ctx, m.base, g, func(ctx context.Context, e driver.Extent) error {
		b := make([]byte, e.Size+recordread.Tail)[:e.Size]
		if err := m.obj.Read(ctx, e.Object, b, e.Offset); err != nil {
			return err
		}
		return recordread.Learn(m.base, e, b)
	})
	if err != nil {
		return err
	}
	for k := range g.Records {
		if err := g.Records[k].Err; err != nil {
			return err
		}
	}
	if sizer != nil && sizer.Sizes(m.d.field, ids, sizes) {
		return nil
	}
	for k, id := range ids {
		of := g.Extents[g.First[k]:g.First[k+1]]
		if len(of) != 1 || of[0].Field != int32(m.d.field) {
			return fmt.Errorf("%s: %s does not store the lengths of documents: make a pack (stoker pack) and load that", m.base.Name(id), info.Format)
		}
		sizes[k] = of[0].Size
	}
	return nil
}

// tokensOf finds the field of tokens: a field of kind tokens, or the only field of one-dimensional
// whole numbers.
func tokensOf(info *driver.Info) (int, error) {
	var found, names []int
	for i := range info.Fields {
		f := &info.Fields[i]
		whole := strings.Contains(string(f.DType), "int")
		switch {
		case f.Kind == driver.KindTokens:
			return i, nil
		case f.Kind == driver.KindRagged && whole && len(f.Shape) == 0, f.Kind == driver.KindArray && whole && len(f.Shape) == 1:
			found = append(found, i)
		}
		names = append(names, i)
	}
	if len(found) == 1 {
		return found[0], nil
	}
	var all []string
	for _, i := range names {
		f := &info.Fields[i]
		all = append(all, fmt.Sprintf("%s (%s%s)", f.Name, f.Kind, map[bool]string{true: " of " + string(f.DType)}[f.DType != ""]))
	}
	what := "no field of tokens"
	if len(found) > 1 {
		what = "several fields that may be tokens"
	}
	return 0, fmt.Errorf("%s has %s (whole numbers with one axis): its fields are %s; to make tokens from text use stoker pack --tokenizer", info.URL, what, strings.Join(slices.Clip(all), ", "))
}
