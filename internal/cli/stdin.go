package cli

import (
	"fmt"
	"io"
)

// readStdin reads all of standard input, up to most bytes.
func (app *App) readStdin(most int64, what string) ([]byte, error) {
	return readAll(app.Stdin, most, what)
}

// readAll reads r to its end, up to most bytes.
func readAll(r io.Reader, most int64, what string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading standard input: %w", err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s is larger than %d MiB", what, most>>20)
	}
	return data, nil
}
