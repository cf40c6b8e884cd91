package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/stokerdata/stoker/internal/phash"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// viewFlags select the records and fields of a source for a command. They become a part of its URL.
type viewFlags struct {
	spec           view.Spec
	renames, kinds []string
	tensors        []string
}

func (f *viewFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.spec.Where, "where", "", "only records for which this `EXPRESSION` is true, for example 'label < 10 and width >= 224'")
	fl.StringSliceVar(&f.spec.Dedupe, "dedupe", nil, "skip records that equal an earlier one: in all fields, or in these `FIELDS` (--dedupe=image)")
	fl.Lookup("dedupe").NoOptDefVal = view.AllFields
	fl.StringVar(&f.spec.Similar, "drop-similar", "", "skip records whose image looks like an earlier one: at most N of 64 bits differ, `[FIELD:]N` (default 6)")
	fl.Lookup("drop-similar").NoOptDefVal = fmt.Sprint(phash.DefaultDistance)
	fl.StringVar(&f.spec.Split, "split", "", "split the records into `PARTS`: train:0.9,val:0.1 or val:5000,train:rest")
	fl.StringVar(&f.spec.Part, "part", "", "the `NAME` of the part to use")
	fl.Uint64Var(&f.spec.Seed, "seed", 0, "the seed `NUMBER` of the split")
	fl.StringVar(&f.spec.Stratify, "stratify", "", "the `FIELD` whose values have the same shares in all parts")
	fl.StringVar(&f.spec.Group, "group", "", "the `FIELD` whose equal values go to one part; folder: by the folder of the path")
	fl.StringSliceVar(&f.spec.Select, "select", nil, "use only these `FIELDS`: image,label")
	fl.StringSliceVar(&f.spec.Drop, "drop", nil, "do not use these `FIELDS`")
	fl.StringArrayVar(&f.renames, "rename", nil, "`OLD=NEW`: another name for a field (repeat)")
	fl.StringArrayVar(&f.kinds, "kind", nil, "`FIELD=KIND`: the kind of a field, such as cls=label (repeat)")
	fl.StringArrayVar(&f.tensors, "tensor", nil, "`NAME=COLUMNS`: one array of columns of a table, such as x=age:normalize,city:onehot (repeat)")
	fl.StringVar(&f.spec.TensorsOf, "tensors-of", "", "the same arrays of columns as in this `PACK`, with its vocabularies and means")
}

// read checks the flags.
func (f *viewFlags) read() error {
	pairs := func(flag string, all []string, to *map[string]string) error {
		for _, text := range all {
			a, b, ok := strings.Cut(text, "=")
			if !ok || a == "" || b == "" {
				return usageError("", "--%s %s: write it like --%s %s", flag, text, flag, map[string]string{"rename": "cls=label", "kind": "label=label"}[flag])
			}
			if *to == nil {
				*to = map[string]string{}
			}
			(*to)[a] = b
		}
		return nil
	}
	if err := pairs("rename", f.renames, &f.spec.Rename); err != nil {
		return err
	}
	for _, text := range f.tensors {
		name, columns, ok := strings.Cut(text, "=")
		if !ok || name == "" || columns == "" {
			return usageError("", "--tensor %s: write it like --tensor x=age:normalize,city:onehot", text)
		}
		t, err := view.ParseColumns(columns)
		if err != nil {
			return usageError("", "--tensor %s: %v", text, err)
		}
		if f.spec.Tensors == nil {
			f.spec.Tensors = map[string]view.Tensor{}
		}
		if _, twice := f.spec.Tensors[name]; twice {
			return usageError("", "--tensor %s: there is a tensor %q already; put commas between its columns", text, name)
		}
		f.spec.Tensors[name] = t
	}
	return pairs("kind", f.kinds, &f.spec.Kinds)
}

// url returns a source with the view of the flags.
func (f *viewFlags) url(src string) string { return src + view.Fragment(&f.spec) }

// parts returns the parts of a split if none is selected, nil if there is no split.
func (f *viewFlags) parts() ([]string, error) {
	if !strings.Contains(f.spec.Split, ":") || f.spec.Part != "" {
		return nil, nil
	}
	shares, err := view.ParseSplit(f.spec.Split)
	if err != nil {
		return nil, usageError("", "--%v", err)
	}
	var names []string
	for _, s := range shares {
		names = append(names, s.Name)
	}
	return names, nil
}

// fields adds fields in the form of tables' columns: NAME, NAME:KIND, NAME=OLD.
func (f *viewFlags) fields(all []string) error {
	for _, text := range all {
		c, err := column.Parse(text)
		if err != nil {
			return usageError("", "--field: %v", err)
		}
		if c.Name == column.Rest {
			return usageError("", "--field '*': without other fields all are there anyway; --drop leaves some out")
		}
		f.spec.Select = append(f.spec.Select, c.From)
		if c.Name != c.From {
			if f.spec.Rename == nil {
				f.spec.Rename = map[string]string{}
			}
			f.spec.Rename[c.From] = c.Name
		}
		if c.Kind != "" {
			if f.spec.Kinds == nil {
				f.spec.Kinds = map[string]string{}
			}
			f.spec.Kinds[c.From] = string(c.Kind)
		}
	}
	return nil
}

// looking shows the progress of finding the records of a view.
func (app *App) looking() (tell func(what string, done, total int64), stop func()) {
	var progress *Progress
	label, at := "", int64(0)
	stop = func() {
		if progress != nil {
			progress.Stop()
		}
		progress = nil
	}
	return func(what string, done, total int64) {
		if progress == nil || what != label {
			stop()
			progress = app.NewProgress("looking at records for "+what, "records", total)
			label, at = what, 0
		}
		progress.Add(done-at, 0)
		at = done
	}, stop
}

// openSource opens a source for a command, and shows the progress.
func (app *App) openSource(url string, threads int, memory int64) (driver.Source, error) {
	tell, stop := app.looking()
	defer stop()
	return source.Open(app.Context, url, &source.Options{Threads: threads, Memory: memory, Looking: tell})
}

// viewText describes a view.
func viewText(p *page, v view.Viewer) {
	spec, info := v.Spec(), v.Info()
	p.section("View", fmt.Sprintf("%s of %s records", units.Int(info.Len), units.Int(v.Of())))
	if spec.Where != "" {
		p.f("  where %s: %s\n", clean(spec.Where), units.Records(v.Matched()))
	}
	if len(spec.Dedupe) > 0 {
		p.f("  %s are as one before and left out\n", units.Plural(int(v.Repeated()), "record"))
	}
	if spec.Similar != "" {
		p.f("  %s look like one before and are left out\n", units.Plural(int(v.Alike()), "record"))
	}
	if len(v.Parts()) > 0 {
		how := fmt.Sprintf("with seed %d", spec.Seed)
		if spec.Stratify != "" {
			how += ", each " + clean(spec.Stratify) + " in all parts alike"
		}
		if spec.Group != "" {
			how += ", records of one " + clean(spec.Group) + " together"
		}
		p.f("  part %s of these, cut %s:\n", clean(spec.Part), how)
		for _, part := range v.Parts() {
			p.f("    %s %s\n", clean(part.Name), units.Records(part.Records))
		}
	}
}
