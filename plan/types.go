package plan

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/units"
)

// The kinds of storage that the planner knows; see [Classes].
const (
	ClassHDD    = "hdd"        // one spinning disk
	ClassSATA   = "sata-ssd"   // one SATA SSD
	ClassNVMe   = "nvme"       // one NVMe SSD
	ClassNFS    = "nfs-10gbe"  // NFS or another NAS over 10 Gbit/s Ethernet
	ClassCloud  = "cloud-file" // a file store of a cloud: Filestore, EFS
	ClassObject = "object"     // an object store: S3, GCS, Azure Blob
	ClassRAM    = "ram"        // the data is in memory
)

// The codecs of stored images, with the names of `stoker pack --images`.
const (
	CodecKeep = "keep" // the files' own bytes
	CodecDCT  = "dct"  // JPEG coefficients without the entropy code
	CodecRaw  = "raw"  // pixels
)

// The layouts of records on the storage.
const (
	LayoutFiles = "files" // a file per record
	LayoutPack  = "pack"  // few large files, read in chunks
)

// Machine has the rates of a machine, measured by `stoker probe` or specified by the user. Zero means unknown. Times
// are in seconds, sizes in bytes, rates per second.
type Machine struct {
	// CPU is the name of the processor, Measured when it was measured (RFC 3339).
	CPU      string `json:"cpu,omitempty"`
	Measured string `json:"measured,omitempty"`
	// Cores are those that the process may use: its affinity mask and the quota
	// of its cgroup, which may end in a fraction of a core.
	Cores float64 `json:"cores,omitempty"`
	// MemoryTotal and MemoryFree respect the limit of the cgroup. The free memory includes the page cache that the
	// kernel would release.
	MemoryTotal int64 `json:"memory_total,omitempty"`
	MemoryFree  int64 `json:"memory_free,omitempty"`
	// MemoryBandwidth is the copy rate of all cores, MemoryBandwidthCore that of one: bytes copied per second, each
	// read once and written once.
	MemoryBandwidth     float64 `json:"memory_bandwidth,omitempty"`
	MemoryBandwidthCore float64 `json:"memory_bandwidth_core,omitempty"`
	// MemoryCopy and MemoryCopyCore are the same with copies through the caches (memcpy). The other two bypass the
	// caches, like the loader's copies.
	MemoryCopy     float64 `json:"memory_copy,omitempty"`
	MemoryCopyCore float64 `json:"memory_copy_core,omitempty"`
	// NUMANodes is the number of memory nodes, Accelerators names the devices found.
	NUMANodes    int      `json:"numa_nodes,omitempty"`
	Accelerators []string `json:"accelerators,omitempty"`
	// Codecs has the cost of decoding and transforming, per codec.
	Codecs []CodecRate `json:"codecs,omitempty"`
	// Scaling is the throughput of all cores, divided by Cores times that of one core: 1 is perfect, two hyperthreads
	// of one core may reach 0.6.
	Scaling float64 `json:"scaling,omitempty"`
	// WakeLatency is the mean delay in waking a sleeping thread while all cores decode.
	WakeLatency float64 `json:"wake_latency,omitempty"`
	// Store is the storage under the dataset (or under the path given to probe).
	Store *Store `json:"store,omitempty"`
	// Handoff is the cost of handing batches to the trainer.
	Handoff *Handoff `json:"handoff,omitempty"`
	// Network is the line rate of the interface that a network file system goes
	// through, in bytes per second.
	Network float64 `json:"network,omitempty"`
	// Busy is the share of the cores that other programs used while it was measured, 0 to 1.
	// Unfinished are the parts for which the time was up.
	Busy       float64  `json:"busy,omitempty"`
	Unfinished []string `json:"unfinished,omitempty"`
	// Notes list the measurements that failed, one line each.
	Notes []string `json:"notes,omitempty"`
}

// mostBusy is the maximum share of the cores that other programs may use during the measurements.
const mostBusy = 0.25

// Doubt returns the reason why the measurements should be repeated, "" if they are valid.
func (m *Machine) Doubt() string {
	var why []string
	if len(m.Unfinished) > 0 {
		why = append(why, "the time was up before it had measured "+units.List(m.Unfinished, "and"))
	}
	if m.Busy > mostBusy {
		why = append(why, fmt.Sprintf("other programs used %s of the cores, so that the rates are too low", units.Percent(m.Busy)))
	}
	if len(why) == 0 {
		return ""
	}
	return "the probe is not reliable: " + units.List(why, "and") + "; the next plan measures again"
}

// CodecRate is the work on one core for the images of one codec, warm.
type CodecRate struct {
	Codec string `json:"codec"`
	// Transform is the processing after (or within) the decoding, "RandomResizedCrop(224), flip".
	Transform string `json:"transform,omitempty"`
	// CPUSeconds is the CPU time per image of the whole engine: reading from
	// memory, decoding, transforming, collating.
	CPUSeconds float64 `json:"cpu_seconds"`
	// ReadSeconds, DecodeSeconds and TransformSeconds are parts of it, if measured separately.
	ReadSeconds      float64 `json:"read_seconds,omitempty"`
	DecodeSeconds    float64 `json:"decode_seconds,omitempty"`
	TransformSeconds float64 `json:"transform_seconds,omitempty"`
	// PerCore is images per second on one core: 1 / CPUSeconds.
	PerCore float64 `json:"images_per_core"`
	// AllCores is images per second by the clock with a decode worker on each core.
	AllCores float64 `json:"images_all_cores,omitempty"`
	// Scaling is the CPU time of an image with one decode worker, divided by that with one worker on each core. It is
	// less than 1 if cores share execution resources.
	Scaling float64 `json:"scaling,omitempty"`
	// BesideBusy is AllCores while another thread computes all the time, like a trainer that launches work or spins.
	BesideBusy float64 `json:"images_beside_busy,omitempty"`
	// RecordBytes, Width and Height are means of the images that were used.
	RecordBytes float64 `json:"record_bytes,omitempty"`
	Width       float64 `json:"width,omitempty"`
	Height      float64 `json:"height,omitempty"`
	// OutputBytes is the size of one example in a batch.
	OutputBytes int64 `json:"output_bytes,omitempty"`
	Images      int64 `json:"images,omitempty"`
	// Origin is "measured" for this machine or "typical".
	Origin string `json:"origin,omitempty"`
}

// Store is one storage, measured without the page cache unless a ReadRate states otherwise.
type Store struct {
	// Class is one of the Class constants, from the system's description of the device.
	Class      string `json:"class,omitempty"`
	Path       string `json:"path,omitempty"`
	Filesystem string `json:"filesystem,omitempty"`
	Device     string `json:"device,omitempty"`
	// Random are reads at random offsets, Sequential are consecutive reads, and Files opens, reads and closes whole
	// small files. Each has several block sizes and numbers of reads in flight.
	Random     []ReadRate `json:"random,omitempty"`
	Sequential []ReadRate `json:"sequential,omitempty"`
	Files      []ReadRate `json:"files,omitempty"`
	// Buffered are random reads of uncached data through the page cache. They are made by the loader's own code, at
	// the depth that it chooses. Random bypasses the page cache if the file system supports it.
	Buffered []ReadRate `json:"buffered,omitempty"`
	// LimitBandwidth and LimitIOPS are the limits of a cgroup, 0 for no limit.
	LimitBandwidth float64 `json:"limit_bandwidth,omitempty"`
	LimitIOPS      float64 `json:"limit_iops,omitempty"`
	// Endpoint has the observed capabilities of a server, nil for other storage.
	Endpoint *Endpoint `json:"endpoint,omitempty"`
}

// Endpoint has the capabilities of an object server.
type Endpoint struct {
	// Ranges is true if it reads parts of objects. IfMatch is true if it refuses to read a version other than the
	// requested one.
	Ranges  bool `json:"ranges"`
	IfMatch bool `json:"if_match"`
	// Checksum is the header with which it sends checksums, "" for none.
	Checksum string `json:"checksum,omitempty"`
	// Depth is the number of large reads in flight that reach 95% of the bandwidth.
	Depth int `json:"depth,omitempty"`
}

// ReadRate is the measured rate of reads of Block bytes with Depth of them in flight.
type ReadRate struct {
	Block     int64   `json:"block"`
	Depth     int     `json:"depth"`
	IOPS      float64 `json:"iops"`
	Bandwidth float64 `json:"bandwidth"`
	Latency   Latency `json:"latency"`
	// CPUSeconds is the CPU time of one read, copies included.
	CPUSeconds float64 `json:"cpu_seconds,omitempty"`
	// Cached is true if the bytes came from the page cache.
	Cached bool `json:"cached,omitempty"`
}

// Latency is a distribution of the seconds that one read took.
type Latency struct {
	Mean    float64 `json:"mean,omitempty"`
	P50     float64 `json:"p50,omitempty"`
	P90     float64 `json:"p90,omitempty"`
	P99     float64 `json:"p99,omitempty"`
	P999    float64 `json:"p999,omitempty"`
	Max     float64 `json:"max,omitempty"`
	Samples int64   `json:"samples,omitempty"`
}

// Handoff is the cost of one batch between the engine and the trainer: fixed seconds per batch, and bytes per second
// if bytes must be copied.
type Handoff struct {
	PerBatch  float64 `json:"per_batch,omitempty"`
	Bandwidth float64 `json:"bandwidth,omitempty"`
}

// Dataset describes the data to be loaded. Zero means unknown.
type Dataset struct {
	// Path is its location, Layout one of the Layout constants.
	Path   string `json:"path,omitempty"`
	Layout string `json:"layout,omitempty"`
	// Codec is the codec of its stored images: one of the Codec constants, or "" for records that are not images.
	Codec string `json:"codec,omitempty"`
	// Records is the number of examples, Bytes the size of all of them on the storage.
	Records int64 `json:"records,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
	// RecordBytes is the mean of one stored example, RecordBytesMax the largest.
	RecordBytes    float64 `json:"record_bytes,omitempty"`
	RecordBytesMax int64   `json:"record_bytes_max,omitempty"`
	// Width and Height are means in pixels; Channels is 3 for colour.
	Width    float64 `json:"width,omitempty"`
	Height   float64 `json:"height,omitempty"`
	Channels int     `json:"channels,omitempty"`
	// ChunkBytes is the size of one read of a pack, 0 for files.
	ChunkBytes int64 `json:"chunk_bytes,omitempty"`
	// InOrder is true if it can only be read in order, because it is compressed.
	InOrder bool `json:"in_order,omitempty"`
	// Fields are the stored fields that take space in a batch, if known.
	Fields []Field `json:"fields,omitempty"`
}

// Pipeline is one way to run a loader, as Predict takes it. Zero values mean:
// all cores, nothing cached, no cap, the defaults of the loader.
type Pipeline struct {
	// Batch is n per accelerator, Step is t in seconds.
	Batch        int64   `json:"batch"`
	Step         float64 `json:"step"`
	Accelerators int     `json:"accelerators,omitempty"`
	Cores        float64 `json:"cores,omitempty"`
	// Threads is the number of decode workers, 0 for one per core.
	Threads int    `json:"threads,omitempty"`
	Codec   string `json:"codec,omitempty"`
	Layout  string `json:"layout,omitempty"`
	// RecordBytes is the stored size of one example, in Codec. OutputBytes is its size in a batch.
	RecordBytes float64 `json:"record_bytes,omitempty"`
	OutputBytes float64 `json:"output_bytes,omitempty"`
	// CPUSeconds is the CPU time per example, 0 to take it from Machine.Codecs.
	CPUSeconds float64 `json:"cpu_seconds,omitempty"`
	// CachedShare is the share of the examples that are in memory, 0 to 1.
	CachedShare float64 `json:"cached_share,omitempty"`
	// DiskBandwidth and DiskIOPS limit the storage, in addition to Machine.Store.
	DiskBandwidth float64 `json:"disk_bandwidth,omitempty"`
	DiskIOPS      float64 `json:"disk_iops,omitempty"`
	// Depth is the number of reads in flight, Prefetch the batches made ahead.
	Depth    int `json:"depth,omitempty"`
	Prefetch int `json:"prefetch,omitempty"`
	// Spin is true if the trainer keeps a core busy while the accelerator works, like the launching thread of a
	// framework.
	Spin bool `json:"spin,omitempty"`
	// StepCPU is the CPU time of the trainer itself per step, for example in Python, if it does not spin.
	StepCPU float64 `json:"step_cpu,omitempty"`
}

// The resources that can be the limit of a pipeline.
const (
	LimitStorage     = "storage"
	LimitCPU         = "cpu"
	LimitMemory      = "memory"
	LimitNetwork     = "network"
	LimitHandoff     = "handoff"
	LimitAccelerator = "accelerator"
)

// Prediction is the result of Predict for a Pipeline on a Machine.
type Prediction struct {
	// Throughput is in examples per second, all accelerators together; AU is
	// compute time over total time, 0 to 1.
	Throughput float64 `json:"throughput"`
	AU         float64 `json:"au"`
	// StepSeconds is the time from one step to the next.
	StepSeconds float64 `json:"step_seconds"`
	// StepP99 is its 99th percentile, FirstBatch the time to the first batch once
	// the loader is open.
	StepP99    float64 `json:"step_p99,omitempty"`
	FirstBatch float64 `json:"first_batch,omitempty"`
	// Limit is the resource that decides, one of the Limit constants.
	Limit string `json:"limit"`
	// Capacity lists the examples per second that each resource could deliver alone.
	Capacity []Capacity `json:"capacity"`
	// Missing lists figures that were unknown and left out ("storage: not measured").
	Missing []string `json:"missing,omitempty"`
}

// Capacity is the rate of one resource if it were the only limit.
type Capacity struct {
	Resource  string  `json:"resource"`
	PerSecond float64 `json:"per_second"`
}
