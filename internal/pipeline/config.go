package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/fair"
	"github.com/stokerdata/stoker/internal/inflight"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/source/wrap/pooled"
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
	// Pinned declares that the client registers the ring as pinned memory and does not write to it.
	Pinned bool `json:"pinned"`
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
	// Sources has the open sources of this engine, which pipelines share; nil for none.
	Sources *pooled.Pool `json:"-"`
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
	maxOutputs    = 64
	maxPeers      = 1 << 14
	maxConfigJSON = 16 << 20
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
	if err := c.checkOptions(); err != nil {
		return c, err
	}
	switch {
	case c.Rank < 0 || c.Rank >= c.WorldSize:
		return c, fmt.Errorf("rank is %d, must be between 0 and world_size-1 = %d", c.Rank, c.WorldSize-1)
	case c.Stage != "" && c.Cache == CacheOn:
		return c, fmt.Errorf("stage and cache exclude each other: both keep what is read on a disk; stage keeps all of it")
	case len(c.Peers) > 0 && c.Cache != CacheOn:
		return c, fmt.Errorf("peers share what they cache on a disk: also set a cache folder")
	case len(c.Peers) > maxPeers:
		return c, fmt.Errorf("%d peers, the limit is %d", len(c.Peers), maxPeers)
	case c.Feeders != nil && c.Order == OrderClient:
		return c, fmt.Errorf("feeders build batches of the engine's order, and the records of these batches are chosen by the client")
	case (c.OnError == OnErrorRepair) != (c.RepairFrom != ""):
		return c, fmt.Errorf("on_error=%q and repair_from=URL, another copy of the pack, go together", OnErrorRepair)
	case c.OnError != OnErrorSkip && (c.Quarantine != "" || c.MaxBad != "" && c.MaxBad != DefaultMaxBad):
		return c, fmt.Errorf("max_bad and quarantine are for on_error=%q, and on_error is %q", OnErrorSkip, c.OnError)
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
	case c.Align != nil && (c.Window > 0 || c.Order != "" || c.Mix != nil || c.Sequence != nil):
		return c, fmt.Errorf("align sets the records of each batch, and so do window, order, mixtures and sequences: use one of them")
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
