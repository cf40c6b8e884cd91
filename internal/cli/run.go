package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// runVariable tells the hook in a program's Python that its loaders are to be taken
// over, and how: runOptions as JSON.
const runVariable = "STOKER_RUN"

type runOptions struct {
	// Explain prints the place where each part runs before the first batch. First is the number of batches that torch
	// makes first with each loader, to compare with.
	Explain bool `json:"explain"`
	First   int  `json:"first"`
}

// maxFirst bounds First.
const maxFirst = 10000

func newRunCommand(app *App) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:     "run -- COMMAND...",
		GroupID: groupEngine,
		Short:   "Run an unchanged training script, with its PyTorch DataLoaders in Stoker's engine",
		Long: `Run an unchanged training script, with its PyTorch DataLoaders in Stoker's engine.

The script is not changed. Each torch.utils.data.DataLoader is examined when the script
iterates it, also those of frameworks and of derived classes. If the dataset, the
transforms and the collate function are recognised, Stoker's engine builds the same
batches from then on. All other loaders run as before. PyTorch builds the first batches,
so that the speeds can be compared.

At the end, a report on standard error says what was taken over, how fast it was, and what
would make it faster. Signals, standard input and output and the exit code are those of the
command: it replaces this process. With torchrun and other launchers, the first process
reports.`,
		Example: `  stoker run -- python train.py --epochs 3
  stoker run --explain -- python train.py
  stoker run -- torchrun --nproc-per-node 2 train.py`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.ArgsLenAtDash() != 0 || len(args) == 0:
				return usageError("stoker run -- python train.py", "run what? The command goes after --")
			case o.First < 0 || o.First > maxFirst:
				return usageError("", "--first is %d, it must be from 0 to %d", o.First, maxFirst)
			}
			return runCommand(args, o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Explain, "explain", false, "also say before the first batch of each loader what runs where, and why")
	flags.IntVar(&o.First, "first", 10, "how many `BATCHES` of each loader torch makes first, to compare with; 0: none")
	return cmd
}

// runCommand makes a command of this process. It returns only when that fails.
func runCommand(args []string, o runOptions) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return &Error{Code: ExitUsage, Msg: "cannot run " + args[0], Err: err, Hint: "give the command as you would in a shell, after --"}
	}
	hook := hookEnvironment()
	if hook == nil {
		return &Error{Msg: "the Python package is not next to this program", Hint: "use the stoker of the installed package: pip install stoker"}
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	env := append(os.Environ(), hook...)
	env = append(env, runVariable+"="+string(text))
	if self, err := os.Executable(); err == nil && os.Getenv("STOKER_BINARY") == "" {
		env = append(env, "STOKER_BINARY="+self)
	}
	if err := unix.Exec(path, args, lastOfEach(env)); err != nil {
		return &Error{Msg: "cannot run " + args[0], Err: err}
	}
	return nil
}

// lastOfEach leaves of several values of a variable the last one.
func lastOfEach(env []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, e := range slices.Backward(env) {
		name, _, _ := strings.Cut(e, "=")
		if !seen[name] {
			seen[name] = true
			out = append(out, e)
		}
	}
	slices.Reverse(out)
	return out
}
