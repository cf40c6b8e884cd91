package kind

import (
	"errors"
	"unicode/utf8"

	"github.com/stokerdata/stoker/source/driver"
)

// Text is UTF-8 of any length: bytes in a batch, which clients convert to strings.
var Text = Kind{Name: driver.KindText, Plan: planRagged(ofBytes, checkText)}

var errNotText = errors.New("is not UTF-8")

func checkText(v []byte) error {
	if !utf8.Valid(v) {
		return errNotText
	}
	return nil
}
