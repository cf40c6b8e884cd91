package driver

import (
	"strconv"
	"strings"
)

// A pack may store several variants of each record, made by random transforms during packing. The
// field image then becomes image~0, image~1, and so on, next to the fields that are equal in all
// variants. A reader gets one variant, under the original name (package
// internal/source/wrap/variants). The order of records selects the variant.

// Varied is implemented by sources that store several variants of each record. The number of
// variant v of record id is InEpoch(v, id). The number id alone is variant 0.
type Varied interface {
	// Variants returns the number of variants, 1 if there is no choice.
	Variants() int
	// Varies reports whether the values of a field, an index of Info.Fields, differ per variant.
	Varies(field int) bool
}

// VariantsOf returns the number of variants of a source, 1 if it has none.
func VariantsOf(s Source) int {
	if v, ok := As[Varied](s); ok {
		return v.Variants()
	}
	return 1
}

// Varies reports whether the values of a field differ per variant of a record.
func Varies(s Source, field int) bool {
	v, ok := As[Varied](s)
	return ok && v.Variants() > 1 && v.Varies(field)
}

// MaxVariants is the limit of variants of a record in a pack.
const MaxVariants = 32

// variantMark separates the name of a field from the number of the variant.
const variantMark = "~"

// VariantName returns the name of variant v of a field in a pack.
func VariantName(field string, v int) string { return field + variantMark + strconv.Itoa(v) }

// CutVariant is the inverse of VariantName. Text after an @ is the resolution and belongs to the
// field: image~1@192 is a variant of image@192.
func CutVariant(name string) (field string, v int, ok bool) {
	name, resolution, at := strings.Cut(name, "@")
	i := strings.LastIndex(name, variantMark)
	if i < 1 {
		return "", 0, false
	}
	digits := name[i+len(variantMark):]
	v, err := strconv.Atoi(digits)
	if err != nil || v < 0 || v >= MaxVariants || strconv.Itoa(v) != digits {
		return "", 0, false
	}
	field = name[:i]
	if at {
		field += "@" + resolution
	}
	return field, v, true
}
