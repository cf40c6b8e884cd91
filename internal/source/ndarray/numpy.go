package ndarray

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/source/driver"
)

// NumPy parses a NumPy type such as <f4. For unsupported types it returns the reason.
func NumPy(name string) (Type, string) {
	refused := fmt.Sprintf("has the type %.40q, which is not read", name)
	if len(name) < 3 {
		return Type{}, refused
	}
	n, err := strconv.ParseInt(name[2:], 10, 32)
	if err != nil || n < 1 {
		return Type{}, refused
	}
	t := Type{Size: n, Big: name[0] == '>'}
	switch name[1] {
	case 'S':
		t.Class, t.Big = Text, false
	case 'U':
		t.Class, t.Size = UCS4, 4*n
	case 'V':
		t.Class, t.Big = Opaque, false
	default:
		d, ok := dtype.ParseNumPy(name[1:])
		if !ok || !slices.Contains(driver.DTypes, driver.DType(d.String())) {
			return Type{}, refused
		}
		t.DType = driver.DType(d.String())
	}
	return t, ""
}
