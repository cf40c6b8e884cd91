package stoker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// Options set the data to load and how to load it. Only BatchSize is required.
type Options struct {
	// BatchSize is the number of records per batch and rank.
	BatchSize int
	// Shuffle draws a new order for each epoch from Seed; otherwise records come in the order of the source.
	Shuffle bool
	// Window, with Shuffle, is the number of chunks of the data in the shuffle buffer. Each chunk is used once per
	// epoch, so storage is read in large pieces. 0 means a permutation of all records. WindowAuto chooses by the
	// location of the data.
	Window int
	// Seed decides on order and augmentation.
	Seed uint64
	// DropLast leaves out the records of an epoch that do not fill a batch on every rank.
	DropLast bool
	// Bucket has batches of records that are alike: of about the same length or proportions. Nil means any.
	Bucket *Bucket

	// Outputs are arrays made with operations, mainly from images. Without any, each image field gives one array of
	// its name, which requires images of one size.
	Outputs []Output
	// Fields are the other fields to deliver, as stored; empty means all.
	Fields []string
	// Pad sets, by name, how arrays with rows of different lengths are padded to one length. Such an array has an
	// additional first axis in its Shape. It also gets an array NAME_length and, on request, NAME_mask.
	Pad map[string]Pad
	// BatchOps run on whole batches: MixUp, CutMix.
	BatchOps []Op
	// ApplyOrientation rotates images by their EXIF orientation. By default they keep the stored orientation.
	ApplyOrientation bool

	// Ranks identify this process's part of each global batch.
	Ranks Ranks
	// Limits bound memory, threads and waits.
	Limits Limits
	// Cache keeps what is read for later epochs.
	Cache Cache
	// OnError is the treatment of records that cannot be read.
	OnError OnError

	// View selects records and fields: a part of a split, or the records that match an expression. The URL can also
	// contain the view.
	View View
	// Sequence makes sequences of one length from documents of tokens. The sequences are then the records. Nil means
	// the records of the data.
	Sequence *Sequence
	// Source, when set, is the data itself; the URL is then only a name. The loader closes it, and so does an Open that
	// fails.
	Source driver.Source
}

// Ranks identify a process's part of each global batch.
type Ranks struct {
	// Rank is the number of this process, and WorldSize the number of processes; 0 means 1. On a short last batch the
	// records are shared evenly, and each rank has the same number of batches.
	Rank, WorldSize int
	// Uneven sets the treatment of the last records of an epoch if the ranks cannot share them evenly: UnevenExact
	// (the default), UnevenPad or UnevenDrop.
	Uneven Uneven
}

// Limits bound the resources of a loader.
type Limits struct {
	// Memory limits the memory outside the Go heap, in bytes; 0 means a quarter of the free memory, more if less than
	// 1 GiB is free, or this process's share of it.
	Memory int64
	// Prefetch is the number of batches made ahead, Lookahead the bytes that may be read before a batch has room for
	// them; 0 means a default that fits Memory. Explicit values are used or refused.
	Prefetch  int
	Lookahead int64
	// Threads is the number of decoding threads. 0 means one per usable core. If a launcher (torchrun, MPI, Slurm)
	// started several processes on this machine, it means one per core of this process's share.
	Threads int
	// Timeout is the time for which a failure of the store, the network or the machine may last before Next returns
	// it; 0 means 5 minutes. Failures that are usually permanent, such as refused access or too little memory, are
	// returned after 15 seconds.
	Timeout time.Duration
}

// Cache keeps what is read for later epochs, on disk, in memory or on other nodes.
type Cache struct {
	// Disk caches the data that is read. JPEGs of folders are cached in a format with the same pixels that decodes
	// several times faster, other remote data unchanged.
	Disk bool
	// Dir is the folder, "" for STOKER_CACHE_DIR or stoker in the user's cache folder. Limit is the maximum number of
	// its bytes, 0 for the folder's own setting.
	Dir   string
	Limit int64
	// Memory is the part of Limits.Memory in which remote data is cached, so that later epochs read only the rest.
	Memory int64
	// Stage is a folder, on a fast local disk, to which remote data is copied while it is read. Later epochs and jobs
	// read the copy. It excludes Disk.
	Stage string
	// Peers are the addresses of the nodes, host:port, that each cache a part of remote data and serve it to the
	// others. PeersSelf is the address of this node, "" for the one with an address of this machine. They share a
	// secret in STOKER_PEERS_TOKEN.
	Peers     []string
	PeersSelf string
}

// OnError is the treatment of records that cannot be read or decoded. By default Next returns a RecordError.
type OnError struct {
	// Skip replaces such records by the next good one of the source. See Loader.Skipped.
	Skip bool
	// MaxBad is the maximum number of bad records with Skip: a number such as "20", or a share such as "5%" of the
	// records that this rank reads. More bad records end the epoch with an error. "" means 5%, but at least 10 records.
	MaxBad string
	// Quarantine is a text file of bad records, with Skip: those in it are not read, and others are added, one JSON
	// object per line. "" means none.
	Quarantine string
	// RepairFrom is the URL of another copy of the pack, "" for none. Records that are damaged are read from it. Not
	// together with Skip.
	RepairFrom string
}

// WindowAuto is the value of Options.Window with which the loader chooses the window. Loader.Order has the reason.
const WindowAuto = pipeline.WindowAuto

// View selects records and fields of the data, their names and their types. The zero value selects everything,
// unchanged.
type View = view.Spec

// Pad sets how rows of different lengths are padded to one length.
type Pad struct {
	// Value is the padding value.
	Value float64
	// Length is the length of all rows. 0 means that of the longest row of the batch, rounded up to a multiple of
	// Multiple.
	Length, Multiple int64
	// Truncate cuts rows that are longer than Length; otherwise they are errors.
	Truncate bool
	// Mask adds an array that marks the elements that are not padding.
	Mask bool
}

// Sequence sets how sequences are made from documents of tokens.
type Sequence struct {
	// Length is the number of tokens of a sequence.
	Length int64
	// Packing is "stream" (the default), which cuts the documents one after the other, or "best-fit", which fills
	// sequences with whole documents where it can.
	Packing string
	// Fields are the fields of tokens; empty means all.
	Fields []string
	// NoShift gives one array of tokens instead of an input and a target that is one token further.
	NoShift bool
	// DType is "int32" or "int64", "" for the stored type.
	DType string
	// Pad is the token that fills sequences.
	Pad int64
}

// Bucket sets how records are sorted into buckets. The records of a batch are from one bucket.
type Bucket struct {
	// By is a field: values of any length are sorted by that, images by width / height.
	By string
	// Boundaries are the largest length or proportion of each bucket but the last. When there are none, Count buckets
	// have about as many records each.
	Boundaries []float64
	Count      int
	// MaxTokens bounds rows x longest row of a batch, as rows are filled up; a batch has as many rows as that allows,
	// up to the batch size.
	MaxTokens int64
	// Ranks is the number of batches of one bucket that come together, so that as many ranks have rows of about the
	// same length. 0 is the number of ranks. The order depends on it, and not on the number of ranks: a run that
	// continues on other ranks has the number that it began with.
	Ranks int
}

// Output is an image array of a batch.
type Output struct {
	// Name is the name of the array, Field the stored image it is made from; an
	// empty Field means Name. Several outputs may use one field.
	Name, Field string
	// Ops are done in order. The result must have one size for all records.
	Ops []Op
	// ChannelsFirst stores images as C x H x W instead of H x W x C.
	ChannelsFirst bool
	// Mask is true if pixels are class numbers: operations move them with nearest interpolation and do not change
	// their values.
	Mask bool
	// Follow names an output whose random numbers this one shares, so that a
	// mask moves with its image.
	Follow string
	// Mode is the pixel format of decoded images: "RGB" (the default), "RGBA", "L" (gray) or "LA". Masks have none.
	Mode string
	// Depth is the number of bits of a value: 8 (the default) or 16.
	Depth int
}

// Op is one operation on images, with the name and the parameters that it has
// in torchvision.transforms.v2.
type Op struct {
	name   string
	params map[string]any
}

// NewOp returns the operation of a name; params are its parameters by keyword. Open refuses unknown names and
// suggests the nearest known name.
func NewOp(name string, params map[string]any) Op { return Op{name, maps.Clone(params)} }

// MarshalJSON returns the engine's format of operations.
func (o Op) MarshalJSON() ([]byte, error) {
	m := map[string]any{}
	maps.Copy(m, o.params)
	m["op"] = o.name
	return json.Marshal(m)
}

// String returns the JSON form.
func (o Op) String() string {
	b, err := json.Marshal(o)
	if err != nil {
		return o.name
	}
	return string(b)
}

// Resize scales the shorter side to size.
func Resize(size int) Op { return NewOp("Resize", map[string]any{"size": size}) }

// ResizeTo scales to height x width and ignores the proportions.
func ResizeTo(height, width int) Op {
	return NewOp("Resize", map[string]any{"size": []int{height, width}})
}

// CenterCrop cuts size x size pixels out of the middle.
func CenterCrop(size int) Op { return NewOp("CenterCrop", map[string]any{"size": size}) }

// RandomCrop cuts size x size pixels out at random, after padding all sides.
func RandomCrop(size, padding int) Op {
	return NewOp("RandomCrop", map[string]any{"size": size, "padding": padding})
}

// RandomResizedCrop cuts out a random part of 8% to 100% of the area, with
// proportions of 3:4 to 4:3, and scales it to size x size.
func RandomResizedCrop(size int) Op {
	return NewOp("RandomResizedCrop", map[string]any{"size": size})
}

// RandomHorizontalFlip mirrors left and right with probability p.
func RandomHorizontalFlip(p float64) Op {
	return NewOp("RandomHorizontalFlip", map[string]any{"p": p})
}

// RandomVerticalFlip mirrors top and bottom with probability p.
func RandomVerticalFlip(p float64) Op {
	return NewOp("RandomVerticalFlip", map[string]any{"p": p})
}

// ToDtype converts to "uint8", "uint16", "float16", "bfloat16" or "float32"; with
// scale, floats of integers go from 0 to 1.
func ToDtype(dtype string, scale bool) Op {
	return NewOp("ToDtype", map[string]any{"dtype": dtype, "scale": scale})
}

// Normalize subtracts mean and divides by std, per channel.
func Normalize(mean, std []float64) Op {
	return NewOp("Normalize", map[string]any{"mean": mean, "std": std})
}

// Uneven is the treatment of the last records of an epoch if the ranks cannot share them evenly.
type Uneven string

// The ways.
const (
	// UnevenExact delivers each record once. In the last batch, a rank may have fewer rows than another rank, or
	// none.
	UnevenExact = Uneven(sampler.Exact)
	// UnevenPad gives each rank the same number of rows: records from the beginning of the epoch are repeated
	// (Batch.Repeated).
	UnevenPad = Uneven(sampler.Pad)
	// UnevenDrop gives each rank the same number of rows and drops the records left over at the end.
	UnevenDrop = Uneven(sampler.Drop)
)

// config returns the engine's form of the options.
func (o *Options) config(url string) (pipeline.Config, error) {
	c := pipeline.Config{
		Source: url, View: o.View, BatchSize: o.BatchSize, Shuffle: o.Shuffle, Window: o.Window, Seed: o.Seed, DropLast: o.DropLast,
		Rank: o.Ranks.Rank, WorldSize: o.Ranks.WorldSize, Uneven: sampler.Uneven(o.Ranks.Uneven),
		Memory: o.Limits.Memory, Prefetch: o.Limits.Prefetch, Lookahead: o.Limits.Lookahead, Threads: o.Limits.Threads, Timeout: o.Limits.Timeout.Seconds(),
		CacheDir: o.Cache.Dir, CacheLimit: o.Cache.Limit, CacheMemory: o.Cache.Memory, Stage: o.Cache.Stage, Peers: o.Cache.Peers, PeersSelf: o.Cache.PeersSelf,
		MaxBad: o.OnError.MaxBad, Quarantine: o.OnError.Quarantine,
		Fields: o.Fields, Bucket: (*pipeline.Bucket)(o.Bucket), Sequence: (*pipeline.Sequence)(o.Sequence), ApplyOrientation: o.ApplyOrientation,
	}
	for name, p := range o.Pad {
		if c.Pad == nil {
			c.Pad = map[string]collate.Pad{}
		}
		c.Pad[name] = collate.Pad{Value: p.Value, Length: p.Length, Multiple: p.Multiple, Truncate: p.Truncate, Mask: p.Mask}
	}
	if o.Cache.Disk {
		c.Cache = pipeline.CacheOn
	}
	switch {
	case o.OnError.Skip && o.OnError.RepairFrom != "":
		return c, errors.New("OnError.Skip and OnError.RepairFrom are both set: choose one")
	case o.OnError.Skip:
		c.OnError = pipeline.OnErrorSkip
		c.MaxBad = cmp.Or(c.MaxBad, pipeline.DefaultMaxBad)
	case o.OnError.RepairFrom != "":
		c.OnError, c.RepairFrom = pipeline.OnErrorRepair, o.OnError.RepairFrom
	}
	for _, out := range o.Outputs {
		t := transform.Output{Name: out.Name, Field: out.Field, Mask: out.Mask, Follow: out.Follow, Mode: out.Mode, Depth: out.Depth}
		if out.ChannelsFirst {
			t.Layout = "NCHW"
		}
		var err error
		if t.Ops, err = marshalOps(out.Ops); err != nil {
			return c, fmt.Errorf("output %q: %w", out.Name, err)
		}
		c.Outputs = append(c.Outputs, t)
	}
	var err error
	if c.BatchOps, err = marshalOps(o.BatchOps); err != nil {
		return c, err
	}
	return c, nil
}

func marshalOps(ops []Op) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for _, op := range ops {
		b, err := json.Marshal(op)
		if err != nil {
			return nil, fmt.Errorf("operation %s: %w", op.name, err)
		}
		out = append(out, b)
	}
	return out, nil
}
