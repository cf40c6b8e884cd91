package tablesource

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/stokerdata/stoker/source/driver"
)

// isNumber reports whether a word is a number in digits, or a word such as nan or inf. Words with
// leading zeros are codes and not numbers.
func isNumber(b []byte) bool {
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		b = b[1:]
	}
	switch {
	case len(b) == 0:
		return false
	case len(b) > 1 && b[0] == '0' && b[1] >= '0' && b[1] <= '9':
		return false
	case b[0] == 'n' || b[0] == 'N' || b[0] == 'i' || b[0] == 'I':
		switch string(bytes.ToLower(b)) {
		case "nan", "inf", "infinity":
			return true
		}
		return false
	}
	i, digits := 0, 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		digits++
	}
	if i < len(b) && b[i] == '.' {
		for i++; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
			digits++
		}
	}
	if digits == 0 {
		return false
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '-' || b[i] == '+') {
			i++
		}
		if i == len(b) {
			return false
		}
		for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		}
	}
	return i == len(b)
}

// isWhole reports whether a number has neither a point nor an exponent.
func isWhole(b []byte) bool {
	for i, c := range b {
		if (c < '0' || c > '9') && (i > 0 || c != '-' && c != '+') {
			return false
		}
	}
	return len(b) > 0
}

// isMissing reports whether a cell of CSV means "no value" in a column of numbers.
func isMissing(b []byte) bool {
	switch string(b) {
	case "", "NA", "N/A", "NULL", "null", "None", "nan", "NaN":
		return true
	}
	return false
}

// isTruth parses a boolean. ok is false if the word is neither true nor false.
func isTruth(b []byte) (value, ok bool) {
	switch string(b) {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

func parseInt(b []byte) (int64, error) {
	v, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		if isNumber(b) && isWhole(b) {
			return 0, fmt.Errorf("%s is out of range of 64 bits", b)
		}
		return 0, fmt.Errorf("%s is not a whole number", cell{b: b}.short())
	}
	return v, nil
}

func parseFloat(b []byte) (float64, error) {
	if !isNumber(b) {
		return 0, fmt.Errorf("%s is not a number", cell{b: b}.short())
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if errors.Is(err, strconv.ErrRange) {
		return v, nil // infinite, as in other readers
	}
	return v, err
}

// numbers are the numbers of a list, or of a list of lists.
type numbers struct {
	// rows is the length of the list, shape the shape of its elements.
	rows  int
	shape []int
	// whole reports that all are whole numbers, from min to max.
	whole    bool
	min, max int64
	text     [][]byte
	leaf     int // the depth of the numbers, -1 before the first
}

var (
	errNoNumbers = errors.New("it is not a list of numbers")
	errUneven    = errors.New("lists in it differ in length")
)

// maxNumbers limits the numbers of one value.
const maxNumbers = driver.MaxArrayBytes / 8

// read parses a JSON list.
func (n *numbers) read(b []byte) error {
	n.shape, n.text, n.leaf = n.shape[:0], n.text[:0], -1
	n.whole, n.min, n.max = true, math.MaxInt64, math.MinInt64
	at, rows, err := n.list(b, space(b, 0), 0)
	if err != nil {
		return err
	}
	n.rows = rows
	if space(b, at) < len(b) {
		return errNoNumbers
	}
	return nil
}

// list reads the list that starts at b[at], at the given depth.
func (n *numbers) list(b []byte, at, depth int) (end, length int, err error) {
	if at >= len(b) || b[at] != '[' || depth >= driver.MaxAxes {
		return 0, 0, errNoNumbers
	}
	at = space(b, at+1)
	if at < len(b) && b[at] == ']' {
		if depth > 0 {
			return 0, 0, errUneven
		}
		return at + 1, 0, nil
	}
	for {
		if at >= len(b) {
			return 0, 0, errNoNumbers
		}
		if b[at] == '[' {
			if n.leaf >= 0 && depth >= n.leaf {
				return 0, 0, errNoNumbers // a list next to a number
			}
			if len(n.shape) == depth {
				n.shape = append(n.shape, 0) // the first list sets the length of the others
			}
			sub := 0
			if at, sub, err = n.list(b, at, depth+1); err != nil {
				return 0, 0, err
			}
			if n.shape[depth] == 0 {
				n.shape[depth] = sub
			} else if n.shape[depth] != sub {
				return 0, 0, errUneven
			}
		} else {
			if n.leaf >= 0 && depth != n.leaf {
				return 0, 0, errNoNumbers
			}
			n.leaf = depth
			if at, err = n.number(b, at); err != nil {
				return 0, 0, err
			}
		}
		length++
		if at = space(b, at); at >= len(b) {
			return 0, 0, errNoNumbers
		}
		if b[at] == ']' {
			return at + 1, length, nil
		}
		if b[at] != ',' {
			return 0, 0, errNoNumbers
		}
		at = space(b, at+1)
	}
}

func (n *numbers) number(b []byte, at int) (int, error) {
	end := at
	for end < len(b) && b[end] != ',' && b[end] != ']' && space(b, end) == end {
		end++
	}
	word := b[at:end]
	if !isNumber(word) || len(n.text) >= maxNumbers {
		return 0, errNoNumbers
	}
	n.text = append(n.text, word)
	if n.whole {
		v, err := strconv.ParseInt(string(word), 10, 64)
		if n.whole = err == nil; n.whole {
			n.min, n.max = min(n.min, v), max(n.max, v)
		}
	}
	return end, nil
}

// appendTo appends the numbers as elements of type t.
func (n *numbers) appendTo(to []byte, t driver.DType) ([]byte, error) {
	for _, word := range n.text {
		if t == driver.Float64 {
			v, err := parseFloat(word)
			if err != nil {
				return to, err
			}
			to = binary.LittleEndian.AppendUint64(to, math.Float64bits(v))
			continue
		}
		v, err := parseInt(word)
		if err != nil {
			return to, err
		}
		switch most := int64(math.MaxUint32); t {
		case driver.Uint16, driver.Uint32:
			if t == driver.Uint16 {
				most = math.MaxUint16
			}
			if v < 0 || v > most {
				return to, fmt.Errorf("%d does not fit %s", v, t)
			}
			if t == driver.Uint16 {
				to = binary.LittleEndian.AppendUint16(to, uint16(v))
			} else {
				to = binary.LittleEndian.AppendUint32(to, uint32(v))
			}
		default:
			to = binary.LittleEndian.AppendUint64(to, uint64(v))
		}
	}
	return to, nil
}

// texts calls f for each string of a list.
func texts(b []byte, f func(text []byte)) error {
	var all []string
	if err := json.Unmarshal(b, &all); err != nil {
		return errors.New("it is not a list of text")
	}
	for _, s := range all {
		f([]byte(s))
	}
	return nil
}
