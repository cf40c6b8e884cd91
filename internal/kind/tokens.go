package kind

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// Tokens is a document as numbers of tokens.
var Tokens = Kind{Name: driver.KindTokens, Plan: planRagged(ofTokens, nil)}

func ofTokens(w *Want) (item.DType, []int, error) {
	if w.F.DType != driver.Uint16 && w.F.DType != driver.Uint32 || len(w.F.Shape) > 0 {
		return 0, nil, fmt.Errorf("field %q: tokens of type %q and shape %v; they are uint16 or uint32 and have one axis", w.F.Name, w.F.DType, w.F.Shape)
	}
	dtype, err := elementType(w)
	return dtype, nil, err
}
