package store

import (
	"fmt"
	"strings"
)

// maxName is the longest name in bytes, that of paths on Linux. A store may have
// a lower limit.
const maxName = 4096

// CheckName says whether a name can be one: parts with a slash between them, none
// of which is empty, "." or "..", and no zero byte. So no name leads out of the
// store. "" is the root. Any other byte may be in a name, for file systems do
// not care about encodings.
func CheckName(name string) error {
	if name == "" {
		return nil
	}
	if len(name) > maxName {
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrName, len(name), maxName)
	}
	if strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("%w: %q has a zero byte", ErrName, name)
	}
	for rest, more := name, true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%w: %q has the part %q", ErrName, name, part)
		}
	}
	return nil
}
