package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

// inspectSource shows what a source that is no pack has, as far as is known
// without reading its records.
func (app *App) inspectSource(url string, asJSON bool) error {
	src, err := source.Open(app.Context, url, nil)
	if err != nil {
		return err
	}
	defer src.Close()
	info := src.Info()
	var bytes int64
	for i := range info.Objects {
		bytes += src.Object(i).Entry.Size
	}
	if asJSON {
		return app.sourceJSON(url, info, bytes)
	}
	p := new(page)
	p.f("%s\n", headStyle.Render(clean(url)))
	p.f("  %s, %s records", clean(info.Format), units.Int(info.Len))
	if info.Objects > 0 {
		p.f(" in %s of %s", units.Plural(int(info.Objects), "file"), units.Bytes(bytes))
	}
	if info.Sequential {
		p.f(", read in order only\n")
	} else {
		p.f(", read at random\n")
	}
	p.f("  fingerprint %s\n", info.Fingerprint)
	p.section("Fields", "")
	t := newTable("name", "kind", "type", "")
	for i := range info.Fields {
		f := &info.Fields[i]
		t.Row(clean(f.Name), string(f.Kind), fieldType(&pack.Field{Kind: f.Kind, DType: f.DType, Shape: f.Shape}), sourceFieldText(f))
	}
	p.f("%s\n", t)
	p.section("To train from it", "stoker pack makes it faster where values are decoded, and checks them once")
	p.f("  stoker.Loader(%s)\n", loaderText(url, info))
	_, err = lipgloss.Fprint(app.Stdout, p.String())
	return err
}

func (app *App) sourceJSON(url string, info *driver.Info, bytes int64) error {
	fields := []map[string]any{}
	for i := range info.Fields {
		f := &info.Fields[i]
		out := map[string]any{"name": f.Name, "kind": f.Kind}
		if f.DType != "" {
			out["dtype"] = f.DType
		}
		if f.Kind == driver.KindArray || f.Kind == driver.KindRagged {
			out["shape"] = append([]int{}, f.Shape...)
		}
		if f.Classes != nil {
			out["classes"] = f.Classes
		}
		if f.MaxBytes > 0 {
			out["max_bytes"] = f.MaxBytes
		}
		fields = append(fields, out)
	}
	e := json.NewEncoder(app.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(map[string]any{
		"source": url, "format": info.Format, "records": info.Len, "bytes": bytes, "files": info.Objects, "random_access": !info.Sequential,
		"fingerprint": info.Fingerprint, "fields": fields,
	})
}

// sourceFieldText says in a few words what is known of the values of a field.
func sourceFieldText(f *driver.Field) string {
	var parts []string
	if f.Classes != nil {
		parts = append(parts, units.Plural(len(f.Classes), "name"))
	}
	if f.Width > 0 {
		parts = append(parts, fmt.Sprintf("%d x %d", f.Width, f.Height))
	}
	if f.MaxBytes > 0 {
		parts = append(parts, "up to "+units.Bytes(f.MaxBytes))
	}
	return strings.Join(parts, ", ")
}

// loaderText are the arguments of a loader: images get what makes them one size.
func loaderText(url string, info *driver.Info) string {
	var fields []string
	for i := range info.Fields {
		f := &info.Fields[i]
		if (f.Kind == driver.KindImage || f.Kind == driver.KindMask) && f.Width == 0 {
			fields = append(fields, fmt.Sprintf("%q: [stoker.RandomResizedCrop(224)]", clean(f.Name)))
		}
	}
	out := fmt.Sprintf("%q, batch_size=256", clean(url))
	if !info.Sequential {
		out += ", shuffle=True"
	}
	if len(fields) > 0 {
		out += ", fields={" + strings.Join(fields, ", ") + "}"
	}
	return out
}

// isSource says whether something is to be shown as a source and not as a pack. A
// folder that is neither is taken for a pack, whose reader says what is wrong, as it
// does where there is nothing.
func (app *App) isSource(url string) (bool, error) {
	format, path, err := source.Format(app.Context, url, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || format == "pack" {
		return false, err
	}
	if format != source.FormatFolder {
		return true, nil
	}
	// A pack that is not finished, or has lost its manifest, has shards.
	shards, _ := filepath.Glob(filepath.Join(path, "*.arrow"))
	return len(shards) == 0, nil
}
