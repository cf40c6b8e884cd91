package budget

const (
	// HugePage is the size of a huge page. The ring uses huge pages, and large slots are a multiple of one.
	HugePage = 2 << 20
	// page divides the size of a page everywhere that a ring is mapped: 4 to 64 KiB.
	page = 64 << 10

	// minSlots: one batch that the trainer works on, one that it is about to
	// take (the loop variable still holds the old one) and one being made.
	minSlots = 3
	// DefaultSlots is the number of slots for batches of ordinary size.
	DefaultSlots = 6
	// smallSlots is the minimum for batches of a few huge pages. Tiny batches are built and consumed faster than
	// processes wake each other, so they get as many slots as fit into smallRing.
	smallSlots = 8
	maxSlots   = 32
	smallBatch = 8 << 20
	smallRing  = 24 << 20

	// GroupRows is the maximum number of records of a group. It is large enough that a call into C, a channel send
	// and a lock cost nothing per record. It is small enough that a batch keeps all cores busy. Calls into C of more
	// than 10 ms would wake the runtime's monitor.
	GroupRows = 8
	// Small raw records go in larger groups, of up to groupBytes.
	maxSmallGroupRows = 256
	groupBytes        = 1 << 20

	// Readers is the initial number of reads in flight of an engine. It uses more if that is faster (package fetch).
	Readers = 8
	// MaxReaders is the most reads in flight of an engine.
	MaxReaders = 512

	// minRead is the minimum memory for read data. minParse is the minimum for the values that sources make from it,
	// for each worker and for a single record in addition to the largest value. With more memory it is the size of a
	// group, up to maxParse.
	minRead      = 4 << 20
	minParse     = 512 << 10
	maxParse     = 32 << 20
	maxTogether  = 96 << 20 // of values of records that are better made together
	maxLookahead = 256 << 20

	// Scratch of each worker, if pixels are usually kept there between steps, and if they rarely are. With more
	// memory it is the need of large images, up to maxWorked.
	keptScratch = 6 << 20
	fewScratch  = 256 << 10
	maxWorked   = 256 << 20
	// heldFrames is the approximate number of reference frames that a video decoder holds.
	heldFrames = 8
	// Memory for decoding an image while others are also decoded.
	minDecode = 1 << 20
	maxDecode = 64 << 20
	// For images that need more.
	minLarge = 4 << 20
	maxLarge = 256 << 20

	// Beside is the memory of an engine outside of its budget: the program, Go's runtime and its garbage, stacks, and
	// the state of decoders between images. Twice the size of the source's index is added to it.
	Beside = 64 << 20

	// leastAutomatic is the default memory of the engines of a node with less than four times as much free memory.
	leastAutomatic = 256 << 20

	// MaxPrefetch is the maximum explicit value.
	MaxPrefetch = 1024
	// MaxThreads is the maximum explicit value.
	MaxThreads = 1024
)
