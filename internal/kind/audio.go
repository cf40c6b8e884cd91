package kind

import "github.com/stokerdata/stoker/source/driver"

// Audio is encoded sound, as a file holds it: bytes in a batch.
var Audio = Kind{Name: driver.KindAudio, Plan: planRagged(ofBytes, nil)}
