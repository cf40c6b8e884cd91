package kind

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// Ragged is an array whose first axis is of any length.
var Ragged = Kind{Name: driver.KindRagged, Plan: planRagged(ofElements, nil)}

// ofElements is for planRagged: elements of the first axis have the field's type and shape.
func ofElements(w *Want) (item.DType, []int, error) {
	if _, err := driver.ArrayBytes(w.F.DType, w.F.Shape); err != nil {
		return 0, nil, fmt.Errorf("field %q: %w", w.F.Name, err)
	}
	dtype, err := elementType(w)
	return dtype, w.F.Shape, err
}
