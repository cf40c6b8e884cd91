package kind

import (
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// Int is a plain int64.
var Int = Kind{Name: driver.KindInt, Number: true, Plan: planNumbers(item.I64)}
