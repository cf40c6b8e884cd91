// Package units reads and writes sizes, times, rates, counts and shares in the usual notations. Commands, the planner
// and reports use it. Tests of both sides read the tables in testdata, which keep the Python package equal to this one.
// It imports nothing of the project.
//
// The parsers are strict. They refuse a figure without a unit if the unit could be guessed wrong, and the error gives
// the correction in one line. All of them return finite numbers above zero.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxText is more than any of these figures needs.
const maxText = 64

// split cuts "64 KB" into 64 and "KB". The number may be "64", "1.5", "4e9" or
// "1,457"; it must be finite and above zero.
func split(s string) (v float64, unit string, err error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, "", fmt.Errorf("it is empty")
	}
	if len(s) > maxText {
		return 0, "", fmt.Errorf("%s is too long to be a figure", quoted(s))
	}
	end := 0
	for end < len(s) {
		c := s[end]
		isExponent := (c == 'e' || c == 'E') && end > 0 && end+1 < len(s) && exponentFollows(s[end+1:])
		isSign := (c == '+' || c == '-') && (end == 0 || s[end-1] == 'e' || s[end-1] == 'E')
		if !isExponent && !isSign && (c < '0' || c > '9') && c != '.' && c != ',' {
			break
		}
		end++
	}
	digits, unit := s[:end], strings.TrimSpace(s[end:])
	if digits == "" {
		return 0, "", fmt.Errorf("%s does not begin with a number", quoted(s))
	}
	plain, err := withoutCommas(digits)
	if err != nil {
		return 0, "", err
	}
	v, err = strconv.ParseFloat(plain, 64)
	switch {
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		return 0, "", fmt.Errorf("%s is not a number", quoted(digits))
	case v < 0:
		return 0, "", fmt.Errorf("%s is below zero", quoted(s))
	case v == 0:
		return 0, "", fmt.Errorf("%s is zero", quoted(s))
	}
	return v, unit, nil
}

// exponentFollows reports whether s begins with what follows the e of 4e9, so
// that "4 EB" and "4e9" are told apart.
func exponentFollows(s string) bool {
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	return s != "" && s[0] >= '0' && s[0] <= '9'
}

// withoutCommas takes the commas out of 1,457,000 and refuses 1,5.
func withoutCommas(s string) (string, error) {
	groups := strings.Split(s, ",")
	last := len(groups) - 1
	for i, g := range groups {
		digits := g
		switch {
		case last == 0:
			continue
		case i == 0:
			digits = strings.TrimLeft(g, "+-")
		case i == last:
			digits, _, _ = strings.Cut(g, ".")
		}
		if strings.Trim(digits, "0123456789") != "" || i > 0 && len(digits) != 3 {
			return "", fmt.Errorf("%s: a comma separates thousands, a point the fraction", quoted(s))
		}
	}
	return strings.Join(groups, ""), nil
}

// quoted writes what the user has typed, as much of it as is good for a message.
func quoted(s string) string {
	const most = 40
	s = strings.TrimSpace(s)
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(strings.ToValidUTF8(s[:most/2], "")) + "..."
}

// typed writes a parsed number as the user would.
func typed(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
