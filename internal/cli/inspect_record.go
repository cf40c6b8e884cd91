package cli

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

// inspectRow shows a record, and writes one of its values as a file.
func (app *App) inspectRow(r *pack.Reader, row int64, export, field string, asJSON bool) error {
	rec, err := r.Record(app.Context, row)
	if err != nil {
		return err
	}
	exported := ""
	if export != "" {
		v, err := toExport(rec, field)
		if err != nil {
			return err
		}
		data, _, err := v.File()
		if err != nil {
			return err
		}
		if export == "-" {
			_, err = app.Stdout.Write(data)
			return err
		}
		if err := writeBytes(export, data); err != nil {
			return &Error{Msg: "cannot export record " + units.Int(row), Err: err}
		}
		exported = fmt.Sprintf("%s (%s bytes%s)", export, units.Int(len(data)), exportNote(v))
	}
	shard, chunk, in := r.Whereabouts(row)
	if asJSON {
		values := map[string]any{}
		for i := range rec.Values {
			values[rec.Values[i].Field.Name] = valueJSON(&rec.Values[i])
		}
		out := map[string]any{"record": rec.ID, "values": values, "shard": shard, "chunk": chunk, "row": in}
		if rec.Path != "" {
			out["path"] = rec.Path
		}
		if export != "" {
			out["exported"] = export
		}
		return json.NewEncoder(app.Stdout).Encode(out)
	}
	var out strings.Builder
	line := func(name, format string, a ...any) {
		fmt.Fprintf(&out, "  %s %s\n", dimStyle.Width(12).Render(name), fmt.Sprintf(format, a...))
	}
	fmt.Fprintf(&out, "%s\n", headStyle.Render(fmt.Sprintf("%s, record %s", r.Dir(), units.Int(row))))
	if rec.Path != "" {
		line("path", "%s", clean(rec.Path))
	}
	for i := range rec.Values {
		v := &rec.Values[i]
		line(clean(v.Field.Name), "%s", clean(valueText(v)))
		if v.Path != "" && v.Path != rec.Path {
			line("", "from %s", clean(v.Path))
		}
	}
	line("place", "%s, chunk %d, row %d", shard, chunk, in)
	if exported != "" {
		line("exported to", "%s", exported)
	}
	_, err = lipgloss.Fprint(app.Stdout, out.String())
	return err
}

// toExport returns the value of the field. Without a field it returns the first value worth exporting.
func toExport(rec *pack.Record, field string) (*pack.Value, error) {
	if field != "" {
		for i := range rec.Values {
			if rec.Values[i].Field.Name == field {
				return &rec.Values[i], nil
			}
		}
		return nil, &Error{Msg: fmt.Sprintf("the pack has no field %q", field)}
	}
	for _, kinds := range [][]driver.Kind{
		{driver.KindImage}, {driver.KindMask}, {driver.KindAudio}, {driver.KindBytes},
		{driver.KindArray, driver.KindVolume, driver.KindRagged, driver.KindTokens, driver.KindBoxes, driver.KindKeyPoints}, {driver.KindText, driver.KindJSON}, {driver.KindMultiLabel},
	} {
		for i := range rec.Values {
			if slices.Contains(kinds, rec.Values[i].Field.Kind) {
				return &rec.Values[i], nil
			}
		}
	}
	return nil, &Error{Msg: "nothing to export: the record has numbers alone"}
}

// exportNote describes the form of an exported file whose value is not stored as a file.
func exportNote(v *pack.Value) string {
	switch {
	case v.Codec == driver.CodecDCT:
		return ", a JPEG with the same pixels"
	case v.Field.Kind == driver.KindMask && v.Codec >= driver.CodecRaw:
		return ", a PNG of the class numbers"
	case v.Codec == driver.CodecRaw:
		return ", a PNG of the pixels"
	}
	return ""
}

// valueJSON is a value for programs. Bytes are in base64.
func valueJSON(v *pack.Value) any {
	switch v.Field.Kind {
	case driver.KindImage, driver.KindMask:
		out := map[string]any{"codec": pack.CodecName(v.Codec), "width": v.Width, "height": v.Height, "bytes": len(v.Bytes), "path": v.Path}
		if v.Field.Kind == driver.KindImage {
			out["channels"], out["depth"], out["orientation"] = v.Channels, v.Depth, v.Orientation
		}
		return out
	case driver.KindLabel:
		if v.Field.Classes != nil {
			return map[string]any{"label": v.Int, "class": v.Class()}
		}
		return v.Int
	case driver.KindInt:
		return v.Int
	case driver.KindFloat:
		if v.Float-v.Float != 0 {
			return fmt.Sprint(v.Float) // JSON has no other way
		}
		return v.Float
	case driver.KindText:
		return string(v.Bytes)
	case driver.KindJSON:
		return json.RawMessage(v.Bytes)
	}
	return base64.StdEncoding.EncodeToString(v.Bytes)
}

// shownElements is the number of elements of an array that are shown.
const shownElements = 8

func valueText(v *pack.Value) string {
	f := v.Field
	size := units.Int(len(v.Bytes)) + " bytes"
	switch f.Kind {
	case driver.KindText, driver.KindJSON:
		return string(v.Bytes)
	case driver.KindInt:
		return fmt.Sprint(v.Int)
	case driver.KindFloat:
		return fmt.Sprintf("%.6g", v.Float)
	case driver.KindLabel:
		if c := v.Class(); c != "" {
			return fmt.Sprintf("%d (%s)", v.Int, c)
		}
		return fmt.Sprint(v.Int)
	case driver.KindImage, driver.KindMask:
		out := fmt.Sprintf("%s, %d x %d pixels, %s", pack.CodecName(v.Codec), v.Width, v.Height, size)
		if v.Orientation > 1 {
			out += fmt.Sprintf(", EXIF orientation %d", v.Orientation)
		}
		if n := len(v.EXIF) + len(v.ICC); n > 0 {
			out += fmt.Sprintf(", %s bytes of metadata", units.Int(int64(n)))
		}
		return out
	case driver.KindArray, driver.KindVolume, driver.KindRagged, driver.KindTokens, driver.KindBoxes, driver.KindKeyPoints:
		return fieldType(f) + ": " + elements(f.DType, v.Bytes)
	case driver.KindMultiLabel:
		var names []string
		for i := 0; i+8 <= len(v.Bytes); i += 8 {
			k := binary.LittleEndian.Uint64(v.Bytes[i:])
			name := fmt.Sprint(k)
			if k < uint64(len(f.Classes)) {
				name += " (" + f.Classes[k] + ")"
			}
			names = append(names, name)
		}
		return strings.Join(names, ", ")
	}
	return size
}

// elements are the first elements of an array.
func elements(t driver.DType, b []byte) string {
	n := len(b) / t.Size()
	var parts []string
	for i := range min(n, shownElements) {
		parts = append(parts, element(t.Type(), b[i*t.Size():]))
	}
	if n > shownElements {
		parts = append(parts, "...")
	}
	return strings.Join(parts, " ")
}

// element is one number of an array.
func element(t dtype.Type, b []byte) string {
	switch {
	case t == dtype.F16:
		return fmt.Sprintf("%.4g", t.Float(b))
	case t.Floating():
		return fmt.Sprintf("%.6g", t.Float(b))
	case t == dtype.U64:
		return fmt.Sprint(t.Bits(b))
	}
	return fmt.Sprint(t.Int(b))
}
