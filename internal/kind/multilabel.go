package kind

import (
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// MultiLabel is any number of class numbers.
var MultiLabel = Kind{Name: driver.KindMultiLabel, Plan: planRagged(ofClasses, nil)}

func ofClasses(*Want) (item.DType, []int, error) { return item.I64, nil, nil }
