package cli

import (
	"os"
	"strings"
	"testing"
)

// TestDoctorAdviceCanBeTyped gives every command that advice prints to the real command tree.
// python/tests/test_doctor.py checks the options of Python functions in advice.
func TestDoctorAdviceCanBeTyped(t *testing.T) {
	data, err := os.ReadFile("../doctor/testdata/actions.txt")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(data)) {
		line, ok := strings.CutSuffix(line, "\n")
		if !ok || !strings.HasPrefix(line, "stoker ") {
			continue
		}
		found++
		typed, _, _ := strings.Cut(line, "  #")
		if err := check(typed, true); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if found < 5 {
		t.Errorf("%d commands", found)
	}
}
