package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/dtype"
)

// Array is one array of an example as stored in a batch.
type Array struct {
	Name  string  `json:"name"`
	Shape []int64 `json:"shape"`
	DType string  `json:"dtype"`
}

// maxArray is the largest array of one example that can be meant, in bytes.
const maxArray = 1 << 44

// elementSize returns the size of an element in bytes, 0 for an unknown type.
func elementSize(name string) int {
	t, _ := dtype.ParseAny(name)
	return t.Size()
}

// Bytes returns the size of the array of one example: the product of its shape and the size of an element.
func (a Array) Bytes() float64 {
	v := float64(elementSize(a.DType))
	for _, d := range a.Shape {
		v *= float64(d)
	}
	return v
}

// String returns the array as ParseArray takes it.
func (a Array) String() string {
	dims := make([]string, len(a.Shape))
	for i, d := range a.Shape {
		dims[i] = strconv.FormatInt(d, 10)
	}
	return a.Name + ":" + strings.Join(dims, "x") + ":" + a.DType
}

// ParseArray reads "image:512x512x3:u8": the name, the shape of one example and
// the type of its elements.
func ParseArray(s string) (Array, error) {
	const hint = "write image:512x512x3:u8 (name, shape of one example, type)"
	parts := strings.Split(strings.TrimSpace(s), ":")
	if len(parts) != 3 || parts[0] == "" || len(s) > 256 {
		return Array{}, fmt.Errorf("%q is not an array: %s", s[:min(len(s), 64)], hint)
	}
	a := Array{Name: parts[0], DType: parts[2]}
	if elementSize(a.DType) == 0 {
		return Array{}, fmt.Errorf("%q has a type that is not known: u8, i8, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64", s)
	}
	for dim := range strings.SplitSeq(parts[1], "x") {
		n, err := strconv.ParseInt(dim, 10, 40)
		if err != nil || n < 1 {
			return Array{}, fmt.Errorf("%q has the side %q: %s", s, dim, hint)
		}
		a.Shape = append(a.Shape, n)
		if len(a.Shape) > 8 || a.Bytes() > maxArray {
			return Array{}, fmt.Errorf("%q is larger than an example can be", s)
		}
	}
	return a, nil
}
