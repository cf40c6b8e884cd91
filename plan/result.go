package plan

// Version is the version of the JSON form of a Plan. Within a version, keys are only added.
const Version = 1

// Plan has the requirements of a data path, whether it meets them, and the changes to make. Sizes are in bytes, times
// in seconds, rates per second.
type Plan struct {
	Version int     `json:"version"`
	Inputs  []Input `json:"inputs"`
	Goal    Goal    `json:"goal"`
	Fit     Fit     `json:"fit"`
	// Reads are the reads that the storage must deliver, for all experiments together.
	Reads ReadNeed `json:"reads"`
	// CPU is the work per codec, for one machine.
	CPU    []CodecNeed `json:"cpu"`
	Memory MemoryNeed  `json:"memory"`
	// Epoch is the time of one pass over the data, at the accelerators' rate and at this machine's rate. It is 0 if
	// the length of the data is unknown.
	EpochSeconds          float64 `json:"epoch_seconds,omitempty"`
	EpochSecondsPredicted float64 `json:"epoch_seconds_predicted,omitempty"`
	// Bucket is the load of an epoch on the bucket that has the data, nil for other storage.
	Bucket *BucketCost `json:"bucket,omitempty"`
	// Resources has a verdict for each part. FirstToFail is the part with the smallest margin. Meets is true if all
	// parts deliver enough, Judged if enough is known for a verdict.
	Resources   []Resource     `json:"resources"`
	FirstToFail string         `json:"first_to_fail,omitempty"`
	Meets       bool           `json:"meets"`
	Judged      bool           `json:"judged"`
	Delivered   Delivered      `json:"delivered"`
	Latency     LatencyPlan    `json:"latency"`
	Classes     []ClassVerdict `json:"classes"`
	Advice      []Advice       `json:"advice"`
	// Loader has the resulting settings, Engine the memory of an engine with them.
	Loader Settings `json:"loader"`
	Engine Engine   `json:"engine"`
	// Sentences describe the plan in words. Notes are remarks about the figures.
	Sentences []string `json:"sentences"`
	Notes     []string `json:"notes,omitempty"`
}

// Goal is the required delivery: Share of the mini-batches of Batch examples within Step seconds, on each of
// Accelerators.
type Goal struct {
	Share        float64 `json:"share"`
	Batch        int64   `json:"batch"`
	Step         float64 `json:"step_seconds"`
	Accelerators int64   `json:"accelerators"`
	// TotalBatch is n of all accelerators together.
	TotalBatch int64 `json:"total_batch"`
	// PerAccelerator and PerSecond are examples per second, n / t: of one
	// accelerator and of this machine.
	PerAccelerator float64 `json:"examples_per_second_per_accelerator"`
	PerSecond      float64 `json:"examples_per_second"`
	// LatencyBound is the longest that a single example may take: t.
	LatencyBound float64 `json:"latency_bound_seconds"`
	// ComputeRate is the rate that the FLOP/s of the device allow, 0 if unknown.
	ComputeRate float64 `json:"compute_examples_per_second,omitempty"`
}

// Fit describes how a batch fits into the memory of an accelerator. It is zero if unknown.
type Fit struct {
	Known             bool    `json:"known"`
	Fits              bool    `json:"fits"`
	Largest           int64   `json:"largest_batch,omitempty"`
	LargestPowerOfTwo int64   `json:"largest_power_of_two,omitempty"`
	Need              float64 `json:"need_bytes,omitempty"`
	Have              float64 `json:"have_bytes,omitempty"`
}

// ReadNeed is the number of reads that the storage must deliver. The Low figures are for the smallest number of
// experiments.
type ReadNeed struct {
	IOPS         float64 `json:"iops"`
	IOPSLow      float64 `json:"iops_low"`
	Bandwidth    float64 `json:"bandwidth"`
	BandwidthLow float64 `json:"bandwidth_low"`
	Block        float64 `json:"block_bytes"`
	// Room is the size of all datasets together, 0 if unknown.
	Room float64 `json:"room_bytes,omitempty"`
	// PerMachine is the bandwidth of one machine, for its network.
	PerMachine float64 `json:"bandwidth_per_machine"`
	// Cached is the share of the examples that is taken as in memory.
	Cached float64 `json:"cached_share,omitempty"`
}

// CodecNeed is the work that one codec means for one machine.
type CodecNeed struct {
	Codec string `json:"codec"`
	// PerCore is the number of images per second of one core, Cores the required number of cores.
	PerCore float64 `json:"images_per_core"`
	Cores   float64 `json:"cores"`
	// RecordBytes is the size of a stored example in this codec, DatasetBytes that of all of them. Bandwidth is the
	// resulting number of bytes read per second by one machine.
	RecordBytes  float64 `json:"record_bytes"`
	DatasetBytes float64 `json:"dataset_bytes,omitempty"`
	Bandwidth    float64 `json:"bandwidth"`
	Origin       string  `json:"origin"`
	Current      bool    `json:"current,omitempty"`
}

// MemoryNeed is the memory that a loader needs on one machine.
type MemoryNeed struct {
	// Example is one example in a batch, by array; Batch is n of them.
	Example float64      `json:"example_bytes"`
	Arrays  []ArrayBytes `json:"arrays"`
	Batch   float64      `json:"batch_bytes"`
	// Stoker's engine: batches ahead of each accelerator, buffers to read into,
	// scratch of the threads, and all of it. It does not grow with workers.
	Prefetch   int     `json:"prefetch"`
	Slots      float64 `json:"slots_bytes"`
	Lookahead  float64 `json:"lookahead_bytes"`
	ReadAhead  float64 `json:"read_bytes"`
	Scratch    float64 `json:"scratch_bytes"`
	PerThread  float64 `json:"per_thread_bytes"`
	Total      float64 `json:"total_bytes"`
	Cache      float64 `json:"cache_bytes"`
	CacheShare float64 `json:"cache_share"`
	// Torch is the need of the PyTorch DataLoader, for comparison.
	Torch TorchNeed `json:"torch"`
	// Compact is the size of the batch with one byte per element, if that is smaller.
	Compact float64 `json:"compact_batch_bytes,omitempty"`
	Have    float64 `json:"have_bytes,omitempty"`
}

// ArrayBytes is the size of one array of a batch.
type ArrayBytes struct {
	Array string  `json:"array"`
	Bytes float64 `json:"bytes"`
}

// TorchNeed is the memory that the PyTorch DataLoader needs for the same task.
type TorchNeed struct {
	// Workers in all, for all accelerators of the machine; Cores they keep busy.
	Workers float64 `json:"workers"`
	Cores   float64 `json:"cores"`
	// PerWorker is the size of the batches of one worker, with prefetch_factor 2. Total is the size of all batches.
	// OneEach is the size with a single batch per worker, as articles count it.
	PerWorker float64 `json:"per_worker_bytes"`
	Total     float64 `json:"total_bytes"`
	OneEach   float64 `json:"one_batch_each_bytes"`
}

// The names of resources.
const (
	ResourceRequests    = "storage requests"
	ResourceBandwidth   = "storage bandwidth"
	ResourceLatency     = "storage latency"
	ResourceNetwork     = "network"
	ResourceCPU         = "cores"
	ResourceMemory      = "memory"
	ResourceCopies      = "memory bandwidth"
	ResourceHandoff     = "hand-off"
	ResourceAccelerator = "accelerator memory"
)

// Verdicts.
const (
	VerdictYes     = "yes"
	VerdictTight   = "tight" // it does, with less than a quarter to spare
	VerdictNo      = "no"
	VerdictUnknown = "unknown"
)

// Resource is one part of the path: the need and the capacity.
type Resource struct {
	Name string  `json:"name"`
	Need float64 `json:"need"`
	Have float64 `json:"have"`
	// NeedText and HaveText are the two for people.
	NeedText string `json:"need_text"`
	HaveText string `json:"have_text"`
	// Margin is have over need (for latency: allowed over expected).
	Margin  float64 `json:"margin"`
	Verdict string  `json:"verdict"`
	Origin  string  `json:"origin"`
	Detail  string  `json:"detail,omitempty"`
}

// Delivered is the predicted throughput of the machine.
type Delivered struct {
	// PerSecond is in examples, at most the demand of the accelerators. AU is the share of the time that the
	// accelerators work. Limit is one of the Limit constants.
	PerSecond float64 `json:"examples_per_second"`
	AU        float64 `json:"au"`
	Limit     string  `json:"limit"`
	// Measured is true if measurements of this machine were used.
	Measured bool `json:"measured"`
}

// LatencyPlan is about the time that single reads take.
type LatencyPlan struct {
	Origin  string `json:"origin,omitempty"`
	Storage string `json:"storage,omitempty"`
	// Mean and P99 are the times for one example: its reads, one after the other, and its decoding.
	Mean float64 `json:"mean_seconds,omitempty"`
	P99  float64 `json:"p99_seconds,omitempty"`
	// Depth is the number of reads in flight that hides the latency. LoaderDepth is the number that Stoker's loader
	// keeps in flight.
	Depth       float64 `json:"depth,omitempty"`
	LoaderDepth float64 `json:"loader_depth,omitempty"`
	// BatchOne is the maximum time of the share Share of the batches with one read at a time, Batch with Depth in
	// flight. Tail is the part of it for the slowest read.
	BatchOne float64 `json:"batch_seconds_one_at_a_time,omitempty"`
	Batch    float64 `json:"batch_seconds,omitempty"`
	Tail     float64 `json:"tail_seconds,omitempty"`
	// Prefetch is the number of batches to make ahead so that this does not show.
	Prefetch int `json:"prefetch,omitempty"`
}

// ClassVerdict reports whether a kind of storage would be sufficient.
type ClassVerdict struct {
	Name    string  `json:"name"`
	Title   string  `json:"title"`
	Verdict string  `json:"verdict"`
	Margin  float64 `json:"margin"`
	// PerSecond is the number of examples per second of one unit, Units the required number of units.
	PerSecond float64 `json:"examples_per_second"`
	Units     float64 `json:"units"`
	Unit      string  `json:"unit,omitempty"`
	// Limit is "requests", "bandwidth" or "room". SmallFiles is true if requests are the limit because the files are
	// small.
	Limit      string  `json:"limit"`
	SmallFiles bool    `json:"small_file_problem,omitempty"`
	Depth      float64 `json:"depth"`
	P99        float64 `json:"p99_seconds"`
	Text       string  `json:"text"`
	Source     string  `json:"source"`
}

// Advice is one change and its predicted effect.
type Advice struct {
	// Step is its position in the order of changes, 0 for an alternative.
	Step  int    `json:"step"`
	Kind  string `json:"kind"`
	Title string `json:"title"`
	Why   string `json:"why"`
	// Command is a command that makes the change, if one exists.
	Command string `json:"command,omitempty"`
	// From and To are examples per second before and after, the steps before it
	// done; Gain is To / From, AU the accelerators' utilisation after.
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Gain float64 `json:"gain"`
	AU   float64 `json:"au"`
	// Effect describes the effect for users.
	Effect string `json:"effect"`
}

// Settings are the loader's arguments.
type Settings struct {
	Source    string `json:"source"`
	BatchSize int64  `json:"batch_size"`
	Threads   int64  `json:"threads"`
	Prefetch  int    `json:"prefetch"`
	Memory    int64  `json:"memory"`
	// Pack is the command that makes the pack, "" if the data is already a pack.
	Pack string `json:"pack,omitempty"`
	// Python is a program with them.
	Python string `json:"python"`
}

// Resource returns the resource of a name.
func (p *Plan) Resource(name string) (Resource, bool) {
	for _, r := range p.Resources {
		if r.Name == name {
			return r, true
		}
	}
	return Resource{}, false
}

// Class returns the verdict on a storage class.
func (p *Plan) Class(name string) (ClassVerdict, bool) {
	for _, c := range p.Classes {
		if c.Name == name {
			return c, true
		}
	}
	return ClassVerdict{}, false
}

// Codec returns the work of a codec.
func (p *Plan) Codec(name string) (CodecNeed, bool) {
	for _, c := range p.CPU {
		if c.Codec == name {
			return c, true
		}
	}
	return CodecNeed{}, false
}
