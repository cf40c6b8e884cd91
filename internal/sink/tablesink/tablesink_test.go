package tablesink_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source/driver"
)

// values returns the elements of an array as JSON decodes them.
func values(f *driver.Field, v *driver.Value) (out []any) {
	t := f.DType
	if f.Kind == driver.KindMultiLabel {
		t = driver.Int64
	}
	for at := 0; at < len(v.Bytes); at += t.Size() {
		switch {
		case f.Kind == driver.KindMultiLabel:
			out = append(out, sinktest.Classes[t.Type().Int(v.Bytes[at:])])
		case t == driver.Bool:
			out = append(out, v.Bytes[at] != 0)
		default:
			out = append(out, float32(t.Type().Float(v.Bytes[at:])))
		}
	}
	return out
}

func flat(x any) (out []any) {
	switch x := x.(type) {
	case []any:
		for _, e := range x {
			out = append(out, flat(e)...)
		}
		return out
	case float64:
		return []any{float32(x)}
	}
	return []any{x}
}

func same(want, got *driver.Field, w, g *driver.Value) bool {
	switch want.Kind {
	case driver.KindLabel:
		return string(g.Bytes) == want.Classes[w.Int]
	case driver.KindText, driver.KindImage, driver.KindAudio, driver.KindBytes:
		return string(g.Bytes) == string(w.Bytes)
	case driver.KindMask:
		return sinktest.File(want, w) == string(g.Bytes)
	case driver.KindJSON:
		var a, b any
		return json.Unmarshal(w.Bytes, &a) == nil && json.Unmarshal(g.Bytes, &b) == nil && reflect.DeepEqual(a, b)
	}
	if got.Kind == driver.KindJSON || got.Kind == driver.KindText {
		var x any
		return json.Unmarshal(g.Bytes, &x) == nil && fmt.Sprint(flat(x)) == fmt.Sprint(values(want, w))
	}
	b := driver.Value{Bytes: g.Bytes}
	return fmt.Sprint(values(got, &b)) == fmt.Sprint(values(want, w))
}

func TestConformance(t *testing.T) {
	for _, name := range []string{"jsonl", "csv", "tsv"} {
		suite := &sinktest.Suite{
			Target: name + ":out", Kinds: sinktest.Kinds,
			Read: "/shard-00000." + name + "?image:image&audio:audio&mask:mask&bytes:bytes&*", Same: same,
		}
		if name == "jsonl" {
			sinktest.Run(t, suite)
		} else {
			t.Run(name, suite.Equal)
		}
	}
}

func TestFileOfNumbersAndText(t *testing.T) {
	sinktest.Run(t, &sinktest.Suite{
		Target: "out.csv", Same: same,
		Kinds: slices.DeleteFunc(slices.Clone(sinktest.Kinds), func(k driver.Kind) bool {
			return k == driver.KindImage || k == driver.KindMask || k == driver.KindAudio || k == driver.KindBytes
		}),
	})
}
