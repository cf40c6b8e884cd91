package cli

import "github.com/spf13/cobra"

func (f *benchFlags) runWorkload(*cobra.Command) error {
	return usageError("stoker bench SOURCE", "the workload %q is not known", f.workload)
}
