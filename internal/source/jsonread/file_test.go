package jsonread

import (
	"errors"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

func TestFile(t *testing.T) {
	st := storetest.NewMemory(map[string][]byte{
		"good": []byte(`{"n": 7}`), "cut": []byte(`{"n": 7`), "kind": []byte(`{"n": "x"}`), "long": []byte(`{"n": 1234567890}`),
	})
	var v struct{ N int }
	if err := File(t.Context(), st, "good", 10, &v, "a count"); err != nil || v.N != 7 {
		t.Error(err, v)
	}
	for name, want := range map[string]string{
		"cut":  "memory:cut, byte 7: not a count: unexpected end of JSON input",
		"kind": "memory:kind, byte 9: not a count: json: cannot unmarshal string",
		"long": "it has 17 bytes, the limit is 10",
	} {
		if err := File(t.Context(), st, name, 10, &v, "a count"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if err := File(t.Context(), st, "none", 10, &v, "a count"); !errors.Is(err, store.ErrNotExist) {
		t.Error(err)
	}
}
