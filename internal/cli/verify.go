package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
)

func newVerifyCommand(app *App) *cobra.Command {
	var opt pack.VerifyOptions
	var asJSON bool
	var memory string
	cmd := &cobra.Command{
		Use:     "verify PACK",
		GroupID: groupData,
		Short:   "Prove that a pack is whole",
		Long: `Read all of the pack and compare every checksum. What is damaged is named by
shard, chunk and records, and makes the exit code 4.

With --decode every image, every mask and every clip of video is also decoded,
within --memory. One that needs more than there is is named with the memory that
it would need.`,
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
			if n := len(rep.Problems); n > 0 {
				return &Error{Code: ExitDamaged, Msg: fmt.Sprintf("%s is damaged: %s", shown, units.Plural(n, "problem")),
					Hint: "bring the shards that are named back from a copy, or pack the source again"}
			}
			if n := len(rep.TooLarge); n > 0 {
				return &Error{Code: ExitBadInputs, Msg: fmt.Sprintf("%s of %s could not be decoded for want of memory", units.Plural(n, "record"), shown),
					Hint: "their checksums are right; give --memory as much as they say"}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&opt.Decode, "decode", false, "also decode every image and every clip")
	cmd.Flags().IntVar(&opt.Threads, "threads", 0, "chunks looked at at once (default one per core)")
	cmd.Flags().StringVar(&memory, "memory", "", "`size` of what images may take while they are decoded (default a quarter of the free memory)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (app *App) printReport(rep *pack.Report, dir string, decoded, asJSON bool, took time.Duration) error {
	if asJSON {
		return json.NewEncoder(app.Stdout).Encode(map[string]any{
			"pack": dir, "whole": len(rep.Problems) == 0, "records": rep.Records, "chunks": rep.Chunks, "bytes": rep.Bytes,
			"decoded": decoded, "fingerprint": rep.Manifest.Fingerprint, "problems": rep.Problems, "too_large": append([]pack.Problem{}, rep.TooLarge...),
		})
	}
	for _, p := range append(slices.Clone(rep.Problems), rep.TooLarge...) {
		if _, err := fmt.Fprintln(app.Stdout, p); err != nil {
			return err
		}
	}
	if len(rep.Problems) > 0 {
		return nil
	}
	what := "every checksum is right"
	if decoded {
		pictures := "image"
		if slices.ContainsFunc(rep.Manifest.Fields, func(f pack.Field) bool { return f.Kind == driver.KindFrames }) {
			pictures = "image and clip"
		}
		what += " and every " + pictures + " decodes"
		if len(rep.TooLarge) > 0 {
			what = "every checksum is right and every other " + pictures + " decodes"
		}
	}
	_, err := fmt.Fprintf(app.Stdout, "%s is whole: %s records in %s, %s; %s (%s)\n", dir, units.Int(rep.Records),
		units.Plural(int(rep.Chunks), "chunk"), units.Bytes(rep.Bytes), what, units.Elapsed(took))
	if n := rep.Manifest.Options.Augment; err == nil && n > 1 {
		_, err = fmt.Fprintf(app.Stdout, "each record has %d variants (--augment), all of them in these shards\n", n)
	}
	if err == nil && rep.Manifest.Removed() > 0 {
		_, err = fmt.Fprintf(app.Stdout, "%s; stoker pack --compact %s frees them\n", removedText(rep.Manifest), dir)
	}
	if err == nil && len(rep.Stray) > 0 {
		_, err = fmt.Fprintf(app.Stdout, "%s belong to nothing (%s, ...); stoker pack --compact %s deletes them\n", units.Plural(len(rep.Stray), "file"), rep.Stray[0], dir)
	}
	return err
}
