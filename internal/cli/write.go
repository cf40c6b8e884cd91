package cli

import (
	"io"

	"github.com/stokerdata/stoker/internal/store/localstore"
)

// writeBytes writes a file that appears whole or not at all.
func writeBytes(path string, data []byte) error {
	return localstore.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}
