package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/view"
)

// named is an entry of a list: a name, and one sentence about it.
type named struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	// Base is the class that an error of Python derives from besides Exception.
	Base string `json:"base,omitempty"`
}

// environment lists the environment variables that users may set. A test finds all others.
var environment = []named{
	{Name: "STOKER_BINARY", Doc: "The engine that Python starts, in place of the one in the package."},
	{Name: "STOKER_CACHE", Doc: "`off` disables the cache of loaders that do not set one. `auto` is the default."},
	{Name: "STOKER_CACHE_DIR", Doc: "The folder of the cache and of results that are saved, by default a folder in ~/.cache."},
	{Name: "STOKER_CACHE_PAGES", Doc: "`off` reads cached files past the page cache of the system."},
	{Name: "STOKER_CA_BUNDLE", Doc: "A file with certificates of authorities, for all servers."},
	{Name: "STOKER_FFMPEG", Doc: "Folders with the libraries of FFmpeg, separated by colons. No other folder is searched."},
	{Name: "STOKER_IMAGE_LIBRARIES", Doc: "Folders with libjxl and libavif, separated by colons. They are searched first."},
	{Name: "STOKER_KERNELS", Doc: "The instructions that decoders use: `scalar`, `avx2` or `avx512`. All give the same pixels. By default the best set of the processor."},
	{Name: "STOKER_PEERS_SELF", Doc: "The entry of `peers` that is this machine, if its addresses do not tell."},
	{Name: "STOKER_PEERS_TOKEN", Doc: "The secret that machines in `peers` share, at least 16 characters."},
	{Name: "STOKER_RUNTIME_DIR", Doc: "The folder in which engines of one machine meet. `off` disables that they share requests, and hides them from `stoker top`."},
	{Name: "STOKER_SOCKET", Doc: "The socket of a running engine (`stoker serve`), which loaders use in place of their own."},
}

// internalVariables are set by Stoker for its own processes.
var internalVariables = []string{"STOKER_DOCTOR", "STOKER_ENDS", "STOKER_PACKAGE_LIBRARIES", "STOKER_PYTHON_HOOK", "STOKER_RUN", "STOKER_TRY"}

// pythonErrors are the exceptions and warnings of the Python package. Each Doc begins the docstring of its class.
var pythonErrors = []named{
	{Name: "StokerError", Doc: "Any failure that Stoker reports; the base of the exceptions below."},
	{Name: "ConfigError", Doc: "The engine refused a setting of the loader: the source, a transform, an option.", Base: "ValueError"},
	{Name: "UnknownArgument", Doc: "An unknown argument; the message names the nearest known one.", Base: "TypeError"},
	{Name: "EngineNotFound", Doc: "There is no ``stoker`` binary; the message lists every place searched."},
	{Name: "EngineDied", Doc: "The engine process ended and was not started again."},
	{Name: "StokerTimeout", Doc: "No batch came within ``timeout`` seconds.", Base: "TimeoutError"},
	{Name: "RecordError", Doc: "A record could not be read or decoded (with ``on_error=\"raise\"``)."},
	{Name: "BatchesHeld", Doc: "The program holds so many batches that the engine has no memory for another."},
	{Name: "StateMismatch", Doc: "A saved state belongs to other data, another seed or another version.", Base: "ValueError"},
	{Name: "SkippedRecords", Doc: "Records of an epoch were replaced because they could not be read (``on_error=\"skip\"``).", Base: "UserWarning"},
	{Name: "EngineRestarted", Doc: "The engine exited and was restarted.", Base: "UserWarning"},
}

// dtypeNames are a type's size in bytes and NumPy's description of it, empty for types that NumPy does not have.
type dtypeNames struct {
	Name  string `json:"name"`
	Size  int    `json:"size"`
	NumPy string `json:"numpy"`
}

func describedTypes() any {
	var all []dtypeNames
	for _, t := range dtype.All() {
		all = append(all, dtypeNames{t.String(), t.Size(), t.NumPy()})
	}
	return all
}

func describedKinds() any {
	var all []string
	for _, k := range kind.All() {
		all = append(all, string(k.Name))
	}
	slices.Sort(all)
	return all
}

// command is a command of the program, with its flags.
type command struct {
	Name     string        `json:"name"`
	Use      string        `json:"use"`
	Short    string        `json:"short"`
	Long     string        `json:"long,omitempty"`
	Example  string        `json:"example,omitempty"`
	Flags    []commandFlag `json:"flags,omitempty"`
	Commands bool          `json:"commands,omitempty"` // it has commands of its own, and does nothing else
}

type commandFlag struct {
	Name    string `json:"name"`
	Short   string `json:"short,omitempty"`
	Value   string `json:"value,omitempty"`
	Doc     string `json:"doc"`
	Default string `json:"default,omitempty"`
}

// describedCommands lists the commands and their subcommands.
func describedCommands() any {
	root := (&App{}).root(new(bool))
	var all []command
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Hidden || sub.Name() == "help" {
				continue
			}
			all = append(all, commandOf(sub))
			walk(sub)
		}
	}
	walk(root)
	return all
}

func commandOf(c *cobra.Command) command {
	d := command{Name: c.CommandPath(), Use: c.UseLine(), Short: c.Short, Long: c.Long, Example: c.Example, Commands: c.HasSubCommands() && !c.Runnable()}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, doc := pflag.UnquoteUsage(f)
		entry := commandFlag{Name: f.Name, Short: f.Shorthand, Value: value, Doc: doc}
		if f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" && f.DefValue != "0s" {
			entry.Default = f.DefValue
		}
		d.Flags = append(d.Flags, entry)
	})
	return d
}

func describeNamed(list []named) func(p *page) {
	return func(p *page) {
		for _, n := range list {
			p.item(n.Name, 26, strings.ReplaceAll(n.Doc, "``", ""))
		}
	}
}

func describeViews(p *page) {
	for _, k := range view.Described {
		p.item(k.Name, 14, k.Doc)
		p.f("%-14s#%s\n", "", k.Example)
	}
}

func describeFormats(p *page) {
	for i, r := range readables() {
		if i > 0 {
			p.f("\n")
		}
		p.format(&r)
	}
}

// lines writes the entries of a list of words.
func words(list func() []string) func(p *page) {
	return func(p *page) {
		for _, line := range wrap(strings.Join(list(), ", "), pageWidth) {
			p.f("%s\n", line)
		}
	}
}

// sections lists the parts of the description, in the order of the output.
var sections []section

func init() { // and not a variable's value: the list has the commands, and the command has the list
	sections = []section{
		{"transforms", "Operations on records and batches, with their parameters.", func() any { return transform.All() }, describeTransforms},
		{"modules", "Python modules with transforms.", func() any { return transform.Modules }, func(p *page) {
			for _, m := range transform.Modules {
				p.item(m.Name, 14, m.Doc)
			}
		}},
		{"formats", "Formats that can be read, with the parameters of their URLs.", func() any { return readables() }, describeFormats},
		{"views", "Keys after the # of a URL: which records and fields are read.", func() any { return view.Described }, describeViews},
		{"options", "Keys of a loader's configuration.", func() any { return pipeline.Options }, func(p *page) {
			for _, o := range pipeline.Options {
				p.item(o.Name, 20, o.Doc)
			}
		}},
		{"groups", "Python classes with options of a loader.", func() any { return pipeline.Groups }, func(p *page) {
			for i := range pipeline.Groups {
				p.item(pipeline.Groups[i].Name, 20, strings.ReplaceAll(pipeline.Groups[i].Doc, "`", ""))
			}
		}},
		{"elsewhere", "Names of other libraries, and what to write instead.", func() any { return elsewhere }, describeInstead(elsewhere)},
		{"arguments", "Arguments of other loaders, and what to write instead.", func() any { return otherArguments }, describeInstead(otherArguments)},
		{"outputs", "Keys of an array of the batch.", func() any { return transform.OutputKeys() }, words(transform.OutputKeys)},
		{"kinds", "Kinds of fields.", describedKinds, words(func() []string { return describedKinds().([]string) })},
		{"dtypes", "Types of elements.", describedTypes, words(func() (all []string) {
			for _, t := range dtype.All() {
				all = append(all, t.String())
			}
			return all
		})},
		{"errors", "Exceptions and warnings of the Python package.", func() any { return pythonErrors }, describeNamed(pythonErrors)},
		{"environment", "Environment variables.", func() any { return environment }, describeNamed(environment)},
		{"exit-codes", "Exit codes of all commands.", func() any { return exitCodes }, func(p *page) { p.f("%s\n", exitCodeHelp()) }},
		{"commands", "Commands of the program, with their flags.", describedCommands, func(p *page) {
			for _, c := range describedCommands().([]command) {
				p.item(c.Name, 24, c.Short)
			}
		}},
	}
}
