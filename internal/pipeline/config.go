package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/fair"
	"github.com/stokerdata/stoker/internal/inflight"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
	"github.com/stokerdata/stoker/store"
)

// Config selects the data and sets how to load it. The Python client sends its JSON form. The zero value of each option
// means its default.
type Config struct {
	// Source is the URL or path of the data.
	Source string `json:"source"`
	// View selects records and fields of the source.
	View view.Spec `json:"view"`
	// BatchSize is the number of records per batch and rank.
	BatchSize int `json:"batch_size"`
	// Shuffle uses a new order for each epoch. Otherwise records come in the order of the source.
	Shuffle bool `json:"shuffle"`
	// Window, with Shuffle, is the number of chunks that the order uses at a time. 0 means all: a permutation of all
	// records. WindowAuto chooses a value for the data.
	Window int `json:"window"`
	// Order is OrderClient if the client sets the records of each batch. Otherwise it is empty and Shuffle sets the
	// order.
	Order string `json:"order"`
	// Seed is the seed of all random numbers.
	Seed uint64 `json:"seed"`
	// DropLast leaves out the records of an epoch that do not fill a global
	// batch.
	DropLast bool `json:"drop_last"`
	// Uneven sets what happens to the last records of an epoch if the ranks cannot share them evenly; empty means
	// sampler.Exact.
	Uneven sampler.Uneven `json:"uneven"`
	// Rank and WorldSize select this engine's part of each global batch. A WorldSize of 0 means 1.
	Rank      int `json:"rank"`
	WorldSize int `json:"world_size"`
	// LocalWorldSize is the number of ranks on this machine, each with its own engine. 0 means the launcher's value in
	// the environment (budget.NodeOf).
	LocalWorldSize int `json:"local_world_size"`
	// Trainer is the process that the batches are for, 0 for this one.
	Trainer int `json:"-"`
	// Threads is the number of decode workers. 0 means one per usable core, or this engine's share of the cores if
	// there are several engines.
	Threads int `json:"threads"`
	// Memory is the budget in bytes for everything outside the Go heap: ring, readahead, read buffers and scratch. The
	// value 0 means a quarter of the free memory, or this engine's share of it.
	Memory int64 `json:"memory"`
	// Weight is this pipeline's share of an engine with other pipelines, compared with theirs. 0 means 1.
	Weight float64 `json:"weight"`
	// Share lets other clients with the same configuration get the same batches.
	Share bool `json:"share"`
	// CPULimit and Cores limit the CPU time of the pipeline: a fraction of the engine's cores, and a number of cores. 0
	// means no limit.
	CPULimit float64 `json:"cpu_limit"`
	Cores    float64 `json:"cores"`
	// Prefetch is the number of batches made ahead of the trainer; 0 means a
	// default that fits the budget.
	Prefetch int `json:"prefetch"`
	// Lookahead is the part of Memory, in bytes, for reads before their batch has a slot; 0 means a default that fits
	// the budget.
	Lookahead int64 `json:"lookahead"`
	// OnError is "raise" (the default), "skip", "repair" or "mark".
	OnError string `json:"on_error"`
	// RepairFrom is the URL of another copy of the pack, for "repair".
	RepairFrom string `json:"repair_from"`
	// MaxBad is the limit of bad records with "skip": a number such as "20", or a share such as "5%" of the records of
	// this rank. Empty means no limit. Clients send DefaultMaxBad if the user sets none.
	MaxBad string `json:"max_bad"`
	// Quarantine is a text file of bad records with "skip", "" for none. Records in it are not read, and new bad ones
	// are added.
	Quarantine string `json:"quarantine"`
	// Crashed are records that crashed earlier engines of this client. They are bad, and are not read. If records differ
	// per epoch, the numbers are those of driver.InEpoch.
	Crashed []int64 `json:"crashed"`
	// Suspects are records that were being decoded when an engine crashed. They are decoded one at a time, so that
	// another crash identifies the record.
	Suspects []int64 `json:"suspects"`
	// Timeout is the time in seconds for which a failure of the store or the machine may last before the stream fails.
	// 0 means 300.
	Timeout float64 `json:"timeout"`
	// Outputs are the image arrays of a batch. If there are none, each image field gives one output with its name,
	// without operations.
	Outputs []transform.Output `json:"outputs"`
	// Layout is the layout of outputs without one: "NHWC" (the default) or "NCHW".
	Layout string `json:"layout"`
	// Fields are the stored fields for the batch; empty means all that fit into one. Labels and ints listed here are
	// added as int64 arrays.
	Fields []string `json:"-"`
	// Pad describes, by array name, how rows of different lengths are padded to one length.
	Pad map[string]collate.Pad `json:"pad"`
	// Bucket has batches of records that are alike: of about the same length or
	// proportions.
	Bucket *Bucket `json:"bucket"`
	// Mix makes the datasets of Source, a concat: URL, the parts of a mixture.
	Mix *Mix `json:"mix"`
	// Align has all ranks get records with a value in a field in the same steps.
	Align *Align `json:"align"`
	// ApplyOrientation rotates images according to their EXIF orientation. By default, as in torchvision, they stay as
	// stored.
	ApplyOrientation bool `json:"apply_orientation"`
	// Sequence builds sequences of one length from documents of tokens, which are then the records. If it is nil, the
	// records are those of the source.
	Sequence *Sequence `json:"sequence"`
	// Cache is "on", "auto" or "off" (the default). With "on", images of folders are cached in the user's cache folder
	// in a format that decodes faster, and other remote data is cached unchanged. With "auto", only images are cached,
	// without a noticeable slowdown (keeping). CacheDir is another cache folder. CacheLimit is its size limit in bytes,
	// 0 for the limit that is stored there.
	Cache      string `json:"cache"`
	CacheDir   string `json:"cache_dir"`
	CacheLimit int64  `json:"cache_limit"`
	// Stage is a folder in which data in other places is copied while it is read, "" for
	// none.
	Stage string `json:"stage"`
	// Peers are the addresses (host:port) of the nodes that each cache a part of remote data and serve it to the
	// others. PeersSelf is the address of this node, "" for the one that is an address of this machine.
	Peers     []string `json:"peers"`
	PeersSelf string   `json:"peers_self"`
	// Feeders are servers that build those batches for which this machine's cores do not suffice; nil for none.
	Feeders *Feeders `json:"feeders"`
	// CacheMemory is the part of Memory, in bytes, for caching remote data for the next epochs.
	CacheMemory int64 `json:"cache_memory"`
	// Metrics is the address, such as ":9400", on which the engine exports metrics. The engine reads it, not the pipeline.
	Metrics string `json:"metrics"`
	// BatchOps run on whole batches after their records are in place. Those at the end of an output's Ops are moved here.
	BatchOps []json.RawMessage `json:"-"`

	// Node divides the cores and the memory of this engine among its pipelines. If it is nil, the pipeline has the engine
	// alone.
	Node *fair.Node `json:"-"`
	// InFlight is the table in which workers register the records that they decode; nil for none.
	InFlight *inflight.Table `json:"-"`
	// Decoding is called with the number of each record before it is decoded; it may be nil. Tests crash there.
	Decoding func(id int64) `json:"-"`
	// Kinds are the kinds of fields that there are; nil means all that package
	// kind has.
	Kinds []kind.Kind `json:"-"`
	// OpenSource opens Source when it is not a URL that package source knows.
	// Tests and Go programs use it to bring their own source.
	OpenSource func(ctx context.Context, url string) (driver.Source, error) `json:"-"`
	// OpenRemote connects to Feeders.
	OpenRemote func(f *Feeders, p *Pipeline) (Remote, error) `json:"-"`
	// Say receives messages that are not the answer to a request.
	Say func(string) `json:"-"`
	// Decorate puts decorators around the stores that records are read from.
	Decorate func(store.Store) store.Store `json:"-"`
}

// Sequence describes the sequences that are built from documents. Package sequence documents each field.
type Sequence struct {
	Length  int64    `json:"length"`
	Packing string   `json:"packing"`
	Fields  []string `json:"fields"`
	NoShift bool     `json:"no_shift"`
	DType   string   `json:"dtype"`
	Pad     int64    `json:"pad"`
}

// UnmarshalJSON implements json.Unmarshaler: unknown keys are refused.
func (s *Sequence) UnmarshalJSON(data []byte) error {
	if err := transform.CheckKeysOf[Sequence](data, "configuration, sequence"); err != nil {
		return err
	}
	type plain Sequence
	return json.Unmarshal(data, (*plain)(s))
}

// Limits for a configuration: far above sensible values, and low enough that arithmetic with them does not overflow.
const (
	maxBatchSize  = 1 << 20
	maxWorldSize  = 1 << 20
	maxLookahead  = 1 << 40
	maxOutputs    = 64
	maxPeers      = 1 << 14
	maxConfigJSON = 16 << 20
	maxTimeout    = 1e9
)

// ParseConfig reads the JSON form. Unknown keys are refused with the nearest
// known one.
func ParseConfig(data []byte) (Config, error) {
	var cfg Config
	if len(data) > maxConfigJSON {
		return cfg, fmt.Errorf("configuration has %d bytes, more than the limit of %d", len(data), maxConfigJSON)
	}
	if err := transform.CheckKeysOf[Config](data, "configuration"); err != nil {
		return cfg, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&cfg); err != nil {
		return cfg, fmt.Errorf("configuration: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return cfg, fmt.Errorf("configuration: there is something after the closing brace")
	}
	return cfg, checkParts(data)
}

// checkParts refuses unknown keys in the objects of a configuration.
func checkParts(data []byte) error {
	var parts struct {
		View    json.RawMessage            `json:"view"`
		Feeders json.RawMessage            `json:"feeders"`
		Bucket  json.RawMessage            `json:"bucket"`
		Pad     map[string]json.RawMessage `json:"pad"`
		Mix     json.RawMessage            `json:"mix"`
		Align   json.RawMessage            `json:"align"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	for _, part := range []struct {
		name  string
		data  json.RawMessage
		check func(data []byte, name string) error
	}{
		{"view", parts.View, transform.CheckKeysOf[view.Spec]},
		{"bucket", parts.Bucket, transform.CheckKeysOf[Bucket]},
		{"align", parts.Align, transform.CheckKeysOf[Align]},
		{"mix", parts.Mix, transform.CheckKeysOf[Mix]},
		{"feeders", parts.Feeders, transform.CheckKeysOf[Feeders]},
	} {
		if len(part.data) == 0 || string(part.data) == "null" {
			continue
		}
		if err := part.check(part.data, part.name); err != nil {
			return err
		}
	}
	for name, pad := range parts.Pad {
		if err := transform.CheckKeysOf[collate.Pad](pad, fmt.Sprintf("pad of %q", name)); err != nil {
			return err
		}
	}
	return nil
}

// Option describes a key of the JSON form.
type Option struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
}

// Options lists the keys of the JSON form.
var Options = []Option{
	{"source", "The path or URL of the data."},
	{"view", "The records and fields to read: see views."},
	{"outputs", "The arrays of a batch that are made of images, audio, volumes and the like: see outputs."},
	{"batch_size", "Records per batch and rank."},
	{"shuffle", "Draw a new order for each epoch."},
	{"window", "With shuffle, the number of chunks that the order uses at a time: 0 for all, -1 for a number that suits the data."},
	{"order", "`client` if the client sends the records of each batch."},
	{"seed", "The number that all random numbers depend on."},
	{"drop_last", "Skip the records of an epoch that do not fill a global batch."},
	{"uneven", "How ranks share the last records of an epoch: exact, pad or drop."},
	{"rank", "The number of this rank, from 0."},
	{"world_size", "The number of ranks."},
	{"local_world_size", "The number of ranks on this machine; 0 is that of the launcher."},
	{"threads", "Threads that decode; 0 is one per usable core."},
	{"memory", "Bytes for batches, readahead, buffers and scratch; 0 is a quarter of the free memory."},
	{"weight", "The share of an engine that other loaders use as well, compared with theirs; 0 is 1."},
	{"share", "Get the same batches as other loaders of the engine that ask for the same ones."},
	{"cpu_limit", "The fraction of the cores that the loader may use; 0 is no limit."},
	{"cores", "The number of cores that the loader may use, such as 2.5; 0 is no limit."},
	{"prefetch", "Batches built ahead; 0 is what fits the memory."},
	{"lookahead", "Bytes of the memory for data that is read before its batch is built; 0 is a default."},
	{"on_error", "What happens to bad records: raise, skip, repair or mark."},
	{"max_bad", "With skip, how many records may be bad: a number, or a percentage."},
	{"quarantine", "With skip, a file that lists bad records."},
	{"repair_from", "With repair, another copy of the pack."},
	{"crashed", "Records that crashed earlier engines. They are bad."},
	{"suspects", "Records that were decoded when an engine crashed. They are decoded one at a time."},
	{"timeout", "Seconds that a failure of the store or the machine may last; 0 is 300."},
	{"layout", "Layout of images: NHWC or NCHW."},
	{"pad", "By array, how rows are padded to one length."},
	{"bucket", "Build batches of records of similar length or proportions."},
	{"mix", "The datasets of source, a `concat:` URL, are parts of a mixture with these weights: see mixtures."},
	{"align", "In each step all ranks have records with a value in the field `by`, or none has."},
	{"apply_orientation", "Turn images by their EXIF orientation."},
	{"sequence", "Build sequences of one length from documents of tokens."},
	{"cache", "The cache on disk: on, auto or off."},
	{"cache_dir", "Its folder; empty is the default."},
	{"cache_limit", "The bytes that the folder may take; 0 is its own limit."},
	{"cache_memory", "Bytes of the memory that cache remote data."},
	{"stage", "A folder to which remote data is copied while it is read."},
	{"peers", "Addresses of the nodes that share remote data, host:port."},
	{"feeders", "Servers that build batches for which this machine's cores do not suffice: see feeders."},
	{"peers_self", "The address of this node; empty is the one that belongs to this machine."},
	{"metrics", "Address on which the engine exports metrics for Prometheus, such as `:9400`; empty is none."},
}

// wantsCache reports whether the user has requested a cache, also through its size or folder.
func (c *Config) wantsCache() bool { return c.Cache == CacheOn || c.CacheDir != "" || c.CacheLimit > 0 }

// withDefaults returns a checked copy of c with simple defaults filled in.
func (c Config) withDefaults() (Config, error) {
	if c.WorldSize == 0 {
		c.WorldSize = 1
	}
	if c.OnError == "" {
		c.OnError = OnErrorRaise
	}
	if c.Uneven == "" {
		c.Uneven = sampler.Exact
	}
	switch {
	case c.BatchSize < 1:
		return c, fmt.Errorf("batch_size is %d, must be at least 1", c.BatchSize)
	case c.BatchSize > maxBatchSize:
		return c, fmt.Errorf("batch_size is %d, the limit is %d", c.BatchSize, maxBatchSize)
	case !slices.Contains(sampler.Unevens, c.Uneven):
		return c, fmt.Errorf("uneven is %q, must be one of %q", c.Uneven, sampler.Unevens)
	case c.WorldSize < 1 || c.WorldSize > maxWorldSize:
		return c, fmt.Errorf("world_size is %d, must be between 1 and %d", c.WorldSize, maxWorldSize)
	case c.Rank < 0 || c.Rank >= c.WorldSize:
		return c, fmt.Errorf("rank is %d, must be between 0 and world_size-1 = %d", c.Rank, c.WorldSize-1)
	case c.LocalWorldSize < 0 || c.LocalWorldSize > maxWorldSize:
		return c, fmt.Errorf("local_world_size is %d, must be between 0 (as the environment says) and %d", c.LocalWorldSize, maxWorldSize)
	case c.Threads < 0 || c.Threads > budget.MaxThreads:
		return c, fmt.Errorf("threads is %d, must be between 0 (one per core) and %d", c.Threads, budget.MaxThreads)
	case c.Weight != 0 && !(c.Weight >= fair.MinWeight && c.Weight <= fair.MaxWeight):
		return c, fmt.Errorf("weight is %g, must be between %g and %g", c.Weight, fair.MinWeight, float64(fair.MaxWeight))
	case !(c.CPULimit >= 0 && c.CPULimit <= 1):
		return c, fmt.Errorf("cpu_limit is %g, must be a fraction between 0 (no limit) and 1", c.CPULimit)
	case !(c.Cores >= 0 && c.Cores <= budget.MaxThreads):
		return c, fmt.Errorf("cores is %g, must be between 0 (no limit) and %d", c.Cores, budget.MaxThreads)
	case c.Memory < 0:
		return c, fmt.Errorf("memory is %d bytes, must not be negative", c.Memory)
	case c.Prefetch < 0 || c.Prefetch > budget.MaxPrefetch:
		return c, fmt.Errorf("prefetch is %d, must be between 0 (default) and %d", c.Prefetch, budget.MaxPrefetch)
	case c.Lookahead < 0 || c.Lookahead > maxLookahead:
		return c, fmt.Errorf("lookahead is %d bytes, must be between 0 (default) and a terabyte", c.Lookahead)
	case c.Cache != "" && c.Cache != CacheOn && c.Cache != CacheAuto && c.Cache != CacheOff:
		return c, fmt.Errorf("cache is %q, must be %q, %q or %q", c.Cache, CacheOn, CacheAuto, CacheOff)
	case c.Stage != "" && c.Cache == CacheOn:
		return c, fmt.Errorf("stage and cache exclude each other: both keep what is read on a disk; stage keeps all of it")
	case len(c.Peers) > 0 && c.Cache != CacheOn:
		return c, fmt.Errorf("peers share what they cache on a disk: also set a cache folder")
	case len(c.Peers) > maxPeers:
		return c, fmt.Errorf("%d peers, the limit is %d", len(c.Peers), maxPeers)
	case c.Feeders != nil && c.Order == OrderClient:
		return c, fmt.Errorf("feeders build batches of the engine's order, and the records of these batches are chosen by the client")
	case c.CacheMemory < 0:
		return c, fmt.Errorf("cache_memory is %d bytes, must not be negative", c.CacheMemory)
	case c.CacheLimit < 0:
		return c, fmt.Errorf("cache_limit is %d bytes, must not be negative", c.CacheLimit)
	case !slices.Contains([]string{OnErrorRaise, OnErrorSkip, OnErrorRepair, OnErrorMark}, c.OnError):
		return c, fmt.Errorf("on_error is %q, must be %q, %q, %q or %q", c.OnError, OnErrorRaise, OnErrorSkip, OnErrorRepair, OnErrorMark)
	case (c.OnError == OnErrorRepair) != (c.RepairFrom != ""):
		return c, fmt.Errorf("on_error=%q and repair_from=URL, another copy of the pack, go together", OnErrorRepair)
	case c.OnError != OnErrorSkip && (c.Quarantine != "" || c.MaxBad != "" && c.MaxBad != DefaultMaxBad):
		return c, fmt.Errorf("max_bad and quarantine are for on_error=%q, and on_error is %q", OnErrorSkip, c.OnError)
	case !(c.Timeout >= 0 && c.Timeout <= maxTimeout):
		return c, fmt.Errorf("timeout is %g s, must be between 0 (default) and %g", c.Timeout, float64(maxTimeout))
	case c.Order != "" && c.Order != OrderClient:
		return c, fmt.Errorf("order is %q, must be %q or empty", c.Order, OrderClient)
	case c.Order == OrderClient && (c.Shuffle || c.DropLast || c.Uneven != sampler.Exact || c.WorldSize > 1 || c.Bucket != nil):
		return c, fmt.Errorf("order is %q: which records a batch has is then not for shuffle, drop_last, world_size or bucket to say", c.Order)
	case c.Window < WindowAuto || c.Window > sampler.MaxWindow:
		return c, fmt.Errorf("window is %d chunks, must be between 1 and %d, or 0 for all", c.Window, sampler.MaxWindow)
	case c.Window != 0 && !c.Shuffle:
		return c, fmt.Errorf("window is %d, which is an order of shuffle, and shuffle is off", c.Window)
	case c.Window > 0 && c.Bucket != nil:
		return c, fmt.Errorf("an order by windows and bucket exclude each other: both say which records come together; use shuffle for all records with bucket")
	case c.Window > 0 && c.Sequence != nil:
		return c, fmt.Errorf("an order by windows is of the records of the data, and sequences are made of documents in their own order; use shuffle for all records")
	case c.Mix != nil && (c.Window > 0 || c.Bucket != nil || c.Order != ""):
		return c, fmt.Errorf("a mixture has an order of its own, and window, bucket and order set another one: use shuffle for all records, without bucket")
	case c.Align != nil && (c.Window > 0 || c.Bucket != nil || c.Order != "" || c.Mix != nil || c.Sequence != nil):
		return c, fmt.Errorf("align sets the records of each batch, and so do window, bucket, order, mixtures and sequences: use one of them")
	case c.Layout != "" && c.Layout != "NHWC" && c.Layout != "NCHW":
		return c, fmt.Errorf("layout is %q, must be \"NHWC\" or \"NCHW\"", c.Layout)
	case len(c.Outputs) > maxOutputs:
		return c, fmt.Errorf("%d outputs, the limit is %d", len(c.Outputs), maxOutputs)
	}
	c.Outputs, c.BatchOps = slices.Clone(c.Outputs), slices.Clip(c.BatchOps)
	for i := range c.Outputs {
		var batch []json.RawMessage
		c.Outputs[i].Ops, batch = transform.SplitBatchOps(c.Outputs[i].Ops)
		c.BatchOps = append(c.BatchOps, batch...)
	}
	_, err := parseMaxBad(c.MaxBad)
	return c, err
}

// The values of Config.Cache.
const (
	CacheOn   = "on"
	CacheAuto = "auto"
	CacheOff  = "off"
)

// The values of Config.OnError.
const (
	OnErrorRaise = "raise"
	OnErrorSkip  = "skip"
	// OnErrorRepair reads damaged records from another copy of the pack.
	OnErrorRepair = "repair"
	// OnErrorMark leaves the rows of bad records to the client, which recognises them by their index: -1 - the number
	// of the record.
	OnErrorMark = "mark"
)
