package store

import (
	"fmt"
	"strings"
)

// maxName is the maximum length of a name in bytes, as for paths on Linux. A store may have a lower limit.
const maxName = 4096

// CheckName returns an error for an invalid name. A valid name has parts separated by slashes. No part is empty,
// "." or "..", and there is no zero byte, so a name cannot lead out of the store. "" is the root. All other bytes
// are allowed, because file systems do not enforce an encoding.
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
