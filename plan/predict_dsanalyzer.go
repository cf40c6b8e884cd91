package plan

import "math"

// The disk of DS-Analyzer's published tool, in bytes per second: the constant
// disk_bw = 525 (MB/s) of tool/what_if_tool.py in msr-fiddle/DS-Analyzer.
const dsAnalyzerDisk = 525e6

// DSAnalyzer is the what-if formula of DS-Analyzer (Mohan, Phanishayee, Raniwala
// and Chidambaram, "Analyzing and Mitigating Data Stalls in DNN Training", PVLDB
// 14(5), 2021), in examples per second, for comparison with Predict.
//
// As published: min(F, P, G). G is the demand of the accelerator, P the rate of the cores with everything in memory,
// and F = D/T_f the fetch rate. T_f is x*D/C + (1-x)*D/S: the share x of the dataset D at the speed C of memory, then
// the rest at the speed S of the disk. The tool that came with the paper has 525 MB/s for S.
//
// Corrected: S is the measured rate for records of this size and number in flight, with the active caps. Hits are
// read while misses are in flight: F = min(C/(x*es), S/((1-x)*es)). It still ignores that misses and the trainer take
// CPU time, and that busy cores slow each other down.
func DSAnalyzer(p Pipeline, m Machine) (published, corrected float64) {
	var ignored Prediction
	bytes := max(p.RecordBytes, 1)
	share := min(max(p.CachedShare, 0), 1)
	memory := m.MemoryCopy
	if memory <= 0 {
		memory = m.MemoryBandwidth
	}
	if memory <= 0 {
		memory = math.Inf(1)
	}
	ingest := math.Inf(1)
	if p.Step > 0 {
		ingest = float64(max(p.Batch, 1)) * float64(max(p.Accelerators, 1)) / p.Step
	}
	warm := p
	warm.CachedShare = 1
	prepare := math.Inf(1)
	if cpu := newCPUModel(&warm, &m, &ignored); cpu.known {
		prepare = min(cpu.workers, cpu.cores) / cpu.seconds
	}
	fetch := 1 / (share*bytes/memory + (1-share)*bytes/dsAnalyzerDisk)
	published = min(fetch, prepare, ingest)

	fetch = memory / (share*bytes + 1e-9)
	if disk := storageRate(&p, &m, &ignored); disk > 0 && share < 1 {
		fetch = min(fetch, disk/(1-share))
	}
	corrected = min(fetch, prepare, ingest)
	return published, corrected
}
