// Package pipeline connects the stages: sampler -> fetch -> decode -> transform -> collate. It alone owns their
// goroutines and their shutdown. The work on a record from decode to collate belongs to its kind (package kind).
//
// Read Open (planning), stream.go (the order of batches, restarts) and worker.go (the work on a group of records), in
// this order.
package pipeline

import (
	"fmt"
	"time"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/localcache"
	"github.com/stokerdata/stoker/internal/source/wrap/cachedsource"
	"github.com/stokerdata/stoker/internal/source/wrap/sequence"
	"github.com/stokerdata/stoker/internal/store/keep"
	"github.com/stokerdata/stoker/internal/store/traffic"
	"github.com/stokerdata/stoker/source/driver"
)

// Info describes an open pipeline. It does not change.
type Info struct {
	// URL and Format identify the source: Format is "pack", "folder", ...
	URL    string `json:"url"`
	Format string `json:"format"`
	// Len is the number of records of the source, or of an epoch of a mixture.
	Len int64 `json:"len"`
	// Steps is the number of batches of a whole epoch, the same on each rank.
	Steps int64 `json:"steps"`
	// BatchSize, Rank and WorldSize are the values in effect.
	BatchSize int `json:"batch_size"`
	Rank      int `json:"rank"`
	WorldSize int `json:"world_size"`
	// Arrays are the arrays of each batch, in order: the outputs, then other fields as stored with numbers last, then
	// additions of batch operations, then "index". Rows of a short last batch are the first rows.
	Arrays []item.Array `json:"arrays"`
	// SlotBytes is the used part of a slot.
	SlotBytes int64 `json:"slot_bytes"`
	// Slots is the number of slots of the ring.
	Slots int `json:"slots"`
	// Classes are the class names by array that has some.
	Classes map[string][]string `json:"classes,omitempty"`
	// Rates are the samples per second by array of decoded sound.
	Rates map[string]int `json:"rates,omitempty"`
	// Skipped counts, by reason, the inputs that are not records.
	Skipped []driver.SkippedGroup `json:"skipped,omitempty"`
	// BadFiles is the number of unreadable files, whose records are bad. Bad has the paths and errors of the first
	// ones.
	BadFiles int      `json:"bad_files,omitempty"`
	Bad      []string `json:"bad,omitempty"`
	// Fingerprint identifies the content of the source.
	Fingerprint string `json:"fingerprint"`
	// Identity says what a position belongs to, for saved states.
	Identity Identity `json:"identity,omitzero"`
	// Threads is the number of decode workers.
	Threads int `json:"threads"`
	// Buckets describes how batches are sorted into buckets, nil if they are not.
	Buckets *BucketInfo `json:"buckets,omitempty"`
	// Mix describes the mixture, nil for none.
	Mix *MixInfo `json:"mix,omitempty"`
	// Order is the order of the records and the reason for it.
	Order OrderInfo `json:"order,omitzero"`
	// Memory is the division of the memory budget.
	Memory budget.Shares `json:"memory"`
	// CacheNote is the reason why a requested cache is missing.
	CacheNote string `json:"cache_note,omitempty"`
	// Metrics is the address on which the engine exports metrics, and MetricsNote the reason why it does not although
	// it was requested. The engine sets them, not the pipeline.
	Metrics     string `json:"metrics,omitempty"`
	MetricsNote string `json:"metrics_note,omitempty"`
	// Shared reports that other clients get the same memory of a batch, so the client maps it privately
	// unless Pinned is set.
	Shared bool `json:"shared,omitempty"`
	// Pinned reports that this client registers shared memory as pinned memory and does not write to it.
	Pinned bool `json:"pinned,omitempty"`
	// Sequences is the plan for sequences of documents, nil if the records are those of the source.
	Sequences *sequence.Plan `json:"sequences,omitempty"`
}

// EventKind is the kind of an Event.
type EventKind int

// The kinds of events.
const (
	// EventBatch is a finished batch.
	EventBatch EventKind = iota + 1
	// EventEpochEnd follows the last batch of an epoch. The batches of the
	// next epoch follow it without a call.
	EventEpochEnd
	// EventFailed is a batch of StartAsked that could not be built.
	EventFailed
)

// Event is the result of Next.
type Event struct {
	Kind EventKind
	// Gen is the generation, as returned by Start, that the event belongs to.
	Gen uint64

	// Slot holds the batch, until Release(Slot). EventBatch only.
	Slot int
	// Rows is the number of records in the batch: BatchSize except for the last batch of an epoch. That batch may have
	// fewer, and 0 (or never: Config.Uneven) if there are fewer records than ranks.
	Rows int
	// Repeated is the number of records at the end that have already come in the epoch (sampler.Pad).
	Repeated int
	// Epoch is the epoch that the batch belongs to or that ended.
	Epoch int64
	// Step is the number of the batch in its epoch.
	Step int64
	// Pos is the position after the batch: Start(Pos) begins with the next batch. After the last batch of an epoch it
	// is the start of the next epoch.
	Pos item.Position

	// Skipped counts the records of the epoch that were replaced because they
	// could not be read or decoded, since the stream started. With EventBatch, those of the batch.
	Skipped int64
	// Bad lists the first of them.
	Bad []RecordError

	// Number is the number of the request (Asked.Add), Err the reason of EventFailed.
	Number int64
	Err    error
}

// RecordError is the error of a record that could not become part of a batch.
type RecordError struct {
	// ID is the number of the record, Name its place.
	ID   int64
	Name string
	// Reason is one line.
	Reason string
	// Cause is the wrapped error.
	Cause error
}

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Cause }

// Error returns one line with the name, the number and the reason.
func (e *RecordError) Error() string {
	return fmt.Sprintf("record %d (%s): %s", e.ID, e.Name, e.Reason)
}

// Stats are counters since Open, for `stats()` and for finding bottlenecks.
type Stats struct {
	// Stages are in the order of the flow.
	Stages []StageStats `json:"stages"`
	// Batches and Records were handed out. Bytes were read for them.
	Batches int64 `json:"batches"`
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// Mixed has the records that were handed out, by dataset of a mixture.
	Mixed []int64 `json:"mixed,omitempty"`
	// Skipped counts replaced records, Retries repeated reads.
	Skipped int64 `json:"skipped"`
	Retries int64 `json:"retries"`
	// Repaired counts the repairs of records with damaged bytes.
	Repaired Repaired `json:"repaired"`
	// SlotsFree, SlotsHeld (by the trainer) and SlotsReady are the state of the
	// ring; the rest are being filled.
	SlotsFree  int `json:"slots_free"`
	SlotsHeld  int `json:"slots_held"`
	SlotsReady int `json:"slots_ready"`
	// Limit names the stage that limited the last seconds, as in package status. Only engines that are watched set it.
	Limit string `json:"limit,omitempty"`
	// Waiting names the longest wait of a stage, such as "fetch: reading train/0001.arrow row 12 for 12.3 s"; it is
	// empty if no wait is longer than a second. It includes the numbers of failed requests to servers.
	Waiting string `json:"waiting,omitempty"`
	// WaitingSeconds is for how long.
	WaitingSeconds float64 `json:"waiting_seconds,omitempty"`
	// ConsumerWait is the time that Next spent waiting for a batch.
	ConsumerWait time.Duration `json:"consumer_wait_ns"`
	// RingFull is the time for which the trainer held every slot, so the trainer is the slower side. RingEmpty is the
	// time for which it held at most the batch in use, so the pipeline is the slower side.
	RingFull  time.Duration `json:"ring_full_ns"`
	RingEmpty time.Duration `json:"ring_empty_ns"`
	// MemoryUsed and MemoryPeak are off-heap bytes of the budget.
	MemoryUsed int64 `json:"memory_used"`
	MemoryPeak int64 `json:"memory_peak"`
	// Cache has the statistics of the record cache, nil without one.
	Cache *cachedsource.Stats `json:"cache,omitempty"`
	// Hedges counts the reads that were made a second time because they were late.
	Hedges int64 `json:"hedges"`
	// Network has the statistics of the process's requests, by server.
	Network []traffic.Stats `json:"network,omitempty"`
	// CacheMemory has the statistics of the memory cache, nil without one.
	CacheMemory *keep.Stats `json:"cache_memory,omitempty"`
	// CacheDisk has the statistics of the disk cache for remote data, nil without one.
	CacheDisk *localcache.Stats `json:"cache_disk,omitempty"`
	// Stage is the progress of the copy of the data on this machine, nil without one.
	Stage *localcache.StageStats `json:"stage,omitempty"`
	// Feeders has the statistics of servers that build batches, nil without any.
	Feeders *RemoteStats `json:"feeders,omitempty"`
	// NumGC counts garbage collections of the process. RSS is its resident memory in bytes, with the shared ring.
	// Private is its unshared memory.
	NumGC   int64 `json:"num_gc"`
	RSS     int64 `json:"rss"`
	Private int64 `json:"private"`
	// Uptime is the time since Open.
	Uptime time.Duration `json:"uptime_ns"`
}

// StageStats are the counters of one stage.
type StageStats struct {
	Name string `json:"name"`
	// Busy is the time that the stage's goroutines spent working, summed.
	Busy time.Duration `json:"busy_ns"`
	// Records is the number of records that went through the stage.
	Records int64 `json:"records"`
	// Queue is the number of groups that wait for the stage, Workers its
	// goroutines.
	Queue   int `json:"queue"`
	Workers int `json:"workers"`
}
