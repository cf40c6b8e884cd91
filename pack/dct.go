package pack

import (
	"github.com/stokerdata/stoker/pack/internal/imagefile"
)

// dct stores the JPEG b without its entropy code. It reports false where that
// is not possible; the JPEG is then kept as it is and the reason counted.
func (e *encoder) dct(b []byte, info *imagefile.Info, j *job) (bool, error) {
	j.rec.notDCT = "not built in"
	return false, nil
}
