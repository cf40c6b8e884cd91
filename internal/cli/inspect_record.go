package cli

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

// inspectRecord shows a record of a pack without images.
func (app *App) inspectRecord(r *pack.Reader, rec *pack.Record, export string, asJSON bool) error {
	if export != "" {
		data, err := exportRecord(rec)
		if err != nil {
			return err
		}
		if export == "-" {
			_, err = app.Stdout.Write(data)
			return err
		}
		if err := writeBytes(export, data); err != nil {
			return &Error{Msg: "cannot export record " + FormatCount(rec.ID), Err: err}
		}
	}
	shard, chunk, in := r.Whereabouts(rec.ID)
	if asJSON {
		values := map[string]any{}
		for _, v := range rec.Values {
			switch driver.Kind(v.Field.Kind) {
			case driver.KindText:
				values[v.Field.Name] = string(v.Bytes)
			case driver.KindLabel, driver.KindInt:
				values[v.Field.Name] = v.Int
			default:
				values[v.Field.Name] = base64.StdEncoding.EncodeToString(v.Bytes)
			}
		}
		return json.NewEncoder(app.Stdout).Encode(map[string]any{
			"record": rec.ID, "values": values, "shard": shard, "chunk": chunk, "row": in,
		})
	}
	var out strings.Builder
	line := func(name, format string, a ...any) {
		fmt.Fprintf(&out, "  %s %s\n", dimStyle.Width(12).Render(name), fmt.Sprintf(format, a...))
	}
	fmt.Fprintf(&out, "%s\n", headStyle.Render(fmt.Sprintf("%s, record %s", r.Dir(), FormatCount(rec.ID))))
	for _, v := range rec.Values {
		line(clean(v.Field.Name), "%s", clean(valueText(&v)))
	}
	line("place", "%s, chunk %d, row %d", shard, chunk, in)
	if export != "" {
		line("exported to", "%s", export)
	}
	_, err := lipgloss.Fprint(app.Stdout, out.String())
	return err
}

// exportRecord is the first field of bytes, or the first array as a .npy file.
func exportRecord(rec *pack.Record) ([]byte, error) {
	for _, v := range rec.Values {
		if v.Field.Kind == pack.KindBytes {
			return v.Bytes, nil
		}
	}
	for _, v := range rec.Values {
		if v.Field.DType != "" {
			shape := make([]int64, len(v.Field.Shape))
			for i, n := range v.Field.Shape {
				shape[i] = int64(n)
			}
			return append(npy.AppendHeader(nil, driver.DType(v.Field.DType), shape), v.Bytes...), nil
		}
	}
	return nil, &Error{Msg: "nothing to export: the record has neither bytes nor an array"}
}

// shownElements is how many elements of an array are shown.
const shownElements = 8

func valueText(v *pack.Value) string {
	switch driver.Kind(v.Field.Kind) {
	case driver.KindText:
		return string(v.Bytes)
	case driver.KindInt:
		return fmt.Sprint(v.Int)
	case driver.KindLabel:
		if v.Int >= 0 && v.Int < int64(len(v.Field.Classes)) {
			return fmt.Sprintf("%d (%s)", v.Int, v.Field.Classes[v.Int])
		}
		return fmt.Sprint(v.Int)
	case driver.KindArray:
		t := driver.DType(v.Field.DType)
		n := len(v.Bytes) / t.Size()
		var parts []string
		for i := range min(n, shownElements) {
			parts = append(parts, element(t, v.Bytes[i*t.Size():]))
		}
		if n > shownElements {
			parts = append(parts, "...")
		}
		return fieldType(v.Field) + ": " + strings.Join(parts, " ")
	}
	return FormatCount(int64(len(v.Bytes))) + " bytes"
}

// element is one number of an array.
func element(t driver.DType, b []byte) string {
	u := uint64(0)
	for i := range t.Size() {
		u |= uint64(b[i]) << (8 * i)
	}
	switch t {
	case driver.Int8:
		return fmt.Sprint(int8(u))
	case driver.Int16:
		return fmt.Sprint(int16(u))
	case driver.Int32:
		return fmt.Sprint(int32(u))
	case driver.Int64:
		return fmt.Sprint(int64(u))
	case driver.Float16:
		return fmt.Sprintf("%.4g", half(uint16(u)))
	case driver.Float32:
		return fmt.Sprintf("%.6g", math.Float32frombits(uint32(u)))
	case driver.Float64:
		return fmt.Sprintf("%.6g", math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}
	return fmt.Sprint(u)
}

// half is a number of IEEE 754 binary16.
func half(h uint16) float64 {
	sign, exp, frac := 1.0, int(h>>10&31), float64(h&1023)
	if h>>15 != 0 {
		sign = -1
	}
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac == 0 {
			return sign * math.Inf(1)
		}
		return math.NaN()
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}
