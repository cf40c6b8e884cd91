package handoff

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/stokerdata/stoker/internal/pipeline"
)

// array is the JSON form of item.Array.
type array struct {
	Name     string `json:"name"`
	Kind     string `json:"kind,omitempty"`
	Format   string `json:"format,omitempty"`
	DType    string `json:"dtype"`
	Shape    []int  `json:"shape"`
	Offset   int64  `json:"offset"`
	RowBytes int64  `json:"row_bytes"`
	// Of ragged arrays only.
	Ragged   bool   `json:"ragged,omitempty"`
	Offsets  *int64 `json:"offsets,omitempty"`
	Capacity *int64 `json:"capacity,omitempty"`
	// The next fields describe padded arrays and the arrays of their lengths and masks.
	Padded   bool   `json:"padded,omitempty"`
	LengthAt *int64 `json:"length_at,omitempty"`
	Of       string `json:"of,omitempty"`
}

// infoJSON returns the description of an open pipeline, as in docs/reference/protocol.md.
func infoJSON(info pipeline.Info, version string) ([]byte, error) {
	arrays := make([]array, len(info.Arrays))
	for i, a := range info.Arrays {
		shape := a.Shape
		if shape == nil {
			shape = []int{}
		}
		arrays[i] = array{Name: a.Name, Kind: a.Kind, Format: a.Format, DType: a.DType.String(), Shape: shape, Offset: a.Offset, RowBytes: a.RowBytes}
		arrays[i].Of = a.Of
		if a.Padded {
			arrays[i].Padded, arrays[i].LengthAt, arrays[i].Capacity = true, &a.LengthAt, &a.Capacity
		}
		if a.Ragged {
			arrays[i].Ragged, arrays[i].Offsets, arrays[i].Capacity = true, &a.Offsets, &a.Capacity
		}
	}
	out, err := json.Marshal(struct {
		pipeline.Info
		Arrays        []array `json:"arrays"` // instead of Info's
		EngineVersion string  `json:"engine_version"`
	}{info, arrays, version})
	if err != nil {
		return nil, fmt.Errorf("describing the data: %w", err)
	}
	return out, nil
}

// statsJSON returns the statistics as JSON that fits into a message.
func statsJSON(p Pipeline) []byte {
	st := p.Stats()
	out, err := json.Marshal(st)
	if err != nil || len(out) > MaxMessage-16 {
		st.Stages, st.Waiting = nil, clip(st.Waiting)
		if out, err = json.Marshal(st); err != nil {
			return []byte("{}")
		}
	}
	return out
}

// badReport returns the names of the records that were skipped in an epoch.
func badReport(ev *pipeline.Event) string {
	if ev.Skipped == 0 {
		return ""
	}
	lines := make([]string, 0, len(ev.Bad)+1)
	for i := range ev.Bad {
		lines = append(lines, ev.Bad[i].Error())
	}
	if more := ev.Skipped - int64(len(ev.Bad)); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}
