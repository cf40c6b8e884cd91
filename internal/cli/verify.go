package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/pack"
)

func newVerifyCommand(app *App) *cobra.Command {
	var opt pack.VerifyOptions
	var asJSON bool
	var memory string
	cmd := &cobra.Command{
		Use:     "verify PACK",
		GroupID: groupData,
		Short:   "Check that a pack is complete and undamaged",
		Long: `Read the whole pack and compare every checksum. Damage is listed by shard, chunk and
record, and the exit code is 4.

--decode also decodes every image, mask, recording and video clip, within --memory. A
record that is intact but cannot be decoded on this machine is listed, and the exit code
is 3.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if opt.Threads < 0 {
				return usageError("", "--threads %d: give 1 or more, or 0 for one per core", opt.Threads)
			}
			opt.OwnProcess = true
			if memory != "" {
				var err error
				if opt.Memory, err = parseBytes("--memory", memory); err != nil {
					return err
				}
			}
			m, err := pack.ReadManifest(args[0])
			if errors.Is(err, pack.ErrDamaged) {
				return &Error{Code: ExitDamaged, Msg: err.Error(), Hint: "copy manifest.json from a copy of the pack, or pack the source again"}
			}
			if err != nil {
				return err
			}
			shown := stores.Public(args[0])
			progress := app.NewProgress("verifying", "records", m.Records)
			opt.Progress = progress.Add
			start := time.Now()
			rep, err := pack.Verify(app.Context, args[0], &opt)
			progress.Stop()
			if err != nil {
				return err
			}
			if err := app.printReport(rep, shown, opt.Decode, asJSON, time.Since(start)); err != nil {
				return err
			}
			return judge(rep, shown)
		},
	}
	cmd.Flags().BoolVar(&opt.Decode, "decode", false, "also decode every image, mask, recording and clip")
	cmd.Flags().IntVar(&opt.Threads, "threads", 0, "chunks checked at the same time (default one per core)")
	cmd.Flags().StringVar(&memory, "memory", "", "`size` of what may be taken to decode (default a quarter of the free memory)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// judge is the error that a report ends with, nil if all is well.
func judge(rep *pack.Report, dir string) error {
	n := len(rep.Problems)
	switch {
	case n > 0 && !slices.ContainsFunc(rep.Problems, func(p pack.Problem) bool { return !p.Intact }):
		return &Error{Code: ExitDamaged, Msg: fmt.Sprintf("%s holds damaged files: %s cannot be decoded", dir, units.Plural(n, "record")),
			Hint: "their checksums are right, so they were damaged before they were packed: replace the files and pack the source again"}
	case n > 0:
		return &Error{Code: ExitDamaged, Msg: fmt.Sprintf("%s is damaged: %s", dir, units.Plural(n, "problem")),
			Hint: "bring the shards that are named back from a copy, or pack the source again"}
	case len(rep.Unsupported) > 0:
		return &Error{Code: ExitBadInputs, Msg: fmt.Sprintf("%s of %s cannot be decoded here", units.Plural(len(rep.Unsupported), "record"), dir),
			Hint: "the files are intact and not supported: stoker formats lists what this installation decodes"}
	case len(rep.TooLarge) > 0:
		return &Error{Code: ExitBadInputs, Msg: fmt.Sprintf("%s of %s could not be decoded for want of memory", units.Plural(len(rep.TooLarge), "record"), dir),
			Hint: "their checksums are right; give --memory as much as they say"}
	}
	return nil
}

// encoded lists the kinds of values in a pack that need decoding: "image and clip".
func encoded(m *pack.Manifest) string {
	var names []string
	for i := range m.Fields {
		if name := m.Fields[i].Encoded(); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}

func (app *App) printReport(rep *pack.Report, dir string, decoded, asJSON bool, took time.Duration) error {
	if asJSON {
		return json.NewEncoder(app.Stdout).Encode(map[string]any{
			"pack": dir, "whole": len(rep.Problems) == 0, "records": rep.Records, "chunks": rep.Chunks, "bytes": rep.Bytes,
			"decoded": decoded, "fingerprint": rep.Manifest.Fingerprint, "problems": rep.Problems,
			"too_large": append([]pack.Problem{}, rep.TooLarge...), "unsupported": append([]pack.Problem{}, rep.Unsupported...),
		})
	}
	for _, p := range slices.Concat(rep.Problems, rep.Unsupported, rep.TooLarge) {
		if _, err := fmt.Fprintln(app.Stdout, p); err != nil {
			return err
		}
	}
	if len(rep.Problems) > 0 {
		return nil
	}
	what := "every checksum is right"
	if names := encoded(rep.Manifest); decoded && names != "" {
		other := ""
		if len(rep.TooLarge)+len(rep.Unsupported) > 0 {
			other = "other "
		}
		what += " and every " + other + names + " decodes"
	}
	_, err := fmt.Fprintf(app.Stdout, "%s is whole: %s in %s, %s; %s (%s)\n", dir, units.Records(rep.Records),
		units.Plural(int(rep.Chunks), "chunk"), units.Bytes(rep.Bytes), what, units.Elapsed(took))
	if n := rep.Manifest.Options.Augment; err == nil && n > 1 {
		_, err = fmt.Fprintf(app.Stdout, "each record has %d variants (--augment), all of them in these shards\n", n)
	}
	if err == nil && rep.Manifest.Removed() > 0 {
		_, err = fmt.Fprintf(app.Stdout, "%s; stoker pack --compact %s frees them\n", removedText(rep.Manifest), units.Shell(dir))
	}
	if err == nil && len(rep.Stray) > 0 {
		_, err = fmt.Fprintf(app.Stdout, "%s belong to nothing (%s, ...); stoker pack --compact %s deletes them\n", units.Plural(len(rep.Stray), "file"), rep.Stray[0], units.Shell(dir))
	}
	return err
}
