package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/cache/cachetest"
	"github.com/stokerdata/stoker/internal/units"
)

func TestMain(m *testing.M) {
	if os.Getenv(stuckVariable) != "" {
		os.Exit(runStuck())
	}
	cachetest.Main(m)
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, ExitOK},
		{errors.New("broken"), ExitFailure},
		{&Error{Msg: "no code"}, ExitFailure},
		{usageError("", "bad flag"), ExitUsage},
		{fmt.Errorf("wrapped: %w", &Error{Code: ExitDamaged}), ExitDamaged},
		{fmt.Errorf("reading: %w", context.Canceled), ExitInterrupted},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("exitCode(%v) = %d, want %d", test.err, got, test.want)
		}
	}
}

func TestErrorText(t *testing.T) {
	var out bytes.Buffer
	printError(&out, &Error{Msg: "cannot read train/", Err: os.ErrPermission, Hint: "check its mode\nor its owner"})
	want := "stoker: cannot read train/: permission denied\n  hint: check its mode\n  hint: or its owner\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{{"pakc"}, {"version", "--jsom"}, {"version", "extra"}} {
		var out, errOut bytes.Buffer
		if code := Main(args, strings.NewReader(""), &out, &errOut); code != ExitUsage {
			t.Errorf("%v: exit code %d, want %d", args, code, ExitUsage)
		}
		if s := errOut.String(); !strings.HasPrefix(s, "stoker: ") || !strings.Contains(s, "hint: ") {
			t.Errorf("%v: message %q", args, s)
		}
		if out.Len() > 0 {
			t.Errorf("%v: wrote %q to stdout", args, out.String())
		}
	}
}

// A bug must end in one readable line, with the stack in a file.
func TestPanicIsReported(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	reportPanic(&out, "index out of range", []byte("goroutine 1\n"))
	s := out.String()
	if !strings.HasPrefix(s, "stoker: internal error: index out of range\n") || strings.Contains(s, "goroutine") {
		t.Errorf("message %q", s)
	}
	_, rest, _ := strings.Cut(s, "the details are in ")
	name, _, _ := strings.Cut(rest, ";")
	details, err := os.ReadFile(name)
	if err != nil || !bytes.Contains(details, []byte("goroutine 1")) {
		t.Errorf("details %q: %v", details, err)
	}
}

func TestProgressStatus(t *testing.T) {
	app := &App{Stderr: &bytes.Buffer{}}
	p := app.NewProgress("packing", "files", 2000)
	defer p.Stop()
	p.Skip(1000)
	p.Add(500, 50_000_000)
	got := p.status(p.start.Add(5 * time.Second))
	want := "1,500/2,000 files  75%  100 files/s  10.0 MB/s  5.0s left"
	if got != want {
		t.Errorf("status %q, want %q", got, want)
	}
}

func TestProgressOfTime(t *testing.T) {
	app := &App{Stderr: &bytes.Buffer{}}
	p := app.NewProgress("measuring", "", 10_000)
	defer p.Stop()
	p.Add(4000, 0)
	if got, want := p.status(p.start.Add(time.Second)), "40%  6.0s left"; got != want {
		t.Errorf("status %q, want %q", got, want)
	}
}

// TestFit holds that lines of words are broken at words, and tables keep their columns.
func TestFit(t *testing.T) {
	row := "  " + strings.Repeat("column  ", 12)
	words := "    " + strings.Repeat("a sentence of several words ", 8)
	got := fit("short   \n" + row + "\n" + words + "\n" + strings.Repeat("─", 90))
	lines := strings.Split(got, "\n")
	if lines[0] != "short" || lines[1] != strings.TrimRight(row, " ") || len([]rune(lines[len(lines)-1])) != pageWidth {
		t.Errorf("%q", lines)
	}
	if joined := strings.Join(strings.Fields(strings.Join(lines[2:len(lines)-1], " ")), " "); joined != strings.TrimSpace(words) {
		t.Errorf("%q", joined)
	}
	for i, line := range lines[2 : len(lines)-1] {
		if len(line) > pageWidth || !strings.HasPrefix(line, "    ") || i > 0 && !strings.HasPrefix(line, "      ") {
			t.Errorf("%q", line)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{units.Int(0), "0"},
		{units.Int(999), "999"},
		{units.Int(-1234567), "-1,234,567"},
		{units.Bytes(999), "999 B"},
		{units.Bytes(1000), "1.00 kB"},
		{units.Bytes(9_995_000), "10.0 MB"},
		{units.Bytes(110_400), "110 kB"},
		{units.Bytes(999_999_999), "1.00 GB"},
		{units.Elapsed(850 * time.Millisecond), "850ms"},
		{units.Elapsed(3200 * time.Millisecond), "3.2s"},
		{units.Elapsed(725 * time.Second), "12m05s"},
		{units.Elapsed(200 * time.Minute), "3h20m"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}
