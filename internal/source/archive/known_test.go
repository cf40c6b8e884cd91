package archive

import (
	"testing"

	"github.com/stokerdata/stoker/internal/source/inorder"
)

// An inconsistent cached scan is not used.
func TestKnownThatMakesNoSense(t *testing.T) {
	good := func() *known {
		return &known{
			File:  inorder.File{Records: 2, Places: []inorder.Place{{}, {Record: 1, At: 50, Skip: 3, Pos: 700}}},
			Names: []byte("a.jpgb.jpg"), Ends: []uint32{5, 10}, At: []int64{512, 1536}, Size: []int64{9, 0},
		}
	}
	if table := good().table(100); table == nil || table.name(1) != "b.jpg" {
		t.Fatalf("%+v", table)
	}
	for name, change := range map[string]func(k *known){
		"names":         func(k *known) { k.Ends[1] = 11 },
		"order":         func(k *known) { k.Ends[0] = 11 },
		"less places":   func(k *known) { k.At = k.At[:1] },
		"less sizes":    func(k *known) { k.Size = nil },
		"negative":      func(k *known) { k.Size[0] = -1 },
		"backwards":     func(k *known) { k.At[1] = 0 },
		"records":       func(k *known) { k.Records = 3 },
		"no places":     func(k *known) { k.Places = nil },
		"first":         func(k *known) { k.Places[0].Record = 1 },
		"outside":       func(k *known) { k.Places[1].At = 100 },
		"skip":          func(k *known) { k.Places[1].Skip = -1 },
		"skip too far":  func(k *known) { k.Places[1].Skip = 701 },
		"same record":   func(k *known) { k.Places[1].Record = 0 },
		"record behind": func(k *known) { k.Places[1].Record = 3 },
		"window":        func(k *known) { k.Window = 1 << 40 },
	} {
		k := good()
		if change(k); k.table(100) != nil {
			t.Errorf("%s: it is used", name)
		}
	}
}
