package kind

import "github.com/stokerdata/stoker/source/driver"

// JSON is JSON as UTF-8 of any length. Only clients read it.
var JSON = Kind{Name: driver.KindJSON, Plan: planRagged(ofBytes, checkText)}
