package plan

import "math"

// Class is a kind of storage with typical figures. Measurements have priority over them.
type Class struct {
	// Name is one of the Class constants and Title the usual name. Unit is the thing to buy more of, "" if more does
	// not help.
	Name  string `json:"name"`
	Title string `json:"title"`
	Unit  string `json:"unit,omitempty"`
	// IOPS are small random reads per second with enough of them in flight,
	// Bandwidth bytes per second in large reads: both of one unit, for all its
	// clients together. PerClient caps the bandwidth of one machine.
	IOPS      float64 `json:"iops"`
	Bandwidth float64 `json:"bandwidth"`
	PerClient float64 `json:"per_client,omitempty"`
	// Serial is true if the transfer time of a read adds to its access time, as with the single arm of a disk.
	// Otherwise the two overlap.
	Serial bool `json:"serial,omitempty"`
	// Latency is that of one small read on an idle storage.
	Latency Latency `json:"latency"`
	// FileOps is the number of sequential requests that read a small file: open, read and close over a network. It is
	// one if the system keeps the directories in memory.
	FileOps float64 `json:"file_ops"`
	Network bool    `json:"network,omitempty"`
	Source  string  `json:"source"`
}

// tenGigabit is the payload of 10 Gbit/s Ethernet with frames of 1,500 bytes:
// 1,448 bytes of data in 1,538 bytes on the wire.
const tenGigabit = 10e9 / 8 * 1448 / 1538

// Classes lists the kinds of storage, from slow to fast for small reads.
func Classes() []Class {
	return []Class{
		{
			Name: ClassHDD, Title: "spinning disk", Unit: "disk",
			IOPS: 100, Bandwidth: 200e6, Serial: true, FileOps: 1,
			Latency: Latency{Mean: 0.010, P50: 0.010, P90: 0.014, P99: 0.020},
			Source:  "75-100 IOPS at 7,200 rpm (Wikipedia, IOPS), 200 MB/s on the middle tracks (data sheets say 250 outside)",
		},
		{
			Name: ClassObject, Title: "object store", Unit: "prefix",
			IOPS: 5500, Bandwidth: 100e9, PerClient: tenGigabit, FileOps: 1, Network: true,
			Latency: Latency{Mean: 0.120, P50: 0.100, P90: 0.200, P99: 0.400},
			Source:  "S3: 5,500 GET/s per prefix, 100-200 ms to the first byte (AWS, S3 performance guidelines); over 10 Gbit/s",
		},
		{
			Name: ClassNFS, Title: "NFS over 10 GbE", Unit: "server",
			IOPS: 10_000, Bandwidth: tenGigabit, FileOps: 3, Network: true,
			Latency: Latency{Mean: 0.0008, P50: 0.0006, P90: 0.0012, P99: 0.005},
			Source:  "line rate less headers; 10,000 IOPS and the latency are an assumption for a NAS of disks with an SSD cache: measure yours",
		},
		{
			Name: ClassCloud, Title: "cloud file store", Unit: "file system",
			IOPS: 55_000, Bandwidth: 3 << 30, PerClient: 500 << 20, FileOps: 3, Network: true,
			Latency: Latency{Mean: 0.0011, P50: 0.001, P90: 0.0015, P99: 0.006},
			Source:  "EFS, regional, provisioned: 55,000 read IOPS, 3 GiB/s, 500 MiB/s per client, about 1 ms (AWS, EFS performance); p99 assumed",
		},
		{
			Name: ClassSATA, Title: "SATA SSD", Unit: "SSD",
			IOPS: 98_000, Bandwidth: 560e6, FileOps: 1,
			Latency: Latency{Mean: 0.0001, P50: 0.00008, P90: 0.00016, P99: 0.0004},
			Source:  "98,000 IOPS at depth 32, 560 MB/s (Samsung 870 EVO data sheet); access 0.08-0.16 ms (\"Efficient PyTorch\")",
		},
		{
			Name: ClassNVMe, Title: "NVMe SSD", Unit: "SSD",
			IOPS: 600_000, Bandwidth: 3500e6, FileOps: 1,
			Latency: Latency{Mean: 0.00006, P50: 0.000053, P90: 0.00009, P99: 0.0002},
			Source:  "600,000 IOPS at depth 128, 19,000 at depth 1, 3,500 MB/s (Samsung 970 EVO Plus data sheet, PCIe 3.0 x4)",
		},
		{
			Name: ClassRAM, Title: "memory", Unit: "core",
			IOPS: 10e6, Bandwidth: 10e9, FileOps: 1,
			Latency: Latency{Mean: 1e-7, P50: 1e-7, P90: 2e-7, P99: 1e-6},
			Source:  "one core copies 6-11 GB/s (measured by this project); access in nanoseconds (\"Efficient PyTorch\")",
		},
	}
}

// ClassNames returns the names of all classes.
func ClassNames() []string {
	var names []string
	for _, c := range Classes() {
		names = append(names, c.Name)
	}
	return names
}

// ClassNamed returns the class of a name.
func ClassNamed(name string) (Class, bool) {
	for _, c := range Classes() {
		if c.Name == name {
			return c, true
		}
	}
	return Class{}, false
}

// storage is a storage as the assessment sees it, either measured or from the table of classes.
type storage struct {
	title, unit, name string
	origin            string
	// iops and bandwidth are the examples' reads per second and bytes per
	// second at the block size that is needed, all clients together.
	iops, bandwidth float64
	// requests are the reads that one example takes.
	requests float64
	latency  Latency
	network  bool
	// limited names a limit other than the device: "the cgroup's limit".
	limited string
}

// bytesBound is the minimum share of the bandwidth for which bytes count as the limit.
const bytesBound = 0.7

// examples returns how many examples of block bytes it delivers per second, and whether requests rather than bytes
// are the limit.
func (s *storage) examples(block float64) (rate float64, byRequests bool) {
	r, b := s.iops/s.requests, s.bandwidth/block
	// If the transfer time of the reads dominates, bytes are the limit and not requests, for any number of reads.
	return math.Min(r, b), r < bytesBound*b
}

// storage returns the class as a storage for examples of block bytes, with clients machines reading at the same time.
func (c Class) storage(block float64, layout string, clients float64, network float64) *storage {
	s := &storage{
		title: c.Title, unit: c.Unit, name: c.Name, origin: OriginTypical,
		iops: c.IOPS, bandwidth: c.Bandwidth, requests: 1, latency: c.Latency, network: c.Network,
	}
	if layout == LayoutFiles {
		s.requests = c.FileOps
	}
	if c.Serial {
		// Each read takes its positioning time plus its transfer time.
		s.iops = 1 / (1/c.IOPS + block/c.Bandwidth)
	}
	perClient := c.PerClient
	if c.Network && network > 0 && (perClient == 0 || c.Name == ClassObject) {
		perClient = network
	}
	if perClient > 0 {
		s.bandwidth = math.Min(s.bandwidth, perClient*clients)
	}
	// The transfer of a large block takes its time on any storage.
	transfer := block / s.bandwidth
	l := &s.latency
	for _, v := range []*float64{&l.Mean, &l.P50, &l.P90, &l.P99} {
		*v = *v*s.requests + transfer
	}
	return s
}

// measured returns a storage measured by `stoker probe`, for examples of block bytes. Random reads of the two nearest
// block sizes are interpolated, at the depth with the highest rate. It returns nil without a measurement.
func (st *Store) measured(block float64, layout string) *storage {
	if st == nil {
		return nil
	}
	rates := st.Random
	requests := 1.0
	if layout == LayoutFiles && hasUncached(st.Files) {
		rates = st.Files
	}
	if !hasUncached(rates) {
		return nil
	}
	s := &storage{title: "this storage", name: st.Class, origin: OriginMeasured, requests: requests}
	if c, ok := ClassNamed(st.Class); ok {
		s.title, s.network = "this "+c.Title, c.Network
		if layout == LayoutFiles && !hasUncached(st.Files) {
			s.requests = c.FileOps
		}
	}
	best := 0.0
	for _, depth := range depths(rates) {
		iops, latency := atBlock(rates, depth, block)
		if iops > best {
			best = iops
		}
		if depth == 1 || s.latency == (Latency{}) {
			s.latency = latency
		}
	}
	s.iops = best
	s.bandwidth = best * block
	for _, r := range append(append([]ReadRate(nil), rates...), st.Sequential...) {
		if !r.Cached {
			s.bandwidth = math.Max(s.bandwidth, r.Bandwidth)
		}
	}
	if st.LimitIOPS > 0 && st.LimitIOPS < s.iops {
		s.iops, s.limited = st.LimitIOPS, "the limit of the cgroup"
	}
	if st.LimitBandwidth > 0 && st.LimitBandwidth < s.bandwidth {
		s.bandwidth, s.limited = st.LimitBandwidth, "the limit of the cgroup"
	}
	return s
}

func hasUncached(rates []ReadRate) bool {
	for _, r := range rates {
		if !r.Cached && r.IOPS > 0 && r.Block > 0 {
			return true
		}
	}
	return false
}

// depths returns the measured numbers of reads in flight, in the order of the measurements.
func depths(rates []ReadRate) []int {
	var out []int
	seen := map[int]bool{}
	for _, r := range rates {
		if !r.Cached && !seen[r.Depth] {
			seen[r.Depth] = true
			out = append(out, r.Depth)
		}
	}
	return out
}

// atBlock interpolates the reads per second and the latency at a block size. It assumes that the seconds per read are
// linear in the bytes: a fixed cost plus bytes over bandwidth. Above the measured sizes the bandwidth is constant,
// below them the reads per second are.
func atBlock(rates []ReadRate, depth int, block float64) (iops float64, latency Latency) {
	var below, above *ReadRate
	for i := range rates {
		r := &rates[i]
		if r.Cached || r.Depth != depth || r.IOPS <= 0 || r.Block <= 0 {
			continue
		}
		b := float64(r.Block)
		if b <= block && (below == nil || r.Block > below.Block) {
			below = r
		}
		if b >= block && (above == nil || r.Block < above.Block) {
			above = r
		}
	}
	switch {
	case below == nil && above == nil:
		return 0, Latency{}
	case below == nil:
		return above.IOPS, above.Latency
	case above == nil:
		grow := block / float64(below.Block)
		return below.IOPS / grow, below.Latency.times(grow)
	case below.Block == above.Block:
		return below.IOPS, below.Latency
	}
	x := (block - float64(below.Block)) / float64(above.Block-below.Block)
	return 1 / ((1-x)/below.IOPS + x/above.IOPS), below.Latency.mix(above.Latency, x)
}

func (l Latency) times(f float64) Latency {
	return Latency{Mean: l.Mean * f, P50: l.P50 * f, P90: l.P90 * f, P99: l.P99 * f, P999: l.P999 * f, Max: l.Max * f, Samples: l.Samples}
}

func (l Latency) mix(o Latency, x float64) Latency {
	m := func(a, b float64) float64 { return a + x*(b-a) }
	return Latency{
		Mean: m(l.Mean, o.Mean), P50: m(l.P50, o.P50), P90: m(l.P90, o.P90), P99: m(l.P99, o.P99), P999: m(l.P999, o.P999),
		Max: math.Max(l.Max, o.Max), Samples: min(l.Samples, o.Samples),
	}
}
