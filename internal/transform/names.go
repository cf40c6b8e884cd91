package transform

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// OutputKeys returns the keys of an output.
func OutputKeys() []string { return KeysOf[Output]() }

// DTypes returns the names of the types that ToDtype converts to.
func DTypes() []string {
	var all []string
	for _, t := range toDtypes {
		all = append(all, t.String())
	}
	return all
}

// OpText is an operation as text, such as RandomResizedCrop(size=[224,224]).
func OpText(raw json.RawMessage) string {
	name, vals, err := splitOp(raw)
	if err != nil {
		return string(raw)
	}
	var args []string
	for _, k := range slices.Sorted(maps.Keys(vals)) {
		args = append(args, k+"="+string(vals[k]))
	}
	if len(args) == 0 {
		return name
	}
	return name + "(" + strings.Join(args, ", ") + ")"
}
