package jsonread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/store"
)

// File decodes the object with this name, of at most limit bytes, into out, as
// json.Unmarshal does. What says in errors what the file should be: "an index of MDS shards".
func File(ctx context.Context, st store.Store, name string, limit int64, out any, what string) error {
	b, err := store.ReadFile(ctx, st, name, limit)
	if err != nil {
		return err
	}
	return Decode(b, st.Path(name), out, what)
}

// Decode decodes the content of a file. Its errors name the path and, as far as it is
// known, the byte.
func Decode(b []byte, path string, out any, what string) error {
	err := json.Unmarshal(b, out)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		path = fmt.Sprintf("%s, byte %d", path, syntax.Offset)
	case errors.As(err, &kind):
		path = fmt.Sprintf("%s, byte %d", path, kind.Offset)
	}
	return fmt.Errorf("%s: not %s: %w", path, what, err)
}
