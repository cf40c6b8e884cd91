package steptime

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestRunCommandWithoutSteps(t *testing.T) {
	var out bytes.Buffer
	r, err := RunCommand(context.Background(), CommandOptions{Args: []string{"sh", "-c", "echo hello; exit 3"}, Output: &out})
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode != 3 || r.Steps != nil || r.Ended || out.String() != "hello\n" || r.Seconds <= 0 {
		t.Errorf("%+v, output %q", r, out.String())
	}
	if _, err := RunCommand(context.Background(), CommandOptions{Args: []string{"/no/such/program"}}); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("a program that is not there: %v", err)
	}
}

func TestRunCommandIsEnded(t *testing.T) {
	r, err := RunCommand(context.Background(), CommandOptions{Args: []string{"sh", "-c", "sleep 60 & sleep 60"}, For: 150 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Ended { // and both sleeps are: it would have waited for them
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := RunCommand(ctx, CommandOptions{Args: []string{"sleep", "60"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command that was called off: %v", err)
	}
}
