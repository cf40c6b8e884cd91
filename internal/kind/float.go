package kind

import (
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// Float is a plain float64.
var Float = Kind{Name: driver.KindFloat, Number: true, Plan: planNumbers(item.F64)}
