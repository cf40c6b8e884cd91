package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// changeFlags are the flags of stoker pack that change a pack which is finished.
type changeFlags struct {
	appending bool
	remove    string
	compact   bool
}

func (f *changeFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.appending, "append", false, "add the records of SRC to the finished pack OUT")
	fl.StringVar(&f.remove, "remove", "", "leave the records for which this `EXPRESSION` holds out of the pack OUT, e.g. 'label == 3'")
	fl.BoolVar(&f.compact, "compact", false, "free what removed records take in the pack OUT")
	cmd.MarkFlagsMutuallyExclusive("append", "remove", "compact", "commit")
	cmd.MarkFlagsMutuallyExclusive("remove", "part")
	cmd.MarkFlagsMutuallyExclusive("compact", "part")
}

// asBefore takes settings that are not on the command line from the pack that is appended to.
func (f *changeFlags) asBefore(cmd *cobra.Command, out string, o *pack.Options) {
	if o.Append = f.appending; !o.Append {
		return
	}
	said := cmd.Flags().Changed
	if m, err := pack.ReadManifest(out); err == nil && !said("transforms") && !said("outputs") {
		o.Transforms, o.Augment, o.Audio, o.Seed = m.Options.Transforms, m.Options.Augment, m.Options.Audio, m.Options.Seed
	}
	if !said("images") {
		o.Images = ""
	}
	if !said("check") {
		o.Check = ""
	}
	if !said("chunk-size") {
		o.ChunkBytes = 0
	}
	if !said("shard-size") {
		o.ShardBytes = 0
	}
}

// removeRecords removes the records of a pack for which an expression holds.
func (app *App) removeRecords(out, where string, asJSON bool) error {
	m, err := pack.ReadManifest(out)
	if err != nil {
		return err
	}
	src, err := app.openSource(out+view.Fragment(&view.Spec{Where: where}), 0, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	d, ok := driver.As[driver.Deriver](src)
	if !ok {
		return fmt.Errorf("internal error: %s is not a view", out)
	}
	var ids []int64
	for i := range src.Info().Len {
		_, id, _ := d.Origin(i, 0)
		ids = append(ids, id)
	}
	now, err := pack.Remove(app.Context, out, m.Fingerprint, ids)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(app.Stdout).Encode(map[string]any{"pack": out, "records": now.Records, "removed": len(ids), "stored": now.Stored(), "fingerprint": now.Fingerprint})
	}
	_, err = lipgloss.Fprintf(app.Stdout, "%s  %s removed, %s are left\n", headOf(out), units.Plural(len(ids), "record"), units.Int(now.Records))
	if err == nil && now.Removed() > 0 {
		_, err = fmt.Fprintf(app.Stdout, "%s; stoker pack --compact %s frees them\n", removedText(now), units.Shell(out))
	}
	return err
}

func headOf(out string) string { return lipgloss.NewStyle().Bold(true).Render(out) }

// removedText describes the space that removed records still take, about.
func removedText(m *pack.Manifest) string {
	return fmt.Sprintf("%s still take about %s of %s", units.Plural(int(m.Removed()), "removed record"),
		units.Bytes(int64(float64(m.Bytes)*float64(m.Removed())/float64(m.Stored()))), units.Bytes(m.Bytes))
}

// compactPack frees the space of removed records.
func (app *App) compactPack(out string, asJSON bool) error {
	m, err := pack.ReadManifest(out)
	if err != nil {
		return err
	}
	progress := app.NewProgress("compacting", "records", m.Records)
	start := time.Now()
	c, err := pack.Compact(app.Context, out, &pack.CompactOptions{Progress: progress.Add})
	progress.Stop()
	if err != nil {
		return packFailed(err)
	}
	if asJSON {
		return json.NewEncoder(app.Stdout).Encode(map[string]any{"pack": out, "records": c.Manifest.Records, "bytes": c.Manifest.Bytes,
			"shards": c.Shards, "freed": c.Freed, "fingerprint": c.Manifest.Fingerprint})
	}
	if c.Shards == 0 && len(c.Stray) == 0 {
		_, err = lipgloss.Fprintf(app.Stdout, "%s has no removed records\n", headOf(out))
		return err
	}
	_, err = lipgloss.Fprintf(app.Stdout, "%s  %s in %s; %s rewritten, %s are free, in %s\n", headOf(out), units.Records(c.Manifest.Records),
		units.Plural(len(c.Manifest.Shards), "shard"), units.Plural(c.Shards, "shard"), units.Bytes(c.Freed), units.Elapsed(time.Since(start)))
	if err == nil && len(c.Stray) > 0 {
		_, err = fmt.Fprintf(app.Stdout, "%s that belonged to nothing were deleted\n", units.Plural(len(c.Stray), "file"))
	}
	return err
}

// historyText describes the changes of a pack after it was made.
func historyText(p *page, m *pack.Manifest) {
	for _, a := range m.Appended {
		p.f("  appended: %s from the %s %s with %s\n", units.Records(a.Records), a.Source.Kind, clean(a.Source.Path), settingsText(a.Options))
	}
	if m.Removed() > 0 {
		p.f("  %s\n", removedText(m))
	}
}
