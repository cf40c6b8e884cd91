package kind

import "github.com/stokerdata/stoker/source/driver"

// Bytes is a string of bytes of any length.
var Bytes = Kind{Name: driver.KindBytes, Plan: planRagged(ofBytes, nil)}
