package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/leftover"
)

// stuckVariable makes this test binary the program with a command that ignores its context.
const stuckVariable = "STOKER_TEST_STUCK"

func newStuckCommand(app *App) *cobra.Command {
	return &cobra.Command{Use: "stuck DIR", Args: exactArgs("DIR"), RunE: func(_ *cobra.Command, args []string) error {
		if _, _, err := leftover.MkdirTemp(args[0], "work"); err != nil {
			return err
		}
		leftover.Add("out", "it is unfinished")
		fmt.Fprintln(app.Stdout, "ready")
		for sum := 0; ; sum++ { // a computation without an end
		}
	}}
}

// runStuck is the program with the command.
func runStuck() int {
	commands = append(commands, newStuckCommand)
	return Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// A command that ignores its context ends at the first signal all the same.
func TestSignalEndsComputation(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "stuck", dir)
		cmd.Env = append(os.Environ(), stuckVariable+"=1")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
			t.Fatalf("it says %q: %v", line, err)
		}
		_ = cmd.Process.Signal(signal)
		_ = cmd.Wait()
		want := "stoker: interrupted while it computed\n  hint: out: it is unfinished\n"
		if code := cmd.ProcessState.ExitCode(); code != ExitInterrupted || !strings.HasSuffix(stderr.String(), want) {
			t.Errorf("%v: exit code %d, %q", signal, code, stderr.String())
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); left != nil {
			t.Errorf("%v: %q is left", signal, left)
		}
	}
}
