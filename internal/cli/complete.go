package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/gen/storage"
	"github.com/stokerdata/stoker/internal/probe"
	"github.com/stokerdata/stoker/internal/quickstart"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/sink"
)

// workloads are the names of the generated storage workloads.
func workloads() []string {
	var names []string
	for _, w := range storage.Workloads {
		names = append(names, w.Name)
	}
	return names
}

// choices returns the values that shell completion offers for flags, by the command and the name of the flag.
func choices() map[string]map[string][]string {
	var devices, models, examples []string
	for _, d := range plan.Devices() {
		devices = append(devices, d.Name)
	}
	for _, m := range plan.Models() {
		models = append(models, m.Name)
	}
	for _, e := range plan.Examples() {
		examples = append(examples, e.Name)
	}
	codecs := []string{plan.CodecKeep, plan.CodecDCT, plan.CodecRaw}
	transforms := []string{probe.Crop, probe.Whole, probe.None}
	return map[string]map[string][]string{
		"stoker quickstart": {"framework": {string(quickstart.Torch), string(quickstart.NumPy)}},
		"stoker pack": {
			"images": {pack.ImagesAuto, pack.ImagesKeep, pack.ImagesDCT, pack.ImagesRaw}, "check": {pack.CheckStructure, pack.CheckDecode},
			"interpolation": {pack.Bilinear, pack.Bicubic}, "audio": {"f32", "i16"},
		},
		"stoker convert":      {"to": append(sink.Names(), toPack), "images": {pack.ImagesKeep, pack.ImagesDCT, pack.ImagesRaw}},
		"stoker gen storage":  {"workload": workloads(), "format": {"npz", "tfrecord", storage.Indexed}},
		"stoker bench":        {"workload": workloads(), "device": {"a100", "h100"}, "decode": {"on", "off"}, "cache": {"cold", "warm"}, "accelerators": {"1", "auto"}},
		"stoker bench decode": {"transform": transforms},
		"stoker probe":        {"transform": transforms},
		"stoker plan": {
			"device": append(devices, "list"), "model": append(models, "list"), "example": append(examples, "list"), "guess": {"small", "large"},
			"layout": {plan.LayoutFiles, plan.LayoutPack}, "codec": codecs, "kind": {plan.KindImage, plan.KindBytes}, "storage": plan.ClassNames(),
			"emit": {"python"},
		},
	}
}

// complete registers the suggestions of shell completion.
func complete(root *cobra.Command) {
	values := choices()
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for flag, all := range values[cmd.CommandPath()] {
			if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)); err != nil {
				panic(err) // the table names a flag that the command does not have
			}
		}
		switch cmd.CommandPath() {
		case "stoker formats":
			var names []string
			for _, r := range readables() {
				names = append(names, r.Name+"\t"+r.Reads)
			}
			cmd.ValidArgsFunction = cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)
		case "stoker convert":
			cmd.ValidArgsFunction = completeConvert
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// completeConvert offers the prefixes of formats for the second argument, as well as files.
func completeConvert(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 || strings.ContainsAny(word, "/.:") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var all []string
	for _, f := range sink.Formats() {
		if strings.HasPrefix(f.Name, word) {
			all = append(all, f.Name+":")
		}
	}
	return all, cobra.ShellCompDirectiveNoSpace
}
