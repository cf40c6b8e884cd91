package transform

import (
	"slices"
	"strings"
	"testing"
)

// The keys of a struct are those that encoding/json reads.
func TestKeysOf(t *testing.T) {
	type inner struct{ X int }
	type all struct {
		A      int `json:"a"`
		B      int `json:"b_c,omitempty"`
		Hidden int `json:"-"`
		Plain  inner
		own    int
	}
	if got := KeysOf[all](); !slices.Equal(got, []string{"a", "b_c", "Plain"}) {
		t.Errorf("%q", got)
	}
	if err := CheckKeysOf[all]([]byte(`{"a":1,"Hidden":2}`), "it"); err == nil || !strings.Contains(err.Error(), `it has no parameter "Hidden"`) {
		t.Error(err)
	}
	_ = all{}.own
}
