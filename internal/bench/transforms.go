package bench

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// DefaultTransforms are the usual transforms of training on photographs.
const DefaultTransforms = "RandomResizedCrop(224),RandomHorizontalFlip"

// maxTransforms bounds a list of transforms.
const maxTransforms = 64

// ParseTransforms reads a list such as "RandomResizedCrop(224),ColorJitter(brightness=0.4)"
// into the operations of a pipeline. Names and parameters are torchvision's; the
// first one without a name is the size (a side, or height x width). The engine
// checks them.
func ParseTransforms(s string) ([]json.RawMessage, error) {
	s = strings.TrimSpace(s)
	if s == "" || s == "none" {
		return nil, nil
	}
	var ops []json.RawMessage
	for rest := s; rest != ""; {
		end := strings.IndexAny(rest, "(,")
		name, args := rest, ""
		switch {
		case end < 0:
			rest = ""
		case rest[end] == ',':
			name, rest = rest[:end], rest[end+1:]
			if strings.TrimSpace(rest) == "" {
				return nil, fmt.Errorf("there is nothing after the last comma of %q", s)
			}
		default:
			stop := closing(rest[end:])
			if stop < 0 {
				return nil, fmt.Errorf("a parenthesis of %q is not closed", s)
			}
			name, args = rest[:end], rest[end+1:end+stop]
			rest = strings.TrimSpace(rest[end+stop+1:])
			if rest != "" && rest[0] != ',' {
				return nil, fmt.Errorf("%q: a comma is missing before %q", s, rest)
			}
			rest = strings.TrimPrefix(rest, ",")
		}
		name = strings.TrimSpace(name)
		if name == "" {
			return nil, fmt.Errorf("%q: the name of a transform is missing", s)
		}
		op, err := parseOp(name, args)
		if err != nil {
			return nil, err
		}
		if ops = append(ops, op); len(ops) > maxTransforms {
			return nil, fmt.Errorf("more than %d transforms", maxTransforms)
		}
	}
	return ops, nil
}

// closing returns the place of the parenthesis that closes the first one of s.
func closing(s string) int {
	depth := 0
	for i, r := range s {
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

func parseOp(name, args string) (json.RawMessage, error) {
	op := map[string]any{"op": name}
	var sizes []int
	for _, arg := range splitArgs(args) {
		key, value, named := strings.Cut(arg, "=")
		if !named {
			for side := range strings.SplitSeq(strings.Trim(strings.TrimSpace(arg), "()[]"), ",") {
				n, err := strconv.Atoi(strings.TrimSpace(side))
				if err != nil {
					return nil, fmt.Errorf("%s(%s): write %q with the name of its parameter, such as p=0.5", name, args, strings.TrimSpace(arg))
				}
				sizes = append(sizes, n)
			}
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		value = strings.NewReplacer("(", "[", ")", "]", "'", `"`, "True", "true", "False", "false", "None", "null").Replace(value)
		var v any
		if json.Unmarshal([]byte(value), &v) != nil {
			v = value
		}
		op[key] = v
	}
	switch len(sizes) {
	case 0:
	case 1:
		// torchvision: one number is the shorter side for Resize, a square else.
		if op["size"] = []int{sizes[0], sizes[0]}; name == "Resize" {
			op["size"] = sizes[0]
		}
	case 2:
		op["size"] = sizes
	default:
		return nil, fmt.Errorf("%s(%s): a size has one or two numbers", name, args)
	}
	return json.Marshal(op)
}

// splitArgs splits at commas that no bracket encloses.
func splitArgs(s string) []string {
	var out []string
	depth, from := 0, 0
	for i, r := range s {
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, s[from:i])
				from = i + 1
			}
		}
	}
	if strings.TrimSpace(s[from:]) != "" {
		out = append(out, s[from:])
	}
	return out
}
