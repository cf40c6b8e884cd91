package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/fair"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/transform"
)

// Option describes a key of the JSON form of Config.
type Option struct {
	Name string
	Doc  string
	// Rule has the type and the limits of the value, nil for values with a form of their own.
	Rule *transform.Param
	// Standard is set if 0 or an empty text stands for a default.
	Standard bool
}

// MarshalJSON adds the allowed values as a text.
func (o Option) MarshalJSON() ([]byte, error) {
	about := map[string]any{"name": o.Name, "doc": o.Doc}
	if o.Rule != nil {
		about["type"], about["expects"] = o.Rule.Type, o.Rule.Expects()
		if o.Rule.Range != nil {
			about["range"] = o.Rule.Range
		}
		if o.Rule.Choices != nil {
			about["choices"] = o.Rule.Choices
		}
	}
	return json.Marshal(about)
}

// Group is a class of Python with options of a loader, such as stoker.Limits. The class is generated from it.
type Group struct {
	Name string `json:"name"`
	// Argument is the argument of a loader that takes the object.
	Argument string `json:"argument"`
	// Doc is one sentence, and More the rest of the description.
	Doc    string            `json:"doc"`
	More   string            `json:"more,omitempty"`
	Params []transform.Param `json:"params"`
	// Positional is the number of arguments that need no name.
	Positional int `json:"positional"`
}

func limits(low, high float64) *transform.Range { return &transform.Range{Min: &low, Max: &high} }

func unevens() []string {
	var all []string
	for _, u := range sampler.Unevens {
		all = append(all, string(u))
	}
	return all
}

func size(name, key, help string) transform.Param {
	return transform.Param{Name: name, Key: key, Type: transform.Bytes, Range: &transform.Range{Min: limits(1, 1).Min}, Optional: true, Help: help}
}

func path(name, key, help string) transform.Param {
	return transform.Param{Name: name, Key: key, Type: transform.Path, Optional: true, Help: help}
}

func number(name string, of transform.Type, low, high float64, help string) transform.Param {
	return transform.Param{Name: name, Key: name, Type: of, Range: limits(low, high), Optional: true, Help: help}
}

// Groups lists the classes with options of a loader.
var Groups = []Group{
	{Name: "Cache", Argument: "cache", Positional: 1, Doc: "The cache of a loader: `cache=stoker.Cache(limit=\"50GB\")`.", Params: []transform.Param{
		{Name: "disk", Key: "cache", Type: transform.Bool, Choices: []string{CacheAuto}, Default: CacheAuto, Help: "`True` caches files on a disk, `False` does not. `\"auto\"`: folders of JPEGs are cached, and all data if `dir`, `limit` or `peers` is set."},
		path("dir", "cache_dir", "the folder of the cache, on a fast disk of this machine. Default: `STOKER_CACHE_DIR`, else `stoker` in `XDG_CACHE_HOME`."),
		size("limit", "cache_limit", "the most that the whole folder may take, in bytes or as `\"50GB\"`. Default: the value of `stoker cache limit`, else a tenth of the free space, at most 20 GiB."),
		size("memory", "cache_memory", "the part of `Limits(memory=)` that caches remote data (buckets, web servers) in memory, in bytes or as `\"20GB\"`. `stats()[\"engine\"][\"cache_memory\"]` shows what it saves."),
		path("stage", "stage", "a folder on a disk of this machine. Remote data is copied there while it is read: the first epoch runs at the pace of the bucket, later epochs and other jobs read the copy. It excludes a cache on disk. `stats()[\"engine\"][\"stage\"]` shows how much is copied."),
		{Name: "peers", Key: "peers", Type: transform.Names, Form: `a list of addresses, such as ["node0:7000", "node1:7000"]`, Default: []string{}, Help: "the addresses of all nodes, `host:port`. Each node caches a part of remote data on its disk and serves that part to the others. The nodes share a secret in `STOKER_PEERS_TOKEN`."},
		{Name: "peers_self", Key: "peers_self", Type: transform.Text, Form: "an address", Optional: true, Help: "the address of this node. Default: `STOKER_PEERS_SELF`, else the address in `peers` that belongs to this machine."},
	}},
	{Name: "Limits", Argument: "limits", Positional: 1, Doc: "The resources of a loader: `limits=stoker.Limits(memory=\"2GB\")`.", Params: []transform.Param{
		size("memory", "memory", "the most memory for batches, readahead, buffers and scratch, in bytes or as `\"2GB\"`. Default: a quarter of the free memory, shared by the ranks on this machine."),
		number("prefetch", transform.Int, 1, budget.MaxPrefetch, "batches built ahead of the training loop. Default: as many as fit `memory`, 4 to 8, up to 30 of small ones. A number that does not fit is refused."),
		size("lookahead", "lookahead", "the part of `memory` for data that is read before its batch is built, in bytes or as `\"256MiB\"`. Default: up to a quarter of `memory`."),
		{Name: "timeout", Key: "timeout", Type: transform.Float, Unit: "s", Range: &transform.Range{Min: new(float64), Max: limits(0, 1e9).Max, Over: true}, Default: 300.0, Help: "seconds to wait for a batch before `StokerTimeout` is raised. The engine retries failures of the store or the network within this time, and refused access or missing memory for 15 seconds."},
		number("cores", transform.Float, 0.01, budget.MaxThreads, "the most CPU time that the engine uses for this loader, as a number of cores such as `2.5`."),
		number("cpu_limit", transform.Float, 0.01, 1, "the same as a fraction of the cores that the engine may use, such as `0.4`."),
		{Name: "shared", Type: transform.Bool, Optional: true, Help: "`True` uses one engine for all loaders of this user on this machine that also set it: of all ranks and jobs. The first one starts the engine, and it exits ten seconds after the last one. Loaders get memory, cores and connections by their `weight`. Loaders with the same arguments get the same batches, each of which is built once. `False` starts an engine for this loader. Default: one engine for the ranks of a job on this machine, if a launcher has started several (torchrun, MPI, Slurm), else an engine for this loader."},
		{Name: "weight", Key: "weight", Type: transform.Float, Range: limits(fair.MinWeight, fair.MaxWeight), Default: 1.0, Help: "the share of this loader in a shared engine, compared with the others. A loader with 3 gets three times the CPU time of one with 1."},
	}},
	{Name: "Ranks", Argument: "ranks", Positional: 2, Doc: "The part of each global batch that this process gets: `ranks=stoker.Ranks(rank, world_size)`.", Params: []transform.Param{
		{Name: "rank", Type: transform.Int, Optional: true, Range: limits(0, maxWorldSize-1), Help: "number of this process, from 0. Default: the rank of torch.distributed, torchrun (`RANK`), MPI (`OMPI_COMM_WORLD_RANK`, `PMI_RANK`) or Slurm (`SLURM_PROCID`), else 0. `info[\"rank_from\"]` names the variables. A launcher that sets a rank without the number of ranks causes a warning."},
		{Name: "world_size", Type: transform.Int, Optional: true, Range: limits(1, maxWorldSize), Help: "number of processes that share each global batch. Give both or neither."},
		{Name: "uneven", Key: "uneven", Type: transform.Choice, Choices: unevens(), Default: string(sampler.Exact), Help: "how the last records of an epoch are shared if they do not fill a batch on every rank. `\"exact\"`: each record comes once, and a rank may have fewer rows in the last batch, or none. `\"pad\"`: each rank has as many rows, and records from the beginning of the epoch come again (`batch.repeated` marks them). `\"drop\"`: each rank has as many rows, and the rest is skipped."},
		path("audit", "", "a file that lists the records that this process has received, 8 bytes each. `{rank}` in its name is the rank. A resumed run continues the file. `stoker audit` says which records were seen, twice or never."),
	}},
	{Name: "OnError", Argument: "on_error", Positional: 1, Doc: "The treatment of records that cannot be read: `on_error=stoker.OnError(\"skip\", max_bad=0.01)`.",
		More: "Failures of the store, the network or the machine are retried and then raised as `StokerError`; no record is replaced for them.", Params: []transform.Param{
			{Name: "action", Key: "on_error", Type: transform.Choice, Choices: []string{OnErrorRaise, OnErrorSkip, OnErrorRepair}, Default: OnErrorRaise, Help: "`\"raise\"` raises `RecordError`. `\"skip\"` replaces a bad record by the next good one of the source, on all ranks and after every restart the same; a `SkippedRecords` warning counts them at the end of the epoch. `\"repair\"` reads damaged records from `repair_from` and raises for all others."},
			{Name: "max_bad", Key: "max_bad", Type: transform.Share, Optional: true, Help: "with `\"skip\"`, how many records may be bad: a number, or a share of the records that this rank reads, such as `0.05` or `\"5%\"`. More raise a `StokerError` that counts them by reason. Default: 5%, but at least 10 records."},
			path("quarantine", "quarantine", "with `\"skip\"`, a text file of bad records, one JSON object per line. Records in it are not read again; new ones are added."),
			{Name: "repair_from", Key: "repair_from", Type: transform.URL, Optional: true, Help: "with `\"repair\"`, the path or URL of another copy of the pack. `stats()[\"repaired\"]` counts the records that came from it."},
		}},
	{Name: "Feeders", Argument: "feeders", Positional: 1, Doc: "Servers that build batches for a loader: `feeders=stoker.Feeders(\"dns:feeders:7443\", ca=\"ca.pem\")`.", Params: []transform.Param{
		{Name: "servers", Key: "servers", Type: transform.Text, Form: `a text such as "dns:feeders:7443" or "host:7443"`, Required: true, Help: "where the servers (`stoker serve --flight`) are: `\"host:port,host:port\"`, `\"dns:host:port\"` for all addresses of a name, `\"file:PATH\"` for a file with an address per line, `\"slurm:port\"` for the nodes of the Slurm job (`\"slurm:1:port\"`: of its second component), or `\"ray:NAME\"` for those of `stoker.ray.feeders`. Files, names and Ray's actors are read again every 4 s."},
		path("ca", "ca", "the certificate of the authority that signed those of the servers, a PEM file. Connections are then TLS."),
		path("cert", "cert", "the certificate of this client, a PEM file, for servers that ask for one (`--tls-ca`)."),
		path("key", "key", "the key of the certificate, a PEM file."),
		path("token", "token", "a file with a token (`stoker token`), for servers with a secret (`--flight-secret`)."),
		{Name: "insecure", Key: "insecure", Type: transform.Bool, Default: false, Help: "connect to other machines without TLS, in a network that you trust."},
	}},
}

func option(name string, doc string) Option { return Option{Name: name, Doc: doc} }

func whole(name string, low, high float64, standard bool, doc string) Option {
	return Option{Name: name, Doc: doc, Standard: standard, Rule: &transform.Param{Name: name, Type: transform.Int, Range: limits(low, high)}}
}

func word(name string, doc string, choices ...string) Option {
	return Option{Name: name, Doc: doc, Standard: true, Rule: &transform.Param{Name: name, Type: transform.Choice, Choices: choices}}
}

// Options lists the keys of the JSON form. Those of Groups, except Feeders, are among them.
var Options = allOptions([]Option{
	option("source", "The path or URL of the data."),
	option("view", "The records and fields to read: see views."),
	option("outputs", "The arrays of a batch that are made of images, audio, volumes and the like: see outputs."),
	whole("batch_size", 1, maxBatchSize, false, "Records per batch and rank."),
	option("shuffle", "Draw a new order for each epoch."),
	option("window", "With shuffle, the number of chunks that the order uses at a time: 0 for all, -1 for a number that suits the data."),
	word("order", "`client` if the client sends the records of each batch.", OrderClient),
	option("seed", "The number that all random numbers depend on."),
	option("drop_last", "Skip the records of an epoch that do not fill a global batch."),
	option("rank", "The number of this rank, from 0."),
	whole("world_size", 1, maxWorldSize, true, "The number of ranks."),
	whole("local_world_size", 1, maxWorldSize, true, "The number of ranks on this machine. Default: that of the launcher."),
	whole("threads", 0, budget.MaxThreads, true, "Threads that decode. Default: one per usable core."),
	option("pinned", "The client registers the ring as pinned memory and does not write to it."),
	option("share", "Get the same batches as other loaders of the engine that ask for the same ones."),
	option("crashed", "Records that crashed earlier engines. They are bad."),
	option("suspects", "Records that were decoded when an engine crashed. They are decoded one at a time."),
	word("layout", "Layout of images.", "NHWC", "NCHW"),
	option("pad", "By array, how rows are padded to one length."),
	option("bucket", "Build batches of records of similar length or proportions."),
	option("mix", "The datasets of source, a `concat:` URL, are parts of a mixture with these weights: see mixtures."),
	option("align", "In each step all ranks have records with a value in the field `by`, or none has."),
	option("apply_orientation", "Turn images by their EXIF orientation."),
	option("sequence", "Build sequences of one length from documents of tokens."),
	option("feeders", "Servers that build batches for which this machine's cores do not suffice: see feeders."),
	option("metrics", "Address on which the engine exports metrics for Prometheus, such as `:9400`; empty is none."),
})

// The values that a client may send in addition to those of Python's classes.
var also = map[string][]string{"cache": {CacheOn, CacheAuto, CacheOff}, "on_error": {OnErrorRaise, OnErrorSkip, OnErrorRepair, OnErrorMark}}

// allOptions adds the options of Groups.
func allOptions(all []Option) []Option {
	for i := range Groups {
		if Groups[i].Name == "Feeders" {
			continue // the parts of one key
		}
		for _, p := range Groups[i].Params {
			if p.Key == "" {
				continue
			}
			rule := p
			if words := also[p.Key]; words != nil {
				rule.Type, rule.Choices = transform.Choice, words
			}
			rule.Optional = false
			all = append(all, Option{Name: p.Key, Doc: strings.ToUpper(p.Help[:1]) + p.Help[1:], Rule: &rule, Standard: true})
		}
	}
	return all
}

// checkOptions compares the options that have limits with their rules.
func (c *Config) checkOptions() error {
	numbers := map[string]float64{
		"batch_size": float64(c.BatchSize), "world_size": float64(c.WorldSize), "local_world_size": float64(c.LocalWorldSize), "threads": float64(c.Threads),
		"memory": float64(c.Memory), "prefetch": float64(c.Prefetch), "lookahead": float64(c.Lookahead), "weight": c.Weight, "cpu_limit": c.CPULimit,
		"cores": c.Cores, "timeout": c.Timeout, "cache_memory": float64(c.CacheMemory), "cache_limit": float64(c.CacheLimit),
	}
	words := map[string]string{"order": c.Order, "layout": c.Layout, "uneven": string(c.Uneven), "cache": c.Cache, "on_error": c.OnError}
	for i := range Options {
		o := &Options[i]
		if o.Rule == nil {
			continue
		}
		if x, ok := numbers[o.Name]; ok && !(x == 0 && o.Standard) && !o.Rule.Range.Has(x) {
			return fmt.Errorf("%s must be %s, not %s", o.Name, o.Rule.Expects(), strconv.FormatFloat(x, 'g', -1, 64))
		}
		if w, ok := words[o.Name]; ok && !(w == "" && o.Standard) && !slices.Contains(o.Rule.Choices, w) {
			return fmt.Errorf("%s must be %s, not %q", o.Name, o.Rule.Expects(), w)
		}
	}
	return nil
}
