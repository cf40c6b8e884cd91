package kind

import (
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// Label is a class number.
var Label = Kind{Name: driver.KindLabel, Number: true, Labels: true, Plan: planNumbers(item.I64)}
