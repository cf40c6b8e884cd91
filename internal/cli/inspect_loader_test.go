package cli

import (
	"testing"

	"github.com/stokerdata/stoker/internal/kind"
)

func TestLoadersDoSomethingWithEveryKind(t *testing.T) {
	for _, k := range kind.All() {
		if does[k.Name] == "" {
			t.Errorf("inspect says nothing of what a loader does with the kind %s", k.Name)
		}
	}
}
