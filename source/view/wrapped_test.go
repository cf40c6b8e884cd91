package view_test

import (
	"testing"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/source/view"
)

// A view has all abilities of its source.
func TestWrapped(t *testing.T) {
	for name, spec := range map[string]view.Spec{
		"fields":  {Drop: []string{"tokens"}, Rename: map[string]string{"caption": "text"}},
		"order":   {Select: []string{"volume", "n", "caption", "image"}},
		"records": {Where: "n >= 10 and label != 'a'"},
		"kinds":   {Kinds: map[string]string{"caption": "bytes"}, Split: "a:0.5,b:0.5", Part: "b"},
		"tensors": {Tensors: map[string]view.Tensor{"x": {{Field: "n"}, {Field: "label", OneHot: true}}}},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Wrapped(t, drivertest.Wrapping{
				Open: func(testing.TB) driver.Source { return sourcetest.Mixed(60).Copied() },
				Wrap: func(t testing.TB, base driver.Source) driver.Source { return open(t, base, spec) },
			})
		})
	}
	t.Run("in order", func(t *testing.T) {
		drivertest.Wrapped(t, drivertest.Wrapping{
			Open: compressed(t),
			Wrap: func(t testing.TB, base driver.Source) driver.Source {
				return open(t, base, view.Spec{Split: "a:0.7,b:0.3", Part: "a"})
			},
			Refuses: []string{"Cutter"}, // there are no volumes
		})
	})
}
