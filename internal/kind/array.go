package kind

import "github.com/stokerdata/stoker/source/driver"

// Array is an array of one type and shape in all records.
var Array = Kind{Name: driver.KindArray, Plan: planFixed}
